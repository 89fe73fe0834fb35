#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Silent corruption: a bit that flips in a gradient or in the state ends the run with exit code 6 and says where; what is on disk stays sound,
# and the same command then reaches the end of an undisturbed run. Flips come from LS_TEST_FAULT (src/execution/diagnose/flip.h).
. "$(dirname "$0")/lib.sh"

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

# ---- one process; only a debug build listens to LS_TEST_FAULT ----

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
    LS_TEST_FAULT="flip=gradient,leaf=1" expect 2 "${train[@]}" --run-dir bad
    says "names no step"
fi
finish
