#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# money.kinds on a real cluster of two nodes with GPUs of two kinds: each job is charged at the price of the node that Slurm gave it, and its cap holds at that price.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_edit() { # n0 has GPUs of kind "slow", n1 of kind "fast"
    sed -i 's/^NodeName=n\[0-1\]\(.*\)Port=\[\([0-9]*\)-\([0-9]*\)\]\(.*\)Gres=gpu:gpu:\(.*\)/NodeName=n0\1Port=\2\4Gres=gpu:slow:\5\nNodeName=n1\1Port=\3\4Gres=gpu:fast:\5/' "$slurm/slurm.conf"
    sed -i 's/^NodeName=n\[0-1\]\(.*\)Type=gpu\(.*\)/NodeName=n0\1Type=slow\2\nNodeName=n1\1Type=fast\2/' "$slurm/gres.conf"
}
slurm_up 2 --gpus 2 --cpus 2
. "$LS_SOURCE_DIR/tests/lib/slurm_queue.sh"
slurm_as mkdir -p "$LOCKSTEP_HOME"
settings() { slurm_as tee "$LOCKSTEP_HOME/config.yaml" <<<"money: {price: 1, kinds: [$1]}" >/dev/null; }

# Wrong prices are named.
settings "fast=7200, fast=1"
expect 2 queue up --engine slurm
says "money.kinds has two prices for fast"
settings "fast=dear"
expect 2 queue up --engine slurm
says "money.kinds has an invalid entry 'fast=dear'" "h100=3.50"
settings "slow=3600, fast=7200, quick=5"
expect 0 queue up --engine slurm
check "a kind that no node has is a warning" grep -q "a price for 'quick=5', but there is no node of that kind" "$LOCKSTEP_HOME/daemon.log"

# Two jobs that each need a whole node: one on each.
slurm_as tee "$work/job.yaml" >/dev/null <<'YAML'
name: job
parallel: {ranks: 2}
job: {ranks_per_node: 2, grace: 1s, restartable: true, command: [sh, -c, 'echo "price $LOCKSTEP_PRICE on $SLURMD_NODENAME"; exec sleep 1000']}
YAML
one=$(submit job.yaml) other=$(submit job.yaml)
for job in "$one" "$other"; do
    until_true "job $job runs" is "$job" RUNNING
    until_true "job $job has begun" grep -q price "$LOCKSTEP_HOME/jobs/$job/log"
done
priced() { # priced JOB: its kind is that of its node, its price that of the kind, for the queue and for its processes
    local node kind price
    node=$(sed -n 's/.* on //p;T;q' "$LOCKSTEP_HOME/jobs/$1/log")
    case $node in n0) kind=slow price=3600 ;; n1) kind=fast price=7200 ;; esac
    same "kind of job $1" "$(of "$1" kind)" "$kind"
    same "what job $1 was told" "$(sort -u "$LOCKSTEP_HOME/jobs/$1/log")" "price $price on $node"
    queue ps "$1" --json >"$out" 2>"$err"
    same "price of an hour of job $1" "$(python3 -c 'import json, sys; u = json.load(open(sys.argv[1]))["usage"]; print(round(u["cost"] / u["allocated_h"]))' "$out")" "$price"
}
priced "$one"
priced "$other"
same "kinds" "$(for job in "$one" "$other"; do of "$job" kind; done | sort | xargs)" "fast slow"
expect 0 queue nodes --json
same "prices of the nodes" "$(python3 -c 'import json, sys; print(*(int(n["price_per_device_h"]) for n in json.load(open(sys.argv[1]))["nodes"]))' "$out")" "3600 7200"
expect 0 queue usage
prints "A device-hour costs 1 USD; by kind of node: slow=3600, fast=7200, quick=5."

# The cap of a job on the dear node: 4 USD a second.
until_true "the slow one ends" queue cancel "$([ "$(of "$one" kind)" = slow ] && echo "$one" || echo "$other")"
capped=$([ "$(of "$one" kind)" = fast ] && echo "$one" || echo "$other")
expect 0 queue change "$capped" --max-cost 1
until_true "its cap stops it" is "$capped" HELD
expect 0 queue why "$capped"
prints "stopped by its cap:" "of 1.00 USD"
expect 0 queue down --cancel
finish
