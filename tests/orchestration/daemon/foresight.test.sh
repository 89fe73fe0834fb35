#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The steps of a run predict when it ends and when the next job starts, also after the daemon was restarted; predictions are kept beside what happened.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

mkdir -p "$LOCKSTEP_HOME"
printf 'idle: {look: 200ms}\n' >"$LOCKSTEP_HOME/config.yaml"
queue_up

# number_of JOB EXPRESSION: evaluates it on the answer of `ps JOB`; fails if it is null.
number_of() { "$LOCKSTEP" ps "$1" --json | python3 -c 'import json, sys
d = json.load(sys.stdin)
v = '"$2"'
assert v is not None
print(v)'; }
is_foreseen() { "$LOCKSTEP" why "$1" --json | python3 -c 'import json, sys
d = json.load(sys.stdin)
assert d["eta_s"] is not None and d["blockers"][0]["ends"] is not None'; }

# Some seconds long; its length is given in passes over the data, so that only the run itself knows how many steps that is.
expect 0 "$LOCKSTEP" submit tiny.yaml --ranks 2 --set train.steps=auto --set train.epochs=20 --set eval.every_steps=1 --set eval.batches=40
run=$(cat "$out")
expect 0 "$LOCKSTEP" submit hello.yaml --ranks 2
next=$(cat "$out")
wait_until "the next job knows when it starts" is_foreseen "$next"
expect 0 "$LOCKSTEP" why "$next"
prints "expected to start in"
expect 0 "$LOCKSTEP" ps
prints LEFT
expect 0 "$LOCKSTEP" ps "$run"
prints "ends " " of $(sed -n 's/^  steps: \([0-9]*\)$/\1/p' runs/tiny/run.yaml)"
wait_until "the start is kept" number_of "$next" 'd["foresight"]["start"]'
wait_until "the end is kept" number_of "$run" 'd["foresight"]["end"]'

kill -9 "$daemon"
queue_up
check "the run keeps running" is_state "$run" RUNNING
wait_until "what is known of its end was kept" number_of "$run" 'd["ends"]'
wait_until "its steps are seen again" eval '[ "$(number_of "$run" "d[\"foresight\"][\"ended\"] or d[\"step\"]")" != "" ]'

wait_until "the run has ended" is_state "$run" SUCCEEDED
wait_until "and the next one" is_state "$next" SUCCEEDED
for job in "$run" "$next"; do
    expect 0 "$LOCKSTEP" ps "$job" --json
    cp "$out" "$job.json"
done
check "the predictions are close to what happened" python3 - "$run.json" "$next.json" <<'PY'
import json, sys
run, following = (json.load(open(f))["foresight"] for f in sys.argv[1:])
def near(said, foreseen, happened):
    wanted, was = foreseen - said, happened - said
    print(f"foreseen {wanted:.2f} s, was {was:.2f} s")
    return wanted >= 0 and was >= 0 and was < 20 * wanted + 10 and wanted < 20 * was + 10
good = near(run["end_said"], run["end"], run["ended"]) and near(following["start_said"], following["start"], following["started"])
sys.exit(not good)
PY
expect 0 "$LOCKSTEP" ps "$next"
prints "start  " " predicted "
expect 0 "$LOCKSTEP" usage
prints "forecasts of starts: 1, median error"
finish
