#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# GPT-2 124M, B 4, T 64 beside llm.c's CPU trainer, runs in turn. Usage: bench/llmc_pairs.sh --peer FOLDER [--rounds N]
# FOLDER holds a built train_gpt2 (make train_gpt2 with OpenMP) and the files it reads: gpt2_124M.bin and
# dev/data/tinyshakespeare/*.bin. Its weights may be random: the work is the same.
set -eu
cd "$(dirname "$0")/.."
peer="" rounds=3
while [ $# -gt 0 ]; do
    case $1 in
    --peer) peer=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    esac
done
[ -x "$peer/train_gpt2" ] || { echo "no train_gpt2 in '$peer': give --peer FOLDER" >&2; exit 2; }
lockstep=${LOCKSTEP:-build/release/lockstep} threads=${THREADS:-2}
for _ in $(seq "$rounds"); do
    "$lockstep" bench train --config bench/gpt2.yaml --steps 8 --threads "$threads" --json |
        python3 -c 'import json,sys; print("ours", json.load(sys.stdin)["results"][0]["tokens_per_s"])'
    (cd "$peer" && OMP_NUM_THREADS=$threads timeout 600 stdbuf -oL ./train_gpt2) | python3 -u -c '
import re, sys
ms = []
for line in iter(sys.stdin.readline, ""):
    ms += [float(m) for m in re.findall(r"took ([0-9.]+) ms", line)]
    if len(ms) == 4:
        break
print("llm.c", 256000.0 / sorted(ms[1:])[1])' || true
done | tee /dev/stderr | python3 -c '
import statistics, sys
rows = [line.split() for line in sys.stdin]
ours = [float(v) for k, v in rows if k == "ours"]; theirs = [float(v) for k, v in rows if k == "llm.c"]
print("ratio", round(statistics.median(a / b for a, b in zip(ours, theirs)), 2), "pairs", len(theirs))'
