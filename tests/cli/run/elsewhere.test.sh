#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# examples/elsewhere.sh: a run whose data and checkpoints are in a bucket survives the loss of its machine. Skipped without radosgw.
. "$LS_SOURCE_DIR/tests/lib/radosgw.sh"
radosgw_is_there || exit 77
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
export LOCKSTEP
expect 0 bash "$LS_SOURCE_DIR/examples/elsewhere.sh" results
prints "1370 documents" "brought back step" "the same bits after the loss of the machine" "corpus@1"
check "a picture" grep -q "corpus@1" results/lineage.svg
check "a report of what was removed" test -s results/report.json
check "no secret" test -z "$(grep -rl 'secret/+test' results "$out")"
finish
