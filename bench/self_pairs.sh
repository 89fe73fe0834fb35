#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Lockstep against itself, runs in turn (A B A B ...), median of the pairs' ratios. Usage: bench/self_pairs.sh [--rounds N] [CASE ...]
#   leaves    12 leaves against 1 at 1,024 tokens per leaf: what exactness for any rank count costs one rank
#   threads   2 threads against 1
#   start     process start to the end of the first step (no pair)
#   share     share of the FMA peak: two Llama layers of widths 64 to 2048 (T 256, batch 8), the small model, GPT-2 124M at T 64 and 1024 (no pair)
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
import os, random, struct
random.seed(1)
for name, vocab in (("tokens.bin", 50257), ("bytes.bin", 256)):
    if not os.path.exists("runs/bench/" + name):
        with open("runs/bench/" + name, "wb") as f:
            f.write(struct.pack("<400000H", *(random.randrange(vocab) for _ in range(400000))))
PY
small() { "$lockstep" bench train --config examples/small.yaml --set data.train=runs/bench/bytes.bin --json "$@"; }
share() { tr -d '\n' | sed "s/^/{\"of\": \"$1\", \"run\": /; s/$/}/" >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl; } # one run, named
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
        share)
            for width in 64 128 256 512 1024 2048; do
                small --steps 8 --set model.layers=2 --set model.width=$width --set model.heads=$((width / 64)) --set model.ffn=$((width * 8 / 3 / 64 * 64)) \
                    --set train.global_batch=8 --set train.micro_batch=8 | share "width $width"
            done
            small --steps 14 | share small
            "$lockstep" bench train --config bench/gpt2.yaml --steps 8 --json | share gpt2-64
            "$lockstep" bench train --config bench/gpt2.yaml --set model.context=1024 --steps 4 --json | share gpt2-1024 ;;
        start) small --steps 1 | tr -d '\n' >> runs/bench/self.jsonl; echo >> runs/bench/self.jsonl ;;
        esac
    done
    python3 - "$case" <<'PY'
import json, statistics, sys
lines = [json.loads(line) for line in open("runs/bench/self.jsonl")]
rows = [line.get("run", line)["results"][0] for line in lines]
if sys.argv[1] == "share":
    for of in dict.fromkeys(line["of"] for line in lines):
        shares = [row["peak_fraction"] for line, row in zip(lines, rows) if line["of"] == of]
        print(json.dumps({"case": of, "peak_fraction": statistics.median(shares), "min": min(shares), "max": max(shares), "runs": len(shares)}))
elif sys.argv[1] == "start":
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
