#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that are stopped, killed, hang or are slow: named during the run and by `diagnose` afterwards; a run whose stopped rank is resumed has
# the bits of an undisturbed run. Faults come from LS_TEST_FAULT (src/execution/team/fault_injection.h) or from signals.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=12 --set train.leaves=6 --set eval.every_steps=0 --set checkpoint.every_steps=0
    --set eval.batches=1 --threads 1)
ranks_of() { pgrep -P "$1" 2>/dev/null | xargs; }
steps_in() { if [ -f "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
# begin DIR STEPS AT ARGUMENT...: starts a run of STEPS in the background and waits until it has passed step AT.
begin() {
    local steps=$2 at=$3 i
    dir=$scratch/$1
    shift 3
    "${train[@]}" --set train.steps=$steps --set train.schedule.steps=$steps --run-dir "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$!
    for i in $(seq 6000); do
        [ "$(steps_in "$dir")" -gt "$at" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.005
    done
    ranks=$(ranks_of $pid)
}
# ended CODE SECONDS
ended() {
    local got i
    for i in $(seq $(($2 * 100))); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null && fail "$dir hung"
    wait $pid
    got=$?
    checks=$((checks + 1))
    [ $got -eq "$1" ] || { fail "$dir ended with $got instead of $1"; tail -n 5 "$dir.err"; }
}
# rank_pid DIR RANK: according to diagnose, which reads it from the flight file.
rank_pid() { "$LOCKSTEP" diagnose "$1" --json 2>/dev/null | python3 -c "import json,sys
print([r['pid'] for r in json.load(sys.stdin)['ranks'] if r['rank'] == $2][0])"; }
# event_soon DIR NAME SECONDS: waits for an event of that name.
event_soon() {
    local i
    for i in $(seq $(($3 * 50))); do
        grep -qs "\"event\":\"$2\"" "$1/events.jsonl" && return 0
        sleep 0.02
    done
    return 1
}

# diagnosed_soon DIR TEXT SECONDS: waits until `diagnose` prints that text.
diagnosed_soon() {
    local i
    for i in $(seq $(($3 * 20))); do
        "$LOCKSTEP" diagnose "$1" 2>&1 | grep -qF -- "$2" && return 0
        sleep 0.05
    done
    return 1
}

# lacks TEXT...: none of the texts is in the last command's stdout.
lacks() {
    local text
    for text in "$@"; do
        checks=$((checks + 1))
        ! grep -qF -- "$text" "$out" || { fail "'$text' is in stdout:"; tail -n 3 "$out"; }
    done
}

expect 2 "$LOCKSTEP" diagnose "$scratch/nowhere"
says "is not a run directory: the folder does not exist"
expect 2 "$LOCKSTEP" trace "$scratch"
says "is not a run directory: it has no run.yaml"
expect 2 "$LOCKSTEP" diagnose "$scratch"
says "is not a run directory: it has no run.yaml"

steps=4000
expect 0 "${train[@]}" --set train.steps=$steps --set train.schedule.steps=$steps --run-dir "$scratch/whole" --ranks 1
reference=$(hashes "$out")
expect 0 "$LOCKSTEP" diagnose "$scratch/whole"
prints "finished: the run ended well; its last step was $steps" "one process has no flight recorders"
expect 2 "$LOCKSTEP" trace "$scratch/whole"
says "trained by one process"

# Stopped: reported by the run and by diagnose; nothing is lost when it is resumed.
begin stopped $steps 5 --ranks 3
expect 0 "$LOCKSTEP" diagnose "$dir"
prints "healthy: 3 of 3 ranks run" "rank"
victim=$(rank_pid "$dir" 1)
kill -STOP "$victim"
check "late" event_soon "$dir" late 10
check "diagnose sees it" diagnosed_soon "$dir" "hang: rank 1 (" 10
expect 6 "$LOCKSTEP" diagnose "$dir" --json
same "status" "$(field "$out" status)" hang
same "culprit" "$(python3 -c "import json,sys
c = json.load(open(sys.argv[1]))['culprits'][0]
print(c['rank'], c['why'], c['pid'])" "$out")" "1 stopped $victim"
check "live" grep -q '"live": true' "$out"
says "is stopped" "wait for it in"
kill -CONT "$victim"
ended 0 60
same "after a stop: hashes" "$(hashes "$dir.out")" "$reference"
late=$(grep '"event":"late"' "$dir/events.jsonl" | head -1)
check "event names rank, pid, why" grep -q "\"rank\":1,.*\"pid\":$victim,.*\"why\":\"stopped\"" <<<"$late"
check "event has a stack, or says why not" grep -q '"stack":\[\|"no_stack":' <<<"$late"
check "late_over" grep -q '"event":"late_over"' "$dir/events.jsonl"
expect 0 "$LOCKSTEP" diagnose "$dir"
prints "finished: all 3 ranks ended well"

# events DIR NAME KEY...: those fields of all events of that name.
events() {
    python3 - "$@" <<'PY'
import json, sys
for line in open(sys.argv[1] + "/events.jsonl"):
    event = json.loads(line)
    if event["event"] == sys.argv[2]:
        print(*(event[key] for key in sys.argv[3:]))
PY
}
# No rank may take over, and none may be started.
alone=(--set job.max_replacements=0 --set job.min_ranks)

# Stopped for longer than job.hang_timeout: it is killed, others take over its work, and nothing is lost.
begin hang $steps 5 --ranks 3 --set job.hang_timeout=2s
victim=$(rank_pid "$dir" 0)
kill -STOP "$victim"
ended 0 60
same "after a hang: hashes" "$(hashes "$dir.out")" "$reference"
check "hang" grep -q "hang: rank 0 (.*pid $victim) is stopped" "$dir.err"
check "job.hang_timeout" grep -q "job.hang_timeout is 2 s" "$dir.err"
same "event hung" "$(events "$dir" hung rank pid why)" "0 $victim stopped"
check "event rank_lost" grep -q "pid $victim) ended with signal 9 .*killed, because it was stopped for 2" <<<"$(events "$dir" rank_lost cause)"
same "recovered" "$(events "$dir" recovered lost how)" "[0] takeover"
# The others waited for as long as the event says; only a part of a step was done twice.
same "the wait is waiting, not work done twice" "$(python3 - "$dir" "$(events "$dir" hung waited_s)" <<'PY'
import json, sys
time, waited = json.load(open(sys.argv[1] + "/summary.json"))["time"], float(sys.argv[2])
print(time["waiting"] > 0.75 * waited, time["lost_work"] < 0.5 * waited)
PY
)" "True True"
expect 0 "$LOCKSTEP" diagnose "$dir"
prints "finished: all 3 ranks ended well"

# The same if no rank may take over: the run ends and says why.
begin hang-alone 100000 5 --ranks 2 --set job.hang_timeout=2s "${alone[@]}=2"
victim=$(rank_pid "$dir" 0)
kill -STOP "$victim"
ended 5 60
check "hang" grep -q "rank 0 (.*pid $victim) ended with signal 9 .*killed, because it was stopped for 2.*job.min_ranks is 2" "$dir.err"
expect 6 "$LOCKSTEP" diagnose "$dir"
lacks "network"

# A rank that never arrives.
LS_TEST_FAULT="do=hang,rank=1,step=8" begin never $steps 6 --ranks 2 --set job.hang_timeout=3s
ended 0 60
same "after a rank that did not move: hashes" "$(hashes "$dir.out")" "$reference"
check "never: named with what it does" grep -q "hang: rank 1 (.*) is drawing samples of step 8, leaf 0; rank 0 waits for it in" "$dir.err"
check "never: event" grep -q '"event":"late".*"why":"data"' "$dir/events.jsonl"
same "never: hung" "$(events "$dir" hung rank why)" "1 data"

# Killed: where it was is in its flight file.
LS_TEST_FAULT="do=die,rank=1,step=9" begin killed 100000 7 --ranks 3 "${alone[@]}=3"
ended 5 60
expect 6 "$LOCKSTEP" diagnose "$dir"
prints "dead: rank 1 (" "was killed by signal 9 (SIGKILL) in step 9, last seen drawing samples"
lacks "hang" "for 0.00 s"

# Killed from outside, at any moment.
begin shot 100000 20 --ranks 3 "${alone[@]}=3"
victim=$(rank_pid "$dir" 1)
kill -9 "$victim"
ended 5 60
expect 6 "$LOCKSTEP" diagnose "$dir"
prints "dead: rank 1 (" "pid $victim) was killed by signal 9"
lacks "hang" "for 0.00 s"

# The trainer itself: stopped, then killed.
begin held 100000 20 --ranks 3
kill -STOP $pid
check "diagnose sees the stopped trainer" diagnosed_soon "$dir" "hang: all ranks wait for the trainer" 20
expect 6 "$LOCKSTEP" diagnose "$dir"
prints "hang: all ranks wait for the trainer (pid $pid), which is stopped"
kill -CONT $pid
kill -9 $pid
wait $pid 2>/dev/null
for i in $(seq 500); do
    [ -z "$(pgrep -f -- "--run-dir $dir" | xargs)" ] && break
    sleep 0.02
done
expect 6 "$LOCKSTEP" diagnose "$dir"
prints "gone: all 3 ranks ended together in step" "because the trainer (pid $pid) was killed"
lacks "network" "rank 0 ("

# Slow: no rank is late, but the one that arrives last is known.
LS_TEST_FAULT="do=delay,rank=1,ms=15" begin slow 120 110 --ranks 2
ended 0 60
expect 0 "$LOCKSTEP" diagnose "$dir" --json
same "straggler" "$(python3 -c "import json,sys
rows = json.load(open(sys.argv[1]))['stragglers']['ranks']
print([r['rank'] for r in rows if r['straggler']], rows[0]['cost_s'] > 0.3)" "$out")" "[1] True"
expect 0 "$LOCKSTEP" diagnose "$dir"
prints "<- straggler"
expect 0 "$LOCKSTEP" trace "$dir"

# A rank with more leaves has more to do and is not a straggler.
expect 0 "${train[@]}" --set train.leaves=4 --set train.steps=300 --set train.schedule.steps=300 --run-dir "$scratch/uneven" --ranks 3
expect 0 "$LOCKSTEP" diagnose "$scratch/uneven"
prints "it computes 2 of 4 leaves"
lacks "<- straggler"

# Damaged files are reported, and the others are still read.
head -c 1000 "$dir/flight/rank-0" >"$dir/flight/rank-0.short" && mv "$dir/flight/rank-0.short" "$dir/flight/rank-0"
"$LOCKSTEP" diagnose "$dir" >"$out" 2>"$err"
prints "omitted" "rank-0"
expect 0 "$LOCKSTEP" trace "$dir"
says "rank 0 of 2 has no records: it is missing in this trace"
printf 'nonsense' >"$dir/flight/rank-1"
expect 3 "$LOCKSTEP" diagnose "$dir"
says "cannot read the flight recorder of any rank"
finish
