#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts with job.lease: the trainer is killed at any moment. The agents of the other hosts keep their ranks, and the same command, run again,
# continues with all of them: the same bits, no step twice. A rank or a host lost together with it is lost like any other. Without a new trainer all end.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

steps=${LS_LEASE_STEPS:-300}
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=48 --set train.micro_batch=4 --set train.leaves=6 --set train.steps=$steps --set eval.every_steps=0
    --set checkpoint.every_steps=0 --set eval.batches=1 --threads 1)
export LOCKSTEP_TOKEN=$token
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed

lines() { wc -l 2>/dev/null <"$1/metrics.jsonl" || echo 0; }
# ranks_of DIR FIRST LAST: the processes of these ranks, whatever their parents.
ranks_of() { pgrep -f -- "rank --segment .* --run-dir [^ ]*$1 .*--rank [$2-$3]\$" | sort | xargs; }

# trainer NAME ARGUMENT...: begins or continues the run; its process is $trainer. The output of all its trainers is in NAME.all.err.
trainer() {
    cat "$1.err" >>"$1.all.err" 2>/dev/null
    background "$1" 0 "${train[@]}" --run-dir "$1" --ranks 4 --local-ranks 1 --coordinator 10.77.0.1:29711 "${@:2}"
    trainer=$pid
}

# agent NAME HOST ARGUMENT...: in the background; its process is $pid.
agent() { background "$1" "$2" "$LOCKSTEP" agent --coordinator 10.77.0.1:29711 "${@:3}"; }

# begin NAME ARGUMENT...: a trainer with one rank, and two hosts, of two ranks and of one; until step 20.
begin() {
    local name=$1 i
    trainer "$@"
    agent "$name.1" 1 --slots 2
    first=$pid
    for i in $(seq 1000); do [ -z "$(pgrep -P $first)" ] || break; sleep 0.01; done # agents get their ranks in the order in which they connect
    agent "$name.2" 2 --slots 1
    second=$pid
    passed "$name" 20
}

# crash: kill -9 of the trainer and of PROCESS...
crash() {
    kill -9 "$trainer" "$@"
    wait "$trainer" 2>/dev/null
}

# early NAME: the run is far from its end, so that it cannot finish before it is killed.
early() { [ "$(lines "$1")" -lt $((steps / 2)) ]; }

# goes_on NAME: the run continued with its ranks, finished with the right bits, and has each step in the metrics once.
goes_on() {
    ended "$1" "$trainer" 0
    same "$1: bits" "$(hashes "$1.out")" "$reference"
    same "$1: lines, steps" "$(lines "$1") $(python3 -c 'import json,sys; print(len({json.loads(l)["step"] for l in open(sys.argv[1])}))' "$1/metrics.jsonl")" "$steps $steps"
    holds "$1/events.jsonl" '"from":"ranks"'
    check "$1: nothing from a checkpoint" test "$(grep -c '"from":"checkpoint"' "$1/events.jsonl")" = 0
    nothing_left "$1"
}

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")

# The trainer alone, again and again: in the middle of a step, between steps, while it takes over.
for zero in 0 3; do
    name=alone-$zero
    begin $name --set job.lease=40s --set parallel.zero=$zero
    ranks=$(ranks_of $name 0 3)
    for i in 1 2 3; do
        sleep 0.0$((RANDOM % 90 + 10))
        early $name || break
        crash
        sleep 0.$((RANDOM % 10))
        same "$name: ranks outlive their trainer" "$(ranks_of $name 0 3)" "$ranks"
        at=$(lines $name)
        trainer $name --set job.lease=40s --set parallel.zero=$zero
        [ $i -eq 2 ] || passed $name $((at + 10))
    done
    goes_on $name
    same "$name: no rank was lost" "$(grep -c '"event":"rank_lost"' $name/events.jsonl)" 0
done

# While it saves.
begin saving --set job.lease=40s --set checkpoint.every_steps=8 --set eval.every_steps=8
for i in 1 2; do
    sleep 0.$((RANDOM % 3))
    early saving || break
    crash
    trainer saving --set job.lease=40s --set checkpoint.every_steps=8 --set eval.every_steps=8
    passed saving $(($(lines saving) + 10))
done
goes_on saving

# Together with a rank of another host: the host continues with its other rank, and starts the lost one again.
begin rank --set job.lease=40s --set parallel.zero=1
crash $(ranks_of rank 2 2)
trainer rank --set job.lease=40s --set parallel.zero=1
goes_on rank
holds rank/events.jsonl '"lost":[2]'

# Together with a host: its shadow has what it kept.
begin host --set job.lease=40s --set parallel.zero=1
crash $first $(ranks_of host 1 2)
trainer host --set job.lease=40s --set parallel.zero=1
goes_on host
holds host/events.jsonl '"lost":[1,2]' "did not return to this trainer"

# Together with the rank of its own host: that host's memory is gone and comes from the others; so do the results that were not written down.
for zero in 0 1; do
    name=first-$zero
    begin $name --set job.lease=40s --set parallel.zero=$zero --set eval.every_steps=40
    crash $(ranks_of $name 0 0)
    trainer $name --set job.lease=40s --set parallel.zero=$zero --set eval.every_steps=40
    goes_on $name
    holds $name/events.jsonl '"lost":[0]' '"event":"rank_joined"'
done

# The agents were started by the trainer, which chooses a port and a token of its own each time.
hosts_file three.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2" "host2 10.77.0.3"
unset LOCKSTEP_TOKEN
listed=("${train[@]}" --run-dir listed --hosts three.hosts --set job.lease=40s)
background listed 0 "${listed[@]}"
trainer=$pid
passed listed 20
crash
background listed 0 "${listed[@]}"
trainer=$pid
goes_on listed
export LOCKSTEP_TOKEN=$token

# No trainer comes: agents report that, and nothing is left behind.
begin nobody --set job.lease=2s
crash
ended nobody.1 $first 5 "no other trainer connected within 2 s (job.lease)"
ended nobody.2 $second 5 "no other trainer connected within 2 s (job.lease)"
nothing_left nobody

# Without a lease all end with the trainer.
begin without
crash
ended without.1 $first 5 "went away"
nothing_left without
finish
