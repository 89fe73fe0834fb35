#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checkpoints written while steps continue: the same bits with any number of ranks; kill -9 at any moment loses only the steps after the
# newest checkpoint; and which checkpoints are kept.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# Large enough that writing takes longer than a step.
cat >wide.yaml <<YAML
name: wide
model: {family: llama, layers: 2, heads: 4, kv_heads: 2, width: 192, ffn: 384, context: 16}
tokenizer: {kind: bytes}
data: {train: [$scratch/text.txt], validation_fraction: 0.1}
train: {steps: 24, global_batch: 6, micro_batch: 1, leaves: 6, seed: 7}
checkpoint: {every_steps: 4, keep_last: 20}
eval: {every_steps: 0, batches: 1}
YAML
train=("$LOCKSTEP" train wide.yaml --json --threads 1)
steps_of() { (cd "$1/checkpoints" && ls -d [0-9]* | grep -v tmp | sort -n | tr '\n' ' '); }
hashes_of() { for step in $(steps_of "$1"); do "$LOCKSTEP" state-hash "$1/checkpoints/$step"; done; }

# ---- in the background or between steps, by one process or several: the same checkpoints ----
expect 0 "${train[@]}" --run-dir between --set checkpoint.async=false
reference=$(hashes "$out") reference_states=$(hashes_of between)
same "six checkpoints" "$(steps_of between)" "4 8 12 16 20 24 "
expect 0 "${train[@]}" --run-dir beside --set checkpoint.async=true
same "the end, saved beside" "$(hashes "$out")" "$reference"
same "the checkpoints, saved beside" "$(hashes_of beside)" "$reference_states"
expect 0 "$LOCKSTEP" checkpoint verify beside
same "events" "$(grep -c '"event":"checkpoint"' beside/events.jsonl)" 6
for zero in 0 3; do
    expect 0 "${train[@]}" --run-dir ranks-$zero --ranks 4 --set parallel.zero=$zero
    same "the end, 4 ranks, ZeRO $zero" "$(hashes "$out")" "$reference"
    same "the checkpoints of 4 ranks, ZeRO $zero" "$(hashes_of ranks-$zero)" "$reference_states"
done

# ---- saved by 4 ranks, continued by 3, 2 and 1 ----
expect 0 "${train[@]}" --run-dir four --ranks 4 --steps 14
for ranks in 3 2 1; do
    cp -r four from-four-$ranks
    expect 0 "${train[@]}" --run-dir from-four-$ranks --ranks $ranks --set parallel.zero=$((3 - ranks))
    same "the end of 4 ranks, then $ranks" "$(hashes "$out")" "$reference"
done

