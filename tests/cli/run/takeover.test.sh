#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of each of three ranks at each phase boundary of a step: the others finish that step, a replacement joins, and the run has the bits of an
# undisturbed one. Faults come from LS_TEST_FAULT (src/execution/team/fault_injection.h).
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

steps=16
train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=$steps --set train.schedule.steps=$steps --set train.global_batch=12 --set train.leaves=12
    --set eval.every_steps=0 --set checkpoint.every_steps=7 --set eval.batches=1 --threads 1)
phases=(begin enter leaf merge ready sum claim agreed update block updated end finished)

expect 0 "${train[@]}" --run-dir whole --ranks 1
reference=$(hashes "$out")

# told DIR RANK: whether that rank and no other was lost, and whether the run continued each time. A replacement that reaches the same place in the
# same step dies there as well.
told() {
    python3 - "$@" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
lost = [e for e in events if e["event"] == "rank_lost"]
recovered = [e for e in events if e["event"] == "recovered"]
print({e["rank"] for e in lost} == {int(sys.argv[2])}, {e["how"] for e in recovered} == {"takeover"})
PY
}

# Three runs at a time: most of each is waiting for processes to start.
for phase in "${phases[@]}"; do
    pids=()
    for rank in 0 1 2; do
        LS_TEST_FAULT="do=die,rank=$rank,step=9,at=$phase" "${train[@]}" --run-dir "$phase-$rank" --ranks 3 >"$phase-$rank.out" 2>"$phase-$rank.err" </dev/null &
        pids+=($!)
    done
    for rank in 0 1 2; do
        checks=$((checks + 1))
        wait "${pids[rank]}"
        code=$?
        [ $code -eq 0 ] || { fail "rank $rank killed at $phase: exit code $code"; tail -n 3 "$phase-$rank.err"; continue; }
        same "rank $rank killed at $phase: events" "$(told "$phase-$rank" $rank)" "True True"
        same "rank $rank killed at $phase: hashes" "$(hashes "$phase-$rank.out")" "$reference"
    done
done
finish
