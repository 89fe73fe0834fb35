#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The queue on this machine, with real processes: gangs, training runs, lost processes, a full disk, and the user a job runs as.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
PATH=$PATH:/usr/sbin:/sbin
stop_queue() {
    "$LOCKSTEP" down --cancel >/dev/null 2>&1
    clean_up
}
trap stop_queue EXIT

state() { "$LOCKSTEP" ps --all --json | python3 -c '
import json, sys
print(" ".join(j["state"] for j in json.load(sys.stdin)["jobs"] if j["job"] == int(sys.argv[1])))' "$1"; }
epoch() { "$LOCKSTEP" ps --all --json | python3 -c '
import json, sys
print(" ".join(str(j["epoch"]) for j in json.load(sys.stdin)["jobs"] if j["job"] == int(sys.argv[1])))' "$1"; }
reach() {
    local round
    checks=$((checks + 1))
    for round in $(seq 1200); do
        [ "$(state "$1")" = "$2" ] && return 0
        sleep 0.05
    done
    fail "job $1 is $(state "$1") instead of $2"
    cat "$LOCKSTEP_HOME/jobs/$1/log" 2>/dev/null | tail -3
}
# until COMMAND...: it succeeds within a minute.
until_so() {
    local round
    checks=$((checks + 1))
    for round in $(seq 1200); do
        "$@" && return 0
        sleep 0.05
    done
    fail "never: $*"
}
job=0
# submit ARGUMENT...: and its number in $job.
submit() {
    expect 0 "$LOCKSTEP" submit "$@"
    job=$(cat "$out")
}
# program FILE WORDS...: a run file that queues bash -c WORDS.
program() {
    local file=$1 text=$2
    shift 2
    { printf 'name: %s\njob:\n  command: [bash, -c, %s]\n' "${file%.yaml}" "'$text'"; [ $# -eq 0 ] || printf '  %s\n' "$@"; } >"$file"
}

# ---- one daemon on a folder ----
SECRET=of-the-daemon expect 0 "$LOCKSTEP" up --slots 4
daemon=$(cat "$LOCKSTEP_HOME/lock")
expect 1 "$LOCKSTEP" up --slots 4
says "process number is $daemon"
expect 1 "$LOCKSTEP" up --foreground
says "process number is $daemon"

# ---- a gang: who it is, and that one rank that fails ends the others ----
program gang.yaml 'echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT secret=$SECRET; touch rank.$RANK; if [ $RANK = 1 ]; then until [ -e rank.0 -a -e rank.2 ]; do sleep 0.02; done; exit 7; fi; sleep 600 & wait'
submit gang.yaml --ranks 3
reach "$job" FAILED
log=$LOCKSTEP_HOME/jobs/$job/log
for rank in 0 1 2; do holds "$log" "[$rank] rank $rank of 3 at 127.0.0.1:"; done
check "nothing of the daemon's environment" bash -c "! grep -q of-the-daemon $log"
expect 0 "$LOCKSTEP" why "$job"
expect 7 "$LOCKSTEP" wait "$job"
check "nothing of the gang is left" bash -c "! grep -sqz LOCKSTEP_JOB_DIR=$LOCKSTEP_HOME/jobs/$job /proc/[0-9]*/environ"

# ---- a job that can't start says why ----
printf 'job: {command: [/nonexistent/program]}\n' >none.yaml
submit none.yaml
reach "$job" FAILED
expect 0 "$LOCKSTEP" ps --all
prints "/nonexistent/program"
expect 2 "$LOCKSTEP" submit gang.yaml --ranks 5

# ---- a run that trains: held, released, and the same bits as one that was left alone ----
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir alone --set eval.every_steps=0 --set train.threads=1 --set train.steps=120 --set train.schedule.steps=120
wanted=$(hashes "$out")
submit tiny.yaml --ranks 2 --set eval.every_steps=0 --set train.threads=1 --set train.steps=120 --set train.schedule.steps=120
train=$job
until_so bash -c '[ "$(cat runs/tiny/metrics.jsonl 2>/dev/null | wc -l)" -gt 5 ]'
expect 0 "$LOCKSTEP" hold "$train"
reach "$train" HELD
expect 0 "$LOCKSTEP" release "$train"
reach "$train" SUCCEEDED
same "epochs" "$(epoch "$train")" 2
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir runs/tiny --set eval.every_steps=0 --set train.threads=1 --set train.steps=120 --set train.schedule.steps=120
same "the bits of the run" "$(hashes "$out")" "$wanted"

# ---- the daemon is killed: jobs keep running, and are found again ----
program long.yaml 'echo $LOCKSTEP_EPOCH >>epochs.$LOCKSTEP_JOB; while [ ! -e go.$LOCKSTEP_JOB ]; do sleep 0.05; done' 'grace: 1s'
submit long.yaml
long=$job
until_so test -s "epochs.$long"
kill -9 "$(cat "$LOCKSTEP_HOME/lock")"
until_so bash -c "! $LOCKSTEP ps >/dev/null 2>&1"
touch "go.$long" # ends while no daemon runs
expect 0 "$LOCKSTEP" up --slots 4
reach "$long" SUCCEEDED
same "begun once" "$(cat "epochs.$long")" 1

# ---- a runner is killed: none of its processes survives, and the job starts again ----
submit long.yaml
reach "$job" RUNNING
until_so test -s "epochs.$job"
runner=$(sed -n 's/^{"pid":\([0-9]*\).*/\1/p' "$LOCKSTEP_HOME/jobs/$job/claim-1")
kill -9 "$runner"
until_so eval 'test "$(epoch "$job")" = 2'
reach "$job" RUNNING
until_so eval 'test "$(wc -l <"epochs.$job")" = 2'
same "one of it runs" "$(grep -lsz "^LOCKSTEP_JOB=$job\$" /proc/[0-9]*/environ | xargs -r -n1 dirname | xargs -r -n1 -I{} cat {}/cmdline 2>/dev/null | tr '\0' ' ' | grep -c 'bash -c echo')" 1
touch "go.$job"
reach "$job" SUCCEEDED

# ---- a full disk: refused, nothing lost, and on again ----
submit long.yaml
reach "$job" RUNNING
daemon=$(cat "$LOCKSTEP_HOME/lock")
prlimit --pid "$daemon" --fsize=4096:unlimited
expect 4 "$LOCKSTEP" submit long.yaml
says "database"
touch "go.$job"
reach "$job" SUCCEEDED # what runs is known
prlimit --pid "$daemon" --fsize=unlimited:unlimited
until_so "$LOCKSTEP" submit gang.yaml
reach "$job" SUCCEEDED

# ---- as the user who submits, when root runs the queue ----
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    folder=$(mktemp -d)
    chmod 755 "$folder" "$scratch"
    chown 65534:65534 "$folder"
    printf 'job: {command: [bash, -c, "id -u; id -g; id -G; pwd; echo home $HOME; cat %s/token"]}\n' "$LOCKSTEP_HOME" >"$folder/who.yaml"
    (cd "$folder" && expect 0 setpriv --reuid 65534 --regid 65534 --clear-groups env HOME=/ LOCKSTEP_HOME="$LOCKSTEP_HOME" "$LOCKSTEP" submit who.yaml && cat "$out" >"$scratch/number")
    job=$(cat "$scratch/number")
    reach "$job" FAILED # that user may not read the token
    same "who it runs as" "$(head -4 "$LOCKSTEP_HOME/jobs/$job/log" | tr '\n' ' ')" "65534 65534 65534 $folder "
    expect 2 setpriv --reuid 65533 --regid 65533 --clear-groups env HOME=/ LOCKSTEP_HOME="$LOCKSTEP_HOME" "$LOCKSTEP" cancel "$train"
    says "belongs to another user"
    rm -rf "$folder"
fi

# ---- down: jobs keep running; with --cancel they end ----
submit long.yaml
reach "$job" RUNNING
expect 0 "$LOCKSTEP" down
prints "the queue is down: " "0 waiting jobs stay until 'lockstep up'"
check "the job keeps running" grep -sqz "LOCKSTEP_JOB_DIR=$LOCKSTEP_HOME/jobs/$job" /proc/[0-9]*/environ
expect 0 "$LOCKSTEP" up --slots 4
reach "$job" RUNNING
expect 0 "$LOCKSTEP" down --cancel
check "none of its processes is left" bash -c "! grep -sqz LOCKSTEP_JOB_DIR=$LOCKSTEP_HOME/jobs/$job /proc/[0-9]*/environ"
expect 0 "$LOCKSTEP" up --slots 4
same "cancelled" "$(state "$job")" CANCELLED
expect 0 "$LOCKSTEP" down

# ---- ended jobs beyond keep.jobs are removed with their folders, except one that a job waits for ----
printf 'keep: {jobs: 2}\n' >"$LOCKSTEP_HOME/config.yaml"
printf 'job: {command: [cat, none]}\n' >after.yaml
expect 0 "$LOCKSTEP" up --slots 4
is_gone() { ! "$LOCKSTEP" ps 1 >/dev/null 2>&1 && [ ! -e "$LOCKSTEP_HOME/jobs/1" ]; }
until_so is_gone
expect 2 "$LOCKSTEP" ps 1
says "job 1 does not exist"
check "the log announces the removal" bash -c "grep -A9999 '[0-9]* ended jobs* to remove.*keep.jobs and keep.time in config.yaml' '$LOCKSTEP_HOME/daemon.log' | grep -q 'removed [0-9]* ended jobs*, 1 to'"
check "the newest are kept" "$LOCKSTEP" ps "$job"
check "with their folder" test -d "$LOCKSTEP_HOME/jobs/$job"
submit after.yaml
check "numbering continues" test "$job" -gt 5
expect 0 "$LOCKSTEP" down
expect 2 "$LOCKSTEP" down
finish
