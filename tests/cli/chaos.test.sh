#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Some thirty faults at random moments against runs of four ranks, most of a minute: they end with the bits of a run that nothing happened to.
# tests/lib/chaos.py says what is done; bench/chaos.sh does hundreds. SEED=S tries another seed, FAULTS=N another number.
. "$(dirname "$0")/lib.sh"
write_chaos_run chaos.yaml
# disturbed FAULTS ARGUMENT...: a run with so many faults, and its table.
disturbed() {
    local faults=$1
    shift
    expect 0 python3 "$LS_SOURCE_DIR/tests/lib/chaos.py" --lockstep "$LOCKSTEP" --dir "$scratch" --config chaos.yaml --seed "${SEED:-4}" --minutes 1 \
        --faults "$faults" --json table.json "$@"
    cat "$out"
    same "bits" "$(field table.json same_bits)" True
}
disturbed "${FAULTS:-22}"
# Ranks outlive their trainer, and the next one goes on with them.
disturbed "${FAULTS:-10}" --lease 5 --only trainer,kill,resize
finish
