#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# --json prints exactly one JSON document on stdout, with the promised fields, and nothing else there.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# document TYPE-OF-KEY...: stdout of the last command is one JSON object with these keys. A key may say its type: n number, i whole
# number, s text, h 64 hex digits, l list, o object, b boolean; n? allows null.
document() {
    check "$* in stdout" python3 - "$out" "$@" <<'PY'
import json, re, sys
text = open(sys.argv[1]).read()
try:
    root = json.loads(text)
except ValueError as problem:
    sys.exit(f"stdout is not one JSON document: {problem}\n{text[:500]}")
kinds = {"n": (int, float), "i": int, "s": str, "h": str, "l": list, "o": dict, "b": bool}
for word in sys.argv[2:]:
    path, _, kind = word.partition(":")
    value = root
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value.get(key, "missing")
    if value == "missing":
        sys.exit(f"no key {path}")
    if value is None and kind.endswith("?"):
        continue
    kind = kind.rstrip("?")
    if not isinstance(value, kinds[kind]) or (kind in "ni" and isinstance(value, bool)):
        sys.exit(f"{path} is {value!r}, not of kind {kind}")
    if kind == "h" and not re.fullmatch("[0-9a-f]{64}", value):
        sys.exit(f"{path} is {value!r}, not 64 hex digits")
PY
}
summary=(run:s status:s code:s step:i loss:n val_loss:n? tokens:i tokens_per_s:n mfu:n? hfu:n? peak_rss_bytes:i wall_s:n goodput:n
    state_hash:h curve_hash:h recoveries:l predicted:o cost_usd:n? energy_j:n?)

expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run --json --set sample.every_steps=5
document "${summary[@]}"
same "step, tokens and status" "$(field "$out" step tokens status run)" "12 4608 finished tiny"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run --json --set sample.every_steps=5
document "${summary[@]}"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir part --json --steps 3 --set data.validation_fraction=0
document "${summary[@]}"
same "no validation data" "$(field "$out" val_loss status)" "None stopped"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir words
prints state_hash run

expect 0 "$LOCKSTEP" train tiny.yaml --dry-run --json
document run:s parameters:i memory_bytes.total:i memory_bytes.tree:i memory_bytes.activations:i flops_per_step.step:n steps:i
check "a dry run leaves nothing" test ! -e runs
expect 0 "$LOCKSTEP" train tiny.yaml --dry-run
prints parameters memory FLOPs leaves
expect 2 "$LOCKSTEP" train missing.yaml --json
check "nothing on stdout after an error" test ! -s "$out"
says missing.yaml

expect 0 "$LOCKSTEP" eval run --data text.txt --json
document loss:n perplexity:n tokens:i
one=$(field "$out" loss)
echo "84 104 101 32 107 105 110 103" >ids
expect 0 "$LOCKSTEP" eval run --tokens ids --json --threads 1
document loss:n perplexity:n tokens:i
same "predicted tokens" "$(field "$out" tokens)" 7
expect 0 "$LOCKSTEP" eval run/checkpoints/12 --data text.txt --json --threads 3
same "loss with another number of threads" "$(field "$out" loss)" "$one"

expect 0 "$LOCKSTEP" checkpoint ls run --json
document checkpoints:l checkpoints.0.step:i checkpoints.0.path:s checkpoints.0.val_loss:n?
expect 0 "$LOCKSTEP" checkpoint ls part/checkpoints --json
document checkpoints:l
expect 0 "$LOCKSTEP" checkpoint show run --json
document step:i parameters:i identity:h determinism:s files:l seed:i leaves:i
same "newest step" "$(field "$out" step)" 12
expect 0 "$LOCKSTEP" state-hash run
same "state-hash and summary" "$(cat "$out")" "$(field run/summary.json state_hash)"
expect 0 "$LOCKSTEP" version --json
document version:s device:s determinism:s
expect 0 "$LOCKSTEP" data prepare text.txt --json
document tokens:i documents:i hash:h

expect 0 "$LOCKSTEP" bench train --config tiny.yaml --steps 6 --json
document name:s machine:s results:l results.0.tokens_per_s:n results.0.peak_fraction:n results.0.peak_rss_bytes:i results.0.first_step_s:n
check "the bench leaves nothing" test ! -e runs
expect 0 "$LOCKSTEP" bench checkpoint --bytes 4MiB --rounds 1 --dir "$scratch" --json
document name:s results.0.write_bytes_ps:n results.0.raw_write_bytes_ps:n results.0.load_bytes_ps:n results.0.raw_read_bytes_ps:n
expect 0 "$LOCKSTEP" bench tokenize --tokenizer bytes --file text.txt --rounds 1 --json
document results.0.bytes_ps:n
expect 2 "$LOCKSTEP" bench nothing
says nothing
expect 2 "$LOCKSTEP" bench train
says --config

expect 0 "$LOCKSTEP" report run
check "a page" grep -q "<svg" run/report.html
finish
