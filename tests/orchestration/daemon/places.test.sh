#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A machine with more slots than the policy keeps in one node: a gang runs on all of them, and `nodes` shows one node.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

queue_up --slots 100
expect 2 "$LOCKSTEP" submit hello.yaml --ranks 101
expect 0 "$LOCKSTEP" submit hello.yaml --ranks 100
gang=$(cat "$out")
expect 0 "$LOCKSTEP" submit waits.yaml --ranks 70
wait_until "the gang has ended" is_state "$gang" SUCCEEDED
same "ranks of it" "$(grep -c '^\[[0-9]*\] rank [0-9]* of 100$' "$LOCKSTEP_HOME/jobs/$gang/log")" 100
wait_until "seventy of them run" is_state 2 RUNNING
expect 0 "$LOCKSTEP" nodes --json
same "nodes, devices, used" "$(json 'len(d["nodes"]), d["nodes"][0]["devices"], d["nodes"][0]["used"]')" "1 100 70"

# Killed and back: what has its devices keeps them.
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
queue_up --slots 100
same "still there" "$(state_of 2)" RUNNING
expect 0 "$LOCKSTEP" submit hello.yaml --ranks 31
wait_until "no room for it" eval '"$LOCKSTEP" why 3 | grep -q "30 are free"'
touch go
wait_until "then there is" is_state 3 SUCCEEDED
wait_until "and nothing is left" is_state 2 SUCCEEDED
finish
