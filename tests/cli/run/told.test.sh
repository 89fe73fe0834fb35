#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a run prints, once and in time: that it has more ranks than it may, when the first checkpoint is due, a save that failed before any
# succeeded, the stack of a hung rank.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --threads 1)

expect 2 "${train[@]}" --run-dir none --ranks 3 --set job.max_ranks=2
says "the run would have 3 ranks (--ranks, parallel.ranks), but job.max_ranks is 2; use 1 to 2 ranks"
[ ! -e none ] || fail "a run that was refused left a folder"
expect 0 "${train[@]}" --run-dir nine --ranks 9 --steps 1 --set train.global_batch=9 --set train.leaves=9
same "without job.max_ranks as many as are asked for" "$(grep -o 'max_ranks: [0-9]*' nine/run.yaml)" "max_ranks: 9"

# --steps is a limit: what it asks for beyond the run is said, not ignored.
expect 0 "${train[@]}" --run-dir short --steps 30
prints "--steps is 30, but the run ends after step 12 (train.steps). To make it longer, use --set train.steps=30"
expect 0 "${train[@]}" --run-dir short --steps 31
prints "--steps is 31" "tiny finished: step 12 of 12"
expect 0 "${train[@]}" --run-dir short --steps 5 --json
says "the run has finished 12 steps already, more than the 5 asked for"

seq -f 'abcabc %g' 300 >narrow.txt

# A mixture is told by source: at the start, after each evaluation, at the end, in the report.
write_text other.txt 200 9
mixture="data.train=[{path: text.txt, weight: 3}, {path: other.txt, weight: 1}]"
expect 0 "${train[@]}" --run-dir mixture --set "$mixture" --set eval.batches=1
prints "source  text.txt: 75 % of the samples, 3456 tokens of the run, 0." "source  other.txt: 25 % of the samples, 1152 tokens of the run" \
    "step 4 validation loss of text.txt " ", of other.txt " "source      other.txt: 1152 tokens, 0."
check "the report has the sources" grep -q '<code>other.txt</code></td><td class="n">25.0 %' mixture/report.html
cat >mixture.py <<'PY'
import json, math
rows = [json.loads(line) for line in open("mixture/metrics.jsonl")]
events = [json.loads(line) for line in open("mixture/events.jsonl")]
evaluations = {e["step"]: e for e in events if e["event"] == "evaluation"}
assert sorted(evaluations) == [4, 8, 12] == [row["step"] for row in rows if "val_loss" in row], evaluations.keys()
for row in rows:
    if "val_loss" in row:
        assert math.isclose(row["val_loss"], evaluations[row["step"]]["val_loss"], rel_tol=1e-7)
for e in evaluations.values():
    assert e["tokens"] == sum(s["val_tokens"] for s in e["sources"]) == 12 * 32, e
    mean = sum(s["val_loss"] * s["val_tokens"] for s in e["sources"]) / e["tokens"]
    assert math.isclose(mean, e["val_loss"], rel_tol=1e-12), e
    assert [s["share"] for s in e["sources"]] == [0.75, 0.25]
summary = json.load(open("mixture/summary.json"))
for a, b in zip(summary["sources"], evaluations[12]["sources"], strict=True):
    assert a["source"] == b["source"] and math.isclose(a["val_loss"], b["val_loss"], rel_tol=1e-12), a
PY
check "rows, events and summary agree on the losses" python3 mixture.py

# Saving does not evaluate: a checkpoint has the loss of an evaluation of its own step, or none.
expect 0 "${train[@]}" --run-dir apart --set checkpoint.every_steps=2 --set checkpoint.keep_last=9 --set eval.every_steps=6
same "evaluated steps" "$(grep -o '"event":"evaluation","step":[0-9]*' apart/events.jsonl | grep -o '[0-9]*$' | xargs)" "6 12"
expect 0 "$LOCKSTEP" checkpoint ls apart --json
same "checkpoints with a loss" "$(python3 -c 'import json, sys
print(*(c["step"] for c in json.load(open(sys.argv[1]))["checkpoints"] if c.get("val_loss") is not None))' "$out")" "6 12"

# Keys of other programs in our sections, and two lengths.
for pair in 'eval.steps eval.every_steps' 'data.files data.train' 'optimizer.name train.optimizer.kind' 'train.optimizer.name train.optimizer.kind'; do
    expect 2 "${train[@]}" --dry-run --set "${pair% *}=5"
    says "unknown key ${pair% *}; use ${pair#* }"
