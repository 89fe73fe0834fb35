#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that divide a model, on several hosts: the bits of one process, whether crews lie within hosts or stages are on different ones, also
# after a rank or a host is lost. Divisions that hosts cannot have are refused.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set model.layers=4 --set train.global_batch=12 --set train.micro_batch=1 --set train.leaves=3
    --set train.tensor_cut=2 --set train.sequence_cut=2 --set train.steps=6 --set eval.every_steps=0 --set checkpoint.every_steps=0
    --set eval.batches=1 --threads 1)
hosts_file two.hosts "host0 slots=2 10.77.0.1" "host1 slots=2 10.77.0.2"
hosts_file ones.hosts "host0 10.77.0.1" "host1 10.77.0.2" "host2 10.77.0.3" "host3 10.77.0.4"
hosts_file uneven.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2" "host2 10.77.0.3"

# run NAME HOSTS ARGUMENT...: trains on these hosts and compares with one process.
run() {
    local name=$1 hosts=$2
    shift 2
    expect 0 netns_run 0 "${train[@]}" --run-dir "$name" --hosts "$hosts" "$@"
    same "$name" "$(hashes "$out")" "$reference"
}

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")

# ---- each crew within a host ----
run tensor two.hosts --set parallel.tensor=2 --set parallel.zero=0
run context two.hosts --set parallel.context=2 --set parallel.zero=3
run pipeline two.hosts --set parallel.pipeline=2 --set parallel.zero=3

# ---- stages of a crew on different hosts ----
run two-by-two ones.hosts --set parallel.pipeline=2 --set parallel.zero=3
run uneven uneven.hosts --set parallel.pipeline=2 --set parallel.schedule=interleaved --set parallel.zero=2
run tensor-apart two.hosts --set parallel.pipeline=2 --set parallel.tensor=2 --set parallel.schedule=zero-bubble
nothing_left "undisturbed runs"

# ---- a rank dies in the middle of step 3; the next cut waits for another, where no crew is complete without it ----
# dies RANK PLACE HOSTS ARGUMENT...
dies() {
    local rank=$1 at=$2 hosts=$3
    shift 3
    LS_TEST_FAULT="do=die,rank=$rank,step=3,at=$at" run "dies-$rank-$at" "$hosts" "$@"
    holds "dies-$rank-$at/events.jsonl" '"recovered"' "\"lost\":[$rank]"
}
dies 0 leaf two.hosts --set parallel.tensor=2
dies 3 updated two.hosts --set parallel.tensor=2 --set parallel.zero=0
dies 1 leaf ones.hosts --ranks 2 --set parallel.pipeline=2 --set parallel.zero=0
dies 2 merge ones.hosts --set parallel.pipeline=4
nothing_left "a rank died"

# ---- a host with a stage is lost: the run waits until its agent was started again ----
long=(--set parallel.pipeline=2 --set train.steps=250)
expect 0 "${train[@]}" --run-dir long --ranks 1 "${long[@]}" --set parallel.pipeline=1
reference=$(hashes "$out")
background lost 0 "${train[@]}" --run-dir lost --hosts ones.hosts --ranks 2 "${long[@]}"
trainer=$pid
passed lost 1
victims=$(processes_in lost host1)
kill -9 $victims || fail "lost: was over before its host was lost"
ended lost "$trainer" 0 "host host1" "waiting for lost hosts"
same "lost: bits" "$(hashes lost.out)" "$reference"
holds lost/events.jsonl '"recovered"' '"lost":[1]'
nothing_left "a host was lost"

# ---- the link between two stages is cut: the same, once it is mended ----
background cut 0 "${train[@]}" --run-dir cut --hosts ones.hosts --ranks 2 "${long[@]}"
trainer=$pid
passed cut 1
netns_cut 1
for _ in $(seq 3000); do grep -q "waiting for lost hosts" cut.err && break; sleep 0.01; done
netns_mend 1
ended cut "$trainer" 0 "host host1" "waiting for lost hosts"
same "cut: bits" "$(hashes cut.out)" "$reference"
nothing_left "a link was cut"

# ---- or it ends, and can be resumed, when the host cannot be brought back ----
background ends 0 "${train[@]}" --run-dir ends --hosts ones.hosts --ranks 2 "${long[@]}" --set train.steps=100000 --set job.max_replacements=0
trainer=$pid
passed ends 1
kill -9 $(processes_in ends host1)
ended ends "$trainer" 5 "host host1" "2 ranks divide the model" "newest checkpoint"
nothing_left "the run ended"

# ---- what is refused ----
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts uneven.hosts --set parallel.tensor=2
says "this host has 1 rank" "a multiple of 2" "slots=N"

finish
