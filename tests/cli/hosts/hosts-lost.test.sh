#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One of several hosts is lost, agent and ranks, at some moment of a step: the others continue, no step is lost, the bits are those of an
# undisturbed run.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

steps=${LS_LOST_STEPS:-200}
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=48 --set train.micro_batch=4 --set train.leaves=6 --set train.steps=$steps --set eval.every_steps=0
    --set checkpoint.every_steps=0 --set eval.batches=1 --threads 1)
hosts_file two.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2"
hosts_file three.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2" "host2 10.77.0.3"
hosts_file four.hosts "host0 10.77.0.1" "host1 10.77.0.2" "host2 10.77.0.3" "host3 slots=2 10.77.0.4"

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

# victims_of NAME HOST TRAINER: as processes_in, while the run waits for its trainer, so that it does not end meanwhile.
victims_of() {
    kill -STOP "$3"
    processes_in "$1" "$2"
    kill -CONT "$3"
}

# lose NAME HOST STEP ARGUMENT...: a run in which all processes of a host are killed once STEP is passed.
lose() {
    local name=$1 host=$2 step=$3
    shift 3
    background "$name" 0 "${train[@]}" --run-dir "$name" "$@"
    local trainer=$pid victims
    passed "$name" 1
    victims=$(victims_of "$name" "host$host" "$trainer")
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
done
lose three-1 1 $((20 + RANDOM % 30)) --hosts three.hosts
lose four-0 3 $((20 + RANDOM % 30)) --hosts four.hosts --set parallel.zero=0
lose four-3 2 $((20 + RANDOM % 30)) --hosts four.hosts --set parallel.zero=3

# One rank of a host that has two.
background rank 0 "${train[@]}" --run-dir rank --hosts three.hosts
trainer=$pid
passed rank 1
set -- $(processes_in rank host1)
passed rank 25
kill -9 "$3"
ended rank "$trainer" 0
same "rank: bits" "$(hashes rank.out)" "$reference"
holds rank/events.jsonl '"recovered"' '"lost":[2]'
nothing_left rank

# The last rank of the trainer's host: no rank brings the state there any more.
background last 0 "${train[@]}" --run-dir last --hosts three.hosts --set checkpoint.every_steps=20
trainer=$pid
passed last 1
set -- $(processes_in last host0)
passed last 25
kill -9 "$2"
ended last "$trainer" 5 "rank 0 (" "no rank is left on the trainer's host"
nothing_left last
expect 0 netns_run 0 "${train[@]}" --run-dir last --hosts two.hosts
same "last: bits" "$(hashes "$out")" "$reference"

# The only rank of a host whose agent lives on.
for zero in 0 3; do
    background "only-$zero" 0 "${train[@]}" --run-dir "only-$zero" --hosts three.hosts --set parallel.zero=$zero
    trainer=$pid
    passed "only-$zero" 1
    set -- $(victims_of "only-$zero" host2 "$trainer")
    passed "only-$zero" 25
    kill -9 "$2"
    ended "only-$zero" "$trainer" 0
    same "only-$zero: bits" "$(hashes "only-$zero.out")" "$reference"
    holds "only-$zero/events.jsonl" '"recovered"' '"lost":[3]'
    nothing_left "only-$zero"
done

# A second host right after the first, while the others meet again: four hosts that all have everything.
for delay in 0 0.01 0.03; do
    name=double-$delay
    background "$name" 0 "${train[@]}" --run-dir "$name" --hosts four.hosts --set parallel.zero=0
    trainer=$pid
    passed "$name" 1
    victims=$(victims_of "$name" host1 "$trainer")
    behind=$(victims_of "$name" host3 "$trainer")
    passed "$name" $((20 + RANDOM % 20))
    kill -9 $victims
    sleep $delay
    kill -9 $behind
    ended "$name" "$trainer" 0
    same "$name: bits" "$(hashes "$name.out")" "$reference"
    holds "$name/events.jsonl" '"recovered"'
    nothing_left "$name"
done

# A connection that is cut: noticed by the lease, within five seconds.
background cut 0 "${train[@]}" --run-dir cut --hosts three.hosts --set train.schedule.steps=$steps
trainer=$pid
passed cut 25
netns_cut 2
ended cut "$trainer" 0
same "cut: bits" "$(hashes cut.out)" "$reference"
holds cut/events.jsonl '"recovered"' 'no sign of life'
python3 - cut/events.jsonl <<'PY' || fail "cut: took longer than 5 s"
import json, sys
e = [json.loads(line) for line in open(sys.argv[1])]
lost = next(x for x in e if x["event"] == "rank_lost")
back = next(x for x in e if x["event"] == "recovered")
sys.exit(lost["detected_ms"] + back["ms"] > 5000)
PY
netns_mend 2
nothing_left cut

# A host and the one that has its shadow: the others return to the newest checkpoint, and make the steps after it once more.
background both 0 "${train[@]}" --run-dir both --hosts four.hosts --set checkpoint.every_steps=20
trainer=$pid
passed both 1
victims="$(processes_in both host1) $(processes_in both host2)"
passed both 30
kill -9 $victims
ended both "$trainer" 0
nothing_left both
same "both: bits" "$(hashes both.out)" "$reference"
holds both/events.jsonl '"event":"returned"' '"how":"checkpoint"'
finish
