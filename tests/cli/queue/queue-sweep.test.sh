#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep that stops losers: nine small trainings, a daemon that is killed in the middle, and the winner's bits.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

write_text corpus.txt 400 7
cat >run.yaml <<'EOF'
name: small
model: {family: llama, layers: 1, heads: 2, width: 16, ffn: 32, context: 16}
tokenizer: {kind: bytes}
data: {train: [corpus.txt], validation_fraction: 0.1}
train: {steps: 45, global_batch: 4, micro_batch: 4, leaves: 1, optimizer: {lr: 1.0e-3}, schedule: {warmup_steps: 2}}
eval: {every_steps: 0, batches: 2}
sample: {every_steps: 0}
log: {tensorboard: false}
asha: {first: 5, eta: 3}
EOF
expect 2 "$LOCKSTEP" sweep show sweep-x
says "is not the number of a job"
queue_up
expect 2 "$LOCKSTEP" sweep show
says "you have no sweep yet"
expect 2 "$LOCKSTEP" sweep run.yaml --set train.seed=1,2 --set asha.first=45
says "asha.first is 45, but must be less than train.steps"
expect 2 "$LOCKSTEP" sweep run.yaml --set train.seed=1,2 --set asha.budget_steps=9
says "2 jobs of 5 steps each"

# The daemon dies when the first jobs were compared; the next one continues from what is on the disk.
expect 0 "$LOCKSTEP" sweep run.yaml --set train.optimizer.lr=1e-2,1e-3,1e-4 --set train.seed=1,2,3
prints "9 jobs"
sweep=$(cut -d: -f1 "$out" | head -1)
some_are_compared() { "$LOCKSTEP" sweep show --json | grep -q '"trial": *"\(paused\|stopped\)"'; }
wait_until "some jobs are compared" some_are_compared
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
queue_up
has_ended() { "$LOCKSTEP" sweep show --json | grep -q '"ended": *true'; }
wait_until "the sweep has ended" has_ended

expect 0 "$LOCKSTEP" sweep show "$sweep" --json
same "one has trained to its end, and each other is explained" \
    "$(json 'd["states"]["finished"], sum(1 for t in d["trials"] if t["trial"] == "stopped" and "place" in t["why"] or t["trial"] == "finished")')" "1 9"
same "far fewer steps than all" "$(json 'd["steps"] <= 0.45 * d["full_steps"]')" "True"
same "the best has trained to the end" "$(json 'd["best"]["step"], d["noise"]["deviation"] > 0')" "45 True"
winner=$(json 'd["best"]["job"]')
values=$(json '" ".join("--set " + s for t in d["trials"] if t["job"] == d["best"]["job"] for s in t["set"])')
expect 0 "$LOCKSTEP" sweep show "$winner"
prints "compared at step 5, 15, 45" "best: job $winner" "between seeds of the same settings"
check "the best comes first" test "$(awk '$1 == "JOB" {getline; print $1; exit}' "$out")" = "$winner"
curl_of() { curl -sf --unix-socket "$LOCKSTEP_HOME/socket" "http://x$1"; }
curl_of / >queue.html
check "the page of the queue names it" grep -q "Best is <a href=\"/jobs/$winner\">job $winner</a> with val_loss" queue.html
curl_of "/jobs/$winner" >job.html
check "the page of a job shows its sweep" grep -q 'train.optimizer.lr=1e-2' job.html
check "and compares its runs" grep -q '/compare?runs=[0-9]*,' job.html

# Bit for bit the run that was never paused, and no step was computed twice.
"$LOCKSTEP" train run.yaml $values --run-dir whole --json >whole.json 2>/dev/null
"$LOCKSTEP" train run.yaml $values --run-dir "runs/small-$winner" --json >paused.json 2>/dev/null
same "the winner's bits" "$(hashes whole.json)" "$(hashes paused.json)"
same "its steps, each once" "$(grep -c '"step"' "runs/small-$winner/metrics.jsonl")" 45
for run in runs/small-*; do
    grep -q '"event":"checkpoint"' "$run/events.jsonl" || fail "$run has not saved before it was paused"
done

# Three failures alike, one after the other, stop a sweep.
printf 'name: f\njob: {command: [sh, -c, "echo cannot open disk $$ >&2; exit 3"]}\n' >f.yaml
expect 0 "$LOCKSTEP" sweep f.yaml --set train.seed=1,2,3,4,5,6,7,8 --running-max 1 --json
failing=$(json 'd["group"]')
is_stopped() { "$LOCKSTEP" sweep show "$failing" --json | grep -q '"ended": *true'; }
wait_until "the sweep of failures ends" is_stopped
expect 0 "$LOCKSTEP" sweep show
prints "its sweep was stopped: 3 jobs in a row failed alike" "cannot open disk"
expect 0 "$LOCKSTEP" sweep show --json
same "the others never began" "$(json 'd["states"]["failed"], d["states"]["stopped"]')" "3 5"
finish
