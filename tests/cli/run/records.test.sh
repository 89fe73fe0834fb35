#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Documents as records of their own (data.document_masks): the same bits with any number of ranks and threads, in pieces, through the death of a
# rank; what has no target has no loss and no NaN. A run that no longer improves ends early, at the same step however it was interrupted.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

python3 - <<'PY'
import json, random
random.seed(3)
text = open("text.txt").read()
with open("documents.jsonl", "w") as f:
    for _ in range(400):
        at, n = random.randrange(len(text) - 90), random.choice([1, 2, 7, 20, 31, 32, 33, 80])
        f.write(json.dumps({"text": text[at:at + n]}) + "\n")
with open("letters.jsonl", "w") as f:
    f.writelines(json.dumps({"text": c}) + "\n" for c in "abcdefgh" * 200)
PY

# row RUN KEY: that value of the last step.
row() { tail -n 1 "$1/metrics.jsonl" | python3 -c "import json, sys; print(json.load(sys.stdin)['$2'])"; }

train=("$LOCKSTEP" train tiny.yaml --json --set 'data.train=[documents.jsonl]' --set data.document_masks=true)
expect 0 "${train[@]}" --run-dir one --threads 1
reference=$(hashes "$out")
loss=$(field "$out" val_loss)
same "tokens of a step" "$(row one tokens)" 384
check "some tokens have no target" test "$(row one loss_tokens)" -lt 384
expect 0 "${train[@]}" --run-dir ranks-2 --ranks 2 --threads 2
same "2 ranks" "$(hashes "$out")" "$reference"
same "validation loss of 2 ranks" "$(field "$out" val_loss)" "$loss"
LS_TEST_FAULT=do=die,rank=1,step=5,at=block expect 0 "${train[@]}" --run-dir killed --ranks 3 --threads 1
same "3 ranks, of which one was killed" "$(hashes "$out")" "$reference"
expect 0 "${train[@]}" --run-dir pieces --steps 5 --ranks 3
expect 0 "${train[@]}" --run-dir pieces --threads 3
same "in pieces" "$(hashes "$out")" "$reference"
expect 0 "${train[@]}" --run-dir whole --set data.document_masks=false
differs "without masks" "$(hashes "$out")" "$reference"
expect 2 "${train[@]}" --run-dir one --set data.document_masks=false
says "data.document_masks"

# Most sequences, and whole leaves, have no target: the loss is one mean over the targets of the batch, however it is cut.
mixed=("$LOCKSTEP" train tiny.yaml --json --set data.document_masks=true --set data.validation_fraction=0 --set train.steps=6
    --set 'data.train=[{path: letters.jsonl, weight: 5}, {path: documents.jsonl, weight: 1}]')
losses() { python3 -c "import json; print(*(json.loads(line)['loss'] for line in open('$1/metrics.jsonl')))"; }
expect 0 "${mixed[@]}" --run-dir mixed --set train.leaves=12
reference=$(hashes "$out")
expect 0 "${mixed[@]}" --run-dir mixed-3 --set train.leaves=12 --ranks 3
same "3 ranks" "$(hashes "$out")" "$reference"
check "some leaves have no target" test "$(row mixed loss_tokens)" -lt 192
expect 0 "${mixed[@]}" --run-dir mixed-1 --set train.leaves=1 --set train.micro_batch=4
check "the losses of another cut" python3 -c "
a, b = ([float(x) for x in text.split()] for text in ('$(losses mixed)', '$(losses mixed-1)'))
assert len(a) == 6 and all(abs(x - y) < 1e-4 * x and x > 0 for x, y in zip(a, b)), (a, b)"

# Nothing to learn from.
for ranks in 1 2; do
    expect 3 "$LOCKSTEP" train tiny.yaml --run-dir letters-$ranks --set 'data.train=[letters.jsonl]' --set data.document_masks=true --ranks $ranks \
        --set data.validation_fraction=0
    says "step 1: none of its 12 sequences has a token with a loss" "raise train.global_batch"
done

# A run that gets worse ends early. Its evaluations count across starts; more patience goes on from there.
early=("$LOCKSTEP" train tiny.yaml --json --threads 1 --set train.optimizer.lr=1 --set train.steps=60 --set eval.every_steps=2 --set eval.patience=3)
expect 0 "${early[@]}" --run-dir early
says "the run ends early: the validation loss has not fallen in 3 evaluations" "eval.patience"
result=$(field "$out" status step state_hash curve_hash)
last=$(field "$out" step)
check "it ended early: $result" test "${result%% *}" = stopped_early -a "$last" -lt 60
best=$(python3 -c "import json, sys; print(json.load(open('$out'))['best']['step'])")
check "the best step is saved" test -d "early/checkpoints/$best"
check "it waited 3 evaluations" test "$((last - best))" -eq 6
check "an event tells it" grep -q "\"event\":\"early_stop\",\"step\":$last,\"evaluations\":3,\"best_step\":$best" early/events.jsonl
expect 0 "${early[@]}" --run-dir early
same "run again, it has the same result" "$(field "$out" status step state_hash curve_hash)" "$result"
expect 0 "${early[@]}" --run-dir early-2 --steps $((last - 3)) --ranks 2
expect 0 "${early[@]}" --run-dir early-2 --steps $((last - 1)) --ranks 3
expect 0 "${early[@]}" --run-dir early-2
same "in pieces, it ends at the same step" "$(field "$out" status step state_hash curve_hash)" "$result"
expect 0 "${early[@]}" --run-dir early --set eval.patience=0 --steps $((last + 4))
same "without patience it goes on" "$(field "$out" status step)" "stopped $((last + 4))"
expect 2 "${early[@]}" --run-dir refused --set data.validation_fraction=0
says "eval.patience is 3, but there is no validation data"
expect 2 "${early[@]}" --run-dir refused --set eval.every_steps=0
says "eval.patience is 3, but eval.every_steps is 0"
finish
