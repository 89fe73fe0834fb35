#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same bits for any number of threads, any recomputation and any instruction set; each number of leaves has its own.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# run NAME ARGUMENT...: trains in a new folder and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir "runs/$name" "$@" && got=$(hashes "$out")
    rm -rf "runs/$name"
}

run reference --threads 1
reference=$got
for threads in 2 3 4; do
    run "threads-$threads" --threads "$threads"
    same "$threads threads" "$got" "$reference"
done
run again --threads 2 --set log.tensorboard=false --set eval.every_steps=1 --set checkpoint.every_steps=3 --set sample.every_steps=2
same "logs, evaluations, checkpoints and samples in between" "$got" "$reference"

for recompute in selective full; do
    run "recompute-$recompute" --set train.recompute="$recompute" --threads 2
    same "recompute $recompute" "$got" "$reference"
done

# Leaves are part of the computation: each number of leaves has its own bits, for any number of threads.
seen=$reference
for leaves in 1 4 12; do
    run "leaves-$leaves" --set train.leaves="$leaves" --threads 1
    one=$got
    run "leaves-$leaves-threads" --set train.leaves="$leaves" --set train.recompute=full --threads 3
    same "$leaves leaves, 1 and 3 threads" "$got" "$one"
    case $seen in *"$one"*) fail "$leaves leaves gave the bits of another number of leaves" ;; esac
    seen="$seen|$one"
done

# Another micro-batch and another seed must change the hashes, or they prove nothing.
run seed --set train.seed=8
differs "another seed" "$got" "$reference"

# A run that is made longer keeps its schedule: it is the run that had this schedule and this length from the start.
for kind in cosine constant; do
    schedule=(--set train.schedule.kind=$kind --set train.schedule.warmup_steps=auto)
    expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir runs/longer "${schedule[@]}"
    expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir runs/longer "${schedule[@]}" --set train.steps=20
    longer=$(hashes "$out")
    says "this run now has 20 steps instead of 12"
    run whole "${schedule[@]}" --set train.steps=20 --set train.schedule.steps=12 --set train.schedule.warmup_steps=1
    same "$kind, made longer" "$longer" "$got"
    rm -rf runs/longer
done
# By epochs, and over several ranks.
epochs=(--json --run-dir runs/epochs --set train.steps=auto --set train.schedule.warmup_steps=auto)
expect 0 "$LOCKSTEP" train tiny.yaml "${epochs[@]}" --set train.epochs=0.25
first=$(field "$out" steps)
expect 0 "$LOCKSTEP" train tiny.yaml "${epochs[@]}" --set train.epochs=0.5 --ranks 3
longer=$(hashes "$out") steps=$(field "$out" steps)
run whole --set train.steps="$steps" --set train.schedule.steps="$first" --set train.schedule.warmup_steps=$((first / 10))
same "made longer by epochs" "$longer" "$got"

for isa in generic avx2 avx512; do
    if LS_ISA=$isa "$LOCKSTEP" version >"$out" 2>"$err"; then
        LS_ISA=$isa run "isa-$isa" --threads 2
        same "LS_ISA=$isa" "$got" "$reference"
    else
        echo "not on this processor: LS_ISA=$isa"
    fi
done
for family in gpt2 mistral qwen2 qwen3; do
    extra=()
    [ "$family" = gpt2 ] && extra=(--set model.kv_heads=4)
    run "$family" --set model.family="$family" "${extra[@]}" --threads 1
    one=$got
    run "$family-threads" --set model.family="$family" "${extra[@]}" --threads 3 --set train.recompute=selective
    same "$family, 1 and 3 threads" "$got" "$one"
done
finish
