#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# checkpoint.mirror: a run whose directory is lost comes back from its mirror, with other ranks, to the same bits; kill -9 at any
# request leaves each checkpoint in the mirror whole; what is kept there; mirrors that are damaged, of another run, or away.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/s3.sh"
s3_start
train() { "$LOCKSTEP" train tiny.yaml --json "$@"; }
hash_of() { field "$out" state_hash; }
mirror=s3://bucket/run
expect 0 train --run-dir plain
reference=$(hash_of)

# ---- the plain way ----

expect 0 train --run-dir run --set checkpoint.mirror=$mirror --steps 8
expect 0 "$LOCKSTEP" checkpoint ls $mirror
prints " 8 "
expect 0 "$LOCKSTEP" checkpoint verify $mirror
prints "8: good"
expect 0 train --run-dir events --set checkpoint.mirror=s3://bucket/events
check "copied or left out, the last one is told" grep -q '"event":"mirrored","step":12' events/events.jsonl
check "events tell" grep -q '"event":"mirrored"' run/events.jsonl
check "no secret is anywhere" test -z "$(grep -rl 'secret/+test' run)"
rm -rf run
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run --set checkpoint.mirror=$mirror --ranks 2 --resume
prints "brought back step 8 from $mirror" "continuing from step 8"
rm -rf run
expect 0 train --run-dir run --set checkpoint.mirror=$mirror
same "the end after two losses" "$(hash_of)" "$reference"
# Files are plain: any program fetches them.
expect 0 "$LOCKSTEP" blob get $mirror/12/ fetched/12 --recursive
expect 0 "$LOCKSTEP" checkpoint verify fetched/12
# A folder is a mirror too, and a checkpoint root.
expect 0 train --run-dir local --set checkpoint.mirror=second
expect 0 "$LOCKSTEP" checkpoint verify second
rm -rf local
expect 0 train --run-dir local --set checkpoint.mirror=second
same "from a folder" "$(hash_of)" "$reference"
prints '"step": 12'

# ---- what is kept ----

kept() { "$LOCKSTEP" checkpoint ls $1 --json | grep -o '"step": [0-9]*' | tr -dc '0-9\n' | tr '\n' ' '; }
expect 0 train --run-dir keep --set checkpoint.mirror=s3://bucket/keep --set checkpoint.mirror_keep_last=1 --set checkpoint.keep_best=0
same "one is kept" "$(kept s3://bucket/keep)" "12 "
expect 0 train --run-dir keep2 --set checkpoint.mirror=s3://bucket/keep2 --set checkpoint.mirror_keep_last=1 --set checkpoint.every_steps=1 --set checkpoint.mirror_keep_for=1d
check "young ones are kept" test "$(kept s3://bucket/keep2 | wc -w)" -gt 1

# ---- kill -9 at a request of every kind ----

for at in 1 2 3 5 8 10 12 14 17; do
    rm -rf killed
    "$LOCKSTEP" train tiny.yaml --run-dir killed --set checkpoint.mirror=s3://bucket/killed$((at % 3)) --set checkpoint.mirror_keep_last=1 --json >/dev/null 2>&1 &
    victim=$!
    echo "$at $victim" >s3/kill
    wait $victim 2>/dev/null
    rm -f s3/kill
    if [ -n "$(kept s3://bucket/killed$((at % 3)))" ]; then
        expect 0 "$LOCKSTEP" checkpoint verify s3://bucket/killed$((at % 3))
    fi
done
rm -rf killed
for i in 0 1 2; do
    rm -rf killed
    expect 0 train --run-dir killed --set checkpoint.mirror=s3://bucket/killed$i --set checkpoint.mirror_keep_last=1
    same "the end after kills" "$(hash_of)" "$reference"
    same "nothing else is left in the mirror" "$("$LOCKSTEP" blob ls s3://bucket/killed$i/ --json | grep -c '"folder": true')" "$(kept s3://bucket/killed$i | wc -w)"
done

# ---- wrong mirrors ----

expect 0 train --run-dir other --set train.seed=8 --set checkpoint.mirror=$mirror --fresh
check "it says so" grep -q '"event":"mirror_failed".*holds another run' other/events.jsonl
expect 2 train --run-dir elsewhere --set train.seed=9 --set checkpoint.mirror=$mirror
expect 2 train --run-dir away --set checkpoint.mirror=s3://other/away
says "no bucket other"
faults "GET run/12/model.safetensors flip"
rm -rf run
expect 0 train --run-dir run --set checkpoint.mirror=$mirror
same "a damaged newest one is left out" "$(hash_of)" "$reference"
says "cannot be used"
faults "GET run/12/model.safetensors flip 2"
expect 3 "$LOCKSTEP" checkpoint verify $mirror
says "12/model.safetensors is damaged"
faults "PUT slowly slow 1 99"
expect 0 train --run-dir slowly --set checkpoint.mirror=s3://bucket/slowly
same "a slow mirror changes nothing" "$(hash_of)" "$reference"
finish
