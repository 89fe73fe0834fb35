#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a network link between two pipeline stages costs: the same run with both stages on one host, and on two hosts of network namespaces
# whose links are limited to RATE, in turn. Needs root, or user namespaces, and iproute2.
#
#   bench/stages_link.sh [--rate 1gbit] [--mbps 119.6] [--rounds 3] [--steps 6] [--micro-batches 16] [--set key=value]...
#
# A step's time is the median of all its rounds but the first two steps of each. "sent" is what host 0 sent per step. Values between stages
# travel while others are computed; gradient sums and weights travel after the last leaf, and their bytes at the link's payload rate (--mbps, in
# MB/s: 119.6 for 1 Gbit/s of Ethernet frames of 1,500 bytes) are what the link must cost. "beyond" is the rest, as a share of the step.
# The binary: LOCKSTEP, default build/release/lockstep.
set -u
cd "$(dirname "$0")/.."
. tests/lib/netns.sh
netns_as_root "$0" "$@"
rate=1gbit mbps=119.6 rounds=3 steps=6 micro=16 sets=()
while [ $# -gt 0 ]; do
    case $1 in
    --rate) rate=$2; shift 2 ;;
    --mbps) mbps=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --micro-batches) micro=$2; shift 2 ;;
    --set) sets+=(--set "$2"); shift 2 ;;
    *) sed -n '3,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
program=$(realpath "${LOCKSTEP:-build/release/lockstep}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
netns_begin 2
netns_write_ssh "$work/ssh"
export LOCKSTEP_SSH=$work/ssh LOCKSTEP_HOME=$work/home
python3 -c '
import random
random.seed(1)
open("text.txt", "w").write(" ".join(random.choice("the cat sat on a mat and ran".split()) for _ in range(200000)))'
cat >run.yaml <<YAML
name: link
model: {layers: 6, heads: 6, width: 384, context: 512}
tokenizer: {kind: bytes}
data: {train: [text.txt]}
train: {steps: $steps, global_batch: $micro, micro_batch: 1, leaves: 1, optimizer: {lr: 1.0e-3}}
parallel: {ranks: 2, pipeline: 2, shadow: false}
eval: {every_steps: 0}
sample: {every_steps: 0}
checkpoint: {every_steps: 0}
YAML
printf 'host0 10.77.0.1\nhost1 10.77.0.2\n' >two.hosts
for host in 0 1; do netns_rate $host "$rate"; done

sent() { netns_inside "${netns_holders[0]}" sh -c 'cat /sys/class/net/e*/statistics/tx_bytes' | awk '{ s += $1 } END { print s }'; }
# sent_at STEP: what host 0 has sent when the run has passed it.
sent_at() {
    while kill -0 "$trainer" 2>/dev/null && [ "$(wc -l 2>/dev/null <run/metrics.jsonl || echo 0)" -lt "$1" ]; do sleep 0.01; done
    sent
}
# run NAME ARGUMENT...: its lines of metrics are added to NAME.metrics, what host 0 sent per step to NAME.sent
run() {
    local name=$1 first
    shift
    rm -rf run
    netns_exec 0 "$program" train run.yaml --run-dir run --threads 1 --json "${sets[@]}" "$@" >out.json 2>error.txt &
    trainer=$!
    first=$(sent_at 2)
    echo $((($(sent_at $((steps - 1))) - first) / (steps - 3))) >>"$name.sent"
    wait "$trainer" || { tail -3 error.txt; exit 1; }
    tail -n +3 run/metrics.jsonl >>"$name.metrics"
}
for ((round = 0; round < rounds; round++)); do
    run one
    run two --hosts two.hosts
done
python3 - "$mbps" "$micro" <<'PY'
import json, statistics, sys
mbps, micro = float(sys.argv[1]), int(sys.argv[2])
times = {n: statistics.median(json.loads(l)["step_s"] for l in open(n + ".metrics")) for n in ("one", "two")}
sent = statistics.median(int(l) for l in open("two.sent")) / 1e6
values = micro * 512 * 384 * 4 / 1e6
after = max(0.0, sent - values) / mbps
print(f"one host {times['one']:.3f} s per step; two hosts {times['two']:.3f} s; host 0 sent {sent:.1f} MB per step, {values:.1f} MB of it values between stages")
print(f"bytes after the last leaf {after:.3f} s; beyond {100 * (times['two'] - after - times['one']) / times['one']:+.1f} %")
PY
