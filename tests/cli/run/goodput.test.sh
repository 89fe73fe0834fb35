#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every second of a run, over all its starts, is in exactly one class: through kill -9 of the trainer, SIGTERM, Ctrl-C, a lost rank, and a
# part of the run asked for with --steps. The bits are those of an undisturbed run.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=300 --set eval.every_steps=50 --set checkpoint.every_steps=20)

# step_of DIR: finished steps of the run in that directory.
step_of() { "$LOCKSTEP" resize "$1" --json 2>/dev/null | grep -m 1 '"step"' | tr -dc 0-9; }
# begin STEP ARGUMENT...: starts the run in the background and waits until it has passed STEP.
begin() {
    local step=$1 i
    shift
    "${train[@]}" --run-dir run "$@" >"$scratch/part.out" 2>"$scratch/part.err" </dev/null &
    pid=$!
    for i in $(seq 12000); do
        [ "$(step_of run)" -gt "$step" ] 2>/dev/null && return 0
        kill -0 $pid 2>/dev/null || { fail "the run ended before step $step"; cat "$scratch/part.err"; return 1; }
        sleep 0.01
    done
}
now() { date +%s.%N; }

expect 0 "${train[@]}" --run-dir whole
reference=$(hashes "$out")

begun=$(now)
begin 27
for _ in $(seq 1000); do # it is written while steps go on
    grep -q '"event":"checkpoint"' run/events.jsonl && break
    sleep 0.01
done
kill -9 $pid
wait $pid 2>/dev/null
killed=$(now)
sleep 0.6
restarted=$(now)
begin 60
kill -TERM $pid
wait $pid
same "SIGTERM" $? 75
sleep 0.5
begin 100
kill -INT $pid
wait $pid
same "SIGINT" $? 130
sleep 0.4
expect 0 "${train[@]}" --run-dir run --steps 200
sleep 0.3
expect 0 "${train[@]}" --run-dir run
ended=$(now)
same "hashes" "$(hashes "$out")" "$reference"

check "classes, starts and times" python3 - "$out" $begun $ended $killed $restarted <<'PY'
import json, sys
summary = json.load(open(sys.argv[1]))
begun, ended, killed, restarted = map(float, sys.argv[2:])
time, starts = summary["time"], summary["starts"]

def sure(what, holds):
    if not holds:
        sys.exit(f"{what}: {json.dumps(time)} {json.dumps(starts, indent=1)}")

sure("classes add up to the wall time", abs(sum(time.values()) - summary["wall_s"]) < 1e-6)
sure("nothing is negative", min(time.values()) >= 0)
sure("wall time is that of the clock on the wall", ended - begun - 3.0 < summary["wall_s"] <= ended - begun + 0.1)
sure("five starts", [s["status"] for s in starts] == ["lost", "stopped", "interrupted", "stopped", "finished"])
sure("starts and what is between them add up", abs(sum(s["wall_s"] + s["until_next_s"] for s in starts) - summary["wall_s"]) < 1e-4)
sure("the start that was killed is accounted for until shortly before",
     0 < starts[0]["wall_s"] <= killed - begun + 0.1 and starts[0]["wall_s"] > killed - begun - 4.0)
sure("down: behind the kill, behind SIGTERM",
     abs(time["down"] - starts[0]["until_next_s"] - starts[1]["until_next_s"]) < 1e-4 and time["down"] >= 1.1)
sure("paused: behind Ctrl-C, behind --steps",
     abs(time["paused"] - starts[2]["until_next_s"] - starts[3]["until_next_s"]) < 1e-4 and time["paused"] >= 0.7)
sure("down after the kill is the time between the two processes", starts[0]["until_next_s"] >= restarted - killed - 0.1)
sure("what came behind the checkpoint was done twice", starts[1]["restored"] >= 20 and time["lost_work"] > 0)
sure("training was some of it", time["compute"] > 0 and time["checkpoint"] > 0 and time["startup"] > 0)
wanted = summary["wall_s"] - time["paused"]
sure("goodput", abs(summary["goodput"] - time["compute"] / wanted) < 1e-6)
PY
# Ranks: one is killed, others join and leave, the trainer is killed, and the run continues.
ranks=("$LOCKSTEP" train tiny.yaml --json --set train.steps=1500 --set train.leaves=6 --set eval.every_steps=50000
    --set checkpoint.every_steps=200)
expect 0 "${ranks[@]}" --run-dir whole-ranks
reference=$(hashes "$out")
trains() { "$LOCKSTEP" resize ranks --json | grep -q '"doing": "training"'; }
begin_ranks() {
    "${ranks[@]}" --run-dir ranks "$@" >ranks.out 2>ranks.err </dev/null &
    pid=$!
    for _ in $(seq 2000); do
        trains 2>/dev/null && return
        sleep 0.02
    done
    fail "ranks do not train"
    cat ranks.err
}
told() { # told TEXT: waits until events.jsonl has a line with it
    for _ in $(seq 1000); do
        grep -q "$1" ranks/events.jsonl && return
        sleep 0.01
    done
    fail "no $1"
}
begin_ranks --ranks 3
kill -9 "$("$LOCKSTEP" resize ranks --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["ranks"][1]["pid"])')"
told '"event":"recovered"'
check "a recovery that was told is accounted for" grep -q '"recovery": 0\.[0-9]*[1-9]' ranks/time.jsonl
expect 0 "$LOCKSTEP" resize ranks --ranks 4
told '"event":"rank_joined".*"rank":3'
kill -9 $pid
wait $pid 2>/dev/null
begin_ranks --ranks 2
expect 0 "$LOCKSTEP" resize ranks --ranks 3
wait $pid
same "ranks: exit code" $? 0
same "ranks: hashes" "$(hashes ranks.out)" "$reference"
check "ranks: classes and recoveries" python3 - <<'PY'
import json, sys
summary = json.load(open("ranks.out"))
time, starts = summary["time"], summary["starts"]

def sure(what, holds):
    if not holds:
        sys.exit(f"{what}: {json.dumps(time)} {json.dumps(starts, indent=1)} {summary['recoveries']}")

sure("classes add up to the wall time", abs(sum(time.values()) - summary["wall_s"]) < 1e-6)
sure("nothing is negative", min(time.values()) >= 0)
sure("two starts", [s["status"] for s in starts] == ["lost", "finished"])
sure("a recovery took time, and not much of it", 0 < time["recovery"] < 0.5 * summary["wall_s"])
sure("the recovery outlived the trainer", len(summary["recoveries"]) == 1 and summary["recoveries"][0]["lost"] == [1])
PY
expect 0 "$LOCKSTEP" report ranks
check "the report tells of the loss" grep -q "rank 1 (.*continued after" ranks/report.html
check "the report tells who joined" grep -q "rank 3 joined" ranks/report.html

expect 0 "$LOCKSTEP" train tiny.yaml --set train.steps=300 --set eval.every_steps=50 --run-dir run
prints "% training" "5 starts"
expect 0 "$LOCKSTEP" report run
check "the report has the picture, its gaps and what happened" \
    grep -q "start 1 was lost at step" run/report.html
check "the report has the numbers" grep -q "down until the next start" run/report.html

finish
