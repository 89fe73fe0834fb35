#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts of which one is lost, agent and ranks, at some moment of a step: the others go on, no step is lost, the bits are those of an
# undisturbed run.
. "$(dirname "$0")/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

steps=${LS_LOST_STEPS:-200}
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=48 --set train.micro_batch=4 --set train.leaves=6 --set train.steps=$steps --set eval.every_steps=0
    --set checkpoint.every_steps=0 --set eval.batches=1 --threads 1)
hosts_file two.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2"
hosts_file three.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2" "host2 10.77.0.3"
hosts_file four.hosts "host0 10.77.0.1" "host1 10.77.0.2" "host2 10.77.0.3" "host3 slots=2 10.77.0.4"

# processes_in DIR HOST: agent and ranks of a host, as the run's events have them.
processes_in() {
    python3 - "$1" "$2" <<'PY'
import json, sys
ranks = [e["pid"] for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"] == "rank_started" and e["host"] == sys.argv[2]]
print(open(f"/proc/{ranks[0]}/stat").read().rsplit(")", 1)[1].split()[1], *ranks)
PY
}

# events DIR: its events, one a line: recovered's how, and which ranks were lost.
events() {
    python3 - "$1" <<'PY'
import json, sys
for line in open(sys.argv[1] + "/events.jsonl"):
    e = json.loads(line)
    if e["event"] in ("recovered", "team", "rank_lost", "rank_joined"):
        print(json.dumps({k: v for k, v in e.items() if k != "time"}))
PY
}

# lose NAME HOST STEP ARGUMENT...: a run in which all processes of a host are killed once STEP is passed.
lose() {
    local name=$1 host=$2 step=$3
    shift 3
    background "$name" 0 "${train[@]}" --run-dir "$name" "$@"
    local trainer=$pid victims
    passed "$name" 1
    victims=$(processes_in "$name" "host$host")
    passed "$name" "$step"
    kill -9 $victims || fail "$name: was over before its host was lost"
    ended "$name" "$trainer" 0
    same "$name: bits" "$(hashes "$name.out")" "$reference"
    holds "$name/events.jsonl" '"recovered"'
    nothing_left "$name"
}

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")

for zero in 0 1 2 3; do
    lose "two-$zero" 1 $((20 + RANDOM % 30)) --hosts two.hosts --set parallel.zero=$zero
    lose "three-$zero" 1 $((20 + RANDOM % 30)) --hosts three.hosts --set parallel.zero=$zero
    lose "four-$zero" 3 $((20 + RANDOM % 30)) --hosts four.hosts --set parallel.zero=$zero
done
finish
