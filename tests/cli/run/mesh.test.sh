#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One hash for every mesh: ranks that divide the model, the batch, or both; with a rank killed in the middle of a leaf, and resumed on
# another mesh. Meshes that are not possible are refused, with the key and what would work.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

write_text text.txt 200 5
sed "s|README.md, docs/\*.md|$scratch/text.txt|" "$LS_SOURCE_DIR/examples/mesh.yaml" >mesh.yaml
train=("$LOCKSTEP" train mesh.yaml --json --threads 1 --set train.global_batch=15 --set train.leaves=5 --set train.micro_batch=1
    --set model.width=32 --set model.ffn=64 --set model.context=32 --set train.steps=5 --set model.tie_embeddings=true)

# run NAME ARGUMENT...: trains in a new folder and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 "${train[@]}" --run-dir "$name" "$@" && got=$(hashes "$out")
}

# bytes WHICH: what all ranks of the last run gave each other in a step, by axis; WHICH: mesh or predicted.
bytes() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]]["sent_bytes"])' "$out" "$1"; }

run one --ranks 1
reference=$got
# RANKS TENSOR CONTEXT PIPELINE SCHEDULE
for mesh in "4 4 1 1 1f1b" "6 2 1 1 1f1b" "2 1 1 2 interleaved" "3 1 1 3 1f1b" "4 1 1 4 zero-bubble" "4 2 1 2 1f1b" "8 2 2 2 zero-bubble" "4 1 2 1 1f1b"; do
    set -- $mesh
    run "mesh-$1-$2-$3-$4" --ranks "$1" --set "parallel.tensor=$2" --set "parallel.context=$3" --set "parallel.pipeline=$4" \
        --set "parallel.schedule=$5"
    same "$1 ranks, tensor $2, context $3, pipeline $4, $5" "$got" "$reference"
    same "$1 ranks, tensor $2, context $3, pipeline $4, $5: bytes of each axis, as planned" "$(bytes mesh)" "$(bytes predicted)"
    same "$1 ranks, tensor $2, context $3, pipeline $4, $5: status and step" "$(field "$out" status step)" "finished 5"
done
run threads --ranks 2 --set parallel.tensor=2 --threads 2
same "2 threads per rank" "$got" "$reference"

# A rank dies inside a leaf: only a new process can take its place, and the step goes on. In the last step, too.
for fault in "rank=1,at=leaf tensor" "rank=2,at=merge pipeline" "rank=3,at=ready tensor" "rank=0,at=leaf pipeline" "rank=1,at=merge,step=5 context"; do
    axis=${fault#* } fault=${fault% *}
    LS_TEST_FAULT="do=die,step=3,$fault" run "dies-${fault//[=,]/-}" --ranks 4 --set "parallel.$axis=2"
    same "killed at $fault" "$got" "$reference"
    check "killed at $fault: named with its place" grep -qE '"cause": *"rank [0-3] \(dp [01], (tp|pp|cp) [01]; [^ ]+, pid [0-9]+\) ended with' "dies-${fault//[=,]/-}/events.jsonl"
    same "killed at $fault: recoveries" "$(python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))["recoveries"]; print(len(r), r[0]["ranks"])' "$out")" "1 4"
done

# At any step of the op plan, too: before the first, between two that exchange, and late in the step.
for nth in 1 38 97; do
    LS_TEST_FAULT="do=die,step=3,rank=2,at=plan,nth=$nth" run "dies-plan-$nth" --ranks 4 --set parallel.tensor=2 --set parallel.pipeline=2
    same "killed before plan step $nth" "$got" "$reference"
    same "killed before plan step $nth: recoveries" "$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["recoveries"]))' "$out")" 1
done

# A rank that stops is found by those that wait for it inside the leaf, killed and replaced.
LS_TEST_FAULT="do=stop,rank=1,step=3,at=leaf" run stops --ranks 2 --set parallel.pipeline=2 --set job.hang_timeout=1s
same "stopped" "$got" "$reference"
check "stopped: named" grep -q '"event": *"hung", *"rank": *1' stops/events.jsonl
check "stopped: named with its place" grep -qE '"text": *"rank 1 \(dp 0, pp 1; [^ ]+, pid [0-9]+\) is stopped.* at a value between stages' stops/events.jsonl

# Ranks that share leaves cannot check each other's.
expect 0 "$LOCKSTEP" train mesh.yaml --dry-run --ranks 2 --set parallel.tensor=2 --set train.audit_every_steps=2
prints "train.audit_every_steps is 2, but ranks that divide a model"

# From one mesh to the next.
expect 0 "${train[@]}" --run-dir moves --ranks 2 --set parallel.tensor=2 --steps 2
expect 0 "${train[@]}" --run-dir moves --ranks 4 --set parallel.pipeline=4 --steps 4
run moves --ranks 3
same "three meshes in one run" "$got" "$reference"

# What a rank has for itself is within 5 % of the plan, on each axis.
# RANKS TENSOR CONTEXT PIPELINE EXPERT
sanitized || for mesh in "2 1 1 1 1" "4 4 1 1 1" "2 1 2 1 1" "4 1 1 4 1" "4 1 1 1 4"; do
    set -- $mesh
    family=(--set model.family=qwen3)
    [ "$5" -eq 1 ] || family=(--set model.family=qwen3-moe --set model.experts=8 --set model.experts_per_token=2)
    expect 0 "${train[@]}" "${family[@]}" --run-dir "memory-$1-$2-$3-$4-$5" --ranks "$1" --set "parallel.tensor=$2" --set "parallel.context=$3" \
        --set "parallel.pipeline=$4" --set "parallel.expert=$5" --set model.width=256 --set model.ffn=512 --set model.context=128 \
        --set train.global_batch=16 --set train.leaves=4 --set train.micro_batch=2 --steps 1
    check "$1 ranks, tensor $2, context $3, pipeline $4, expert $5: memory" python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))
