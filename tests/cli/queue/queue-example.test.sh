#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/queue/run.sh runs to the end: ten jobs of three accounts, a sweep, a preemption.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

expect 0 env LOCKSTEP="$LOCKSTEP" timeout 500 "$LS_SOURCE_DIR/examples/queue/run.sh"
prints "ten jobs of three accounts" "4 jobs, 4 SUCCEEDED" "train.optimizer.lr=3e-3  train.seed=2" "A device-hour costs 2.5 USD."
# It waits for job 2, unless that has ended by the time that anyone asks.
check "why the last one waits" grep -q '^job 11 is ' "$out"
check "all have succeeded" test "$(grep -c '^job [0-9]* SUCCEEDED, exit code 0$' "$out")" = 15
finish
