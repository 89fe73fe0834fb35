#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A campaign of faults against one run, which must end with the bits of a run that nothing happened to: tests/lib/chaos.py says what is done.
#   bench/chaos.sh [--faults 500] [--seed S] [--minutes 30] [--ranks 4] [--lease 5] [--hosts 3] [--only kill,hang,...] [--json FILE]
# --hosts: so many hosts of namespaces (tests/lib/netns.sh), whose links are cut and which die as a whole. The table is written to bench/results/chaos-SEED.json unless --json says otherwise. Needs no quiet machine; takes --minutes at most, and the
# undisturbed run behind it. LOCKSTEP: the program (default build/release/lockstep)
set -u
here=$(cd "$(dirname "$0")" && pwd)
export LOCKSTEP=${LOCKSTEP:-$here/../build/release/lockstep} LS_SOURCE_DIR=$here/..
called_from=$PWD
seed=$(date +%s) hosts=1 words=()
while [ $# -gt 0 ]; do
    case $1 in
    --seed) seed=$2 && shift 2 ;;
    --hosts) hosts=$2 && shift 2 ;;
    *) words+=("$1") && shift ;;
    esac
done
mkdir -p "$here/results"
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
write_chaos_run "$scratch/chaos.yaml"
if [ "$hosts" -gt 1 ]; then
    . "$LS_SOURCE_DIR/tests/lib/netns.sh"
    netns_begin "$hosts"
    netns_write_ssh "$scratch/ssh"
    export LOCKSTEP_SSH=$scratch/ssh
    for ((host = 0; host < hosts; host++)); do echo "host$host slots=2 $(netns_address "$host")"; done >"$scratch/hosts"
    nodes=$(IFS=,; echo "${netns_holders[*]}")
    words=(--nodes "$nodes" --switch "$netns_switch" --hosts-file "$scratch/hosts" --ranks $((2 * hosts)) "${words[@]}")
fi
cd "$called_from" || exit 1
python3 "$LS_SOURCE_DIR/tests/lib/chaos.py" --lockstep "$LOCKSTEP" --dir "$scratch" --config "$scratch/chaos.yaml" --faults 500 --minutes 30 \
    --seed "$seed" --json "$here/results/chaos-$seed.json" "${words[@]}"
