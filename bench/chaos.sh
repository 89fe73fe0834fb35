#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A campaign of faults against one run, which must end with the bits of a run that nothing happened to: tests/lib/chaos.py says what is done.
#   bench/chaos.sh [--faults 500] [--seed S] [--minutes 30] [--ranks 4] [--lease 5] [--only kill,hang,...] [--json FILE]
# The table is written to bench/results/chaos-SEED.json unless --json says otherwise. Needs no quiet machine; takes --minutes at most, and the
# undisturbed run behind it. LOCKSTEP: the program (default build/release/lockstep)
set -u
here=$(cd "$(dirname "$0")" && pwd)
export LOCKSTEP=${LOCKSTEP:-$here/../build/release/lockstep} LS_SOURCE_DIR=$here/..
called_from=$PWD
seed=$(date +%s) previous=
for word in "$@"; do
    [ "$previous" != --seed ] || seed=$word
    previous=$word
done
mkdir -p "$here/results"
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
write_chaos_run "$scratch/chaos.yaml"
cd "$called_from" || exit 1
python3 "$LS_SOURCE_DIR/tests/lib/chaos.py" --lockstep "$LOCKSTEP" --dir "$scratch" --config "$scratch/chaos.yaml" --faults 500 --minutes 30 \
    --seed "$seed" --json "$here/results/chaos-$seed.json" "$@"
