#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compressed gradients: the same bits for any ranks and threads, with ranks that die, stopped and resumed on others; bad settings are refused
# by name.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=16 --set train.leaves=8 --set train.steps=12 --set checkpoint.every_steps=4
    --threads 1)

# run NAME ARGUMENT...: trains in folder NAME and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 "${train[@]}" --run-dir "$name" "$@" && got=$(hashes "$out")
}

run dense --ranks 2
dense=$got
for kind in bf16 int8+bf16 topk topk+int8; do # what is sent + what comes back
    settings=(--set "train.compression.kind=${kind%+*}" --set train.schedule.warmup_steps=6)
    case $kind in *+*) settings+=(--set "train.compression.weights=${kind#*+}") ;; esac
    run "$kind-1" "${settings[@]}" --ranks 1
    reference=$got
    differs "$kind and dense" "$reference" "$dense"
    run "$kind-2" "${settings[@]}" --ranks 2 --threads 2
    same "$kind: 2 ranks of 2 threads" "$got" "$reference"
    # a rank dies in the middle of a sum, a stop after an odd number of steps, and a resume on another number of ranks
    LS_TEST_FAULT="do=die,rank=1,step=3,at=sum" run "$kind-stop" "${settings[@]}" --ranks 3 --steps 5
    run "$kind-stop" "${settings[@]}" --ranks 4
    same "$kind: a rank lost, and resumed on 4 ranks" "$got" "$reference"
    same "$kind: hash of the checkpoint" "$("$LOCKSTEP" state-hash "$kind-stop")" "$(field "$out" state_hash)"
done
# the saved residuals decide later bits: one process goes on from what four ranks saved, killed in the middle of a block
LS_TEST_FAULT="do=die,rank=0,step=9,at=block" run late "${settings[@]}" --ranks 2 --steps 10
run late "${settings[@]}" --ranks 1
same "topk+int8: one rank goes on" "$got" "$reference"

# ---- bad settings ----
# bad VALUE TEXT...: the setting is refused and the error names it.
bad() {
    expect 2 "${train[@]}" --run-dir bad --ranks 1 --set train.compression.kind=topk --set "$1"
    says "${@:2}"
}
bad train.compression.ratio=0 train.compression.ratio 0.001
bad train.compression.ratio=1.5 train.compression.ratio 0.5
bad train.compression.groups=3 "train.compression.groups is 3" "1, 2, 4, 8"
bad train.compression.groups=17 train.compression.groups 16
bad train.compression.kind=int2 none bf16 int8 topk
bad train.compression.weights=topk "train.compression.weights" none bf16 int8
expect 2 "${train[@]}" --run-dir bad --ranks 1 --set train.compression.weights=int8
says "train.compression.weights packs nothing while train.compression.kind has the value none"
bad parallel.tensor=2 parallel.tensor train.compression.kind
expect 2 "${train[@]}" --run-dir topk+int8-1 --ranks 2 "${settings[@]}" --set train.compression.groups=2
says "train.compression.groups: 4 in the run, 2 now"
expect 2 "${train[@]}" --run-dir topk+int8-1 --ranks 2 "${settings[@]}" --set train.compression.ratio=0.02
says "train.compression.ratio: 0.01 in the run, 0.02 now"
expect 2 "${train[@]}" --run-dir topk+int8-1 --ranks 2 "${settings[@]}" --set train.compression.weights=bf16
says "train.compression.weights: int8 in the run, bf16 now"
expect 2 "${train[@]}" --run-dir topk-1 --ranks 2
says "train.compression.kind: topk in the run, none now"

finish
