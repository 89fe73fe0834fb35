#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What local steps (train.local) cost in quality: a byte model of 0.9 million parameters is trained on the C sources of this repository, without and with
# local steps, each with the same tokens and schedule, for several seeds. Prints every run as it ends, and then for each variant the mean of the validation
# loss over the seeds, its spread (largest less smallest), and how much it is above that of the first variant. Needs no quiet machine.
# With --warm N, each seed first makes N steps without local steps, and all variants continue from that model: local steps are usually published so.
# Usage: bench/local_quality.sh [--steps N] [--seeds N] [--warm N] [H:W:OUTER_LR:OUTER_MOMENTUM[:BITS[:DELAY]] ...]      0:1:1:0 is the run without local steps
# A night:  bench/local_quality.sh --steps 4000 --warm 2000 0:1:1:0 10:4:1:0 50:2:0.7:0.9 50:4:0.7:0.9 50:4:0.7:0.9:8 50:4:0.7:0.9:4 50:4:0.7:0.9:8:10 200:4:0.7:0.9
set -eu
cd "$(dirname "$0")/.."
lockstep=$(realpath "${LOCKSTEP:-build/release/lockstep}")
steps=400 seeds=3 warm=0 variants=()
while [ $# -gt 0 ]; do
    case $1 in
    --steps) steps=$2; shift 2 ;;
    --seeds) seeds=$2; shift 2 ;;
    --warm) warm=$2; shift 2 ;;
    *) variants+=("$1"); shift ;;
    esac
done
[ ${#variants[@]} -gt 0 ] || variants=(0:1:1:0 10:2:0.7:0.9 10:4:0.7:0.9 50:2:0.7:0.9 50:4:0.7:0.9)
folder=${LOCAL_QUALITY_DIR:-runs/local-quality}
mkdir -p "$folder"
export LOCKSTEP_HOME=$folder/home
find src -name '*.c' | LC_ALL=C sort | xargs cat >"$folder/sources.txt"
cat >"$folder/run.yaml" <<YAML
name: local-quality
data: {train: [$folder/sources.txt], validation_fraction: 0.02}
train:
  global_batch: 32
  micro_batch: 8
  leaves: 4
  threads: 1
  optimizer: {lr: 3.0e-3}
checkpoint: {every_steps: 0}
eval: {batches: 16}
YAML
new="model: {family: llama, layers: 4, heads: 4, width: 128, context: 64}
tokenizer: {kind: bytes}"
{ cat "$folder/run.yaml"; echo "$new"; } >"$folder/new.yaml"

# train FILE DIR STEPS SEED OPTION...
train() {
    "$lockstep" train "$1" --run-dir "$2" --fresh --set train.steps="$3" --set train.seed="$4" --set eval.every_steps="$3" --json "${@:5}" >"$2.json" 2>"$2.err" ||
        { cat "$2.err" >&2; exit 1; }
}

: >"$folder/results"
printf '%-24s %-5s %10s %10s %9s\n' variant seed train_loss val_loss minutes
for seed in $(seq "$seeds"); do
    from=("$folder/new.yaml")
    if [ "$warm" -gt 0 ]; then
        train "$folder/new.yaml" "$folder/warm-$seed" "$warm" "$seed"
        from=("$folder/run.yaml")
    fi
    for variant in "${variants[@]}"; do
        IFS=: read -r h w lr momentum bits delay <<<"$variant"
        options=(--set train.local.steps="$h" --set train.local.workers="$w" --set train.local.outer_lr="$lr" --set train.local.outer_momentum="$momentum")
        [ "$h" = 0 ] || options+=(--set train.local.bits="${bits:-32}" --set train.local.delay="${delay:-0}")
        [ "$warm" = 0 ] || options+=(--set model.from="$folder/warm-$seed" --set model.context=64)
        dir=$folder/${variant//:/-}-$seed
        train "${from[@]}" "$dir" "$steps" "$seed" "${options[@]}"
        python3 - "$dir.json" "$variant" "$seed" "$folder/results" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
print("%-24s %-5s %10.4f %10.4f %9.1f" % (sys.argv[2], sys.argv[3], d["loss"], d["val_loss"], d["wall_s"] / 60), flush=True)
open(sys.argv[4], "a").write("%s %r\n" % (sys.argv[2], d["val_loss"]))
PY
    done
done
python3 - "$folder/results" <<'PY'
import sys
rows = {}
for line in open(sys.argv[1]):
    variant, loss = line.split()
    rows.setdefault(variant, []).append(float(loss))
first = next(iter(rows.values()))
print("\n%-24s %5s %10s %8s %8s" % ("variant", "seeds", "mean", "spread", "above"))
for variant, losses in rows.items():
    mean = sum(losses) / len(losses)
    print("%-24s %5d %10.4f %8.4f %+7.2f%%" % (variant, len(losses), mean, max(losses) - min(losses), 100 * (mean / (sum(first) / len(first)) - 1)))
PY
