#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a daemon meets in a long life: signals, a log that is moved away, a folder that is taken away, a disk that a job fills, a clock that jumps.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"
PATH=$PATH:/usr/sbin:/sbin
log=$LOCKSTEP_HOME/daemon.log
daemon() { cat "$LOCKSTEP_HOME/lock"; }
number_of() { expect 0 "$LOCKSTEP" submit "$@"; job=$(cat "$out"); }

# ---- signals never end it without a line in its log ----
expect 0 "$LOCKSTEP" up --slots 2
pid=$(daemon)
for signal in HUP USR1 USR2 ALRM; do
    kill "-$signal" "$pid"
    wait_until "a line about SIG$signal" grep -q "SIG$signal" "$log"
done
check "it still runs" "$LOCKSTEP" ps
mv "$log" "$log.old"
kill -HUP "$pid"
wait_until "a new log" test -s "$log"
holds "$log" "SIGHUP: the log file was opened again"
truncate -s 33M "$log"
wait_until "the log begins anew when it is long" test -e "$log.1"
wait_until "with a new file" eval '[ -e "$log" ] && [ "$(stat -c %s "$log")" -lt 1000000 ]'

# ---- the submitter's umask, and a start that is not repeated ----
printf 'job: {command: [sh, -c, "umask; touch made"]}\n' >mask.yaml
(umask 027 && expect 0 "$LOCKSTEP" submit mask.yaml && cp "$out" "$scratch/number")
job=$(cat "$scratch/number")
wait_until "the job ends" is_state "$job" SUCCEEDED
expect 0 "$LOCKSTEP" logs "$job"
prints "0027"
same "mode of a new file" "$(stat -c %a made)" 640
printf 'job: {command: [sh, -c, "echo charged >>charges; kill -9 $PPID; sleep 60"], restartable: false}\n' >once.yaml
number_of once.yaml
wait_until "the job fails" is_state "$job" FAILED
same "charged once" "$(wc -l <charges)" 1

# ---- one that stops its runner is ended all the same ----
printf 'job: {command: [sh, -c, "sleep 0.3; kill -STOP $PPID; touch stopped; sleep 600"], grace: 0.2s}\n' >stops.yaml
number_of stops.yaml
wait_until "it has stopped its runner" test -e stopped
expect 0 "$LOCKSTEP" cancel "$job"
wait_until "it ends" is_state "$job" CANCELLED
check "nothing of it is left" bash -c "! grep -sqz LOCKSTEP_JOB_DIR=$LOCKSTEP_HOME/jobs/$job /proc/[0-9]*/environ"

# ---- one whose files cannot be read: that is said once, not at each look, and it can be cancelled ----
printf 'job: {command: [sh, -c, "cd $LOCKSTEP_JOB_DIR; rm claim-1; mkdir claim-1"], grace: 0.2s}\n' >unreadable.yaml
number_of unreadable.yaml
unreadable=$job
wait_until "its log says so" grep -q "job $unreadable: cannot read .*claim-1" "$log"
number_of hello.yaml
wait_until "another job runs" is_state "$job" SUCCEEDED
same "said once" "$(grep -c "job $unreadable: cannot read .*claim-1" "$log")" 1
expect 0 "$LOCKSTEP" cancel "$unreadable"
wait_until "it ends" is_state "$unreadable" CANCELLED

# ---- a folder that is taken away: no second daemon, and nothing is started ----
number_of waits.yaml
wait_until "a job runs" is_state "$job" RUNNING
mv "$LOCKSTEP_HOME" "$LOCKSTEP_HOME.away"
wait_until "it says so" grep -q "removed or replaced" "$LOCKSTEP_HOME.away/daemon.log"
expect 1 "$LOCKSTEP" up --slots 2
says "kill $pid"
rm -rf "$LOCKSTEP_HOME"
mv "$LOCKSTEP_HOME.away" "$LOCKSTEP_HOME"
wait_until "it says that the folder is back" grep -q "is back: jobs are started again" "$log"
touch go
wait_until "the job ends" is_state "$job" SUCCEEDED
number_of hello.yaml
wait_until "and another one runs" is_state "$job" SUCCEEDED
expect 0 "$LOCKSTEP" down
holds "$log" "stopping, because of SIGTERM"

# ---- a clock that was moved since this boot: the queue counts on, and says so ----
read -r boot offset <"$LOCKSTEP_HOME/clock"
same "which boot" "$boot" "$(cat /proc/sys/kernel/random/boot_id)"
echo "$boot $(python3 -c "print($offset - 86400)")" >"$LOCKSTEP_HOME/clock"
printf 'job: {command: [sleep, "1.5"], time_limit: 20s}\n' >limited.yaml
expect 0 "$LOCKSTEP" up --slots 2
wait_until "it says so" grep -q "was moved by +86400 s" "$log"
number_of limited.yaml
wait_until "the job ends" is_state "$job" SUCCEEDED
check "shown by the new clock" python3 -c "import json, subprocess, time; j = json.loads(subprocess.check_output(['$LOCKSTEP', 'ps', '$job', '--json'])); assert abs(j['ended'] - time.time()) < 3000 and j['ran_s'] < 1000, j"
expect 0 "$LOCKSTEP" down

