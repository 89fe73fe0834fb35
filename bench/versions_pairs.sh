#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Two builds of lockstep, runs in turn (A B A B ...), median of the pairs' ratios of tokens/s, new beside old: what a change costs when nothing goes wrong.
# Usage: bench/versions_pairs.sh OLD NEW [--rounds N] [CASE ...]     OLD, NEW: programs
#   mid-1    4 layers x 128, context 128, 12 leaves, one process with 2 threads
#   mid-2    the same, 2 ranks
#   tiny-1   2 layers x 32, context 32, 12 leaves (a step takes some 3 ms), one process with one thread
#   tiny-2   the same, 2 ranks
set -eu
[ $# -ge 2 ] || { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
old=$(realpath "$1") new=$(realpath "$2")
shift 2
rounds=5 cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    *) cases+=("$1"); shift ;;
    esac
done
[ ${#cases[@]} -gt 0 ] || cases=(mid-1 mid-2 tiny-1 tiny-2)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 - <<'PY'
import random
random.seed(1)
open("corpus.txt", "w").write(" ".join(random.choice("the cat sat on a mat and ran".split()) for _ in range(60000)))
def run(name, layers, heads, width, ffn, context, steps):
    open(name + ".yaml", "w").write(f"""name: pairs
model: {{family: llama, layers: {layers}, heads: {heads}, width: {width}, ffn: {ffn}, context: {context}}}
tokenizer: {{kind: bytes}}
data: {{train: [corpus.txt]}}
train: {{steps: {steps}, global_batch: 12, micro_batch: 1, leaves: 12}}
checkpoint: {{every_steps: 0}}
eval: {{every_steps: 0}}
sample: {{every_steps: 0}}
""")
run("mid", 4, 4, 128, 384, 128, 40)
run("tiny", 2, 2, 32, 64, 32, 3000)
PY
count=0
speed() { # PROGRAM CASE
    local threads=1
    [ "$2" = mid-1 ] && threads=2
    count=$((count + 1))
    "$1" train "${2%-*}.yaml" --ranks "${2#*-}" --threads $threads --run-dir "run-$count" --json 2>/dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["tokens_per_s"])'
    rm -rf "run-$count"
}
for name in "${cases[@]}"; do
    for _ in $(seq "$rounds"); do
        a=$(speed "$old" "$name")
        b=$(speed "$new" "$name")
        echo "$a $b"
    done | python3 -c '
import statistics, sys
ratios = [float(b) / float(a) for a, b in (line.split() for line in sys.stdin)]
print(sys.argv[1], "new/old", *(f"{r:.3f}" for r in ratios), f"median {statistics.median(ratios):.3f}")' "$name"
done
