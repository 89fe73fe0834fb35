#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/team.sh runs to the end, a tenth as long: a sweep, a cap that stops and is raised, an alert, a program that logs by HTTP.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

expect 0 env LOCKSTEP="$LOCKSTEP" timeout 300 "$LS_SOURCE_DIR/examples/team.sh" 320
prints "the page of the queue: http://127.0.0.1:" "stopped by its cap: 0.0" "of 0.05 USD; raise it" "cap, job 1: " "other, job 2: class 7 has no image" \
    "8 jobs" "1 finished" "best: job" "This month: " "A device-hour costs 90 USD."
finish
