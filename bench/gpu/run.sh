#!/usr/bin/env bash
# On a machine with a GPU, from the folder that bench/gpu/kit.sh made:
#   run.sh check     what the machine has; every test of the CUDA backend, wrappers of instructions first
#   run.sh kernels   times of kernels against the speed of a copy, of products and of attention
#   run.sh exact     the same bits: ten runs, killed and resumed, saved on the CPU and continued
#   run.sh train     training speed of the models in docs/gpu.md, in turn with PyTorch (peer.py) where it is installed
# Without an argument: all. Output goes to standard output, and to $OUT if it is set. Stops at the first wrong wrapper.
set -u
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${OUT:-$work}
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
unset LOCKSTEP_CUDA_DRIVER

# cuBLASLt comes with the toolkit, or with PyTorch's packages.
find_cublaslt() {
    [ -n "${LOCKSTEP_CUBLASLT:-}" ] && return
    local path
    path=$(python3 - 2>/dev/null <<'P'
import glob, importlib.util, os
for name in ("nvidia", "torch"):
    spec = importlib.util.find_spec(name)
    for root in (spec.submodule_search_locations if spec else []):
        found = sorted(glob.glob(os.path.join(root, "**", "libcublasLt.so.*"), recursive=True))
        if found:
            print(found[-1]); raise SystemExit
P
    )
    path=${path:-$(ls /usr/local/cuda/lib64/libcublasLt.so.* 2>/dev/null | head -1)}
    [ -n "$path" ] && export LOCKSTEP_CUBLASLT=$path && export LD_LIBRARY_PATH="$LD_LIBRARY_PATH:$(dirname "$path")"
}

probe() {
    echo "== machine"
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit --format=csv,noheader
    echo "cuBLASLt: ${LOCKSTEP_CUBLASLT:-none}"
    find_cudnn=$(python3 -c 'import nvidia.cudnn, os; print(os.path.dirname(nvidia.cudnn.__file__))' 2>/dev/null)
    echo "cuDNN: ${find_cudnn:-none}"
}

check() {
    local failed=0
    for test in "$here"/bin/compute_cuda_hopper_test "$here"/bin/compute_cuda_*_test; do
        [ -x "$test" ] || continue
        local name=$(basename "$test")
        [ "$name" = compute_cuda_hopper_test ] && [ -e "$work/hopper" ] && continue
        touch "$work/hopper"
        local begin=$SECONDS
        timeout 120 "$test" >"$out/$name.log" 2>&1
        local verdict=$?
        printf '%-44s %s (%d s)\n' "$name" "$([ $verdict = 0 ] && echo passed || echo "FAILED: exit status $verdict")" $((SECONDS - begin))
        if [ $verdict != 0 ]; then
            failed=1
            grep -vE '^\[ +(RUN|OK)' "$out/$name.log" | head -n ${LINES_OF_A_FAILURE:-25}
            case $name in *hopper*) echo "a wrapper is wrong: kernels that use it cannot be right"; [ -n "${GO_ON:-}" ] || return 1 ;; esac
        fi
    done
    return $failed
}

kernels() {
    for bench in "$here"/bin/gpu_*; do
        [ -x "$bench" ] || continue
        echo "== $(basename "$bench")"
        timeout 200 "$bench" 2>&1 | tee "$out/$(basename "$bench").txt" | head -n 90
    done
}

# tokens FILE COUNT VOCABULARY: random tokens, but with a skew, as in text.
tokens() {
    python3 - "$1" "$2" "$3" <<'P'
import random, struct, sys
random.seed(7)
path, count, vocabulary = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
block = [min(int(random.paretovariate(0.8)) - 1, vocabulary - 1) for _ in range(1 << 16)]
with open(path, "wb") as f:
    done = 0
    while done < count:
        n = min(len(block), count - done)
        f.write(struct.pack("<%dH" % n, *block[:n])); done += n
        random.shuffle(block)
P
}

# model NAME: the lines of a run file.
model() {
    case $1 in
        gpt2-124m) echo 'model: {family: gpt2, layers: 12, width: 768, heads: 12, context: 1024, vocab: 50257}' ;;
        gpt2-1.5b) echo 'model: {family: gpt2, layers: 48, width: 1600, heads: 25, context: 1024, vocab: 50257}' ;;
        llama-1b) echo 'model: {family: llama, layers: 16, width: 2048, heads: 32, kv_heads: 8, ffn: 8192, context: 4096, vocab: 50257}' ;;
        tiny-gpt2) echo 'model: {family: gpt2, layers: 4, width: 256, heads: 4, context: 256, vocab: 4096}' ;;
        tiny-llama) echo 'model: {family: llama, layers: 4, width: 256, heads: 4, kv_heads: 2, ffn: 768, context: 256, vocab: 4096}' ;;
    esac
}

