#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A machine that is about to be taken away: on SIGTERM, a notice file, or a notice of a cloud's metadata service, the run saves, says so, and exits
# with 75; the same command then ends with the bits of an undisturbed run. A service that is slow, wrong or missing does no harm.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

short=("$LOCKSTEP" train tiny.yaml --json --set train.steps=40 --set checkpoint.every_steps=1000 --set eval.every_steps=1000 --set job.notice_poll=50ms)
train=("${short[@]}" --set train.steps=400)

# serve: a metadata service on loopback with its files in cloud/.
serve() {
    mkdir -p cloud
    python3 "$LS_SOURCE_DIR/tests/lib/metadata_server.py" cloud 2>/dev/null &
    server=$!
    for _ in $(seq 500); do
        [ -f cloud/port ] && break
        sleep 0.02
    done
    export LOCKSTEP_METADATA_URL=http://127.0.0.1:$(cat cloud/port)
}
# wait_for COMMAND...: until it succeeds, for a minute at most.
wait_for() {
    for _ in $(seq 1200); do
        "$@" 2>/dev/null && return 0
        sleep 0.05
    done
    fail "waited in vain: $*"
}
# asked TIMES PATTERN: the service has received that many such requests since forget.
asked() { [ "$(grep -c -- "$2" cloud/asked)" -ge "$1" ]; }
forget() { : >cloud/asked; }
# begin DIR ARGUMENT...: starts a run in the background, waits for its tenth step.
begin() {
    dir=$1
    shift
    "${train[@]}" --run-dir "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$!
    for _ in $(seq 12000); do
        [ -f "$dir/metrics.jsonl" ] && [ "$(wc -l <"$dir/metrics.jsonl")" -ge 10 ] && return 0
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    fail "$dir did not come to step 10"
    cat "$dir.err"
}
# left SOURCE: the run in the background exits with 75, has reported the notice, and a rerun ends with the same bits.
left() {
    local got
    wait $pid
    got=$?
    checks=$((checks + 1))
    [ $got -eq 75 ] || { fail "$dir ended with $got instead of 75"; cat "$dir.err"; }
    same "$dir: status" "$(field "$dir.out" status)" stopped
    check "$dir: event of $1" grep -q "\"event\":\"notice\",\"source\":\"$1\"" "$dir/events.jsonl"
    unset_notice
    expect 0 "${train[@]}" --run-dir "$dir"
    same "$dir" "$(hashes "$out")" "$reference"
    check "$dir: the notice stays in the events" grep -q '"event":"notice"' "$dir/events.jsonl"
}
unset_notice() { rm -f cloud/aws cloud/gcp cloud/azure cloud/rebalance cloud/code cloud/delay leave; }
in_seconds() { date -u -d "+$1 seconds" +%Y-%m-%dT%H:%M:%SZ; }

expect 0 "${train[@]}" --run-dir whole
reference=$(hashes "$out")
serve

begin sigterm
kill -TERM $pid
left signal

begin file --set job.notice_file=leave
echo 20 >leave
left file
check "the seconds that are left" grep -q '"grace_s":20.0,"leave":true' file/events.jsonl

# A folder does not count as a notice file.
mkdir folder
expect 2 "${train[@]}" --run-dir in-folder --set job.notice_file=folder
says "job.notice_file is folder, which is a folder"
expect 2 "${train[@]}" --run-dir nowhere --set job.notice_file=none/leave
says "job.notice_file is none/leave, but the folder none does not exist"

# The same with several ranks.
begin ranks --ranks 3 --set job.notice_file=leave
touch leave
left file

# A scheduler signals all processes of a job at once: that ends the run, not some ranks.
begin everyone --ranks 3
kill -TERM $pid $(cat /proc/$pid/task/*/children)
left signal
check "no rank left by itself" eval "! grep -q rank_left everyone/events.jsonl"

# Less time than a checkpoint takes: it is tried, with a warning.
begin hasty --set job.notice_file=leave --set checkpoint.every_steps=5
wait_for grep -q '"event":"checkpoint"' hasty/events.jsonl
echo 0.000001 >leave
left file
check "too little time is told of" grep -q "the last checkpoint took .* goes away in" hasty.err

LOCKSTEP_NOTICE_FILE=$PWD/leave begin environment
touch leave
left file

begin aws --set 'job.notice=[aws]'
printf '{"time": "soon"}' >cloud/rebalance
wait_for grep -q '"leave":false,"action":"rebalance' aws/events.jsonl
check "and ends nothing" kill -0 $pid
printf '{"action": "terminate", "time": "%s"}' "$(in_seconds 120)" >cloud/aws
left aws
check "a token was asked for, and a new one when it had run out" [ "$(grep -c "PUT /latest/api/token" cloud/asked)" -ge 2 ]

echo FALSE >cloud/gcp
forget
begin gcp --set 'job.notice=[gcp]'
wait_for asked 3 instance/preempted
check "FALSE ends nothing" kill -0 $pid
echo TRUE >cloud/gcp
left gcp

printf '{"Events": [{"EventType": "Preempt", "Resources": ["machine-8"], "NotBefore": ""}]}' >cloud/azure
forget
begin azure --set 'job.notice=[azure]'
wait_for asked 3 scheduledevents
check "an event of another machine ends nothing" kill -0 $pid
printf '{"Events": [{"EventType": "Preempt", "Resources": ["machine-7"], "NotBefore": ""}]}' >cloud/azure
left azure

# A spot machine of an unknown cloud: every service that answers is asked.
echo FALSE >cloud/gcp
forget
begin spot --set job.spot=true
wait_for asked 3 instance/preempted
echo TRUE >cloud/gcp
left gcp

# No error of a service ends or delays a run.
expect 0 "${short[@]}" --run-dir whole-short
reference=$(hashes "$out")
quiet() {
    expect 0 "${short[@]}" --run-dir "$1" --set 'job.notice=[aws, gcp, azure]'
    same "$1" "$(hashes "$out")" "$reference"
    check "$1: no notice" eval "! grep -q '\"leave\":true' $1/events.jsonl"
    unset_notice
}
quiet answers-404
echo 500 >cloud/code
quiet answers-500
printf '<html>{{{"action": "terminate"' >cloud/aws
head -c 70000 /dev/zero | tr '\0' 'T' >cloud/gcp
printf '{"Events": 7}' >cloud/azure
quiet answers-garbage
says "preemption notices from gcp cannot be read for now"
echo 5 >cloud/delay
quiet answers-late
kill $server
wait $server 2>/dev/null
quiet refuses
says "preemption notices from aws cannot be read for now"
expect 0 "${short[@]}" --run-dir spot-nobody --set job.spot=true
check "a spot machine of no cloud needs no word about it" eval "! grep -q notices '$err'"

# Wrong settings.
expect 2 "${short[@]}" --run-dir bad --set 'job.notice=[ibm]'
says "job.notice" "ibm" "aws, gcp, azure and file"
expect 2 "${short[@]}" --run-dir bad2 --set 'job.notice=[file]'
says "job.notice_file"

finish
