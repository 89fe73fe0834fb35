#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bundle: a run packed here, checked and opened elsewhere, is sampled from and resumed to the same bits; bundles that are damaged,
# cut off, wrongly signed, or made to write elsewhere or without end are refused, and nothing of them is placed.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
openssl genpkey -algorithm ed25519 -out key.pem && openssl pkey -in key.pem -pubout -out pub.pem
openssl genpkey -algorithm ed25519 -out other.pem && openssl pkey -in other.pem -pubout -out otherpub.pem
bundle() { "$LOCKSTEP" bundle "$@"; }
train() { "$LOCKSTEP" train "$@" --json; }

# ---- there and back ----

expect 0 train tiny.yaml --run-dir run --steps 8
expect 0 train tiny.yaml --run-dir whole
reference=$(field "$out" state_hash)
expect 0 bundle run -o all.tar.zst --data --sign key.pem
prints "checkpoint of step 8" "minisign -P"
expect 0 bundle verify all.tar.zst --key pub.pem
prints "every file is as it was packed" ": good"
expect 0 bundle open all.tar.zst -o away/there --key pub.pem
prints "lockstep sample away/there/run"
mv text.txt hidden.txt
(cd away/there && train resume.yaml --run-dir run --set train.steps=12 --ranks 2 >"$out" 2>"$err")
same "the run goes on elsewhere, with other ranks" "$(field "$out" state_hash)" "$reference"
expect 0 "$LOCKSTEP" sample away/there/run --prompt "the " --max-tokens 4
mv hidden.txt text.txt

# As a folder; without the data, which are named; the step chosen; a folder added.
mkdir model && echo x >model/weights
expect 0 bundle run -o folder --checkpoint 4 --add model --sign key.pem
expect 0 bundle verify folder --key pub.pem --json
same "checked" "$(field "$out" signature_checked)" True
expect 0 bundle open folder -o site
prints "was not checked" "put the data into site" "$(sha256sum text.txt | cut -d' ' -f1)" "data/train-0/0000-text.txt"
check "what was added" cmp model/weights site/added/model/weights
mkdir -p site/data/train-0 && cp text.txt site/data/train-0/0000-text.txt
(cd site && train resume.yaml --run-dir run --set train.steps=12 >"$out" 2>"$err")
same "with data put there by hand" "$(field "$out" state_hash)" "$reference"
expect 0 bundle run -o none.tar --checkpoint none
expect 0 bundle verify none.tar
prints "not signed"
if command -v minisign >/dev/null; then
    key=$("$LOCKSTEP" bundle run -o again --sign key.pem | sed -n 's/.*\(RW[A-Za-z0-9+\/=]\{54\}\).*/\1/p')
    expect 0 minisign -V -P "$key" -m again/BUNDLE.json
    minisign -G -W -p mini.pub -s mini.key >/dev/null 2>&1
    for form in "" -l; do
        rm -rf plain plain.tar
        expect 0 bundle run -o plain
        expect 0 minisign -S $form -s mini.key -m plain/BUNDLE.json
        expect 0 bundle verify plain --key mini.pub
        (cd plain && tar -cf ../plain.tar BUNDLE.json BUNDLE.json.minisig *.yaml run)
        expect 0 bundle verify plain.tar --key mini.pub
        expect 3 bundle verify plain --key pub.pem
    done
fi

# ---- wrong words, wrong keys ----

expect 2 bundle run
says "-o FILE.tar.zst"
expect 2 bundle run -o all.tar.zst
says "all.tar.zst exists"
expect 2 bundle model -o x.tar.zst
says "it has no run.yaml"
expect 2 bundle run -o x.tar.zst --checkpoint 5
says "there is no checkpoint run/checkpoints/5" "checkpoint ls run"
expect 2 bundle run -o x.tar.zst --checkpoint last
says "newest, best, none or a step"
expect 2 bundle run -o x.tar.zst --sign pub.pem
says "a public key"
openssl pkey -in key.pem -aes256 -passout pass:secret99 -out locked.pem
expect 2 bundle run -o x.tar.zst --sign locked.pem
says "an encrypted key"
expect 2 bundle verify all.tar.zst --key tiny.yaml
says "is not a public Ed25519 key"
expect 2 bundle open all.tar.zst -o away
says "away exists"
expect 2 bundle run -o x.tar.zst --add nothing
says "nothing, which is to be added, does not exist"
expect 3 bundle verify all.tar.zst --key otherpub.pem
says "a key other than the one given signed it"
expect 3 bundle verify none.tar --key pub.pem
says "none.tar is not signed"
expect 3 bundle verify tiny.yaml
expect 3 bundle verify model
says "it has no BUNDLE.json"
mv text.txt hidden.txt
expect 2 bundle run -o x.tar.zst --data
expect 0 bundle run -o x.tar.zst
prints "x.tar.zst"
mv hidden.txt text.txt

