#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An interrupted run that is resumed ends with the bits of one that was not: after SIGINT, SIGTERM, kill -9 at random moments, and
# in pieces. No line of the log is lost or doubled; another run is refused; an old run is never thrown away.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

steps=60
train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=$steps --set eval.every_steps=7)

# each_step_once DIR STEPS: metrics.jsonl has the steps 1 to STEPS, each once, in order, and all events are complete lines.
each_step_once() {
    check "$1/metrics.jsonl has each step once" python3 - "$1" "$2" <<'PY'
import json, sys
folder, steps = sys.argv[1], int(sys.argv[2])
seen = [json.loads(line)["step"] for line in open(folder + "/metrics.jsonl")]
events = [json.loads(line) for line in open(folder + "/events.jsonl")]
if not all({"time", "event"} <= event.keys() for event in events):
    sys.exit("an event lacks time or event")
if seen != list(range(1, steps + 1)):
    sys.exit(f"steps in the metrics: {seen}")
PY
}

# ended_like_reference DIR: runs to the end and compares the hashes.
ended_like_reference() {
    expect 0 "${train[@]}" --run-dir "$1"
    same "$1" "$(hashes "$out")" "$reference"
    each_step_once "$1" $steps
}

# steps_in DIR: finished steps that the metrics show so far.
steps_in() { if [ -f "$1/metrics.jsonl" ]; then wc -l <"$1/metrics.jsonl"; else echo 0; fi; }
# begin DIR STEP ARGUMENT...: starts a run in the background, slow enough to be caught, and waits until it has passed STEP.
begin() {
    local dir=$1 step=$2 i
    shift 2
    "${train[@]}" --run-dir "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$!
    for i in $(seq 3000); do
        [ "$(steps_in "$dir")" -gt "$step" ] && return 0
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
}
# ended CODE: the run in the background ends with CODE.
ended() {
    wait $pid
    local got=$?
    checks=$((checks + 1))
    [ $got -eq "$1" ] || { fail "$dir ended with $got instead of $1"; cat "$dir.err"; }
}

expect 0 "${train[@]}" --run-dir whole
reference=$(hashes "$out")
each_step_once whole $steps

# A finished run prints its result again, and does nothing else.
before=$(md5sum <whole/metrics.jsonl)
expect 0 "${train[@]}" --run-dir whole
same "a finished run, asked again" "$(hashes "$out")" "$reference"
same "status" "$(field "$out" status)" finished
same "metrics of a finished run" "$(md5sum <whole/metrics.jsonl)" "$before"
expect 0 "${train[@]}" --run-dir whole --resume
same "a finished run, resumed" "$(hashes "$out")" "$reference"

# In pieces.
for stop in 1 9 10 31; do
    expect 0 "${train[@]}" --run-dir pieces --steps $stop --threads $((stop % 3 + 1))
    same "step" "$(field "$out" step)" $stop
    same "status" "$(field "$out" status)" stopped
done
expect 0 "${train[@]}" --run-dir pieces --steps 9
same "a step that is past" "$(field "$out" step)" 31
ended_like_reference pieces

# SIGINT and SIGTERM save the finished steps.
slow=(--set train.global_batch=12 --threads 1)
for signal in INT TERM; do
    dir=stop-$signal
    code=75
    [ $signal = INT ] && code=130
    begin $dir 5 "${slow[@]}"
    kill -s $signal $pid 2>/dev/null
    ended $code
    check "$dir: newest checkpoint is of the last step in the metrics" \
        test -f "$dir/checkpoints/$(steps_in $dir)/MANIFEST.json"
    same "$dir: step in the summary" "$(field $dir.out step)" "$(steps_in $dir)"
    ended_like_reference $dir
done

# A signal interrupts an evaluation, even the last one, and the resumed run makes up for it.
write_text long.txt 3000 9
long=(--set "data.validation=[long.txt]" --set data.validation_fraction=0 --set eval.batches=0 --set train.steps=3 --set train.schedule.steps=3 --threads 1)
expect 0 "${train[@]}" --run-dir evaluated "${long[@]}"
evaluated=$(field "$out" state_hash curve_hash val_loss status step)
for stop in 1 3; do
    dir=evaluation-$stop
    [ $stop -eq 1 ] || expect 0 "${train[@]}" --run-dir $dir "${long[@]}" --set eval.every_steps=1 --steps 2
    "${train[@]}" --run-dir $dir "${long[@]}" --set eval.every_steps=1 >$dir.out 2>$dir.err </dev/null &
    pid=$!
    # The step is told before its evaluation, and its row is written after it.
    for i in $(seq 3000); do
        grep -q "^step $stop/3 " $dir.err && break
        sleep 0.01
    done
    kill -s INT $pid
    ended 130
    check "$dir: one checkpoint for the step" test -f $dir/checkpoints/$stop/MANIFEST.json
    expect 0 "${train[@]}" --run-dir $dir "${long[@]}" --set eval.every_steps=1
    same "$dir" "$(field "$out" state_hash curve_hash val_loss status step)" "$evaluated"
    same "$dir: evaluations" "$(grep -o '"evaluation","step":[0-9]*' $dir/events.jsonl | cut -d: -f2 | xargs)" "1 2 3"
