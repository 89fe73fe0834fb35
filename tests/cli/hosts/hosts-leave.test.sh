#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One of several hosts will be taken away and leaves: SIGTERM to its agent, or a notice there. It hands over at a step boundary and ends with 0;
# the others continue, and the bits are those of one process. When too few would be left, the run saves and ends with 75.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

export LOCKSTEP_TOKEN=00112233445566778899aabbccddeeff
settings=(--json --set train.steps=1500 --set train.leaves=6 --set checkpoint.every_steps=5000 --set eval.every_steps=5000)

wait_for() {
    for _ in $(seq 2400); do
        "$@" 2>/dev/null && return 0
        kill -0 $trainer 2>/dev/null || break
        sleep 0.025
    done
    fail "waited in vain: $*"
    tail -n 5 "$dir".*err
}
past() { [ "$(wc -l <"$dir/metrics.jsonl")" -gt "$1" ]; }
happened() { grep -q "\"event\":\"$1\"${2-}" "$dir/events.jsonl"; }
# begin DIR ARGUMENT...: a trainer with one rank and two agents with two each, all on this host; waits until they train.
begin() {
    dir=$1
    shift
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$LOCKSTEP" train tiny.yaml "${settings[@]}" --run-dir "$dir" --ranks 5 --local-ranks 1 --coordinator 127.0.0.1:$port "$@" \
        >"$dir.out" 2>"$dir.err" </dev/null &
    trainer=$!
    LOCKSTEP_NOTICE_FILE=$PWD/taken-away "$LOCKSTEP" agent --coordinator 127.0.0.1:$port --slots 2 2>"$dir.1.err" &
    first=$!
    for _ in $(seq 1000); do [ -z "$(pgrep -P $first)" ] || break; sleep 0.01; done # it gets its ranks before the second agent connects
    "$LOCKSTEP" agent --coordinator 127.0.0.1:$port --slots 2 2>"$dir.2.err" &
    second=$!
    wait_for past 5
}
ended() {
    local what=$1 process=$2 code=$3
    wait $process
    same "$dir: exit code of $what" $? $code
}

expect 0 "$LOCKSTEP" train tiny.yaml "${settings[@]}" --run-dir whole
reference=$(hashes "$out")

# With ZeRO stage 1, the next host has the shadow of what a host keeps.
begin told --set parallel.zero=1
kill -TERM $second
ended "the agent that was told to leave" $second 0
check "it was told of" happened notice ',"source":"signal"'
check "its ranks left" happened rank_left
check "nobody was lost" eval '! happened rank_lost'
touch taken-away
ended "the agent whose machine is taken away" $first 0
check "who said so" happened notice ',"source":"file"'
rm taken-away
ended "the trainer" $trainer 0
same "told" "$(hashes told.out)" "$reference"

# Fewer than job.min_ranks.
begin few --set parallel.zero=0 --set job.min_ranks=4
kill -TERM $first
ended "the trainer, with too few ranks" $trainer 75
check "it was told of" happened notice ',"source":"signal"'
wait $first $second
expect 0 "$LOCKSTEP" train tiny.yaml "${settings[@]}" --run-dir few
same "few" "$(hashes "$out")" "$reference"

finish
