#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The run files under examples/ load, plan and train, each for a step on a small text.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

write_text corpus.txt 3000 4
count=0
for example in "$LS_SOURCE_DIR"/examples/*.yaml; do
    name=$(basename "$example" .yaml)
    count=$((count + 1))
    set=(--set "data.train=[corpus.txt]" --set train.global_batch=2 --set train.micro_batch=1 --set train.leaves=2 --set eval.batches=1)
    expect 0 "$LOCKSTEP" train "$example" "${set[@]}" --dry-run --json
    planned=$(field "$out" parameters)
    check "$name: parameters" test "${planned:-0}" -gt 10000
    expect 0 "$LOCKSTEP" train "$example" "${set[@]}" --steps 1 --run-dir "$name" --json
    same "$name: step" "$(field "$out" step)" 1
    expect 0 "$LOCKSTEP" checkpoint show "$name" --json
    same "$name: parameters of plan and checkpoint" "$(field "$out" parameters)" "$planned"
    check "$name: a report" test -s "$name/report.html"
done
check "examples" test $count -ge 2
finish
