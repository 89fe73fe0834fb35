#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a run tells a person, once and in time: more ranks than it may have, how far the first checkpoint is, a save that failed before any
# succeeded, the stack of a rank that hangs.
. "$(dirname "$0")/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --threads 1)

expect 2 "${train[@]}" --run-dir none --ranks 3 --set job.max_ranks=2
says "the run would have 3 ranks (--ranks, parallel.ranks), but job.max_ranks is 2; use 1 to 2 ranks"
[ ! -e none ] || fail "a run that was refused left a folder"
expect 0 "${train[@]}" --run-dir nine --ranks 9 --steps 1 --set train.global_batch=9 --set train.leaves=9
same "without job.max_ranks as many as are asked for" "$(grep -o 'max_ranks: [0-9]*' nine/run.yaml)" "max_ranks: 9"

# Told behind the first step, long before the first checkpoint.
expect 0 "${train[@]}" --run-dir auto --set checkpoint.every_steps=auto
prints "checkpoint.every_steps is auto: the first checkpoint in about "
same "told as an event, once" "$(grep -c '"event":"cadence"' auto/events.jsonl)" 1

# A disk that never had room for one: the first failure says that nothing is saved yet.
mkdir small
if mount -t tmpfs -o size=200k none small 2>/dev/null; then
    expect 4 "${train[@]}" --run-dir small/run --set checkpoint.every_steps=2
    says "checkpoint of step 2 failed, 1 of at most 2 in a row" "there is no checkpoint yet"
    umount small
fi

# The stack is in both events, and printed once.
LS_TEST_FAULT=do=hang,rank=1,step=4 expect 0 "${train[@]}" --run-dir hung --ranks 2 --set job.hang_timeout=1s
check "it hung" grep -q '"event":"hung"' hung/events.jsonl
for event in late hung; do
    check "the event $event has the stack, or says why not" grep -q "\"event\":\"$event\".*\"\(stack\|no_stack\)\":" hung/events.jsonl
done
if grep -q '"event":"late".*"stack":' hung/events.jsonl && grep -q "its stack is as it was" "$err"; then
    same "the stack is printed once" "$(grep -c 'sabotage_meet' "$err")" 1
fi
finish
