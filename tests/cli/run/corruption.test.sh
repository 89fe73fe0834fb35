#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Silent corruption: a bit that flips in a gradient or in the state ends the run with exit code 6 and says where; checkpoints stay intact,
# and the same command then reaches the end of an undisturbed run. Flips come from LS_TEST_FAULT (src/execution/team/bit_flip.h).
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

watch=(--set train.audit_every_steps=1 --set train.hash_every_steps=1)
train=("$LOCKSTEP" train tiny.yaml --json)
expect 0 "${train[@]}" --run-dir plain --set train.audit_every_steps=0 --set train.hash_every_steps=0
wanted=$(hashes "$out")
expect 0 "${train[@]}" --run-dir watched "${watch[@]}"
same "watching changes no bit" "$(hashes "$out")" "$wanted"
check "hash_every_steps became definite" grep -q 'hash_every_steps: 1$' watched/run.yaml
expect 0 "${train[@]}" --run-dir default --set train.steps=1 --set train.schedule.warmup_steps=0
check "auto: 8192 tokens in steps of 384" grep -q 'hash_every_steps: 22$' default/run.yaml

# event RUN FIELD...: fields of the corruption event of RUN.
event() {
    grep '"corruption"' "$1/events.jsonl" | tail -1 >event.json
    shift
    field event.json "$@"
}

# ---- one process; only a debug build reads LS_TEST_FAULT ----

if grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=Release' "${LS_BUILD_DIR:-/nonexistent}/CMakeCache.txt" 2>/dev/null; then
    LS_TEST_FAULT="flip=gradient,step=6,at=5000,bit=3" expect 0 "${train[@]}" --run-dir ignored "${watch[@]}"
    same "a release build has no ear for faults" "$(hashes "$out")" "$wanted"
else
    LS_TEST_FAULT="flip=gradient,step=6,times=1,at=5000,bit=3" expect 6 "${train[@]}" --run-dir leaf "${watch[@]}"
    says "step 6: silent corruption: leaf" "embeddings (bucket 0)" "agrees with the second one: the first one was wrong" \
        "Nothing was updated" "leaf/checkpoints/5" "lockstep replay leaf --step 6 --leaf"
    same "the event" "$(event leaf step found_by bucket_name rank)" "5 audit embeddings 0"
    expect 0 "$LOCKSTEP" checkpoint verify leaf
    expect 0 "${train[@]}" --run-dir leaf "${watch[@]}"
    same "the end after a wrong leaf" "$(hashes "$out")" "$wanted"

    for kind in parameter m v; do
        LS_TEST_FAULT="flip=$kind,step=7,at=12345,bit=1" expect 6 "${train[@]}" --run-dir state-$kind "${watch[@]}"
        says "step 7: silent corruption" "no longer what the update of step 6 left" "was not saved"
        same "the event of $kind" "$(event state-$kind step found_by rank)" "6 hash 0"
        check "$kind: nothing of it was saved" test ! -e state-$kind/checkpoints/6 -a -d state-$kind/checkpoints/4
        expect 0 "${train[@]}" --run-dir state-$kind "${watch[@]}"
        same "the end after $kind changed" "$(hashes "$out")" "$wanted"
    done
    LS_TEST_FAULT="flip=m,step=12,at=5,after=1" expect 6 "${train[@]}" --run-dir last "${watch[@]}"
    says "no longer what the update of step 12 left" "was not saved"
    expect 0 "${train[@]}" --run-dir last "${watch[@]}"
    same "the end of what was not saved" "$(hashes "$out")" "$wanted"
    LS_TEST_FAULT="flip=gradient,leaf=1" expect 2 "${train[@]}" --run-dir bad
    says "step=N is missing"
fi

# ---- ranks: the wrong one is named, with number, host and process ----

same "every audit is in the log" "$(grep -c '"audit"' watched/events.jsonl)" 12
for n in 2 3; do
    expect 0 "${train[@]}" --run-dir ranks$n --ranks $n "${watch[@]}"
    same "$n watched ranks have the bits of one process" "$(hashes "$out")" "$wanted"
done

