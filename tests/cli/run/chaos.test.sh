#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# About thirty faults at random moments in runs of four ranks, for most of a minute: they end with the bits of an undisturbed run.
# tests/lib/chaos.py describes the faults; bench/chaos.sh makes hundreds. SEED=S tries another seed, FAULTS=N another number.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
write_chaos_run chaos.yaml
# disturbed FAULTS ARGUMENT...: a run with that many faults, and its table.
disturbed() {
    local faults=$1
    shift
    expect 0 python3 "$LS_SOURCE_DIR/tests/lib/chaos.py" --lockstep "$LOCKSTEP" --dir "$scratch" --config chaos.yaml --seed "${SEED:-4}" --minutes 1 \
        --faults "$faults" --json table.json "$@"
    cat "$out"
    same "bits" "$(field table.json same_bits)" True
}
disturbed "${FAULTS:-22}"
# Ranks outlive their trainer, and the next one continues with them.
disturbed "${FAULTS:-10}" --lease 5 --only trainer,kill,resize
finish
