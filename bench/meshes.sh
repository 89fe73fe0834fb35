#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The campaign of meshes: trains small models on every mesh of tensor {1,2,4} x context {1,2} x
# pipeline {1..4} x data {1,2,3} that fits the ranks, with each schedule, and compares the hashes
# with those of one rank. Models with experts: these x expert {1,2,4}. With --hosts each mesh
# runs on two hosts of network namespaces instead, half of the ranks on each (whole stages), with
# ZeRO stages 0 to 3 in turn; needs root, or user namespaces. With --kills each mesh is trained so
# many times more, and a rank, drawn from the seed, kills itself in the second step: before a step
# of the op plan, in three of four runs, else at one of the other places that LS_TEST_FAULT knows.
# Usage: bench/meshes.sh LOCKSTEP [--ranks N] [--only-ranks N] [--threads N] [--hosts] [--kills N]
#     [--seed S] [FAMILY ...]     families: gpt2 llama qwen3 mixtral qwen3-moe (all)
# Prints a line per family, and a line for each mesh whose hash differs or that fails; exit code
# 1 if there is one. With kills: how long the steps took in which ranks died.
set -u
[ $# -ge 1 ] || { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
. "$(dirname "$0")/../tests/lib/netns.sh"
case " $* " in *" --hosts "*) netns_as_root "$0" "$@" ;; esac
program=$(realpath "$1")
shift
most=12 least=1 threads=1 families=() hosts= kills=0 RANDOM=1
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) most=$2; shift 2 ;;
    --only-ranks) most=$2 least=$2; shift 2 ;;
    --kills) kills=$2; shift 2 ;;
    --seed) RANDOM=$2; shift 2 ;;
    --threads) threads=$2; shift 2 ;;
    --hosts) hosts=1; shift ;;
    *) families+=("$1"); shift ;;
    esac
done
[ ${#families[@]} -gt 0 ] || families=(gpt2 llama qwen3 mixtral qwen3-moe)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export LOCKSTEP_HOME=$work/home
cp "$program" lockstep # a build beside the campaign must not change what it runs
lockstep=$work/lockstep
python3 -c '
import random
random.seed(1)
open("text.txt", "w").write(" ".join(random.choice("the cat sat on a mat and ran".split()) for _ in range(20000)))'
# has_experts FAMILY
has_experts() { [ "$1" = mixtral ] || [ "$1" = qwen3-moe ]; }

write_run() {
    local experts=""
    ! has_experts "$1" || experts=", experts: 8, experts_per_token: 2"
    cat >"$1.yaml" <<YAML
name: $1
model: {family: $1, layers: 4, heads: 4, width: 32, ffn: 64, context: 32$experts}
tokenizer: {kind: bytes}
data: {train: [text.txt]}
train: {steps: 3, global_batch: 12, micro_batch: 1, leaves: 6, tensor_cut: 4, sequence_cut: 2, optimizer: {lr: 1.0e-2}}
eval: {every_steps: 0}
sample: {every_steps: 0}
checkpoint: {every_steps: 0}
YAML
}

# hashes FAMILY ARGUMENT...
hashes() {
    local family=$1
    shift
    rm -rf run
    ${on_host:-} timeout 120 "$lockstep" train "$family.yaml" --json --run-dir run --threads "$threads" "$@" 2>error.txt |
        python3 -c 'import json, sys; r = json.load(sys.stdin); print(r["curve_hash"], r["state_hash"])' 2>/dev/null ||
        tail -1 error.txt
}

# killed RANKS ARGUMENT...: hashes of a run in which a rank is killed; the step is noted in kills.txt.
killed() {
    local places=(enter leaf merge ready sum claim agreed update block updated end finished) at=plan,nth=$((1 + RANDOM % (1600 / (data * pipeline))))
    local rank=$((RANDOM % $1)) got
    shift
    [ $((RANDOM % 4)) -gt 0 ] || at=${places[RANDOM % ${#places[@]}]}
    got=$(LS_TEST_FAULT="do=die,step=2,rank=$rank,at=$at" hashes "$family" "$@")
    grep -q '"rank_lost"' run/events.jsonl && python3 -c '
import json
print([s["step_s"] for s in map(json.loads, open("run/metrics.jsonl")) if s["step"] == 2][0])' >>kills.txt
    [ "$got" = "$reference" ] && return
    failed=1
    echo "$family $*, rank $rank killed at $at: $got instead of $reference"
}

if [ -n "$hosts" ]; then
    netns_begin 2
    netns_write_ssh "$work/ssh"
    export LOCKSTEP_SSH=$work/ssh
fi

# on_two_hosts RANKS UNIT ARGUMENT...: as hashes, in $family
on_two_hosts() {
    local ranks=$1 unit=$2 here on_host="netns_run 0"
    shift 2
    here=$((ranks / unit / 2 * unit))
    printf 'host0 slots=%d 10.77.0.1\nhost1 slots=%d 10.77.0.2\n' $here $((ranks - here)) >two.hosts
    hashes "$family" --hosts two.hosts "$@"
}

failed=0
for family in "${families[@]}"; do
    write_run "$family"
    reference=$(hashes "$family" --ranks 1)
    count=0 equal=0
    experts=1
    ! has_experts "$family" || experts="1 2 4"
    for tensor in 1 2 4; do for context in 1 2; do for expert in $experts; do for pipeline in 1 2 3 4; do for data in 1 2 3; do
        ranks=$((tensor * context * expert * pipeline * data))
        [ $ranks -le "$most" ] && [ $ranks -ge "$least" ] && [ $((expert * data)) -le 6 ] || continue
        schedules=1f1b
        [ $pipeline -eq 1 ] || schedules="1f1b zero-bubble"
        [ $pipeline -ne 2 ] || schedules+=" interleaved"
        for schedule in $schedules; do
            mesh=(--ranks $ranks --set parallel.tensor=$tensor --set parallel.context=$context --set parallel.pipeline=$pipeline
                --set parallel.schedule=$schedule)
            [ $expert -eq 1 ] || mesh+=(--set parallel.expert=$expert)
            if [ -n "$hosts" ]; then
                unit=$((tensor * context))
                [ $expert -eq 1 ] || unit=$((ranks / data)) # a host has whole crews
                [ $ranks -gt $unit ] || continue # one stage: one host
                mesh+=(--set parallel.zero=$((count % 4)))
                got=$(on_two_hosts $ranks $unit "${mesh[@]}")
            else
                got=$(hashes "$family" "${mesh[@]}")
                for ((kill = 0; kill < kills; kill++)); do killed $ranks "${mesh[@]}"; done
            fi
            count=$((count + 1))
            if [ "$got" = "$reference" ]; then
                equal=$((equal + 1))
            else
                failed=1
                echo "$family ${mesh[*]}: $got instead of $reference"
            fi
        done
    done; done; done; done; done
    echo "$family: $equal of $count meshes have the hash of one rank, ${reference:0:16}"
done
[ ! -s kills.txt ] || sort -g kills.txt | awk '{ s[NR] = 1000 * $1 }
    END { printf "%d ranks were killed; their steps took %.0f ms (median), at most %.0f\n", NR, s[int((NR + 1) / 2)], s[NR] }'
exit $failed
