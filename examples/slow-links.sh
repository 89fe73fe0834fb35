#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One model on four hosts with 100 Mbit/s between them: with plain sums of gradients, in int8,
# with the largest 1 % only, and with local steps, where the hosts meet every tenth step, or every
# fifth about one half of the layers. Prints for each how long a step took, what a host sent and
# the loss, and shows that one process computes the same bits. The hosts are network namespaces of
# this machine: it needs root, or user namespaces, and iproute2. Four minutes on two free cores.
# usage: examples/slow-links.sh [LOCKSTEP] [RATE]
set -eu
source_dir=$(cd "$(dirname "$0")/.." && pwd)
. "$source_dir/tests/lib/netns.sh"
netns_as_root "$0" "$@"
lockstep=$(realpath "${1:-$source_dir/build/release/lockstep}")
rate=${2:-100mbit}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
netns_begin 4
netns_write_ssh "$folder/ssh"
export LOCKSTEP_SSH=$folder/ssh LOCKSTEP_HOME=$folder/home
for host in 0 1 2 3; do netns_rate $host "$rate"; done
printf 'host%d 10.77.0.%d\n' 0 1 1 2 2 3 3 4 >four.hosts
cat "$source_dir"/docs/*.md "$source_dir"/docs/guide/*.md >text.txt
cat >run.yaml <<'YAML'
name: slow
model: {layers: 4, heads: 4, width: 192, context: 64}
tokenizer: {kind: bytes}
data: {train: [text.txt]}
train: {steps: 60, global_batch: 16, micro_batch: 4, leaves: 4, optimizer: {lr: 2.0e-3}, schedule: {warmup_steps: 10}}
eval: {every_steps: 60, batches: 4}
sample: {every_steps: 0}
checkpoint: {every_steps: 0}
YAML

# scheme NAME SETTING...: on four hosts, then in one process.
scheme() {
    local name=$1 place
    shift
    for place in four one; do
        if [ $place = four ]; then
            netns_run 0 "$lockstep" train run.yaml --run-dir "$name-$place" --threads 1 --json --hosts four.hosts --ranks 4 "$@" >$place.json
        else
            "$lockstep" train run.yaml --run-dir "$name-$place" --threads 1 --json --ranks 1 "$@" >$place.json 2>errors.txt || cat errors.txt
        fi
    done
    python3 - "$name" <<'PY'
import json, statistics, sys
four, one = json.load(open("four.json")), json.load(open("one.json"))
lines = [json.loads(line) for line in open(sys.argv[1] + "-four/metrics.jsonl")][20:]
step, sent = (statistics.mean(l[key] for l in lines) for key in ("step_s", "link_bytes"))
same = all(four[h] == one[h] for h in ("state_hash", "curve_hash"))
print(f"{sys.argv[1]:6} {step:6.3f} s per step, {sent / 1e6:7.3f} MB sent per host and step, validation loss {four['val_loss']:.4f}, "
      f"{'the bits of one process: ' + four['state_hash'][:16] if same else 'OTHER BITS THAN ONE PROCESS'}")
sys.exit(not same)
PY
}
scheme dense --set parallel.zero=0
scheme int8 --set train.compression.kind=int8
scheme topk --set train.compression.kind=topk
scheme local --set train.local.steps=10 --set train.local.workers=4
scheme parts --set train.local.steps=10 --set train.local.workers=4 --set train.local.fragments=2 --set train.local.delay=2
