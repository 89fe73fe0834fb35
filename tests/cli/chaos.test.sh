#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Some thirty faults at random moments against one run of four ranks, most of a minute: it ends with the bits of a run that nothing happened to.
# tests/lib/chaos.py says what is done; bench/chaos.sh does hundreds. SEED=S tries another seed, FAULTS=N another number.
. "$(dirname "$0")/lib.sh"
write_chaos_run chaos.yaml
expect 0 python3 "$LS_SOURCE_DIR/tests/lib/chaos.py" --lockstep "$LOCKSTEP" --dir "$scratch" --config chaos.yaml --seed "${SEED:-4}" \
    --faults "${FAULTS:-30}" --minutes 1.5 --json table.json
cat "$out"
same "bits" "$(field table.json same_bits)" True
finish
