#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run directories on real file systems that fill up, become read-only, lose power, are taken away: each run ends with a message and the right exit
# code or continues, nothing that was saved is lost, and a rerun ends with the bits of an undisturbed run.
if [ -z "${LS_DISK_NAMESPACE:-}" ]; then # mounts of this test are seen by nobody else, and go with it
    export LS_DISK_NAMESPACE=1
    for way in "unshare -m" "unshare -r -m"; do
        if $way mount -t tmpfs none /mnt 2>/dev/null; then exec $way bash "$0" "$@"; fi
    done
    echo "skipped: mounting needs root, or user namespaces"
    exit 77
fi
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
PATH=$PATH:/usr/sbin:/sbin

steps=20
train=("$LOCKSTEP" train "$scratch/tiny.yaml" --json --threads 1 --set model.width=64 --set model.ffn=128 --set train.steps=$steps --set train.schedule.steps=$steps --set train.leaves=6
    --set eval.every_steps=0 --set checkpoint.keep_last=2)
expect 0 "${train[@]}" --run-dir whole
reference=$(hashes "$out")
mkdir disk

steps_in() { if [ -f "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
# begin DIR STEP ARGUMENT...: a run in the background that has passed STEP.
begin() {
    local dir=$1 step=$2 i
    shift 2
    "${train[@]}" --run-dir "$dir" "$@" >begun.out 2>begun.err </dev/null &
    pid=$!
    for i in $(seq 12000); do
        [ "$(steps_in "$dir")" -gt "$step" ] && return 0
        kill -0 $pid 2>/dev/null || return 0
        sleep 0.005
    done
}
# acknowledged DIR: the newest step whose checkpoint was saved according to the events; 0: none.
acknowledged() { { echo 0; grep -h '"event":"checkpoint"' "$1/events.jsonl" | sed -n 's/.*"step":\([0-9]*\).*}$/\1/p'; } 2>/dev/null | tail -1; }
# newest DIR: the newest step that has a manifest; 0: none.
newest() { { echo 0; find "$1/checkpoints" -name MANIFEST.json | grep -v tmp- | sed 's|.*/\([0-9]*\)/MANIFEST.json|\1|'; } 2>/dev/null | sort -n | tail -1; }
# as_saved WHAT DIR: what was saved according to the events is there and complete.
as_saved() {
    checks=$((checks + 1))
    [ "$(newest "$2")" -ge "$(acknowledged "$2")" ] || fail "$1: step $(acknowledged "$2") was saved, $(newest "$2") is there"
    [ "$(newest "$2")" -eq 0 ] || expect 0 "$LOCKSTEP" checkpoint verify "$2"
}
# ended_full WHAT DIR CODE TEXT...: the run ended with CODE and the texts, or reached its end and says which checkpoint it could not save.
ended_full() {
    local what=$1 dir=$2 wanted=$3 got
    shift 3
    wait $pid
    got=$?
    checks=$((checks + 1))
    if [ $got -eq 0 ]; then
        grep -q checkpoint_failed "$dir/events.jsonl" || [ "$(newest "$dir")" -eq $steps ] || fail "$what: exit code 0, and nothing tells of the full disk"
    else
        [ $got -eq "$wanted" ] || { fail "$what: exit code $got instead of $wanted"; tail -n 3 begun.err; }
        holds begun.err "lockstep: " "$@"
    fi
    as_saved "$what" "$dir"
}
# goes_on WHAT DIR RANKS: a rerun ends like the reference, and starts after what was saved.
goes_on() {
    local saved
    saved=$(newest "$2")
    expect 0 "${train[@]}" --run-dir "$2" --ranks "$3"
    same "$1" "$(hashes "$out")" "$reference"
    checks=$((checks + 1))
    if [ "$saved" -gt 0 ] && grep -q "starting over" "$err"; then fail "$1: step $saved was saved, and the rerun started over"; fi
}

# ---- full: at the first file, in the first checkpoint, between data files, in the third; by bytes and by inodes ----
for ranks in 1 3; do
    sizes="size=100k size=600k size=1100k size=2300k nr_inodes=24"
    [ $ranks = 1 ] || sizes="size=600k size=2900k"
    for size in $sizes; do
        mount -t tmpfs -o $size none disk
        begin disk/run $steps --ranks $ranks
        ended_full "$size, $ranks ranks" disk/run 4 "No space left on device" "disk/run"
        mount -t tmpfs -o remount,size=64m,nr_inodes=4096 none disk
        [ ! -d disk/run ] || goes_on "$size, $ranks ranks, made larger" disk/run $ranks
        umount disk
    done
done

# ---- full while only metrics and events are written ----
for ranks in 1 3; do
    mount -t tmpfs -o size=16m none disk
    begin disk/run 9 --ranks $ranks --set checkpoint.every_steps=8
    kill -STOP $pid # the bytes below are all that is left
    head -c 32M /dev/zero >disk/ballast 2>/dev/null
    kill -CONT $pid
    ended_full "full between checkpoints, $ranks ranks" disk/run 4 "No space left on device"
    rm disk/ballast
    goes_on "full between checkpoints, $ranks ranks, emptied" disk/run $ranks
    umount disk
done

# ---- a limit on the size of files, as set by batch systems and quotas ----
(ulimit -f 300 && "${train[@]}" --run-dir limited --ranks 1 >begun.out 2>begun.err </dev/null) &
pid=$!
ended_full "ulimit -f" limited 4 "File too large"
goes_on "ulimit -f lifted" limited 2

# ---- the folder is renamed or removed during the run ----
for ranks in 1 3; do
    begin away$ranks 6 --ranks $ranks --set train.steps=100000
    mv away$ranks moved$ranks
    wait $pid
    code=$?
    check "moved away: exit code $code" test $code -ne 0
    holds begun.err "away$ranks" "No such file or directory"
    check "nothing is made where it was" test ! -e away$ranks
    as_saved "moved away" moved$ranks
    goes_on "moved away, under its new name" moved$ranks $ranks

    begin gone$ranks 6 --ranks $ranks --set train.steps=100000
    for i in $(seq 100); do # a save that is under way makes files meanwhile
        ! rm -rf gone$ranks 2>/dev/null || break
    done
    wait $pid
    code=$?
    check "removed: exit code $code" test $code -ne 0
    holds begun.err "gone$ranks" "No such file or directory"
    check "nothing is made again" test ! -e gone$ranks
done

# ---- folders that are not writable, or no longer; root can write anyway, so another user runs it ----
nobody=(setpriv --reuid=65534 --clear-groups env LOCKSTEP_HOME="$scratch/theirs")
if [ "$(id -u)" = 0 ] && "${nobody[@]}" true 2>/dev/null; then
    mkdir -p home theirs
    chmod 755 . && chmod 644 tiny.yaml text.txt && chown 65534 theirs
    mkdir denied && chown 65534 denied
    train=("${nobody[@]}" "${train[@]}")
    begin denied/run 6 --ranks 2
    chmod a-w denied/run/checkpoints
    ended_full "checkpoints may not be written" denied/run 1 "checkpoints" "Permission denied"
    chmod u+w denied/run/checkpoints
    goes_on "checkpoints may be written again" denied/run 2
    chmod 555 denied
    expect 1 "${train[@]}" --run-dir denied/other
    says denied "Permission denied"
    train=("${train[@]:5}")
else
    echo "not tried: another user (needs root and setpriv)"
fi

# ---- a real ext4 in a file ----
image() { truncate -s 48M "$1" && mkfs.ext4 -q -F "$1"; }
if ! { command -v mkfs.ext4 >/dev/null && image ext4.img && mount -o loop ext4.img disk; } 2>/dev/null; then
    echo "not tried: ext4 in a file (needs mkfs.ext4 and loop devices)"
    finish
fi

# It becomes read-only during the run, as after a disk error.
begin disk/run 6 --ranks 3
mount -o remount,abort disk
ended_full "read-only" disk/run 4 "disk/run" "Read-only file system"
umount disk
mount -o loop ext4.img disk
as_saved "read-only, mounted again" disk/run
goes_on "read-only, mounted again" disk/run 3
umount disk

# kill -9 again and again while it saves after every step: what was saved stays, and half a checkpoint never counts as one.
image ext4.img && mount -o loop ext4.img disk
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed
for round in 1 2 3 4 5 6; do
    begin disk/run $(($(steps_in disk/run) + RANDOM % 3)) --ranks $((round % 2 * 2 + 1)) --set checkpoint.every_steps=1
    sleep 0.0$((RANDOM % 60))
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    as_saved "killed in a save" disk/run
done
goes_on "killed in saves" disk/run 2
umount disk

# The power fails: what ext4 had given to its device at that moment is all there is. The run stands still while its device is copied, so that
# the copy is of one moment; what was in memory only is not in it.
image ext4.img && mount -o loop ext4.img disk
mkdir other
cuts=0
for round in 1 2 3 4; do
    [ "$(steps_in disk/run)" -lt 6 ] || rm -rf disk/run # not beyond the steps of the undisturbed run
    begin disk/run $(($(steps_in disk/run) + 1 + RANDOM % 3)) --ranks 1 --set checkpoint.every_steps=1 --set train.steps=100000
    sleep 0.0$((RANDOM % 60))
    kill -STOP $pid || break
    saved=$(acknowledged disk/run)
    cp --sparse=always ext4.img cut.img
    kill -9 $pid
    wait $pid 2>/dev/null
    mount -o loop cut.img other || { fail "the file system does not come back"; break; }
    cuts=$((cuts + 1))
    check "power cut: step $saved was saved, $(newest other/run) is there" test "$(newest other/run)" -ge "$saved"
    [ "$saved" -eq 0 ] || expect 0 "$LOCKSTEP" checkpoint verify other/run
    [ "$(newest other/run)" -gt $steps ] || goes_on "after a power cut" other/run 1
    umount other
done
check "the power was cut" test $cuts -ge 2
umount disk
finish
