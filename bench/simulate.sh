#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The queue's policy on published traces, beside yardsticks: one table. Nothing passes or fails. Usage:
#   bench/simulate.sh [DATA]     DATA: a folder with philly.csv and pollux/, default ../shared/data or $LS_SHARED_DATA
#                                LOCKSTEP: the binary, default build/release/lockstep
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

echo "Philly, 82,247 jobs. short: GPU-hours allocated while the queue asked for more than was free"
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

# mean FOLDER OPTIONS...: seconds, mean over the workloads of a load.
mean() {
    local folder=$1 workload
    shift
    for workload in "$folder"/*.csv; do
        "$lockstep" simulate "$workload" --cluster 16x4 --start-cost 30s --restart-cost 30s "$@" --json
    done | python3 -c '
import json, sys
text, at, sums = sys.stdin.read(), 0, []
while text[at:].strip():
    d, n = json.JSONDecoder().raw_decode(text[at:].lstrip())
    at += len(text[at:]) - len(text[at:].lstrip()) + n
    sums.append(3600 * d["avg_jct_h"])
print("%.0f" % (sum(sums) / len(sums)))'
}
echo "Pollux' workloads on 16x4, 30 s for each start and resize: mean JCT in seconds. Published: OSDI 2021 artifact, Pollux changes the batch, the others don't"
printf '%-6s %10s %10s %10s | %14s %10s %14s\n' load Tiresias Optimus Pollux "our Tiresias" "our fair" "over Tiresias"
while read -r load folder tiresias optimus pollux; do
    baseline=$(mean "$data/pollux/$folder" --policy las --tune.las-hours 16 --tune.min-run 60s --tune.preemptions 1000 \
        --tune.patience 30d) # Tiresias keeps nothing free
    fair=$(mean "$data/pollux/$folder" --policy fair)
    printf '%-6s %10s %10s %10s | %14s %10s %13sx\n' "$load" "$tiresias" "$optimus" "$pollux" "$baseline" "$fair" \
        "$(python3 -c "print('%.2f' % ($fair / $tiresias))")"
done <<'TABLE'
x0.5 workloads-0.5 2091 2395 1534
x1 workloads 4038 5682 2751
x1.5 workloads-1.5 6182 7235 3685
x2 workloads-2.0 10040 9721 5289
TABLE
