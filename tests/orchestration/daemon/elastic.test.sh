#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A training run in the queue starts with one rank, grows and shrinks while it runs, and ends with the same bits as one undisturbed process.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

mkdir -p "$LOCKSTEP_HOME"
printf 'policy: {resize_pause: 0s, min_run: 0s}\nidle: {look: 200ms}\n' >"$LOCKSTEP_HOME/config.yaml"
queue_up --slots 4

# blocker FILE RANKS GO: takes that many devices until the file GO exists.
blocker() {
    printf 'name: %s\njob: {restartable: false, command: [sh, -c, "until [ -e %s ]; do sleep 0.05; done"]}\n' "$1" "$scratch/$3" >"$1.yaml"
    expect 0 "$LOCKSTEP" submit "$1.yaml" --ranks "$2" --priority high
    blocker=$(cat "$out")
    wait_until "$1 runs" is_state "$blocker" RUNNING
}
ranks_of() { "$LOCKSTEP" ps "$1" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["ranks"])'; }
has_ranks() { is_state "$1" RUNNING && [ "$(ranks_of "$1")" = "$2" ]; }
# team N: the run reports that N of its ranks hold a part.
team() { [ "$("$LOCKSTEP" resize runs/tiny --json | python3 -c 'import json, sys; print(sum(1 for r in json.load(sys.stdin)["ranks"] if r["parts"]))')" = "$1" ]; }
left() { [ "$(grep -c '"event":"rank_left"' runs/tiny/events.jsonl)" -ge "$1" ]; }

# Evaluations take most of its time, and nothing of the other's that it is compared with.
length=(--set train.steps=1000000 --set train.schedule.steps=1000000 --set train.leaves=4 --set train.global_batch=4 --set checkpoint.every_steps=1000000)
blocker first 3 go1
expect 0 "$LOCKSTEP" submit tiny.yaml --ranks 2 "${length[@]}" --set eval.every_steps=1 --set eval.batches=20 --set job.elastic=true --set job.min_ranks=1 --set job.max_ranks=4
job=$(cat "$out")
wait_until "it begins with the one device that is free" has_ranks "$job" 1
wait_until "a team of one" team 1

touch go1
wait_until "it grows when devices are free" has_ranks "$job" 4
wait_until "a team of four" team 4

blocker second 2 go2
wait_until "it shrinks for another job" has_ranks "$job" 2
wait_until "a team of two" team 2
wait_until "two left" left 2

expect 0 "$LOCKSTEP" resize "$job" --ranks 1
wait_until "it is resized by hand" left 3
touch go2
wait_until "it grows once more" has_ranks "$job" 4

expect 0 "$LOCKSTEP" cancel "$job"
wait_until "it has ended" is_state "$job" CANCELLED
expect 0 "$LOCKSTEP" ps "$job" --json
same "starts of it" "$(json 'd["epoch"]')" 1
step=$(ls runs/tiny/checkpoints | sort -n | tail -1)
check "it trained ($step)" [ "${step:-0}" -gt 0 ]
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir alone --ranks 1 --steps "$step" "${length[@]}" --set eval.every_steps=0
same "weights and moments" "$("$LOCKSTEP" state-hash "runs/tiny/checkpoints/$step")" "$("$LOCKSTEP" state-hash "alone/checkpoints/$step")"
losses() { python3 -c 'import json, sys; print(hash(tuple(json.loads(l)["loss"] for l in open(sys.argv[1]))))' "$1"; }
same "losses of all steps" "$(losses runs/tiny/metrics.jsonl)" "$(losses alone/metrics.jsonl)"
finish