# ---- a damaged database: the way back is named, and new jobs get no folder of an old one ----
cp "$LOCKSTEP_HOME/lockstep.db" copy.db
head -c 100 /dev/zero | dd of="$LOCKSTEP_HOME/lockstep.db" conv=notrunc status=none
expect 3 "$LOCKSTEP" up --slots 2
says "Put back a copy" "'Backup' in docs/orchestration.md"
rm -f "$LOCKSTEP_HOME"/lockstep.db*
last=$job
expect 0 "$LOCKSTEP" up --slots 2
number_of hello.yaml
same "number of the next job" "$job" $((last + 1))
expect 0 "$LOCKSTEP" down

# ---- a service manager is told ----
if command -v python3 >/dev/null; then
    python3 - "$scratch/notify" >notified <<'PY' &
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
s.settimeout(90)
for _ in range(2): print(s.recv(100).decode(), flush=True)
PY
    manager=$!
    wait_until "somebody listens" test -S "$scratch/notify"
    NOTIFY_SOCKET=$scratch/notify queue_up
    expect 0 "$LOCKSTEP" down
    wait "$manager"
    same "READY, then STOPPING" "$(tr '\n' ' ' <notified)" "READY=1 STOPPING=1 "
fi

# ---- a job that fills the disk can be cancelled, and the queue goes on ----
small=$scratch/small
mkdir -p "$small"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=48m,mode=700 lockstep "$small" 2>/dev/null; then
    trap 'LOCKSTEP_HOME=$small "$LOCKSTEP" down --cancel --timeout 20 >/dev/null 2>&1; umount -l "$small"; end_queue' EXIT
    export LOCKSTEP_HOME=$small
    expect 0 "$LOCKSTEP" up --slots 2 --listen ''
    check "there is a reserve" test -s "$small/ballast"
    # its log gives way
    printf 'job: {command: [sh, -c, "while :; do head -c 1000000 /dev/zero | tr \\\\0 x; echo; done"], grace: 1s}\n' >floods.yaml
    number_of floods.yaml
    wait_until "a part of the log was dropped" grep -qa "bytes were dropped here" "$small/jobs/$job/log"
    flood=$job
    number_of hello.yaml
    wait_until "another job runs meanwhile" is_state "$job" SUCCEEDED
    expect 0 "$LOCKSTEP" cancel "$flood"
    wait_until "the flood ends" is_state "$flood" CANCELLED
    # a file of its own does not
    printf 'job: {command: [sh, -c, "while :; do cat /dev/zero >>$LOCKSTEP_JOB_DIR/junk; done 2>/dev/null"], grace: 1s}\n' >fills.yaml
    number_of fills.yaml
    wait_until "the disk is full" bash -c '! (head -c 100000 /dev/zero >"$0/more") 2>/dev/null' "$small"
    "$LOCKSTEP" cancel "$job" >"$out" 2>"$err" # 0, or 4 when it could not be saved: it takes effect
    wait_until "the job ends" bash -c "! grep -sqz LOCKSTEP_JOB_DIR=$small/jobs/$job /proc/[0-9]*/environ"
    rm -f "$small/jobs/$job/junk" "$small/jobs/$flood/log" "$small/more"
    wait_until "and that is saved" is_state "$job" CANCELLED
    wait_until "the reserve is made again" test -s "$small/ballast"
    number_of hello.yaml
    wait_until "jobs run" is_state "$job" SUCCEEDED
    expect 0 "$LOCKSTEP" down
    # a daemon starts on a full disk with its reserve, and without one it says what is to do
    cat /dev/zero >"$small/more" 2>/dev/null
    expect 0 "$LOCKSTEP" up --slots 2 --listen ''
    check "its log says so" grep -q "starts with its reserve of 8 MiB" "$small/daemon.log"
    number_of hello.yaml
    wait_until "jobs run on the reserve" is_state "$job" SUCCEEDED
    expect 0 "$LOCKSTEP" down
    cat /dev/zero >"$small/more-2" 2>/dev/null
    check "the reserve is gone" test ! -s "$small/ballast"
    expect 4 "$LOCKSTEP" up --slots 2 --listen ''
    says "Is the disk full?"
    rm "$small/more" "$small/more-2"
    expect 0 "$LOCKSTEP" up --slots 2 --listen ''
    wait_until "the reserve is made again" test -s "$small/ballast"
    expect 0 "$LOCKSTEP" ps "$job"
    prints SUCCEEDED
    expect 0 "$LOCKSTEP" down
else
    echo "skipped: no file system of its own to fill (needs root)"
fi
finish
