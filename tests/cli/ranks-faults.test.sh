#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ranks that die, a trainer that dies, signals: a named end, no hang, nothing left behind, and a rerun with the bits of an undisturbed run.
. "$(dirname "$0")/lib.sh"

steps=150
train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=$steps --set train.schedule.steps=$steps --set train.global_batch=12 --set train.leaves=6
    --set eval.every_steps=40 --set checkpoint.every_steps=50 --set eval.batches=1 --threads 1)

# ranks_of PID: the rank processes whose parent is PID.
ranks_of() { pgrep -P "$1" 2>/dev/null | xargs; }
# gone PID...: none of them is left within two seconds. A trainer that ended in order has reaped its ranks; those of one that was killed may
# be zombies until init comes round.
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
    "${train[@]}" --run-dir "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$!
    for i in $(seq 6000); do
        [ "$(steps_in "$dir")" -gt "$step" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.005
    done
    ranks=$(ranks_of $pid)
}
# ended CODE: the run in the background ends with CODE, and nothing of it is left.
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

# kill -9 of a rank, several times on the way: named, and no step is lost that the metrics show.
lost=0 whole=0
for round in 1 2 3 4 5 6; do
    begin killed $(($(steps_in "$scratch/killed") + RANDOM % 9)) --ranks $((RANDOM % 3 + 2))
    set -- $ranks
    [ $# -gt 0 ] || break # it was through
    shift $((RANDOM % $#))
    victim=$1
    sleep 0.0$((RANDOM % 30))
    kill -9 "$victim" 2>/dev/null || continue
    wait $pid
    code=$?
    [ $code -ne 0 ] || break # it was through
    lost=$((lost + 1))
    checks=$((checks + 1))
    [ $code -eq 5 ] || { fail "a killed rank: exit code $code"; tail -n 5 "$dir.err"; }
    check "a killed rank is named" grep -q "pid $victim) ended with signal 9" "$dir.err"
    check "ranks are gone" gone $ranks
    check "rank_lost" grep -q "pid $victim" <<<"$(event "$dir" rank_lost)"
    if grep -q '"state_whole":true' <<<"$(event "$dir" rank_lost)"; then
        whole=$((whole + 1))
        check "the last finished step is saved" test -f "$dir/checkpoints/$(steps_in "$dir")/MANIFEST.json"
    fi
done
echo "$lost ranks killed, $whole times between two updates"
check "ranks were killed" test $lost -ge 2
ended_like_reference "$scratch/killed" 3

# Killed while they start: the run says so, and begins again as if nothing had been.
for delay in 0.00 0.02 0.05; do
    "${train[@]}" --run-dir "$scratch/early" --ranks 3 >"$scratch/early.out" 2>"$scratch/early.err" </dev/null &
    pid=$! dir=$scratch/early ranks=
    for i in $(seq 1000); do
        ranks=$(ranks_of $pid)
        [ -z "$ranks" ] || break
        sleep 0.005
    done
    sleep $delay
    kill -9 ${ranks%% *} 2>/dev/null
    ended 5
    check "named" grep -q "rank 0 .*signal 9" "$dir.err"
done
ended_like_reference "$scratch/early" 2

# Signals to the foreground process: the step that runs is given up, the rest is saved. A terminal sends SIGINT to all.
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

# Interrupted twice: nothing is saved, and nobody is left.
begin twice 10 --ranks 3
kill -STOP ${ranks%% *}
kill -INT $pid
sleep 0.1
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

# A rank that can't go on: its words become the run's, with its name. A block of tokens is checked when it is first read, by a rank.
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

# The program is replaced while it runs: its ranks are the program that runs, not the new one.
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