pairs = list(zip(run["mesh"]["rank_memory_bytes"], run["predicted"]["rank_memory_bytes"]))
page = 2 << 20 # one huge page, which the kernel may refuse: then only the part of it that is used counts
assert all(0.95 * plan - page <= got <= 1.05 * plan for got, plan in pairs) and len(pairs) == int(sys.argv[2]), pairs' "$out" "$1"
done

# Impossible meshes.
refused() {
    local set=$1
    shift
    expect 2 "${train[@]}" --run-dir none $set
    says "$@"
}
refused "--ranks 3 --set parallel.tensor=2" "parallel.ranks is 3" "for example 4"
refused "--ranks 8 --set parallel.tensor=8" "parallel.tensor is 8" "train.tensor_cut" "use 4"
refused "--ranks 4 --set parallel.context=4" "parallel.context is 4" "train.sequence_cut" "use 2"
refused "--set train.sequence_cut=3" "train.sequence_cut is 3" "1, 2, 4 or 8"
refused "--set train.sequence_cut=4 --set model.context=36" "train.sequence_cut is 4" "model.context 36" "context of 40"
refused "--ranks 12 --set parallel.tensor=2" "at most 10 ranks"
refused "--ranks 5 --set parallel.pipeline=5" "parallel.pipeline is 5" "4 layers" "at most 4"
refused "--ranks 4 --set parallel.pipeline=4 --set parallel.schedule=interleaved" "parallel.pipeline is 4" "two" "at most 2"
refused "--set parallel.schedule=gpipe" parallel.schedule zero-bubble
refused "--set train.tensor_cut=3 --set parallel.tensor=3 --set model.heads=3 --set model.kv_heads=3 --set model.width=48 --set model.ffn=96" \
    "train.tensor_cut is 3" "power of two"
refused "--set train.tensor_cut=8" "train.tensor_cut is 8" "model.kv_heads 4" "use 4"
refused "--set model.kv_heads=2" "train.tensor_cut is 4" "model.kv_heads 2" "use 2"
refused "--set model.ffn=66" "train.tensor_cut is 4" "model.ffn 66" "use 2"
refused "--set model.heads=6 --set model.width=48" "model.kv_heads is 4" "does not divide model.heads 6"
refused "--ranks 3 --set parallel.tensor=3" "parallel.tensor is 3" "train.tensor_cut, which is 4" "use 2"
refused "--ranks 3 --set parallel.context=3" "parallel.context is 3" "train.sequence_cut, which is 2" "use 2"
refused "--ranks 2 --set parallel.context=2 --set train.sequence_cut=1" "parallel.context is 2" "which is 1; use 1"
refused "--ranks 4 --set parallel.data=3" "parallel.data is 3" "set parallel.data to auto"
refused "--ranks 5 --set parallel.tensor=auto --set parallel.pipeline=5" "parallel.pipeline is 5" "at most 4"
refused "--ranks 7 --set parallel=auto --set train.leaves=3" "parallel.ranks is 7" "train.leaves" "at most 3 ranks"
refused "--set parallel=3" "parallel is a section"
refused "--set parallel.tensor=automatic" "parallel.tensor is" "allowed is auto or a whole number, 1 to 64"
auto=
for key in family layers heads kv_heads width ffn context; do auto+=" --set model.$key=auto"; done
refused "--ranks 2 --set parallel.tensor=2 --set train.sequence_cut=1 --set adapter.kind=lora --set model.from=one/checkpoints/5 $auto" "parallel.tensor is 2" "adapter.kind"
check "nothing was created" test ! -e none
# Fewer micro-batches than stages only idle, and the run says how long.
expect 0 "$LOCKSTEP" train mesh.yaml --dry-run --ranks 4 --set parallel.pipeline=4 --set train.global_batch=12
prints "stages idle for 75.0 % of a leaf of 1 micro-batch"
# Without a calibration there is nothing to compare: ranks divide the batch, and the run says why.
expect 0 "$LOCKSTEP" train mesh.yaml --dry-run --ranks 3 --set parallel=auto
prints "parallel: auto divides only the batch: this machine was never measured" "3 ranks with"
# The cut belongs to a run's identity, degrees do not.
expect 2 "${train[@]}" --run-dir one --set train.tensor_cut=2 --set train.steps=8
says train.tensor_cut
expect 2 "${train[@]}" --run-dir one --set train.sequence_cut=1 --set train.steps=8
says train.sequence_cut
finish
