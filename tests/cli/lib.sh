# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of this folder: a scratch folder that goes away, a text, a tiny run file, and checks that say what they saw.
# A check that fails is counted and told, so that one run shows all of them; finish is the verdict.
set -u
: "${LOCKSTEP:?set LOCKSTEP to the program under test}"
: "${LS_SOURCE_DIR:?set LS_SOURCE_DIR to the source tree}"

scratch=$(mktemp -d)
# Ends what a test left running, by number, and removes the scratch folder.
clean_up() {
    local left
    left=$(jobs -p)
    [ -z "$left" ] || kill -9 $left 2>/dev/null
    chmod -R u+rwx "$scratch" 2>/dev/null
    rm -rf "$scratch"
}
trap clean_up EXIT
cd "$scratch" || exit 1
export LOCKSTEP_HOME=$scratch/home
out=$scratch/stdout err=$scratch/stderr
failures=0 checks=0

fail() {
    failures=$((failures + 1))
    printf 'FAIL: %s\n' "$*"
}
finish() {
    printf '%d checks, %d failed\n' "$checks" "$failures"
    [ "$checks" -gt 0 ] && [ "$failures" -eq 0 ]
    exit
}

# expect CODE COMMAND...: runs it with stdout in $out and stderr in $err and compares the exit code.
expect() {
    local wanted=$1 got
    shift
    checks=$((checks + 1))
    "$@" >"$out" 2>"$err" </dev/null
    got=$?
    [ "$got" -eq "$wanted" ] && return 0
    fail "exit code $got instead of $wanted: $*"
    head -c 2000 "$err"
    return 1
}
# says TEXT... / prints TEXT...: the last command's stderr / stdout holds each text.
says() { holds "$err" "$@"; }
prints() { holds "$out" "$@"; }
holds() {
    local file=$1 text
    shift
    for text in "$@"; do
        checks=$((checks + 1))
        if ! grep -qF -- "$text" "$file"; then
            fail "no '$text' in ${file##*/}:"
            head -c 1000 "$file"
        fi
    done
}
# same WHAT A B: two texts are equal and not empty.
same() {
    checks=$((checks + 1))
    [ -n "$2" ] && [ "$2" = "$3" ] || fail "$1: '$2' and '$3'"
}
# differs WHAT A B
differs() {
    checks=$((checks + 1))
    [ -n "$2" ] && [ -n "$3" ] && [ "$2" != "$3" ] || fail "$1: both are '$2'"
}
# check WHAT COMMAND...: the command succeeds.
check() {
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || fail "$what"
}

# field FILE KEY...: the values of keys of the one JSON document in FILE, as Python prints them; nothing if it is not one.
field() {
    python3 - "$@" <<'PY'
import json, sys
try:
    document = json.load(open(sys.argv[1]))
    print(*(document[key] for key in sys.argv[2:]))
except (OSError, ValueError, KeyError):
    pass
PY
}
# hashes FILE: state_hash and curve_hash of a `train --json`.
hashes() { field "$1" state_hash curve_hash; }

# write_text FILE LINES SEED: sentences of common words.
write_text() {
    awk -v lines="$2" -v seed="$3" 'BEGIN {
        srand(seed)
        n = split("the king said to his people that a day of light and water will come over every land", word, " ")
        for (i = 0; i < lines; i++) {
            line = ""
            for (j = 0; j < 10; j++)
                line = line word[int(rand() * n) + 1] " "
            print line "."
        }
    }' >"$1"
}

# write_run FILE: a run that takes a fraction of a second. Tests change it with --set.
write_run() {
    cat >"$1" <<YAML
name: tiny
model: {family: llama, layers: 2, heads: 4, kv_heads: 2, width: 32, ffn: 64, context: 32}
tokenizer: {kind: bytes}
data: {train: [$scratch/text.txt], validation_fraction: 0.1}
train:
  steps: 12
  global_batch: 12
  micro_batch: 1
  leaves: 3
  seed: 7
  optimizer: {lr: 1.0e-2}
  schedule: {warmup_steps: 2}
checkpoint: {every_steps: 4}
eval: {every_steps: 4, batches: 2}
YAML
}
# write_chaos_run FILE: one whose steps take milliseconds and are cut into many leaves, for runs that are disturbed.
write_chaos_run() {
    cat >"$1" <<YAML
name: chaos
model: {family: llama, layers: 2, heads: 4, kv_heads: 2, width: 64, ffn: 128, context: 64}
tokenizer: {kind: bytes}
data: {train: [$scratch/text.txt], validation_fraction: 0}
train:
  steps: 1000000
  global_batch: 24
  micro_batch: 2
  leaves: 12
  seed: 7
  optimizer: {lr: 1.0e-2}
  schedule: {warmup_steps: 2, steps: 1000000}
checkpoint: {every_steps: 50}
eval: {every_steps: 0}
YAML
}
write_text "$scratch/text.txt" 400 5
write_run "$scratch/tiny.yaml"

# sanitized: the program was built with a sanitizer, which needs address space of its own.
sanitized() { grep -qa __asan_init "$LOCKSTEP" || grep -qa __tsan_init "$LOCKSTEP"; }

# has_terminals: there are pseudo-terminals here.
has_terminals() { python3 -c 'import os; os.openpty()' >/dev/null 2>&1; }
# on_terminal COMMAND...: runs it with a terminal as its output, for a minute at most, and prints what comes there.
on_terminal() {
    timeout 60 python3 -c '
import os, pty, sys
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
try:
    while True:
        sys.stdout.buffer.write(os.read(fd, 4096))
except OSError:  # it has ended
    os.waitpid(pid, 0)' "$@"
}
