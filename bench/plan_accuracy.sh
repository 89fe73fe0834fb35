#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Predicted against measured on this machine: calibrates it (unless --keep), trains four models of 2 to 26 million parameters, and prints step time and peak memory of each.
# Usage: bench/plan_accuracy.sh [--keep] [--steps N] [MODEL ...]      in a quiet moment: with anything else running, measured steps are slower than predicted
set -eu
cd "$(dirname "$0")/.."
lockstep=$(realpath "${LOCKSTEP:-build/release/lockstep}")
keep='' steps=0 models=()
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=1; shift ;;
    --steps) steps=$2; shift 2 ;;
    *) models+=("$1"); shift ;;
    esac
done
[ ${#models[@]} -gt 0 ] || models=(gpt2-2m gpt2-11m llama-4m-2-ranks llama-26m)
mkdir -p runs/bench
cd runs/bench
python3 - <<'PY'
import os, random
random.seed(1)
if not os.path.exists("bytes.bin"):
    with open("bytes.bin", "wb") as f:
        f.write(b"".join(bytes((random.randrange(256), 0)) for _ in range(400000)))
PY
[ -n "$keep" ] || "$lockstep" calibrate
for model in "${models[@]}"; do
    case $model in
    gpt2-2m) shape='family: gpt2, layers: 4, heads: 6, width: 192, ffn: 768, context: 128' train='steps: 40, global_batch: 32, micro_batch: 16, leaves: 2' ranks=1 save=0 ;;
    gpt2-11m) shape='family: gpt2, layers: 6, heads: 6, width: 384, ffn: 1536, context: 256' train='steps: 20, global_batch: 8, micro_batch: 4, leaves: 1' ranks=1 save=0 ;;
    llama-4m-2-ranks) shape='family: llama, layers: 5, heads: 8, kv_heads: 4, width: 256, ffn: 688, context: 128' train='steps: 40, global_batch: 32, micro_batch: 8, leaves: 4' ranks=2 save=10 ;;
    llama-26m) shape='family: llama, layers: 8, heads: 8, width: 512, ffn: 1376, context: 256' train='steps: 15, global_batch: 8, micro_batch: 4, leaves: 2' ranks=1 save=5 ;;
    *) echo "no model $model" >&2; exit 2 ;;
    esac
    cat > "accuracy-$model.yaml" <<YAML
name: $model
model: {$shape, vocab: 256}
tokenizer: {kind: bytes}
data: {train: [bytes.bin], validation_fraction: 0}
train: {$train, optimizer: {lr: 1.0e-3}}
parallel: {ranks: $ranks}
checkpoint: {every_steps: $save}
eval: {every_steps: 0}
sample: {every_steps: 0}
YAML
    "$lockstep" train "accuracy-$model.yaml" --fresh --run-dir "accuracy-$model" --json --steps "$steps" 2> /dev/null > "accuracy-$model.json"
    python3 - "$model" <<'PY'
import json, statistics, sys
run = json.load(open(f"accuracy-{sys.argv[1]}.json"))
p = run["predicted"]
steps = [json.loads(line)["step_s"] for line in open(f"accuracy-{sys.argv[1]}/metrics.jsonl")]
print(json.dumps({"model": sys.argv[1], "parameters": run.get("parameters"), "predicted_step_s": round(p["step_s"], 5), "step_s": round(run["step_s"], 5),
                  "step_ratio": round(p["step_s"] / run["step_s"], 4), "median_ratio": round(p["step_s"] / statistics.median(steps), 4),
                  "fastest_ratio": round(p["step_s"] / min(steps), 4), "predicted_mib": p["memory_bytes"] >> 20, "peak_mib": run["peak_rss_bytes"] >> 20,
                  "memory_ratio": round(p["memory_bytes"] / run["peak_rss_bytes"], 4), "stall_s": run["checkpoint_stall_s"], "predicted_stall_s": p["checkpoint_stall_s"]}))
PY
done
