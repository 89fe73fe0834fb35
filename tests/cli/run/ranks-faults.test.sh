#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that die are taken over; a trainer that dies or gets signals ends clearly, without a hang or leftovers; and the bits are those of an
# undisturbed run.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

steps=150
train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=$steps --set train.schedule.steps=$steps --set train.global_batch=12 --set train.leaves=6
    --set eval.every_steps=40 --set checkpoint.every_steps=50 --set eval.batches=1 --threads 1)

# ranks_of PID: the rank processes whose parent is PID.
ranks_of() { pgrep -P "$1" 2>/dev/null | xargs; }
# gone PID...: none of them is left within two seconds. A trainer that ended in order has reaped its ranks; those of one that was killed may
# be zombies until init reaps them.
gone() {
    local i pid name state left
    for i in $(seq 200); do
        left=
        for pid in "$@"; do
            read -r _ name state _ 2>/dev/null <"/proc/$pid/stat" || continue
            [ -n "${orphans:-}" ] && [ "$state" = Z ] || left="$left $pid $name $state"
        done
        [ -n "$left" ] || return 0
        sleep 0.01
    done
    echo "left:$left"
    return 1
}
# segments: processes that map a segment of a run of this test.
segments() {
    local maps
    for maps in $(grep -ls "memfd:lockstep-segment" /proc/[0-9]*/maps 2>/dev/null); do
        { tr '\0' ' ' <"${maps%maps}cmdline"; } 2>/dev/null | grep -F -- "$scratch"
    done
}

