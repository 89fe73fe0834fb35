#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packages a build for machines without a compiler: tools/package.sh BUILD_DIR OUT_DIR
#   OUT_DIR/lockstep_VERSION_ARCH.deb             for Debian and its relatives; names the libraries that it needs
#   OUT_DIR/lockstep-VERSION-linux-ARCH.tar.gz    for any Linux with this machine's GNU libc or a later one, and for machines without a
#                                                 network: has all other libraries with it, in lib/, and their licences in share/doc
#   OUT_DIR/SHA256SUMS
# Needs dpkg-dev and patchelf. Libraries are shared ones, so that those under the LGPL can be replaced. The same build gives the same bytes.
set -eu -o pipefail
[ $# -eq 2 ] || { sed -n '3,3s/^# //p' "$0" >&2; exit 2; }
for program in dpkg-deb dpkg-shlibdeps patchelf strip; do
    command -v $program >/dev/null || { echo "$program is missing; as root: apt-get install dpkg-dev patchelf binutils" >&2; exit 1; }
done
source=$(cd "$(dirname "$0")/.." && pwd) build=$(cd "$1" && pwd)
mkdir -p "$2"
out=$(cd "$2" && pwd) work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
version=$(sed -n 's/^CMAKE_PROJECT_VERSION:STATIC=//p' "$build/CMakeCache.txt") arch=$(dpkg --print-architecture)
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$source" log -1 --format=%ct 2>/dev/null || echo 1767225600)}
umask 022
# What the program loads only when it is needed (env/library.h): no link names it.
loaded=(libcurl.so.4 libsqlite3.so.0 libmicrohttpd.so.12)

# stage FOLDER PREFIX: the installed program without debugging information, and its licence.
stage() {
    DESTDIR=$1 cmake --install "$build" --prefix "$2" >/dev/null || { echo "build everything first: cmake --build $build" >&2; exit 1; }
    sed -i "s|^ExecStart=[^ ]*|ExecStart=$2/bin/lockstep|" "$1$2/lib/systemd/system/lockstep.service"
    strip "$1$2/bin/lockstep" "$1$2/libexec/lockstep/lockstep-as-user"
    find "$1" -name '*.a' -exec strip --strip-debug {} +
    find "$1" -path '*/man/*' -name '*.1' -exec gzip -9n {} +
    mkdir -p "$1$2/share/doc/lockstep"
    cp "$source/LICENSE" "$1$2/share/doc/lockstep/copyright"
    cp "$source/README.md" "$source/CHANGELOG.md" "$1$2/share/doc/lockstep/"
}
path_of() { ldconfig -p | sed -n "s|^\t$1 (libc6,x86-64.*) => ||p; s|^\t$1 (libc6) => ||p" | head -1; }

# ---- the package for Debian ----

deb=$work/deb
stage "$deb" /usr
mkdir -p "$deb/DEBIAN" "$work/shlibs/debian"
echo "Source: lockstep" >"$work/shlibs/debian/control"
linked=$(cd "$work/shlibs" && dpkg-shlibdeps -O -e"$deb/usr/bin/lockstep" -e"$deb/usr/libexec/lockstep/lockstep-as-user" 2>/dev/null | sed 's/^shlibs:Depends=//')
for library in "${loaded[@]}"; do
    # dpkg knows a library below /usr/lib or /lib, which are one folder.
    path=$(path_of "$library")
    package=$({ dpkg-query -S "$path" || dpkg-query -S "/usr$path" || dpkg-query -S "${path#/usr}"; } 2>/dev/null | head -1 | cut -d: -f1)
    [ -n "$package" ] || { echo "no package has $library" >&2; exit 1; }
    linked="$linked, $package"
done
cat >"$deb/DEBIAN/control" <<CONTROL
Package: lockstep
Version: $version
Architecture: $arch
Maintainer: The Lockstep authors <lockstep@localhost>
Section: science
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$deb" | cut -f1)
Depends: $linked
Recommends: ca-certificates, bash-completion
Suggests: minisign, openssl
Description: training platform for language models
 Trains, queues, plans, stores and watches language models: one program, on a
 laptop or a cluster. A step is a pure function of the state and its number,
 so any number of ranks, any crash and any resume give the same bits.
CONTROL
dpkg-deb --root-owner-group --build "$deb" "$out/lockstep_${version}_$arch.deb" >/dev/null

# ---- the archive with its libraries ----

name=lockstep-$version-linux-$arch
root=$work/tar/$name
stage "$work/staged" "/opt/$name"
mkdir -p "$work/tar"
mv "$work/staged/opt/$name" "$root"
# The parts of GNU libc must be those of the machine.
of_libc='/(ld-linux|libc|libm|libdl|librt|libpthread|libresolv|libutil|libnsl|libanl|libnss_[a-z]+)[-.]'
mkdir -p "$root/lib"
{
    echo "$root/bin/lockstep"
    for library in "${loaded[@]}"; do path_of "$library"; done
} | xargs ldd | sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' >"$work/needed"
for library in "${loaded[@]}"; do path_of "$library"; done >>"$work/needed"
sort -u "$work/needed" | grep -vE "$of_libc" | while read -r path; do
    cp -L "$path" "$root/lib/"
    package=$({ dpkg-query -S "$path" || dpkg-query -S "/usr$path" || dpkg-query -S "${path#/usr}"; } 2>/dev/null | head -1 | cut -d: -f1)
    [ -n "$package" ] && cp -L "/usr/share/doc/$package/copyright" "$root/share/doc/lockstep/copyright.$package"
done
# An old-style path counts for the libraries of libraries too.
patchelf --force-rpath --set-rpath '$ORIGIN/../lib' "$root/bin/lockstep"
for file in "$root"/lib/*.so*; do patchelf --force-rpath --set-rpath '$ORIGIN' "$file"; done
tar -C "$work/tar" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"

cd "$out" && sha256sum "lockstep_${version}_$arch.deb" "$name.tar.gz" >SHA256SUMS && cat SHA256SUMS
