#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lockstep against itself, runs in turn (A B A B ...), median of the pairs' ratios. Usage: bench/self_pairs.sh [--rounds N] [CASE ...]
#   leaves    12 leaves against 1 at 1,024 tokens per leaf: what exactness for any rank count costs one rank
#   threads   2 threads against 1
#   start     process start to the end of the first step (no pair)
#   experts   2 of 8 experts against one MLP that costs a token as much, 1 thread, 2,048 tokens in a step
set -eu
cd "$(dirname "$0")/.."
rounds=5 cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    *) cases+=("$1"); shift ;;
    esac
done
[ ${#cases[@]} -gt 0 ] || cases=(leaves threads start experts)
lockstep=${LOCKSTEP:-build/release/lockstep}
mkdir -p runs/bench
python3 - <<'PY'
import os, random
random.seed(1)
if not os.path.exists("runs/bench/bytes.bin"):
    with open("runs/bench/bytes.bin", "wb") as f:
        f.write(b"".join(bytes((random.randrange(256), 0)) for _ in range(400000)))
PY
small() { "$lockstep" bench train --config examples/small.yaml --set data.train=runs/bench/bytes.bin --json "$@"; }
for case in "${cases[@]}"; do
    rm -f runs/bench/self.jsonl
    for _ in $(seq "$rounds"); do
        case $case in
        leaves)
            small --steps 4 --set train.global_batch=48 --set train.leaves=12 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl
            small --steps 4 --set train.global_batch=48 --set train.leaves=1 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl ;;
        threads)
            small --steps 10 --threads 2 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl
            small --steps 10 --threads 1 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl ;;
        experts)
            batch=(--steps 6 --threads 1 --set train.global_batch=8 --set train.micro_batch=8)
            small "${batch[@]}" --set model.family=mixtral --set model.ffn=512 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl
            small "${batch[@]}" --set model.family=mistral | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl ;;
        start) small --steps 1 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl ;;
        esac
    done
    python3 - "$case" <<'PY'
import json, statistics, sys
rows = [json.loads(line)["results"][0] for line in open("runs/bench/self.jsonl")]
if sys.argv[1] == "start":
    times = sorted(r["first_step_s"] for r in rows)
    print(json.dumps({"case": "start", "first_step_s": statistics.median(times), "min": times[0], "max": times[-1], "runs": len(times)}))
else:
    a, b = rows[0::2], rows[1::2]
    ratios = [x["tokens_per_s"] / y["tokens_per_s"] for x, y in zip(a, b)]
    print(json.dumps({"case": sys.argv[1], "a_tokens_per_s": statistics.median(x["tokens_per_s"] for x in a),
                      "b_tokens_per_s": statistics.median(x["tokens_per_s"] for x in b), "ratio": statistics.median(ratios),
                      "ratio_min": min(ratios), "ratio_max": max(ratios), "pairs": len(ratios),
                      "peak_fraction": statistics.median(x["peak_fraction"] for x in a)}))
PY
done