done
expect 2 "${train[@]}" --dry-run --set train.epochs=2
says "more than one of train.steps, train.tokens and train.epochs is given; keep one; to replace that of the file, add  --set train.steps=auto"
expect 0 "${train[@]}" --dry-run --set train.epochs=2 --set train.steps=auto

# The best checkpoint is named when it is not the last one, and can be exported.
expect 0 "${train[@]}" --run-dir best --set train.steps=60 --set train.optimizer.lr=3e-2 --set data.train='[narrow.txt]' \
    --set 'data.validation=[text.txt]' --set data.validation_fraction=0 --set eval.every_steps=4 --set eval.batches=4 --json
same "the best one in --json" "$(python3 - "$out" "$LOCKSTEP" <<'PY'
import json, subprocess, sys
best = json.load(open(sys.argv[1]))["best"]
listed = json.loads(subprocess.check_output([sys.argv[2], "checkpoint", "ls", "best", "--json"]))["checkpoints"]
wanted = min((c for c in listed if c.get("val_loss") is not None), key=lambda c: c["val_loss"])
print(best["step"] == wanted["step"] < 60, best["val_loss"] == wanted["val_loss"], best["checkpoint"])
PY
)" "True True best/checkpoints/$(field "$out" best | sed "s/.*'step': \([0-9]*\).*/\1/")"
step=$(field "$out" best | sed "s/.*'step': \([0-9]*\).*/\1/")
expect 0 "$LOCKSTEP" train best/run.yaml --run-dir best
prints "  best        validation " " at step $step: best/checkpoints/$step"
expect 0 "$LOCKSTEP" export best -o best-hf --best
prints "step $step"
expect 0 "$LOCKSTEP" export best -o newest-hf
prints "step 60"
expect 0 "${train[@]}" --run-dir unjudged --set data.validation_fraction=0 --json
same "no best one" "$(field "$out" best)" None
expect 2 "$LOCKSTEP" export unjudged -o none-hf --best
says "has no checkpoint with a validation loss" "eval.every_steps"

# Settings that harm a model that is already trained.
sed '/^model:/d; /^tokenizer:/d; /optimizer:/d' tiny.yaml >tune.yaml
echo 'model: {from: apart/checkpoints/12}' >>tune.yaml
expect 0 "$LOCKSTEP" train tune.yaml --dry-run --set train.steps=1000 --set train.optimizer.lr=3e-3
prints "warning the run reads its training data 22 times" "warning train.optimizer.lr is 0.003" "about 0.0005 is usual"
sed -i '/^  steps: 12/d' tune.yaml
expect 0 "$LOCKSTEP" train tune.yaml --dry-run
prints "run     13" " 3.01 epochs" # 136 or 137 steps: programs called awk draw other words
check "no warning for the defaults" test "$(grep -c ^warning "$out")" -eq 0

# Printed after the first step, long before the first checkpoint.
expect 0 "${train[@]}" --run-dir auto --set checkpoint.every_steps=auto
prints "checkpoint.every_steps is auto: the first checkpoint in about "
same "told as an event, once" "$(grep -c '"event":"cadence"' auto/events.jsonl)" 1

# A disk that never had room for a checkpoint: the first failure says that nothing is saved yet.
mkdir small
if mount -t tmpfs -o size=200k none small 2>/dev/null; then
    expect 4 "${train[@]}" --run-dir small/run --set checkpoint.every_steps=2
    says "the checkpoint of step 2 could not be saved (failure 1 in a row" "there is no checkpoint yet"
    umount small
fi

# The stack is in both events, and printed once.
LS_TEST_FAULT=do=hang,rank=1,step=4 expect 0 "${train[@]}" --run-dir hung --ranks 2 --set job.hang_timeout=1s
check "it hung" grep -q '"event":"hung"' hung/events.jsonl
for event in late hung; do
    check "the event $event has the stack, or says why not" grep -q "\"event\":\"$event\".*\"\(stack\|no_stack\)\":" hung/events.jsonl
done
if grep -q '"event":"late".*"stack":' hung/events.jsonl && grep -q "its stack has not changed" "$err"; then
    same "the stack is printed once" "$(grep -c 'fault_injection_meet' "$err")" 1
fi
finish
