#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# job.lease: kill -9 of the trainer at any moment; the same command, run again, continues with the ranks that are there: the same bits, no step
# computed again, no process replaced. If no trainer comes back, all of them end.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

steps=${STEPS:-300}
train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=$steps --set train.schedule.steps=$steps --set train.global_batch=12 --set train.leaves=6
    --set eval.every_steps=40 --set checkpoint.every_steps=100 --set eval.batches=1 --threads 1)
steps_in() { if [ -f "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
# ranks_of DIR: the rank processes of a run, whatever their parent.
ranks_of() { pgrep -f -- "rank --segment .* --run-dir $1 " | sort | xargs; }
# begin STEP: the run in $dir in the background, until it has passed STEP or is over.
begin() {
    local i
    "${train[@]}" --run-dir "$dir" --ranks 3 --set job.lease=$lease >"$dir.out" 2>>"$dir.err" </dev/null &
    pid=$!
    for i in $(seq 6000); do
        [ "$(steps_in "$dir")" -gt "$1" ] && break
        kill -0 $pid 2>/dev/null || break
        sleep 0.005
    done
}

# end_alone WHAT: the trainer of a run in $dir is killed and none comes back: its ranks end by themselves.
end_alone() {
    local i
    begin 20
    kill -9 $pid
    wait $pid 2>/dev/null
    for i in $(seq 500); do
        [ -n "$(ranks_of "$dir")" ] || break
        sleep 0.01
    done
    same "$1" "none$(ranks_of "$dir")" none
}

expect 0 "${train[@]}" --run-dir "$scratch/whole" --ranks 1
reference=$(hashes "$out")
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed

dir=$scratch/killed lease=20s
begin 20
first=$(ranks_of "$dir")
kills=0
while kill -0 $pid 2>/dev/null && [ $kills -lt 5 ]; do
    sleep 0.0$((RANDOM % 90 + 10))
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    if [ $? -eq 137 ]; then # otherwise it was through before
        kills=$((kills + 1))
        [ "$(steps_in "$dir")" -ge "$steps" ] || same "ranks outlive their trainer" "$(ranks_of "$dir")" "$first"
    fi
    [ $kills -ne 1 ] || check "diagnose says that nobody gives orders" grep -q "trainer (pid $pid) is gone" <("$LOCKSTEP" diagnose "$dir")
    sleep 0.$((RANDOM % 4))
    begin $(($(steps_in "$dir") + 5))
done
wait $pid
same "exit code" "$?" 0
same "hashes" "$(hashes "$dir.out")" "$reference"
same "every step is in the metrics once" "$(steps_in "$dir") $(python3 -c 'import json,sys; print(len({json.loads(l)["step"] for l in open(sys.argv[1])}))' "$dir/metrics.jsonl")" "$steps $steps"
check "the trainer was killed" test $kills -ge 1
check "it went on from the ranks" grep -q '"event":"resumed".*"from":"ranks"' "$dir/events.jsonl"
same "no rank was lost" "none$(grep -c '"event":"rank_lost"' "$dir/events.jsonl")" none0
same "nobody is left" "none$(ranks_of "$dir")" none
echo "$kills kills, went on from ranks $(grep -c '"from":"ranks"' "$dir/events.jsonl") times"

# A rank dies while there is no trainer: the next one takes its part over.
dir=$scratch/both
begin 20
set -- $(ranks_of "$dir")
kill -9 $pid
wait $pid 2>/dev/null
kill -9 "$1"
begin $steps
wait $pid
same "exit code, a rank lost as well" "$?" 0
same "hashes, a rank lost as well" "$(hashes "$dir.out")" "$reference"

# No trainer comes back.
dir=$scratch/alone lease=1s
end_alone "all have ended"
begin $steps
wait $pid
same "exit code, resumed" "$?" 0
same "hashes, resumed" "$(hashes "$dir.out")" "$reference"

# Without a lease they end with their trainer.
dir=$scratch/without lease=0
end_alone "they end with it"
finish