# run_file NAME MODEL "TRAIN SETTINGS" "OTHER LINES"
run_file() {
    {
        printf 'name: %s\ntokenizer: {kind: bytes}\n' "$1"
        model "$2"
        printf 'data: {train: [%s], validation_fraction: 0.01}\neval: {every_steps: 0, batches: 1}\nsample: {every_steps: 0}\n' "$work/tokens.bin"
        printf 'train: {%s}\n%s\n' "$3" "$4"
    } >"$work/$1.yaml"
}

value() { # value KEY < summary.json
    python3 -c 'import json,sys; print(json.load(sys.stdin).get(sys.argv[1]))' "$1"
}

train_once() { # train_once NAME [OPTIONS]: prints the last lines
    local name=$1
    shift
    "$here/bin/lockstep" train "$work/$name.yaml" --run-dir "$work/runs/$name${SUFFIX:-}" "$@" >"$out/train-$name${SUFFIX:-}.log" 2>&1 ||
        { echo "$name${SUFFIX:-}: FAILED"; tail -n 5 "$out/train-$name${SUFFIX:-}.log"; return 1; }
}

hash_of() { value state_hash <"$work/runs/$1/summary.json"; }

exact() {
    echo "== the same bits"
    tokens "$work/tokens.bin" 2000000 4096
    local settings='steps: 30, global_batch: 16, micro_batch: 4, leaves: 2'
    local family precision
    for family in tiny-gpt2 tiny-llama; do
        for precision in fp32 tf32 bf16; do
            run_file "$family-$precision" $family "$settings, precision: $precision, device: cuda" 'checkpoint: {every_steps: 10, keep_last: 5}'
            local hashes="" i
            for i in 1 2 3; do
                SUFFIX=-$i train_once "$family-$precision" || return 1
                hashes="$hashes $(hash_of "$family-$precision-$i")"
            done
            # Killed in the middle, then resumed.
            "$here/bin/lockstep" train "$work/$family-$precision.yaml" --run-dir "$work/runs/$family-$precision-k" >"$out/killed.log" 2>&1 &
            local pid=$!
            for i in $(seq 600); do grep -q '^{.*"step": *1[2-9]' "$work/runs/$family-$precision-k/metrics.jsonl" 2>/dev/null && break; sleep 0.02; done
            kill -9 $pid 2>/dev/null
            wait $pid 2>/dev/null
            SUFFIX=-k train_once "$family-$precision" || return 1
            hashes="$hashes $(hash_of "$family-$precision-k")"
            local different=$(printf '%s\n' $hashes | sort -u | wc -l)
            echo "$family $precision: $(printf '%s\n' $hashes | wc -l) runs, one of them killed and resumed: $different hash$([ "$different" = 1 ] || echo es), loss $(value loss <"$work/runs/$family-$precision-1/summary.json")"
        done
        run_file "$family-cpu" $family "$settings, precision: fp32, device: cpu" ''
        train_once "$family-cpu" && echo "$family fp32 on the CPU: loss $(value loss <"$work/runs/$family-cpu/summary.json")"
    done
}

train() {
    echo "== training"
    tokens "$work/tokens.bin" 30000000 50257
    run_file gpt2-124m gpt2-124m "steps: ${STEPS:-8}, global_batch: 512, micro_batch: ${MICRO_124M:-64}, leaves: 1, precision: bf16, audit_every_steps: 0" 'checkpoint: {every_steps: 0}'
    train_once gpt2-124m && report gpt2-124m
    [ -n "${ONLY_SMALL:-}" ] && return
    run_file llama-1b llama-1b "steps: ${STEPS:-6}, global_batch: 32, micro_batch: ${MICRO_1B:-8}, leaves: 1, precision: bf16, audit_every_steps: 0" 'checkpoint: {every_steps: 0}'
    train_once llama-1b && report llama-1b
    run_file gpt2-1.5b gpt2-1.5b "steps: ${STEPS:-5}, global_batch: 64, micro_batch: ${MICRO_15B:-16}, leaves: 1, precision: bf16, audit_every_steps: 0" 'checkpoint: {every_steps: 0}'
    train_once gpt2-1.5b && report gpt2-1.5b
}

report() { # report NAME: medians over the steps after the second
    python3 - "$work/runs/$1/metrics.jsonl" "$1" <<'P'
import json, statistics, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
rest = rows[2:] or rows
print("%-12s %9.0f tokens/s  MFU %5.2f %%  step %7.1f ms  loss %.4f -> %.4f" % (
    sys.argv[2], statistics.median(r["tokens_per_s"] for r in rest), 100 * statistics.median(r.get("mfu") or 0 for r in rest),
    1e3 * statistics.median(r["step_s"] for r in rest), rows[0]["loss"], rows[-1]["loss"]))
P
}

peer() {
    [ -f "$here/peer.py" ] && python3 -c 'import torch' 2>/dev/null && timeout "${PEER_SECONDS:-400}" python3 "$here/peer.py" "$@" 2>&1 | tail -n 20
}

find_cublaslt
probe
for part in ${@:-check kernels exact train peer}; do
    $part || echo "$part: not everything passed"
done
