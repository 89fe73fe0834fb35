#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that divide a model, on two hosts: the bits of one process, also after a rank or a host is lost.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set model.layers=4 --set train.global_batch=12 --set train.micro_batch=1 --set train.leaves=3
    --set train.tensor_cut=2 --set train.sequence_cut=2 --set train.steps=8 --set eval.every_steps=0 --set checkpoint.every_steps=0
    --set eval.batches=1 --threads 1)
hosts_file two.hosts "host0 slots=2 10.77.0.1" "host1 slots=2 10.77.0.2"

# run NAME ARGUMENT...: trains on two hosts and compares with one process.
run() {
    local name=$1
    shift
    expect 0 netns_run 0 "${train[@]}" --run-dir "$name" --hosts two.hosts "$@"
    same "$name" "$(hashes "$out")" "$reference"
}

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")

# ---- each crew within a host ----
run tensor --set parallel.tensor=2
run context-3 --set parallel.context=2 --set parallel.zero=3
run pipeline --set parallel.pipeline=2 --set parallel.zero=2
run pipeline-3 --set parallel.pipeline=2 --set parallel.zero=3
nothing_left "crews within hosts"

# ---- a rank dies in the middle of step 3; the next cut waits for another, where no crew is complete without it ----
# dies RANK PLACE ARGUMENT...
dies() {
    local rank=$1 at=$2
    shift 2
    LS_TEST_FAULT="do=die,rank=$rank,step=3,at=$at" run "dies-$rank-$at" "$@"
    holds "dies-$rank-$at/events.jsonl" '"recovered"' "\"lost\":[$rank]"
}
dies 0 leaf --set parallel.tensor=2
dies 2 ready --set parallel.pipeline=2 --set parallel.zero=2
dies 3 updated --set parallel.tensor=2 --set parallel.zero=0
nothing_left "a rank died"

# ---- what is refused ----
hosts_file uneven.hosts "host0 slots=2 10.77.0.1" "host1 slots=1 10.77.0.2" "host2 slots=1 10.77.0.3"
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts uneven.hosts --set parallel.tensor=2
says "host host1 has 1 rank" "a multiple of 2" "slots=N"

finish
