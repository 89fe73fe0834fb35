#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The queue's policy on published traces, compared with references: prints tables; nothing passes or fails. Usage:
#   bench/simulate.sh [DATA]     DATA: a folder with philly.csv and pollux/, default ../shared/data or $LS_SHARED_DATA
#                                LOCKSTEP: the binary, default build/release/lockstep; bench_pollux is next to it
set -eu
cd "$(dirname "$0")/.."
lockstep=${LOCKSTEP:-build/release/lockstep}
data=${1:-${LS_SHARED_DATA:-../shared/data}}
[ -e "$data/philly.csv" ] && [ -d "$data/pollux/workloads" ] || { echo "skipped: no philly.csv and pollux/ in $data"; exit 77; }

# value JSON KEY
value() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2" <<<"$1"; }
row() { python3 -c '
import json, sys
d = json.load(sys.stdin)
print("%-34s %8.2f %8.2f %8.1f %8.1f %%  %7.1f %% %9d %8.2f" % (sys.argv[1], d["avg_jct_h"], d["avg_wait_h"], d["p99_wait_h"],
      100 * d["utilization"], 100 * d["allocated_when_short"], d["preemptions"], d["wall_s"]))' "$1"; }
philly() { "$lockstep" simulate "$data/philly.csv" "$@" --json; }

echo "Philly, 82,247 jobs. short: part of the GPU-hours that was allocated while the queue asked for more than was free"
printf '%-34s %8s %8s %8s %10s %9s %9s %8s\n' "" "JCT h" "wait h" "p99 w h" "useful" "short" "preempt" "wall s"
for nodes in 48 64 80; do
    for policy in fifo fifo-skip easy sjf-oracle small-first; do
        philly --cluster ${nodes}x8 --policy $policy --pooled | row "$((nodes * 8)) pooled, $policy"
    done
done
for policy in sjf-oracle las fair; do
    out=$(philly --cluster 64x8 --policy $policy --restart-cost 60s)
    row "512 = 64x8 nodes, $policy" <<<"$out"
    eval "${policy//-/_}=$(value "$out" avg_jct_h)"
done
python3 -c 'import sys; print("fair over sjf-oracle (which knows durations): %.2fx; las: %.2fx. Wanted: at most 1.15x\n" %
    (float(sys.argv[1]) / float(sys.argv[3]), float(sys.argv[2]) / float(sys.argv[3])))' "$fair" "$las" "$sjf_oracle"

echo "Pollux' workloads on 16x4, 30 s for each start and resize: mean JCT in seconds. Published: OSDI 2021 artifact, Pollux changes the batch, the others don't"
"$(dirname "$lockstep")/bench_pollux" "$data/pollux"
