#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# pull against a hub on loopback: what is fetched, and connections cut, servers busy, wrong bytes, refusals, redirects, tokens.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
mkdir -p hub/repos/org/tiny
golden=$LS_SOURCE_DIR/tests/golden/models/llama
cp "$golden"/*.json "$golden"/*.safetensors hub/repos/org/tiny/
rm -f hub/repos/org/tiny/golden.safetensors
for name in README.md pytorch_model.bin training_args.bin model.gguf; do echo "$name" >hub/repos/org/tiny/$name; done
echo '{{ messages }}' >hub/repos/org/tiny/chat_template.jinja
python3 "$LS_SOURCE_DIR/tests/lib/hub_server.py" hub 2>hub/log &
server=$!
for _ in $(seq 200); do
    [ -e hub/port ] && break
    sleep 0.05
done
check "the hub answers" test -e hub/port
unset HF_TOKEN HF_TOKEN_PATH HF_HOME http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export HF_ENDPOINT=http://127.0.0.1:$(cat hub/port) HOME=$scratch
faults() { printf '%s\n' "$@" >hub/faults; }
weights=model.safetensors
[ -e hub/repos/org/tiny/$weights ] || { echo "the golden model has no $weights"; exit 1; }
size=$(stat -c %s hub/repos/org/tiny/$weights)
pulled() {
    check "$1 is whole" cmp "$1/$weights" hub/repos/org/tiny/$weights
    check "$1 has its configuration" cmp "$1/config.json" hub/repos/org/tiny/config.json
    check "nothing else is left of $1" test ! -e "$1.part" -a ! -e "$1/pull.json" -a -z "$(ls "$1" | grep part)"
}

# ---- the plain way ----

expect 0 "$LOCKSTEP" pull org/tiny
prints "tiny: org/tiny at 0123456789ab"
pulled tiny
for name in README.md pytorch_model.bin training_args.bin model.gguf; do
    check "$name is not fetched" test ! -e tiny/$name -a -z "$(grep "$name" hub/asked)"
done
check "the template is" test -e tiny/chat_template.jinja
check "files are those of the commit" grep -q "/org/tiny/resolve/0123456789abcdef0123456789abcdef01234567/config.json" hub/asked
expect 0 "$LOCKSTEP" import tiny -o imported
expect 2 "$LOCKSTEP" pull org/tiny
says "tiny is not empty"
expect 0 "$LOCKSTEP" pull org/tiny -o json --json --revision v1
same "as JSON" "$(field "$out" repository) $(field "$out" reused_bytes)" "org/tiny 0"
check "the revision" grep -q "/api/models/org/tiny/revision/v1" hub/asked

# ---- faults that pass ----

faults "$weights cut 1000 2" "list busy" "config.json code 503"
: >hub/asked
expect 0 "$LOCKSTEP" pull org/tiny -o cut
pulled cut
same "it goes on where it was cut" "$(grep "^storage .*$weights" hub/asked | cut -d' ' -f3 | tr '\n' ' ')" "- bytes=1000- bytes=2000- "
faults "$weights cut 500" "$weights norange"
expect 0 "$LOCKSTEP" pull org/tiny -o whole
pulled whole
faults "$weights flip"
expect 0 "$LOCKSTEP" pull org/tiny -o flipped
pulled flipped
# One that ends early leaves its part to the next one.
faults "$weights cut 700" "$weights code 400 1"
expect 1 "$LOCKSTEP" pull org/tiny -o later
says "$weights" "HTTP 400"
check "no half of a model" test ! -e later -a -e later.part/$weights.part
faults
expect 0 "$LOCKSTEP" pull org/tiny -o later --json
check "what was there is used" test "$(field "$out" reused_bytes)" -gt 700
pulled later
mkdir other.part && echo '{"repository": "org/tiny", "commit": "77"}' >other.part/pull.json && echo old >other.part/config.json
expect 0 "$LOCKSTEP" pull org/tiny -o other
pulled other

# ---- folders of others ----

mkdir mine.part theirs.part && echo notes >mine.part/notes && echo notes >theirs.part/notes && echo '{"repository": 1}' >theirs.part/pull.json
for name in mine theirs; do
    expect 2 "$LOCKSTEP" pull org/tiny -o $name
    says "$name.part holds notes" "choose another folder"
    check "what no pull left is kept" test -e $name.part/notes -a ! -e $name
done
# A second pull to the folder, of another commit, takes nothing from the first.
faults "config.json hold"
"$LOCKSTEP" pull org/tiny -o both >first.out 2>&1 &
first=$!
for _ in $(seq 200); do
    [ -s both.part/pull.json ] && break
    sleep 0.05
done
cp both.part/pull.json state.before
echo 77 >hub/commit
expect 1 "$LOCKSTEP" pull org/tiny -o both
says "another process is fetching to both.part"
check "its state is kept" cmp both.part/pull.json state.before
rm hub/commit
touch hub/go
wait "$first" || fail "the first pull ends well: $(cat first.out)"
pulled both

# ---- faults that stay ----

faults "$weights flip 9"
expect 3 "$LOCKSTEP" pull org/tiny -o bad
says "$weights has SHA-256" "damaged"
faults "$weights size 9"
expect 3 "$LOCKSTEP" pull org/tiny -o bad
says "$weights is longer than the $size bytes"
faults "config.json circle 99"
expect 3 "$LOCKSTEP" pull org/tiny -o circle
says "in a circle"
faults "config.json downgrade 99"
expect 3 "$LOCKSTEP" pull org/tiny -o unsafe
says "not a safe address"
faults "list vast"
expect 4 "$LOCKSTEP" pull org/tiny -o bad
says "are to be fetched, and the disk of"
faults "list unlisted" "$weights endless 2"
expect 3 "$LOCKSTEP" pull org/tiny -o bad
says "$weights is longer than 256 MiB, and the hub lists no size for it"
faults "list unlisted"
expect 0 "$LOCKSTEP" pull org/tiny -o unlisted
pulled unlisted
check "nothing appeared" test ! -e bad -a ! -e circle -a ! -e unsafe
faults
expect 2 "$LOCKSTEP" pull org/none -o bad
says "org/none" "HTTP 404"
for name in "" / a/b/c ../x "a b" org/ "org/a?b"; do
    expect 2 "$LOCKSTEP" pull "$name" -o bad
done
expect 2 "$LOCKSTEP" pull org/tiny -o bad --revision '../x'
mkdir -p hub/repos/org/pickled hub/repos/org/plain
echo '{}' >hub/repos/org/pickled/config.json && echo x >hub/repos/org/pickled/pytorch_model.bin && echo x >hub/repos/org/plain/model.gguf
expect 2 "$LOCKSTEP" pull org/pickled -o bad
says "no safetensors" "never run here"
expect 2 "$LOCKSTEP" pull org/plain -o bad
says "no config.json"

# ---- tokens ----

echo secret >hub/token
expect 1 "$LOCKSTEP" pull org/tiny -o private
says "HTTP 401" "HF_TOKEN"
HF_TOKEN=wrong expect 1 "$LOCKSTEP" pull org/tiny -o private
says "does not accept the token"
mkdir -p hub/repos/org/gated
HF_TOKEN=secret expect 1 "$LOCKSTEP" pull org/gated -o private
says "restricted" 'x1b[31m' "accept the licence" "$HF_ENDPOINT/org/gated"
check "the hub does not paint the terminal" test -z "$(grep $'\x1b' "$err")"
: >hub/asked
mkdir -p .cache/huggingface && echo secret >.cache/huggingface/token
expect 0 "$LOCKSTEP" pull org/tiny -o private
pulled private
check "the token goes to the hub" grep -q "^main .* Bearer secret" hub/asked
http_proxy=http://127.0.0.1:1 expect 0 "$LOCKSTEP" pull org/tiny -o unproxied
check "and to no other host" test -z "$(grep '^storage .*Bearer' hub/asked)" -a -n "$(grep '^storage' hub/asked)"
HF_ENDPOINT=http://hub.example expect 2 "$LOCKSTEP" pull org/tiny -o bad
says "not encrypted"
kill "$server"
wait "$server" 2>/dev/null
check "the hub had no trouble" test ! -s hub/log
finish
