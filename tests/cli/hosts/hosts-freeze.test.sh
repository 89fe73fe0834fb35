#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train.freeze on several hosts: the bits of one process with every ZeRO stage, also when the frozen part is the beginning of the plan, and
# after other hosts resume from a checkpoint.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=10 --set train.leaves=5 --set train.steps=8 --threads 1)

# run NAME ARGUMENT...: trains from host 0 and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 netns_run 0 "${train[@]}" --run-dir "$name" "$@" && got=$(hashes "$out")
}

hosts_file two.hosts host0 "host1 slots=2 10.77.0.2"
for freeze in '[embed_tokens, layers.0]' '["*norm*", lm_head]'; do
    train+=(--set train.freeze="$freeze")
    rm -rf one zero-*
    expect 0 "${train[@]}" --run-dir one
    reference=$(hashes "$out")
    for stage in 0 1 2 3; do
        run "zero-$stage" --hosts two.hosts --set parallel.zero=$stage --set checkpoint.every_steps=3
        same "two hosts, $freeze, ZeRO stage $stage" "$got" "$reference"
    done
done
same "one file for what is frozen" "$(stat -c %i zero-3/checkpoints/3/model-00002*)" "$(stat -c %i zero-3/checkpoints/8/model-00002*)"

# Begun by two hosts, resumed by one process, finished by two.
run pieces --hosts two.hosts --set parallel.zero=3 --steps 2
expect 0 "${train[@]}" --run-dir pieces --steps 5
run pieces --hosts two.hosts --set parallel.zero=2
same "in pieces" "$got" "$reference"
nothing_left "all runs"
finish
