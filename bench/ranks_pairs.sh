#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training with ranks, runs in turn (A B, B A, ...), median of the pairs' ratios of tokens/s. The model of examples/small.yaml (6 x 384, context 256).
# Usage: bench/ranks_pairs.sh [--peer PYTHON] [--rounds N] [--steps N] [--ranks N] [CASE ...]
#   threads   N ranks with one thread each against one rank with N threads: the same run file, batch 8, leaves 4 sequences each
#   ddp       N ranks with one thread each against PyTorch DDP over Gloo (bench/train_peer.py --ranks N): batch 8; needs --peer, a Python with torch
#   leaves    12 leaves against as many as ranks, on N ranks with one thread each: what exactness for any rank count costs, at 1,024 tokens per leaf
# N is --ranks, default 2. A run's speed is tokens over time of all its steps but the first two: each run's steps are --steps, default 12, in
# case leaves a third of it, whose steps are six times as large. The binary: LOCKSTEP, default build/release/lockstep.
set -eu
cd "$(dirname "$0")/.."
peer="" rounds=5 steps=12 ranks=2 cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --peer) peer=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    -*) sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2 ;;
    *) cases+=("$1"); shift ;;
    esac
done
[ ${#cases[@]} -gt 0 ] || cases=(threads ddp leaves)
lockstep=${LOCKSTEP:-build/release/lockstep} dir=runs/bench/ranks
mkdir -p runs/bench
python3 - <<'PY'
import os, random
random.seed(1)
if not os.path.exists("runs/bench/text.txt"):
    with open("runs/bench/text.txt", "wb") as f:
        f.write(bytes(random.randrange(32, 127) for _ in range(800000)))
PY

# ours RANKS THREADS STEPS BATCH LEAVES: {"tokens_per_s": of all steps but the first two, "state_hash": ...}
ours() {
    timeout 300 "$lockstep" train examples/small.yaml --fresh --run-dir "$dir" --ranks "$1" --threads "$2" --steps "$3" --json \
        --set data.train=runs/bench/text.txt --set data.validation_fraction=0 --set train.global_batch="$4" --set train.leaves="$5" \
        --set train.micro_batch=4 --set checkpoint.every_steps=0 --set eval.every_steps=0 --set sample.every_steps=0 2>runs/bench/one.err >runs/bench/one.json ||
        { tail -n 5 runs/bench/one.err >&2; return 1; }
    python3 - "$dir/metrics.jsonl" runs/bench/one.json <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])][2:]
result = json.load(open(sys.argv[2]))
print(json.dumps({"tokens_per_s": sum(r["tokens"] for r in rows) / sum(r["step_s"] for r in rows), "state_hash": result["state_hash"],
                  "peak_rss_bytes": result["peak_rss_bytes"]}))
PY
    rm -rf "$dir" "$dir".*
}
theirs() { # theirs STEPS BATCH
    timeout 300 "$peer" bench/train_peer.py small --ranks "$ranks" --threads 1 --batch "$2" --context 256 --steps "$1" 2>runs/bench/one.err ||
        { tail -n 5 runs/bench/one.err >&2; return 1; }
}
side_a() {
    case $1 in
    threads | ddp) ours "$ranks" 1 "$steps" 8 "$ranks" ;;
    leaves) ours "$ranks" 1 $(((steps + 2) / 3 + 1)) 48 12 ;;
    esac
}
side_b() {
    case $1 in
    threads) ours 1 "$ranks" "$steps" 8 "$ranks" ;;
    ddp) theirs "$steps" 8 ;;
    leaves) ours "$ranks" 1 $(((steps + 2) / 3 + 1)) 48 "$ranks" ;;
    esac
}
for case in "${cases[@]}"; do
    if [ "$case" = ddp ] && ! "${peer:-false}" -c "import torch.distributed" 2>/dev/null; then
        echo "without ddp: give --peer PYTHON, one that has torch" >&2
        continue
    fi
    file=runs/bench/ranks-$case.jsonl
    : > "$file"
    for round in $(seq "$rounds"); do
        order="a b"
        [ $((round % 2)) = 1 ] || order="b a"
        for side in $order; do
            run=$("side_$side" "$case") && printf '{"round": %d, "side": "%s", "run": %s}\n' "$round" "$side" "$run" >> "$file"
        done
        echo "$case: round $round of $rounds done, $SECONDS s" >&2
    done
    python3 - "$case" "$file" <<'PY'
import json, statistics, sys
runs = {}
for line in open(sys.argv[2]):
    row = json.loads(line)
    runs.setdefault(row["side"], {})[row["round"]] = row["run"]
speed = lambda run: run.get("tokens_per_s_mean", run["tokens_per_s"])
a, b = ({r: speed(run) for r, run in runs[side].items()} for side in "ab")
ratios = [a[r] / b[r] for r in a if r in b]
report = {"case": sys.argv[1], "a_tokens_per_s": round(statistics.median(a.values()), 1), "b_tokens_per_s": round(statistics.median(b.values()), 1),
          "ratio": round(statistics.median(ratios), 3), "ratio_min": round(min(ratios), 3), "ratio_max": round(max(ratios), 3), "pairs": len(ratios),
          "a_state_hashes": len({run["state_hash"] for run in runs["a"].values()})}
if sys.argv[1] == "threads":  # the same run: the same bits
    report["same_state"] = len({run["state_hash"] for side in runs.values() for run in side.values()}) == 1
if sys.argv[1] == "ddp":
    report["peer"] = runs["b"][1]["peer"]
print(json.dumps(report))
PY
done
