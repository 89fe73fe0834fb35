#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# replay: one leaf alone has the bits it had in training, from any checkpoint and with any number of threads; the error for a loss that is not
# finite ends with the command that shows where it arose.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run
expect 0 "$LOCKSTEP" checkpoint prune run --keep-last 3 --keep-best 0
find run -type f -exec sha256sum {} + | sort >before

# ---- the same bits, wherever it starts from ----

expect 0 "$LOCKSTEP" replay run --step 11 --leaf 1 --json
cp "$out" from8.json
same "from the newest checkpoint" "$(field from8.json from_step steps_compared steps_differing finite)" "8 2 0 True"
for threads in 1 3; do
    expect 0 "$LOCKSTEP" replay run --step 11 --leaf 1 --threads $threads --json
    check "$threads threads" cmp -s "$out" from8.json
done
expect 0 "$LOCKSTEP" replay run --step 11 --leaf 1 --op-trace --json
same "traced" "$(field "$out" gradient_sha256 loss_sum)" "$(field from8.json gradient_sha256 loss_sum)"
find run -type f -exec sha256sum {} + | sort >after
check "nothing in the run changed" cmp -s before after

cp -r run older && rm -rf older/checkpoints/{8,12}
expect 0 "$LOCKSTEP" replay older --step 11 --leaf 1 --json
same "from an older checkpoint" "$(field "$out" from_step gradient_sha256)" "4 $(field from8.json gradient_sha256)"
rm -rf older/checkpoints
expect 0 "$LOCKSTEP" replay older --step 11 --leaf 1
prints "the initial weights of the run" "computing steps 1 to 10 first" "10 of 10 steps" "$(field from8.json gradient_sha256)"
expect 0 "$LOCKSTEP" replay run --step 11 --leaf 2 --json
differs "another leaf" "$(field "$out" gradient_sha256)" "$(field from8.json gradient_sha256)"
expect 0 "$LOCKSTEP" replay run --step 9
prints "step 9, leaf 0 of 3: samples 96 to 99" "step 9, leaf 2 of 3: samples 104 to 107" "layer 1"

# A loss that differs from the recorded one is reported.
python3 - <<'PY'
import json
lines = open("older/metrics.jsonl").read().splitlines()
step = json.loads(lines[2])
step["loss"] += 0.001
lines[2] = json.dumps(step)
open("older/metrics.jsonl", "w").write("\n".join(lines) + "\n")
PY
expect 0 "$LOCKSTEP" replay older --step 5 --leaf 0
says "step 3: the run recorded loss"
prints "3 of 4 steps"

# ---- what cannot be replayed ----

expect 2 "$LOCKSTEP" replay run
says "--step"
expect 2 "$LOCKSTEP" replay run --step 13
says "step 13" "steps 1 to 12"
expect 2 "$LOCKSTEP" replay run --step 3 --leaf 3
says "leaf 3" "leaves 0 to 2"
expect 2 "$LOCKSTEP" replay nowhere --step 3
says nowhere run.yaml
mv text.txt elsewhere.txt
expect 2 "$LOCKSTEP" replay run --step 3
says text.txt
write_text text.txt 400 6
expect 2 "$LOCKSTEP" replay run --step 11
says "data or settings have changed"
mv elsewhere.txt text.txt

# ---- a loss that is not finite ----

wild=(--set model.family=gpt2 --set model.kv_heads=4 --set model.init_std=10 --set train.optimizer.lr=10 --set train.optimizer.weight_decay=10
    --set train.clip_norm=0 --set train.schedule.warmup_steps=0 --set train.steps=40)
expect 1 "$LOCKSTEP" train tiny.yaml --run-dir "wild run" "${wild[@]}"
steps=$(wc -l <"wild run/metrics.jsonl")
says "first value that is not finite: leaf" "layer" "checkpoints/$steps"
command=$(sed -n 's/.*op by op: //p' "$err")
same "the text ends with the command" "$command" "lockstep replay 'wild run' --step $((steps + 1)) --leaf 0 --op-trace"
fault=$(sed -n 's/.*leaf 0, sample position [0-9]*, \(.*\)\. Try .*/\1/p' "$err")
same "the event has it too" "$(grep '"event":"not_finite"' "wild run/events.jsonl" >event.json && field event.json replay leaf step)" "$command 0 $steps"

eval "expect 1 $LOCKSTEP ${command#lockstep }"
says "step $((steps + 1)), leaf 0: a value is infinite or not a number" "$fault"
prints "NOT FINITE"
first=$(grep -m1 "NOT FINITE" "$out")
checks=$((checks + 1))
[[ $first == *"$fault"* ]] || fail "the first bad line is '$first', not '$fault'"
expect 1 "$LOCKSTEP" replay "wild run" --step $((steps + 1)) --json
same "JSON of a leaf that is not finite" "$(field "$out" leaf finite from_step first_not_finite)" "0 False $steps $fault"
expect 0 "$LOCKSTEP" replay "wild run" --step "$steps"
rm -rf "wild run/checkpoints/$steps"
expect 1 "$LOCKSTEP" replay "wild run" --step $((steps + 1)) --leaf 0
prints "computing steps"
says "$fault"

finish
