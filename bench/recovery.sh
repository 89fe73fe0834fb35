#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long a run takes to notice that a rank was killed, and to finish its next step: bench/recovery.py on a small model.
#   bench/recovery.sh [--ranks 2,4] [--kills 20] [--seed S] [--json bench/results/recovery.json]
# LOCKSTEP: the program (default build/release/lockstep)
set -u
here=$(cd "$(dirname "$0")" && pwd)
export LOCKSTEP=${LOCKSTEP:-$here/../build/release/lockstep} LS_SOURCE_DIR=$here/..
called_from=$PWD
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
write_chaos_run "$scratch/chaos.yaml"
cd "$called_from" || exit 1
python3 "$here/recovery.py" --lockstep "$LOCKSTEP" --dir "$scratch" --config "$scratch/chaos.yaml" "$@"
