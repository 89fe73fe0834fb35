#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/package.sh: the archive runs in an empty root with nothing but GNU libc, the package for Debian names what it needs, and both
# train to the bits of the program that was built.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
for program in dpkg-deb dpkg-shlibdeps patchelf strip; do
    command -v $program >/dev/null || { echo "skipped: no $program (Debian: dpkg-dev patchelf)" && exit 77; }
done
if sanitized || grep -q '^LS_SANITIZE:[A-Z]*=.' "$LS_BUILD_DIR/CMakeCache.txt"; then
    echo "skipped: programs with sanitizers are not packaged"
    exit 77
fi
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir plain --json
reference=$(field "$out" state_hash)
expect 0 "$LS_SOURCE_DIR/tools/package.sh" "$LS_BUILD_DIR" packages
(cd packages && check "the digests" sha256sum --quiet -c SHA256SUMS)

# ---- the package for Debian ----

package=$(echo packages/lockstep_*.deb)
expect 0 dpkg-deb -x "$package" deb
expect 0 dpkg-deb -f "$package" Depends
prints "libc6 (>= " "libcurl4" "libsqlite3-0" "libmicrohttpd12" "libssl3"
for name in $(sed 's/([^)]*)//g; s/,/ /g' "$out"); do
    check "Debian knows $name" test -n "$(dpkg-query -W -f '${Version}' "$name")"
done
expect 0 deb/usr/bin/lockstep train tiny.yaml --run-dir debian --json
same "from the package" "$(field "$out" state_hash)" "$reference"
check "its unit starts it" grep -q '^ExecStart=/usr/bin/lockstep up' deb/usr/lib/systemd/system/lockstep.service
check "a page of the manual" test -s deb/usr/share/man/man1/lockstep.1.gz
check "its licence" test -s deb/usr/share/doc/lockstep/copyright
if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    expect 0 apt-get -s -o Debug::NoLocking=1 install "$PWD/$package"
    prints "Inst lockstep"
fi

# ---- the archive ----

mkdir -p root/opt root/tmp root/data root/proc root/dev
expect 0 tar -xzf packages/lockstep-*.tar.gz -C root/opt
installed=$(cd root && echo opt/lockstep-*)
{
    ldd root/$installed/bin/lockstep
    for library in root/$installed/lib/*.so*; do ldd "$library"; done
} | sed -n 's/.* => \([^ ]*\) .*/\1/p; s/^\t\(\/[^ ]*\) .*/\1/p' | sort -u >libraries
check "nothing is missing" test -z "$(grep '^not' libraries)"
grep -v "^$scratch/root/" libraries >theirs
check "all but GNU libc is in the archive" test -z "$(grep -vE '/(ld-linux-x86-64|libc|libm|libresolv|libdl|librt|libpthread|libutil)\.so' theirs)"
for library in root/$installed/lib/*.so*; do
    check "a path for ${library##*/}" test "$(patchelf --print-rpath "$library")" = '$ORIGIN'
done
check "the licences of others" test "$(ls root/$installed/share/doc/lockstep/copyright.* | wc -l)" -ge 15
expect 0 root/$installed/bin/lockstep train tiny.yaml --run-dir archive --json
same "from the archive" "$(field "$out" state_hash)" "$reference"
if unshare -rm true 2>/dev/null; then
    while read -r library; do
        mkdir -p "root${library%/*}" && cp -L "$library" "root$library"
    done <theirs
    mkdir -p root/lib64 && cp -L /lib64/ld-linux-x86-64.so.2 root/lib64/
    cp text.txt root/data/
    sed "s|$scratch/||" tiny.yaml >root/data/tiny.yaml
    empty() { # empty VARIABLE=VALUE... WORD...: the program in there, with these variables alone
        env -i PATH="$PATH" HOME=/data "$@"
    }
    enter=(unshare -rmpf "--mount-proc=$PWD/root/proc" chroot root "/$installed/bin/lockstep")
    expect 0 empty "${enter[@]}" train /data/tiny.yaml --set "data.train=[/data/text.txt]" --run-dir /data/run --json
    same "in an empty root" "$(field "$out" state_hash)" "$reference"
    expect 1 empty AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b "${enter[@]}" blob ls s3://bucket --endpoint http://127.0.0.1:1 --patience 200ms
    says "127.0.0.1"
else
    echo "no user namespaces here: the empty root was not entered"
fi
finish
