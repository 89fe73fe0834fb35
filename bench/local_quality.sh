#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What local steps (train.local) cost in quality: a byte model of 0.9 million parameters is trained on the C sources of this repository, without and with
# local steps, each with the same tokens, schedule and seed, and the validation loss at the end is printed as a table. Needs no quiet machine.
# Usage: bench/local_quality.sh [--steps N] [--seeds N] [H:W:OUTER_LR:OUTER_MOMENTUM ...]      0:1:1:0 is the run without local steps
set -eu
cd "$(dirname "$0")/.."
lockstep=$(realpath "${LOCKSTEP:-build/release/lockstep}")
steps=400 seeds=1 variants=()
while [ $# -gt 0 ]; do
    case $1 in
    --steps) steps=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    *) variants+=("$1"); shift ;;
    esac
done
[ ${#variants[@]} -gt 0 ] || variants=(0:1:1:0 10:2:0.7:0.9 10:4:0.7:0.9 50:2:0.7:0.9 50:4:0.7:0.9)
folder=${LOCAL_QUALITY_DIR:-runs/local-quality}
mkdir -p "$folder"
find src -name '*.c' | LC_ALL=C sort | xargs cat >"$folder/sources.txt"
cat >"$folder/run.yaml" <<YAML
name: local-quality
model: {family: llama, layers: 4, heads: 4, width: 128, context: 64}
tokenizer: {kind: bytes}
data: {train: [$folder/sources.txt], validation_fraction: 0.02}
train:
  steps: $steps
  global_batch: 32
  micro_batch: 8
  leaves: 4
  threads: 1
  optimizer: {lr: 3.0e-3}
checkpoint: {every_steps: 0}
eval: {every_steps: $((steps / 4)), batches: 16}
YAML
printf '%-8s %-8s %-9s %-9s %-5s %10s %10s %9s\n' steps workers outer_lr momentum seed train_loss val_loss minutes
for variant in "${variants[@]}"; do
    IFS=: read -r h w lr momentum <<<"$variant"
    for seed in $(seq "$seeds"); do
        dir=$folder/$h-$w-$lr-$momentum-$seed
        "$lockstep" train "$folder/run.yaml" --run-dir "$dir" --fresh --set train.seed="$seed" --set train.local.steps="$h" --set train.local.workers="$w" \
            --set train.local.outer_lr="$lr" --set train.local.outer_momentum="$momentum" --json >"$dir.json" 2>"$dir.err"
        python3 - "$dir.json" "$h" "$w" "$lr" "$momentum" "$seed" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
print("%-8s %-8s %-9s %-9s %-5s %10.4f %10.4f %9.1f" % (*sys.argv[2:], d["loss"], d["val_loss"], d["wall_s"] / 60), flush=True)
PY
    done
done
