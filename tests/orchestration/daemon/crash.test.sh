#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of the daemon at every journaled transition. The same run of the queue is repeated: each time the daemon dies at the next point (before a
# transaction, after it, after each order, after the answers) and is started again, until it has died at every point. Afterwards no job may be lost, and
# no epoch started twice. Each start of a job appends a line with its epoch to a file.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
export STARTS=$scratch/starts LOCKSTEP_HOME

cat >job.yaml <<YAML
name: job
job: {command: [bash, -c, 'echo \$LOCKSTEP_JOB \$LOCKSTEP_EPOCH >> $STARTS']}
YAML
sed "s|$STARTS|&; exit 1|" job.yaml >bad.yaml
cat >long.yaml <<YAML
name: long
job: {command: [bash, -c, 'echo \$LOCKSTEP_JOB \$LOCKSTEP_EPOCH >> $STARTS; exec sleep 300'], restartable: true, grace: 2s}
YAML

printf 'name: j5\njob: {command: ["true"], hold: true}\n' >held.yaml

# up POINT: starts a daemon that dies at that point, possibly while it starts.
up() { LS_TEST_CRASH=$1 "$LOCKSTEP" up --slots 2 --listen '' >/dev/null 2>&1; }
# try COMMAND...: until the daemon has answered; one that died is started again, and does not die any more.
try() {
    local round
    for round in 1 2 3 4 5; do
        timeout 60 "$LOCKSTEP" "$@" >"$out" 2>"$err" </dev/null && return 0
        alive || { up 0; crashed=1; }
    done
    return 1
}
# look: puts the list of jobs into $list; fails if no daemon answers.
look() { list=$("$LOCKSTEP" ps --all 2>/dev/null); }
alive() { look; }
# reach NAME STATE: waits for it, bringing the daemon back when it has died.
reach() {
    local round
    for round in $(seq 200); do
        if look; then
            [[ $list =~ " $1 "[\ ]*"$2 " ]] && return 0
            sleep 0.02
        else
            up 0
            crashed=1
        fi
    done
    fail "point $point: $1 is not $2: $list"
    return 1
}
# submit FILE NAME: a job; when the daemon died in the middle, it may or may not have taken it: it is submitted again if it has not.
submit() {
    local round
    for round in 1 2 3 4 5; do
        timeout 60 "$LOCKSTEP" submit "$1" --set "name=$2" >"$out" 2>"$err" </dev/null && return 0
        alive || { up 0; crashed=1; }
        look && [[ $list == *" $2 "* ]] && return 0
    done
    return 1
}
number() { awk -v name="$1" '$2 == name { print $1 }' <<<"$list"; }

point=0 crashed=1
while [ "$crashed" -eq 1 ] && [ "$point" -lt 150 ]; do
    point=$((point + ${LS_CRASH_STEP:-1})) crashed=0
    rm -rf "$LOCKSTEP_HOME" "$STARTS"
    up "$point" || { crashed=1 && up 0; }
    submit job.yaml j1 && submit long.yaml j2 && submit bad.yaml j3 && submit job.yaml j4 || fail "point $point: a job could not be submitted"
    # What administrators and users say about the queue and a held job, with a key: said again, it makes no second job.
    try submit held.yaml --key five && try submit held.yaml --key five && { look || { up 0; crashed=1; look; }; } && try change "$(number j5)" --time-limit 2h --account other && try drain ||
        fail "point $point: $(tail -1 "$err")"
    try undrain || { "$LOCKSTEP" nodes | grep -q drain && fail "point $point: still drained"; }
    # A verb that the daemon carried out before it died is refused the second time: what counts is the state.
    reach j1 SUCCEEDED && reach j3 FAILED && reach j2 RUNNING && { try hold "$(number j2)"; reach j2 HELD; } && { try release "$(number j2)"; reach j2 RUNNING; } &&
        { try cancel "$(number j2)"; reach j2 CANCELLED; } && reach j4 SUCCEEDED || fail "point $point: stopped there"
    alive || { up 0; crashed=1; }
    checks=$((checks + 1))
    [ "$(grep -c ' j[1-5] ' <<<"$list")" -eq 5 ] || fail "point $point: not 5 jobs: $list"
    "$LOCKSTEP" ps "$(number j5)" | grep -q 'set  *job.time_limit=7200s' && grep -q ' j5  *HELD  *other ' <<<"$list" || fail "point $point: j5 has lost its terms"
    [ "$failures" -lt 5 ] || break
    twice=$(sort "$STARTS" | uniq -d)
    [ -z "$twice" ] || fail "point $point: begun twice (job, epoch): $twice"
    # Those that ended by themselves began once, whatever the daemon did meanwhile.
    for name in j1:1 j2:2 j3:1 j4:1; do
        began=$(grep -c "^$(number "${name%:*}") " "$STARTS")
        [ "$began" -eq "${name#*:}" ] || fail "point $point: ${name%:*} began $began times"
    done
    "$LOCKSTEP" down >/dev/null 2>&1 || fail "point $point: down"
done
echo "$point points"
check "the last run had no crash left to make" [ "$crashed" -eq 0 ]
finish
