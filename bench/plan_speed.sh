#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How long `lockstep plan` takes from process start to its answer, and what is inside: medians. Nothing passes or fails. Usage:
#   bench/plan_speed.sh [ROUNDS]     LOCKSTEP: the binary, default build/release/lockstep
set -eu
cd "$(dirname "$0")/.."
lockstep=${LOCKSTEP:-build/release/lockstep} rounds=${1:-21}

# median COMMAND...: milliseconds.
median() {
    local i start end
    for ((i = 0; i < rounds; i++)); do
        start=$EPOCHREALTIME
        "$@" >/dev/null
        end=$EPOCHREALTIME
        echo $(((${end/./} - ${start/./})))
    done | sort -n | awk '{ t[NR] = $1 } END { printf "%.1f ms", t[int((NR + 1) / 2)] / 1000 }'
}
fixed=tp=8,pp=4,dp=8,cp=1,ep=1,vpp=5,mb=1,zero=1,recompute=selective,sp=1,schedule=1f1b
echo "lockstep version           $(median "$lockstep" version)"
echo "plan, fixed strategy       $(median "$lockstep" plan llama3-70b --gpus h100:256 --global-batch 512 --strategy $fixed --json)"
echo "plan, search of 64         $(median "$lockstep" plan llama3-70b --gpus h100:64 --json)"
echo "plan, search of 1,024      $(median "$lockstep" plan llama3-70b --gpus h100:1024 --json)"
echo "plan, search of 16,384     $(median "$lockstep" plan llama3-405b --gpus h100:16384 --json)"
"$lockstep" bench plan
