#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts of which one is lost and comes back: its agent, started again, takes its old place, the state is brought there, and the run goes
# on with all its ranks; so does one in which a rank alone was killed, which its agent starts again. The bits are those of an undisturbed run.
. "$(dirname "$0")/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

# Long enough for ranks to start meanwhile: what joins late would not be seen.
steps=${LS_JOIN_STEPS:-300}
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=48 --set train.micro_batch=4 --set train.leaves=6 --set train.steps=$steps --set eval.every_steps=0
    --set checkpoint.every_steps=0 --set eval.batches=1 --threads 1)
export LOCKSTEP_TOKEN=$token

# happened DIR EVENT [COUNT]: waits until the run has told of so many.
happened() {
    local i
    for i in $(seq 3000); do
        [ "$(grep -c "\"event\":\"$2\"" "$1/events.jsonl" 2>/dev/null)" -lt "${3:-1}" ] || return 0
        sleep 0.01
    done
    fail "$1: nobody told $2"
    tail -n 3 "$1".*err
}

# agent NAME HOST ARGUMENT...: in the background; its process is $pid.
agent() {
    background "$1" "$2" "$LOCKSTEP" agent --coordinator 10.77.0.1:29711 "${@:3}"
}

# ranks_of AGENT: its processes.
ranks_of() { pgrep -P "$1"; }

# begin NAME ARGUMENT...: a trainer with one rank, and two hosts, of two ranks and of one, whose agents people start.
begin() {
    local name=$1 i
    shift
    background "$name" 0 "${train[@]}" --run-dir "$name" --ranks 4 --local-ranks 1 --coordinator 10.77.0.1:29711 "$@"
    trainer=$pid
    agent "$name.1" 1 --slots 2
    first=$pid
    for i in $(seq 1000); do [ -z "$(ranks_of $first)" ] || break; sleep 0.01; done # ranks are given out as agents come
    agent "$name.2" 2 --slots 1
    second=$pid
    passed "$name" 20
}

# counts NAME: what it told of.
counts() {
    python3 - "$1" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
joined = sorted(e["rank"] for e in events if e["event"] == "rank_joined")
lost = sorted(e["rank"] for e in events if e["event"] == "rank_lost")
print("lost", *lost, "joined", *joined, "parts", *[e["parts"] for e in events if e["event"] == "team"])
PY
}

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")

for zero in 0 1; do
    # A host is lost and comes back.
    begin "host-$zero" --set parallel.zero=$zero
    kill -9 $first $(ranks_of $first)
    happened "host-$zero" recovered
    agent "host-$zero.3" 1 --slots 2
    happened "host-$zero" rank_joined 2
    ended "host-$zero" "$trainer" 0
    wait "$pid"
    same "host-$zero: the agent that came back" $? 0
    same "host-$zero: events" "$(counts "host-$zero")" "lost 1 2 joined 1 2 parts 2 4"
    same "host-$zero: bits" "$(hashes "host-$zero.out")" "$reference"
    nothing_left "host-$zero"

    # One rank of a host is lost: its agent starts it again.
    begin "rank-$zero" --set parallel.zero=$zero
    kill -9 "$(ranks_of $first | tail -n 1)"
    happened "rank-$zero" rank_joined
    ended "rank-$zero" "$trainer" 0
    same "rank-$zero: parts" "$(counts "rank-$zero" | sed 's/.*parts/parts/')" "parts 3 4"
    same "rank-$zero: bits" "$(hashes "rank-$zero.out")" "$reference"
    nothing_left "rank-$zero"
done

finish