done

# kill -9, several times on the way, at moments drawn from a seed.
seed=${SEED:-$RANDOM}
echo "SEED=$seed"
RANDOM=$seed
for round in 1 2 3; do
    dir=kill-$round
    for blow in 1 2 3 4; do
        begin $dir $(($(steps_in $dir) + RANDOM % 12)) --set checkpoint.every_steps=$((RANDOM % 4 + 1))
        sleep 0.0$((RANDOM % 40))
        kill -9 $pid 2>/dev/null
        wait $pid 2>/dev/null
    done
    ended_like_reference $dir
done

# Killed before its first checkpoint: the next start says that it starts over.
begin unsaved 3 --set checkpoint.every_steps=50 "${slow[@]}"
kill -9 $pid
wait $pid 2>/dev/null
if [ ! -d unsaved/checkpoints/50 ]; then
    expect 0 "${train[@]}" --run-dir unsaved --set checkpoint.every_steps=50
    says "no checkpoint yet: starting over from step 1; checkpoint.every_steps is 50"
fi
ended_like_reference unsaved

# Killed at the very beginning, before the first step.
for delay in 0.00 0.01 0.02 0.03 0.05 0.08; do
    "${train[@]}" --run-dir early >early.out 2>early.err </dev/null &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
done
ended_like_reference early

# --fresh moves the old run aside.
expect 0 "${train[@]}" --run-dir whole --fresh --steps 2
same "step" "$(field "$out" step)" 2
check "the old run was moved aside" test -f whole.old-1/checkpoints/$steps/MANIFEST.json
expect 0 "${train[@]}" --run-dir whole.old-1
same "the old run" "$(hashes "$out")" "$reference"

# --resume needs something to resume; a folder that holds something else is left alone.
expect 2 "${train[@]}" --run-dir nothing --resume
says nothing "--resume"
check "nothing was created" test ! -e nothing
mkdir foreign && echo mine >foreign/notes.txt
expect 2 "${train[@]}" --run-dir foreign
says foreign notes.txt
expect 2 "${train[@]}" --run-dir whole --resume --fresh

# Another run in the same folder is refused, with key and both values, and the old one is unchanged.
cp -r whole.old-1 other
before=$(cat other/run.yaml other/metrics.jsonl | md5sum)
expect 2 "${train[@]}" --run-dir other --set train.seed=8
says train.seed "7 in the run" "8 now"
expect 2 "${train[@]}" --run-dir other --set train.optimizer.lr=0.02
says train.optimizer.lr 0.01 0.02
write_text other.txt 400 6
expect 2 "${train[@]}" --run-dir other --set "data.train=[$scratch/other.txt]"
says data.train "in the run" "now"
same "the refused run" "$(cat other/run.yaml other/metrics.jsonl | md5sum)" "$before"
expect 0 "${train[@]}" --run-dir other
same "the refused run, asked again" "$(hashes "$out")" "$reference"

# A run that failed or was killed before it began can be started again; a tokenizer it left is not reused.
trained=(--set tokenizer.kind=train --set tokenizer.vocab=300)
for delay in 0.01 0.02 0.03 0.05; do
    "${train[@]}" --run-dir begun "${trained[@]}" >begun.out 2>begun.err </dev/null &
    pid=$!
    sleep $delay
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
done
expect 0 "${train[@]}" --run-dir begun "${trained[@]}"
begun=$(hashes "$out")
expect 0 "${train[@]}" --run-dir straight "${trained[@]}"
same "a trained tokenizer, killed at the beginning" "$begun" "$(hashes "$out")"
mkdir left && cp straight/tokenizer.json left/
expect 0 "${train[@]}" --run-dir left --set tokenizer.kind=train --set tokenizer.vocab=280 --steps 1
expect 0 "${train[@]}" --run-dir clean --set tokenizer.kind=train --set tokenizer.vocab=280 --steps 1
check "the tokenizer of this run" cmp left/tokenizer.json clean/tokenizer.json

# One process at a time.
begin busy 2 "${slow[@]}" --set train.steps=100000 --set train.schedule.steps=$steps
dir=busy
expect 2 "${train[@]}" --run-dir busy "${slow[@]}" --set train.steps=100000 --set train.schedule.steps=$steps
says busy "process $pid"
expect 2 "${train[@]}" --run-dir busy --fresh
check "the run in progress stays" kill -0 $pid
kill -s TERM $pid
ended 75
# A sliding window is kept by a run that is continued, and decides its bits.
for window in 0 5; do
    sliding=("$LOCKSTEP" train tiny.yaml --json --threads 1 --set model.family=mistral --set "model.sliding_window=$window")
    expect 0 "${sliding[@]}" --run-dir "window-$window-whole"
    whole=$(hashes "$out")
    expect 0 "${sliding[@]}" --run-dir "window-$window" --steps 5
    expect 0 "${sliding[@]}" --run-dir "window-$window"
    same "a window of $window, resumed" "$(hashes "$out")" "$whole"
done
differs "with and without a window" "$(field window-5/summary.json state_hash)" "$(field window-0/summary.json state_hash)"
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir window-5 --set model.family=mistral --set model.sliding_window=6
says sliding_window
finish
