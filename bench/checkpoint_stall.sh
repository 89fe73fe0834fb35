#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What training waits for checkpoints: bench/checkpoint_stall.sh LOCKSTEP RUN.yaml EVERY_STEPS [PAIRS [option...]]
#
# Two runs in turn, without and with a checkpoint every EVERY_STEPS steps, written while steps go on. Printed per pair:
#   stall    what steps waited, by the run's own events, as a share of its wall time, scaled to one checkpoint per minute
#   slower   time of a step with checkpoints beside one without (noise and the saver's use of processor and memory included)
set -eu
lockstep=$1 config=$2 every=$3 pairs=${4:-3}
shift $(($# < 4 ? $# : 4))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { # NAME every_steps option...
    local name=$1 steps=$2
    shift 2
    "$lockstep" train "$config" --run-dir "$work/$name" --json --set eval.every_steps=0 --set checkpoint.keep_best=0 --set checkpoint.keep_last=1 \
        --set checkpoint.every_steps="$steps" "$@" >"$work/$name.json" 2>/dev/null
}
# Median step_s of a run's metrics, the first two left out.
step_s() { sed -n '3,$ s/.*"step_s": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl" | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
# Mean, which is what checkpoints slow down.
mean_s() { sed -n '3,$ s/.*"step_s": *\([0-9.e+-]*\).*/\1/p' "$1/metrics.jsonl" | awk '{s += $1} END {print s / NR}'; }
for pair in $(seq "$pairs"); do
    run "plain-$pair" 0 "$@"
    run "saved-$pair" "$every" "$@"
    # The last checkpoint is that of the end, when no step is left to wait.
    grep '"event":"checkpoint"' "$work/saved-$pair/events.jsonl" | sed '$d' |
        sed -n 's/.*"stall_s":\([0-9.e+-]*\),"write_s":\([0-9.e+-]*\),"bytes":\([0-9]*\).*/\1 \2 \3/p' >"$work/stalls"
    awk -v pair="$pair" -v a="$(mean_s "$work/plain-$pair")" -v b="$(mean_s "$work/saved-$pair")" \
        -v ma="$(step_s "$work/plain-$pair")" -v mb="$(step_s "$work/saved-$pair")" \
        '{stall += $1; write += $2; bytes = $3} END {
            if (NR == 0) { print "no checkpoint was written while steps went on"; exit 1 }
            printf "pair %d: %d checkpoints of %.0f MB, stall %.2f ms each = %.4f %% at one per minute, written in %.2f s; a step %.3f s, with checkpoints %.3f s (mean %.3f, median %.3f of it)\n",
                pair, NR, bytes / 1e6, 1e3 * stall / NR, 100 * stall / NR / 60, write / NR, a, b, b / a, mb / ma }' "$work/stalls"
    rm -rf "$work/plain-$pair" "$work/saved-$pair"
done
