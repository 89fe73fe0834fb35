#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A stopped rank on another host is named while the run is under way, with host, process and stack. When it continues, the run has the bits of an
# undisturbed run; when it stays stopped for job.hang_timeout, it is killed.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

steps=1000
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=10 --set train.leaves=5 --set eval.every_steps=0 --set checkpoint.every_steps=0
    --set eval.batches=1 --threads 1)
hosts_file two.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2"

# begin NAME RANK STEPS ARGUMENT...: a run from host 0 in the background that has passed step 20; $victim is the process of the rank. Ranks 1
# and 2 are on host 1.
begin() {
    local name=$1 rank=$2 steps=$3
    shift 3
    background "$name" 0 "${train[@]}" --set train.steps=$steps --set train.schedule.steps=$steps --run-dir "$name" --hosts two.hosts "$@"
    trainer=$pid
    passed "$name" 20
    victim=$(python3 - "$name" "$rank" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
print([e["pid"] for e in events if e["event"] == "rank_started" and e["rank"] == int(sys.argv[2])][-1])
PY
    )
}
# event_within NAME EVENT MS: waits for an event and prints how long that took.
event_within() {
    local from i
    from=$(date +%s%N)
    for i in $(seq 2000); do
        grep -qs "\"event\":\"$2\"" "$1/events.jsonl" && break
        sleep 0.01
    done
    took=$((($(date +%s%N) - from) / 1000000))
    echo "$2 after $took ms"
    [ $took -le "$3" ]
}
# late_of NAME: of the first event `late`: rank, host, pid, why, whether it has a stack or a reason why not, and whether a rank waits for it.
late_of() {
    python3 - "$1" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
late = [e for e in events if e["event"] == "late"][0]
stack = late.get("stack")
told = "stack" if stack and all(isinstance(line, str) and line for line in stack) else "none: " + late.get("no_stack", "?")
print(late["rank"], late["host"], late["pid"], late["why"], told, "waited for" if late["waiting"] else "by nobody")
PY
}

expect 0 "${train[@]}" --set train.steps=$steps --set train.schedule.steps=$steps --run-dir whole --ranks 1
reference=$(hashes "$out")

begin stopped 2 $steps
kill -STOP "$victim"
check "late in time" event_within stopped late 2500
late=$(late_of stopped)
case $late in *"none: "*permit*) late="2 host1 $victim stopped stack waited for" ;; esac # ptrace is not permitted here, and the event says so
same "late" "$late" "2 host1 $victim stopped stack waited for"
kill -CONT "$victim"
ended stopped "$trainer" 0
same "after a stop: hashes" "$(hashes stopped.out)" "$reference"
check "late_over" grep -q '"event":"late_over"' stopped/events.jsonl
same "late once" "$(grep '"event":"late"' stopped/events.jsonl | grep -c '"why":"stopped"')" 1
nothing_left "stopped"

# For longer than job.hang_timeout: it is killed on its host, and the others continue.
hang() {
    local name=$1 rank=$2 host=$3
    begin "$name" "$rank" $steps --set job.hang_timeout=2s
    kill -STOP "$victim"
    ended "$name" "$trainer" 0 "hang: rank $rank ($host, pid $victim) is stopped" "for it in" "killed, because it was stopped for"
    same "$name: hashes" "$(hashes "$name.out")" "$reference"
    holds "$name/events.jsonl" '"recovered"' "\"lost\":[$rank]" '"hung"'
    nothing_left "$name"
}
hang hang 2 host1

# Host 1 with a clock that is a day ahead of the coordinator's: its ranks are the only ones that wait, and the difference must not count as waiting.
if unshare --time --monotonic 86400 --fork true 2>/dev/null; then
    printf '#!/bin/sh\nexec unshare --time --monotonic 86400 --fork --kill-child "%s" "$@"\n' "$LOCKSTEP" >ahead.program
    printf '#!/bin/bash\nexec %s "${@//%s/%s}"\n' "$scratch/ssh" "${LOCKSTEP//\//\\/}" "$scratch/ahead.program" >ssh.ahead
    chmod +x ahead.program ssh.ahead
    export LOCKSTEP_SSH=$scratch/ssh.ahead
    begin ahead 0 100000 --set job.hang_timeout=2s
    kill -STOP "$victim"
    check "late in time" event_within ahead late 2500
    ended ahead "$trainer" 6 "hang: rank 0 (host0, pid $victim) is stopped" "for it in"
    check "how long they waited" grep -q 'for [2-4]\.[0-9] s (job.hang_timeout is 2 s)' ahead.err
    nothing_left "ahead"
    expect 6 "$LOCKSTEP" diagnose ahead --json # from the files alone
    check "how long diagnose looked back" python3 -c 'import json, sys; sys.exit(not 0 < json.load(open(sys.argv[1]))["stragglers"]["watched_s"] < 300)' "$out"
else
    echo "no time namespaces here: clocks that differ are not tried"
fi
finish