# ---- kill -9 at many moments of an asynchronous save ----
for ranks in 1 2; do
    for moment in 1 3 4 6; do
        dir=killed-$ranks-$moment
        "${train[@]}" --run-dir $dir --ranks $ranks --set checkpoint.every_steps=2 >/dev/null 2>&1 &
        pid=$!
        # Until a checkpoint is being written (or there is one), and then a little longer each time.
        for _ in $(seq 2000); do
            compgen -G "$dir/checkpoints/*" >/dev/null && break
            kill -0 $pid 2>/dev/null || break
            sleep 0.005
        done
        sleep "0.0$((moment * 13 % 90))"
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
        # Every checkpoint under its final name is complete.
        if compgen -G "$dir/checkpoints/*/MANIFEST.json" >/dev/null; then
            for folder in $dir/checkpoints/*/; do
                case $folder in *.tmp-*) continue ;; esac
                expect 0 "$LOCKSTEP" checkpoint verify "$folder"
            done
        fi
        expect 0 "${train[@]}" --run-dir $dir --ranks $ranks
        same "the end after kill -9, $ranks ranks, moment $moment" "$(hashes "$out")" "$reference"
        check "nothing half is left" test -z "$(find $dir/checkpoints -maxdepth 1 -name '*.tmp-*')"
    done
done

# ---- SIGTERM waits for the checkpoint being written ----
"${train[@]}" --run-dir stopped --set checkpoint.every_steps=2 --set train.steps=4000 --set train.schedule.steps=24 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 2000); do
    compgen -G "stopped/checkpoints/*" >/dev/null && break
    sleep 0.005
done
kill -TERM $pid
wait $pid
same "stopped by SIGTERM" $? 75
expect 0 "$LOCKSTEP" checkpoint verify stopped
check "nothing half is left" test -z "$(find stopped/checkpoints -maxdepth 1 -name '*.tmp-*')"

# ---- a disk that stays full ends the run at the third failure ----
mkdir small
if mount -t tmpfs -o size=9m none small 2>/dev/null; then
    expect 4 "${train[@]}" --run-dir small/run
    says "too many attempts failed in a row"
    same "two failures were told" "$(grep -c '"event":"checkpoint_failed"' small/run/events.jsonl)" 2
    expect 0 "$LOCKSTEP" checkpoint verify small/run
    umount small
else
    echo "can't mount a tmpfs: a full disk was not tried"
fi

# ---- a flipped bit: repaired if another file has the same bytes, otherwise the older checkpoint is used; never silently ----
flip() { printf '\xff' | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
cp -r between mended
mkdir mended/checkpoints/weights && cp -r mended/checkpoints/24 mended/checkpoints/weights/24
flip mended/checkpoints/24/model.safetensors 9000
expect 3 "$LOCKSTEP" checkpoint verify mended/checkpoints/24
says "block 0"
expect 0 "$LOCKSTEP" checkpoint verify mended/checkpoints/24 --repair
prints "weights/24/model.safetensors"
same "the mended state" "$("$LOCKSTEP" state-hash mended/checkpoints/24)" "$("$LOCKSTEP" state-hash between/checkpoints/24)"
expect 0 "${train[@]}" --run-dir older --steps 14
flip older/checkpoints/14/model.safetensors 9000
expect 0 "${train[@]}" --run-dir older
same "the end after damage" "$(hashes "$out")" "$reference"
check "the damage is told" grep -q '"event":"checkpoint_skipped","step":14' older/events.jsonl

# ---- the weights alone, between checkpoints: for use, and to repair a checkpoint of the same step ----
for dtype in bf16 fp32; do
    expect 0 "${train[@]}" --run-dir weights-$dtype --ranks 2 --set checkpoint.weights_every_steps=6 --set checkpoint.weights_dtype=$dtype \
        --set checkpoint.weights_keep_last=3
    same "the end with weights in $dtype" "$(hashes "$out")" "$reference"
    same "weights of" "$(cd weights-$dtype/checkpoints/weights && ls | sort -n | tr '\n' ' ')" "12 18 24 "
    expect 0 "$LOCKSTEP" checkpoint verify weights-$dtype/checkpoints/weights
    expect 0 "$LOCKSTEP" eval weights-$dtype/checkpoints/weights/18 --data "$scratch/text.txt" --json
    expect 0 "$LOCKSTEP" export weights-$dtype/checkpoints/weights/18 -o exported-$dtype
done
check "bf16 is half" test $(($(stat -c %s weights-fp32/checkpoints/weights/24/model.safetensors) * 10)) -gt \
    $(($(stat -c %s weights-bf16/checkpoints/weights/24/model.safetensors) * 18))
cmp -s weights-fp32/checkpoints/24/model.safetensors weights-fp32/checkpoints/weights/24/model.safetensors
same "fp32 weights are the checkpoint's own" $? 0
flip weights-fp32/checkpoints/24/model.safetensors 9000
expect 0 "$LOCKSTEP" checkpoint verify weights-fp32/checkpoints/24 --repair
prints "weights/24/model.safetensors"

# ---- a rank dies while its update fills the snapshot: other ranks finish its parts, and the checkpoint is correct ----
expect 0 "${train[@]}" --run-dir each --set checkpoint.async=false --set checkpoint.every_steps=1 --set checkpoint.keep_last=99
each=$(hashes_of each)
for rank in 1 2; do
    "${train[@]}" --run-dir lost-$rank --ranks 3 --set checkpoint.every_steps=1 --set checkpoint.keep_last=99 >"$out" 2>"$err" &
    pid=$!
    for _ in $(seq 2000); do
        [ -e lost-$rank/checkpoints/$((rank * 3)) ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.003
    done
    victim=$(sed -n "s/.*\"event\":\"rank_started\",\"rank\":$rank,\"pid\":\([0-9]*\),.*/\1/p" lost-$rank/events.jsonl | head -1)
    [ -z "$victim" ] || kill -9 "$victim" 2>/dev/null
    wait $pid
    same "the run that lost rank $rank" $? 0
    same "the end of the run that lost rank $rank" "$(hashes "$out")" "$reference"
    same "all checkpoints of the run that lost rank $rank" "$(hashes_of lost-$rank)" "$each"
done

# ---- retention ----
expect 0 "${train[@]}" --run-dir kept --set checkpoint.keep_last=1 --set checkpoint.keep_best=0 --set checkpoint.keep_every=8
same "kept: every 8th and the last" "$(steps_of kept)" "8 16 24 "
expect 0 "$LOCKSTEP" checkpoint ls kept
prints "last, every" "every"
# Two checkpoints fit into the budget: GB are dear here.
price=$(python3 -c 'import os, sys; print(1e9 / sum(os.path.getsize(f"kept/checkpoints/8/{f}") for f in os.listdir("kept/checkpoints/8") if f.endswith(".safetensors")) / 1000)')
expect 0 "$LOCKSTEP" checkpoint prune kept --dry-run --keep-last 3 --budget 0.0025 --price "$price"
prints "kept 24: last" "kept 16: last" "would remove 8"
expect 2 "${train[@]}" --run-dir cheap --set checkpoint.budget=1
says "checkpoint.budget is 1.00 USD a month" "set checkpoint.price"
expect 0 "${train[@]}" --run-dir cheap --set checkpoint.budget=0.0025 --set checkpoint.price="$price"
same "the newest two" "$(steps_of cheap)" "20 24 "
same "the end under a budget" "$(hashes "$out")" "$reference"

finish