# With three ranks, for a fault that occurs once and one that stays; the wrong gradient is the one that replay does not reproduce.
for times in 1 9; do
    dir=three-$times
    LS_TEST_FAULT="flip=gradient,step=6,rank=1,at=5000,bit=3,times=$times" expect 6 "${train[@]}" --run-dir $dir --ranks 3 "${watch[@]}"
    says "step 6: silent corruption: leaf" "embeddings (bucket 0)" "RANK 1 COMPUTED WRONGLY (" "Nothing was updated" "$dir/checkpoints/5"
    same "the event" "$(event $dir step found_by bucket_name rank)" "5 audit embeddings 1"
    command=$(sed -n 's/.*here or elsewhere: lockstep //p' "$err")
    hashes_seen=$(grep -o '(\([0-9a-f]\{32\}\), loss sum [^;]*; [0-9a-f]\{32\}' "$err" | grep -o '[0-9a-f]\{32\}' | tr '\n' ' ')
    expect 0 "$LOCKSTEP" $command --json
    replayed=$(field "$out" audit_hash)
    read -r owner checker <<<"$hashes_seen"
    read -r by_owner by_checker _ <<<"$(event $dir computed_by | tr -d '[],')"
    right=$([ "$by_owner" = 1 ] && echo "$checker" || echo "$owner")
    same "replay has the hash of the rank that was right" "$replayed" "$right"
    expect 0 "${train[@]}" --run-dir $dir --ranks 3 "${watch[@]}"
    same "the end after a wrong rank" "$(hashes "$out")" "$wanted"
done

# Two ranks check each other: a fault that occurs once is attributed to a rank, one that stays is not.
LS_TEST_FAULT="flip=gradient,step=6,rank=1,at=5000" expect 6 "${train[@]}" --run-dir two-1 --ranks 2 "${watch[@]}"
says "RANK 1 COMPUTED WRONGLY"
LS_TEST_FAULT="flip=gradient,step=6,rank=1,at=5000,times=9" expect 6 "${train[@]}" --run-dir two-9 --ranks 2 "${watch[@]}"
says "rank 0 (" "rank 1 (" "computes wrongly all the time"
same "nobody is blamed" "$(event two-9 rank)" None

# A stray write to the shared state: its owner detects it (rank 0 owns the first floats).
for kind in parameter m v; do
    LS_TEST_FAULT="flip=$kind,step=7,rank=0,at=3,bit=1" expect 6 "${train[@]}" --run-dir shared-$kind --ranks 3 "${watch[@]}"
    says "step 7: silent corruption" "embeddings (bucket 0" "no longer what the update of step 6 left" "on rank 0 (" "was not saved"
    same "the event of shared $kind" "$(event shared-$kind step found_by rank)" "6 hash 0"
    expect 0 "${train[@]}" --run-dir shared-$kind --ranks 2 "${watch[@]}"
    same "the end after shared $kind changed" "$(hashes "$out")" "$wanted"
done
# The state changes after the last update before a checkpoint: it is not saved. Nor is it after the last update of the run.
for step in 8 12; do
    LS_TEST_FAULT="flip=v,step=$step,rank=0,at=3,bit=1,after=1" expect 6 "${train[@]}" --run-dir unsaved-$step --ranks 2 "${watch[@]}"
    says "step $step: silent corruption: the weights or moments that rank 0 (" "was not saved"
    same "the event" "$(event unsaved-$step step found_by bucket rank)" "$step hash None 0"
    check "nothing of it was saved" test ! -e unsaved-$step/checkpoints/$step -a -d unsaved-$step/checkpoints/$((step - 4))
    expect 0 "${train[@]}" --run-dir unsaved-$step --ranks 2 "${watch[@]}"
    same "the end of what was not saved" "$(hashes "$out")" "$wanted"
done
# A checkpoint that waits for the next step is given up with that step.
LS_TEST_FAULT="flip=m,step=9,rank=0,at=3,bit=1" expect 6 "${train[@]}" --run-dir unwritten --ranks 2 "${watch[@]}"
says "step 9: silent corruption" "was not saved"
check "nothing of it was saved" test ! -e unwritten/checkpoints/8
# A checkpoint was saved before the change was detected: the message says so.
LS_TEST_FAULT="flip=m,step=9,rank=0,at=3,bit=1" expect 6 "${train[@]}" --run-dir saved --ranks 2 "${watch[@]}" --set checkpoint.async=false
says "step 9: silent corruption" "saved/checkpoints/8 was saved since that update and may hold the corrupted state"
rm -rf saved/checkpoints/8
expect 0 "${train[@]}" --run-dir saved --ranks 2 "${watch[@]}"
same "the end from the checkpoint before" "$(hashes "$out")" "$wanted"
finish
