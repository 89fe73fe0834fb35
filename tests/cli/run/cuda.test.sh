#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run on a GPU: with kernels on the processor (tests/compute/cuda_on_cpu) where that could be built, else on the GPU of the machine.
# The same bits for the same run, killed or not; from the CPU to the GPU and back; precision is identity; errors say what to do.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

bed=$LS_BUILD_DIR/libcuda_on_cpu.so products=$LS_BUILD_DIR/libcublaslt_on_cpu.so
if [ -e "$bed" ]; then
    export LOCKSTEP_CUDA_DRIVER=$bed
    [ ! -e "$products" ] || export LOCKSTEP_CUBLASLT=$products
elif ! "$LOCKSTEP" doctor 2>/dev/null | grep -q 'GPU.*sm_'; then
    echo "skipped: there is no GPU, and no C++ compiler to run its kernels on the processor"
    exit 77
fi

# Every kind of layer in a size that the processor bears: GPT-2 with biases and GELU, Llama with grouped queries and SwiGLU.
cat >gpt2.yaml <<'Y'
name: gpt2
model: {family: gpt2, layers: 2, width: 64, heads: 1, context: 32}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0.1}
train: {steps: 6, global_batch: 4, micro_batch: 2, leaves: 2, seed: 5, device: cuda, optimizer: {lr: 3.0e-3}}
eval: {every_steps: 3, batches: 1}
sample: {every_steps: 6, max_tokens: 4}
checkpoint: {every_steps: 2, keep_last: 9}
Y
sed 's/name: gpt2/name: llama/; s/family: gpt2, layers: 2, width: 64, heads: 1/family: llama, layers: 2, width: 128, heads: 2, kv_heads: 1, ffn: 96/' gpt2.yaml >llama.yaml

# run FAMILY NAME ARGUMENT...: trains in a new folder and leaves its hashes in $got and its loss in $loss.
run() {
    local family=$1 name=$2
    shift 2
    got= loss=
    expect 0 "$LOCKSTEP" train "$family.yaml" --json --run-dir "runs/$name" "$@" || return
    got=$(hashes "$out")
    loss=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["loss"])' "$out")
}
near() { # near WHAT A B FRACTION
    checks=$((checks + 1))
    python3 -c 'import sys; a,b,f=map(float,sys.argv[1:]); sys.exit(not abs(a-b)<=f*abs(b))' "$2" "$3" "$4" || fail "$1: $2 is not near $3"
}

for family in gpt2 llama; do
    run $family $family-cpu --set train.device=cpu
    cpu=$got cpu_loss=$loss
    for precision in fp32 bf16; do
        run $family $family-$precision --set train.precision=$precision
        reference=$got
        near "$family in $precision against the CPU" "$loss" "$cpu_loss" "$([ $precision = fp32 ] && echo 1e-4 || echo 1e-2)"
        LS_CUDA_SEED=7 LS_CUDA_THREADS=1 run $family $family-$precision-again --set train.precision=$precision
        same "$family in $precision, blocks and threads in another order" "$got" "$reference"
        # Stopped in the middle and continued by another process.
        expect 0 "$LOCKSTEP" train $family.yaml --run-dir runs/$family-$precision-halves --steps 3 --set train.precision=$precision
        run $family $family-$precision-halves --set train.precision=$precision
        same "$family in $precision, stopped and continued" "$got" "$reference"
    done
done

# Checks for silent corruption, each in every step: the audit's leaf, and the hash of the state.
for precision in fp32 bf16; do
    run gpt2 checked-$precision --set train.precision=$precision --set train.audit_every_steps=1 --set train.hash_every_steps=1
    checked=$got
    run gpt2 unchecked-$precision --set train.precision=$precision --set train.audit_every_steps=0 --set train.hash_every_steps=0
    same "$precision with and without checks for silent corruption" "$checked" "$got"
done

# A card that is lost in the middle: named, exit code 4, and no talk of corruption.
if [ -n "${LOCKSTEP_CUDA_DRIVER:-}" ]; then
    LS_CUDA_FAIL=cuLaunchKernel:900:700 expect 4 "$LOCKSTEP" train llama.yaml --run-dir runs/lost --set train.hash_every_steps=1
    says "CUDA_ERROR_ILLEGAL_ADDRESS"
    if grep -q 'silent corruption' "$err"; then fail "a lost card was taken for corruption"; fi
fi

# Killed without warning.
"$LOCKSTEP" train llama.yaml --run-dir runs/killed --set train.precision=bf16 >"$scratch/killed.log" 2>&1 &
victim=$!
for _ in $(seq 3000); do
    [ -e runs/killed/checkpoints/latest ] || ls runs/killed/checkpoints 2>/dev/null | grep -q . && break
    sleep 0.01
done
kill -9 $victim 2>/dev/null
wait $victim 2>/dev/null
run llama killed --set train.precision=bf16
run llama not-killed --set train.precision=bf16
killed=$(cat runs/killed/summary.json | python3 -c 'import json,sys; print(json.load(sys.stdin)["state_hash"])')
same "killed and resumed" "$killed" "$(python3 -c 'import json; print(json.load(open("runs/not-killed/summary.json"))["state_hash"])')"

# From the CPU to the GPU and back: allowed, and said.
expect 0 "$LOCKSTEP" train gpt2.yaml --run-dir runs/moved --steps 2 --set train.device=cpu
expect 0 "$LOCKSTEP" train gpt2.yaml --run-dir runs/moved --steps 4
says "determinism class"
expect 0 "$LOCKSTEP" train gpt2.yaml --run-dir runs/moved --set train.device=cpu
says "determinism class"

# Precision is identity.
expect 2 "$LOCKSTEP" train gpt2.yaml --run-dir runs/moved --set train.precision=bf16
says "precision"

# Wrong wishes, each with a way out.
expect 2 "$LOCKSTEP" train gpt2.yaml --run-dir runs/x --set train.precision=bf16 --set train.device=cpu
says "needs a GPU"
expect 2 "$LOCKSTEP" train gpt2.yaml --run-dir runs/x --ranks 2
says "one process on one GPU"
check "a refused run leaves no folder" test ! -e runs/x
LOCKSTEP_CUDA_DRIVER=/nonexistent/libcuda.so expect 4 "$LOCKSTEP" train gpt2.yaml --run-dir runs/x --set train.precision=bf16
says "driver"
LOCKSTEP_CUDA_DRIVER=/nonexistent/libcuda.so expect 0 "$LOCKSTEP" train gpt2.yaml --run-dir runs/auto --set train.device=auto --steps 1
prints "training on the CPU: the GPU of this machine is not used, because no NVIDIA driver"

finish