# ---- what arrives damaged ----

refuses() { # refuses FILE TEXT...: neither verified nor opened, for this reason; nothing is placed
    local file=$1
    shift
    expect 3 bundle verify "$file"
    says "$@"
    expect 3 bundle open "$file" -o placed
    check "nothing of $file is placed" test -z "$(ls -d placed* 2>/dev/null)"
}
head -c 100000 all.tar.zst >cut.tar.zst
refuses cut.tar.zst "is truncated"
cp all.tar.zst flipped.tar.zst
printf '\x55\xaa' | dd of=flipped.tar.zst bs=1 seek=200000 conv=notrunc 2>/dev/null
refuses flipped.tar.zst flipped.tar.zst
cp -r folder damaged && printf X | dd of=damaged/run/checkpoints/4/model.safetensors bs=1 seek=9000 conv=notrunc 2>/dev/null
refuses damaged "run/checkpoints/4/model.safetensors is damaged"
rm damaged/run/run.yaml
refuses damaged "run/run.yaml is missing"
rm -rf damaged && cp -r folder damaged && sed -i 's/"run": "tiny"/"run": "evil"/' damaged/BUNDLE.json
expect 3 bundle verify damaged --key pub.pem
says "is not valid"
sed -i 's/^trusted comment: .*/trusted comment: changed/' folder/BUNDLE.json.minisig
expect 3 bundle verify folder --key pub.pem
says "the comment of its signature" "was changed"

# ---- what was made to harm ----

cat >make.py <<'PY'
import hashlib, io, json, sys, tarfile
kind, path = sys.argv[1:]
body = b"x" * 100
files = [{"name": "a", "bytes": 100, "sha256": hashlib.sha256(body).hexdigest()}]
names = {"up": "../a", "root": "/tmp/a", "dot": "b/./a", "slash": "b//a", "back": "..\\a", "self": "BUNDLE.json", "line": "a\nb", "long": "a" * 101}
if kind in names:
    files[0]["name"] = names[kind]
if kind == "twice-listed":
    files *= 2
if kind == "huge":
    files[0]["bytes"] = 1 << 62
    files.append({"name": "b", "bytes": 1 << 62, "sha256": files[0]["sha256"]})
if kind == "full-disk":
    files[0]["bytes"] = 1 << 60
text = json.dumps({"format": "lockstep-bundle", "version": 2 if kind == "version" else 1, "about": {}, "files": files}).encode()
with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT if len(names.get(kind, "")) <= 100 else tarfile.GNU_FORMAT) as tar:
    def put(name, data=b"", **more):
        info = tarfile.TarInfo(name)
        info.size = len(data)
        for key, value in more.items():
            setattr(info, key, value)
        tar.addfile(info, io.BytesIO(data))
    put("BUNDLE.json", text)
    if kind == "link":
        put("a", type=tarfile.SYMTYPE, linkname="/etc/passwd")
    elif kind == "hard-link":
        put("a", type=tarfile.LNKTYPE, linkname="BUNDLE.json")
    elif kind == "device":
        put("a", type=tarfile.CHRTYPE)
    elif kind == "bomb":
        put("a", b"x" * 50000000)
    elif kind == "short":
        put("a", b"x")
    elif kind != "full-disk":
        put(files[0]["name"] if kind not in ("long", "line") else "a", body)
    if kind == "unlisted":
        put("b", body)
    if kind == "twice":
        put("a", body)
PY
harm() { # harm KIND TEXT...
    local kind=$1
    shift
    python3 make.py "$kind" "$kind.tar" || fail "make.py $kind"
    refuses "$kind.tar" "$@"
}
python3 make.py good good.tar && expect 0 bundle verify good.tar
for kind in up dot; do harm $kind "part . or .."; done
for kind in root slash; do harm $kind "it has an empty part"; done
for kind in back line; do harm $kind "a control character or a backslash"; done
harm self "the bundle itself uses it"
harm long "more than 100 bytes"
harm twice-listed "two files of the name 'a'"
harm twice "holds 'a' twice"
harm unlisted "holds 'b' without listing it"
harm link "not a regular file"
harm hard-link "not a regular file"
harm device "not a regular file"
harm short "it has 1 bytes, and 100 are listed"
harm huge "larger than any disk"
harm bomb "it has 50000000 bytes, and 100 are listed"
zstd -q bomb.tar -o bomb.tar.zst 2>/dev/null && refuses bomb.tar.zst "it has 50000000 bytes, and 100 are listed"
python3 make.py version version.tar
expect 2 bundle verify version.tar
says "is of version 2"
python3 make.py full-disk full-disk.tar
expect 4 bundle open full-disk.tar -o placed
says "are free at the place"
mkdir link-folder && ln -s /etc/passwd link-folder/BUNDLE.json
refuses link-folder "not a regular file"
finish