steps_in() { if [ -f "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
# begin DIR STEP ARGUMENT...: starts a run in the background and waits until it has passed STEP; its ranks are in $ranks.
begin() {
    local step=$2 i
    dir=$scratch/$1
    shift 2
    # Steps are slowed down, so that the run is not over before it is looked at on a busy machine.
    LS_TEST_FAULT="do=delay,rank=1,ms=4" "${train[@]}" --run-dir "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$!
    for i in $(seq 6000); do
        [ "$(steps_in "$dir")" -gt "$step" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.005
    done
    ranks=$(ranks_of $pid)
}
# ended CODE: the run in the background ends with CODE and leaves no process.
ended() {
    local got i
    for i in $(seq 1500); do
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill -9 $pid 2>/dev/null && fail "$dir hung"
    wait $pid
    got=$?
    checks=$((checks + 1))
    [ $got -eq "$1" ] || { fail "$dir ended with $got instead of $1"; tail -n 5 "$dir.err"; }
    check "$dir: ranks are gone" gone $ranks
    same "$dir: segments" "none$(segments)" none
}
# event DIR NAME: fields of the last event of that name.
event() { grep "\"event\":\"$2\"" "$1/events.jsonl" | tail -1; }
ended_like_reference() {
    expect 0 "${train[@]}" --run-dir "$1" --ranks "$2"
    same "$1" "$(hashes "$out")" "$reference"
}
expect 0 "${train[@]}" --run-dir "$scratch/whole" --ranks 1
reference=$(hashes "$out")

seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed

# kill -9 of ranks, again and again: each is taken over and replaced, and the run ends with the bits of an undisturbed one.
begin killed 5 --ranks 3
kills=0
while kill -0 $pid 2>/dev/null && [ $kills -lt 8 ]; do
    set -- $(ranks_of $pid)
    ranks="$ranks $*"
    if [ $# -gt 0 ]; then
        shift $((RANDOM % $#))
        kill -9 "$1" 2>/dev/null && kills=$((kills + 1))
        [ $((RANDOM % 3)) -gt 0 ] || { [ $# -lt 2 ] || kill -9 "$2" 2>/dev/null; } # another one with it
    fi
    sleep 0.$((RANDOM % 20 + 10))
done
ended 0
same "killed: hashes" "$(hashes "$dir.out")" "$reference"
check "ranks were killed" test $kills -ge 2
check "rank_lost" grep -q 'ended with signal 9' <<<"$(event "$dir" rank_lost)"
check "recovered" grep -Eq '"lost":\[[0-9]' <<<"$(event "$dir" recovered)"
check "recoveries in the summary" test "$(field "$dir.out" recoveries | grep -o "'lost'" | wc -l)" -ge 1
check "told on the way" grep -Eq 'rank.* lost, .* in [0-9]+ ms' "$dir.err"
check "the flight of a lost rank is kept" ls "$dir"/flight/rank-*.lost-* >/dev/null
echo "$kills kills, $(grep -c '"event":"recovered"' "$dir/events.jsonl") recoveries, $(grep -c '"event":"rank_joined"' "$dir/events.jsonl") joins"

# All at once: replacements finish the step that was interrupted.
begin all 10 --ranks 3
kill -9 $ranks
for i in $(seq 1000); do
    grep -qs '"event":"recovered"' "$dir/events.jsonl" && break
    sleep 0.01
done
ended 0
same "all: hashes" "$(hashes "$dir.out")" "$reference"
check "restart" grep -q '"how":"restart"' <<<"$(event "$dir" recovered)"

# No replacements: losses reduce the number of ranks; below job.min_ranks the run ends after a complete step, with the reason, saved.
begin few 10 --ranks 4 --set job.max_replacements=0 --set job.min_ranks=3
victims=$ranks
set -- $victims
kill -9 "$1"
for i in $(seq 1000); do
    grep -qs '"event":"recovered"' "$dir/events.jsonl" && break
    sleep 0.01
done
check "goes on with three" grep -q '"event":"team".*"ranks":3' "$dir/events.jsonl"
kill -9 "$2"
ended 5
check "a killed rank is named" grep -q "pid $2) ended with signal 9" "$dir.err"
check "job.min_ranks is named" grep -q "job.min_ranks is 3" "$dir.err"
check "the last finished step is saved" test -f "$dir/checkpoints/$(steps_in "$dir")/MANIFEST.json"
ended_like_reference "$dir" 3

# All are killed and none may be replaced: one more process finishes the step they were in, even half an update, and that is saved.
for round in 1 2 3 4; do
    begin last $((RANDOM % 10 + round * 15)) --ranks 2 --set job.max_replacements=0
    [ -n "$ranks" ] || { wait "$pid"; break; } # it was through
    sleep 0.00$((RANDOM % 10))
    kill -9 $ranks
    ended 5
    check "the last step, finished or begun, is saved" test -f "$dir/checkpoints/$(steps_in "$dir")/MANIFEST.json"
    check "and told" grep -q "Step $(steps_in "$dir") is saved" "$dir.err"
done
ended_like_reference "$dir" 2

# Killed while they start: others are started, and the run begins as usual.
for delay in 0.00 0.02 0.05; do
    dir=$scratch/early-$delay
    "${train[@]}" --run-dir "$dir" --ranks 3 >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$! ranks=
    for i in $(seq 1000); do
        ranks=$(ranks_of $pid)
        [ -z "$ranks" ] || break
        sleep 0.005
    done
    sleep $delay
    kill -9 ${ranks%% *} 2>/dev/null
    ended 0
    same "$dir" "$(hashes "$dir.out")" "$reference"
done

# Signals to the foreground process: the current step is given up, the rest is saved. A terminal sends SIGINT to all.
for signal in INT TERM group; do
    begin "stop-$signal" $((RANDOM % 30 + 5)) --ranks 3
    code=130
    case $signal in
    TERM) code=75 && kill -TERM $pid ;;
    INT) kill -INT $pid ;;
    group) kill -INT $pid $ranks ;;
    esac
    ended $code
    check "$dir: newest checkpoint is of the last step in the metrics" test -f "$dir/checkpoints/$(steps_in "$dir")/MANIFEST.json"
    same "$dir: step in the summary" "$(field "$dir.out" step)" "$(steps_in "$dir")"
    ended_like_reference "$dir" 2
done

# Interrupted twice: nothing is saved, and no process is left.
begin twice 10 --ranks 3
kill -STOP ${ranks%% *}
kill -INT $pid
for _ in $(seq 200); do # two signals that are pending at the same time count as one
    grep -q '^ShdPnd:[[:space:]]*0*$' /proc/$pid/status && break
    sleep 0.01
done
kill -INT $pid
orphans=1 ended 130

# kill -9 of the foreground process: its ranks end by themselves.
for round in 1 2 3; do
    begin parent $(($(steps_in "$scratch/parent") + RANDOM % 20)) --ranks $((round + 1))
    sleep 0.0$((RANDOM % 30))
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    orphans=1 check "ranks end with their trainer" gone $ranks
    same "segments" "none$(segments)" none
done
ended_like_reference "$scratch/parent" 3

# A rank that fails: its error becomes that of the run, with its number. A block of tokens is checked when a rank first reads it.
write_text some.txt 20000 3
for i in $(seq 8); do cat some.txt; done >big.txt
data=(--ranks 2 --set "data.train=[$scratch/big.txt]" --set data.validation_fraction=0)
expect 0 "${train[@]}" "${data[@]}" --dry-run
cache=$(find "$LOCKSTEP_HOME" -name '*.tokens' -size +4M | head -1)
check "the token cache" test -n "$cache"
dd if=/dev/zero of="$cache" bs=65536 seek=16 count=$(($(stat -c %s "$cache") / 65536 - 17)) conv=notrunc 2>/dev/null
begin data 1000 "${data[@]}"
ended 3
check "the rank is named" grep -Eq 'rank [01] \(.*pid [0-9]+\): .*tokens' "$dir.err"

# The program file is replaced during the run: new ranks still run the old program.
cp "$LOCKSTEP" program
"$scratch/program" train tiny.yaml --json --run-dir "$scratch/replaced" --ranks 2 --set "data.train=[$scratch/some.txt]" --set train.steps=3 \
    --set tokenizer.kind=train --set tokenizer.vocab=400 >replaced.out 2>replaced.err </dev/null &
pid=$! dir=$scratch/replaced ranks=
for i in $(seq 400); do
    [ ! -e "$scratch/replaced/lock" ] || break
    sleep 0.005
done
mv program older && cp "$(type -P true)" program
ended 0

# Nothing is left of any of it.
same "processes" "none$(pgrep -f -- "$scratch/.*--rank" | xargs)" none
finish
