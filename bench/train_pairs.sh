#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training speed beside PyTorch, runs in turn (A B A B ...), median of the pairs' ratios.
# Usage: bench/train_pairs.sh --peer PYTHON [--mode eager|compile] [--rounds N] [CASE ...]
#   CASE: small (6 x 384, B 4, T 256), gpt2-64 (124M, B 4, T 64), gpt2-1024 (124M, B 4, T 1024); default all
# PYTHON: an interpreter that has torch. Threads: THREADS, default 2. The binary: LOCKSTEP, default build/release/lockstep.
set -eu
cd "$(dirname "$0")/.."
peer="" mode=eager rounds=5 cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --peer) peer=$2; shift 2 ;;
    --mode) mode=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    *) cases+=("$1"); shift ;;
    esac
done
[ -n "$peer" ] || { echo "which PyTorch? give --peer PYTHON" >&2; exit 2; }
[ ${#cases[@]} -gt 0 ] || cases=(small gpt2-64 gpt2-1024)
lockstep=${LOCKSTEP:-build/release/lockstep} threads=${THREADS:-2}

mkdir -p runs/bench
"$peer" - <<'PY'
import random, struct, os
random.seed(1)
for name, vocab in (("tokens.bin", 50257), ("bytes.bin", 256)):
    path = "runs/bench/" + name
    if not os.path.exists(path):
        with open(path, "wb") as f:
            f.write(struct.pack("<400000H", *(random.randrange(vocab) for _ in range(400000))))
PY

ours() { # ours CASE
    case $1 in
    small) "$lockstep" bench train --config examples/small.yaml --set data.train=runs/bench/bytes.bin --steps 14 --threads "$threads" --json ;;
    gpt2-64) "$lockstep" bench train --config bench/gpt2.yaml --steps 10 --threads "$threads" --json ;;
    gpt2-1024) "$lockstep" bench train --config bench/gpt2.yaml --set model.context=1024 --steps 4 --threads "$threads" --json ;;
    esac
}
theirs() {
    case $1 in
    small) "$peer" bench/train_peer.py small --mode "$mode" --threads "$threads" --batch 4 --context 256 --steps 14 ;;
    gpt2-64) "$peer" bench/train_peer.py gpt2 --mode "$mode" --threads "$threads" --batch 4 --context 64 --steps 10 ;;
    gpt2-1024) "$peer" bench/train_peer.py gpt2 --mode "$mode" --threads "$threads" --batch 4 --context 1024 --steps 4 ;;
    esac
}
for case in "${cases[@]}"; do
    : > "runs/bench/$case.jsonl"
    for _ in $(seq "$rounds"); do
        ours "$case" | "$peer" -c 'import json,sys; print(json.dumps({"ours": json.load(sys.stdin)["results"][0]}))' >> "runs/bench/$case.jsonl"
        theirs "$case" 2>/dev/null | "$peer" -c 'import json,sys; print(json.dumps({"theirs": json.load(sys.stdin)}))' >> "runs/bench/$case.jsonl"
    done
    "$peer" - "$case" "$mode" <<'PY'
import json, statistics, sys
rows = [json.loads(line) for line in open(f"runs/bench/{sys.argv[1]}.jsonl")]
ours, theirs = [r["ours"] for r in rows if "ours" in r], [r["theirs"] for r in rows if "theirs" in r]
median = lambda rows, key: statistics.median(r[key] for r in rows)
ratios = [a["tokens_per_s"] / b["tokens_per_s"] for a, b in zip(ours, theirs)]
print(json.dumps({"case": sys.argv[1], "peer": theirs[0]["peer"], "pairs": len(ratios), "ours_tokens_per_s": round(median(ours, "tokens_per_s"), 1),
                  "peer_tokens_per_s": round(median(theirs, "tokens_per_s"), 1), "ratio": round(statistics.median(ratios), 3),
                  "ratio_min": round(min(ratios), 3), "ratio_max": round(max(ratios), 3), "peak_fraction": round(median(ours, "peak_fraction"), 3),
                  "rss_ratio": round(median(ours, "peak_rss_bytes") / median(theirs, "peak_rss_bytes"), 3),
                  "ours_rss_mib": round(median(ours, "peak_rss_bytes") / 2**20), "peer_rss_mib": round(median(theirs, "peak_rss_bytes") / 2**20),
                  "ours_first_step_s": round(median(ours, "first_step_s"), 3), "peer_first_step_s": round(median(theirs, "first_step_s"), 3)}))
PY
done
