#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# How fast jobs get to Slurm, and what it costs to watch them: bench/slurm_load.sh PROGRAM [SINGLE [SWEEP]]. Uses a private cluster on this machine whose nodes are all
# taken, so that jobs wait: SINGLE jobs (100) one by one, then a sweep of SWEEP (1,000), then the poll of all of them, and the share of a core that the daemon takes meanwhile.
set -eu
program=$(realpath "$1") single=${2:-100} sweep=${3:-1000}
export LOCKSTEP=$program LS_SOURCE_DIR
LS_SOURCE_DIR=$(cd "$(dirname "$0")/.." && pwd)
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 2 --gpus 0 --cpus 2
. "$LS_SOURCE_DIR/tests/lib/slurm_queue.sh"
now() { date +%s.%N; }
per_s() { awk -v n="$1" -v a="$2" -v b="$3" 'BEGIN { printf "%.1f s, %.0f jobs/s\n", b - a, n / (b - a) }'; }
slurm_as tee "$work/all.yaml" >/dev/null <<'YAML'
name: all
parallel: {ranks: 4}
job: {command: [sleep, "100000"], priority: high}
YAML
slurm_as tee "$work/one.yaml" >/dev/null <<'YAML'
name: one
job: {command: [sleep, "1"]}
YAML
expect 0 queue up --engine slurm
all=$(submit all.yaml)
until_true "all nodes are taken" is "$all" RUNNING
in_slurm() { slurm_as squeue -h -r -t pending -o %i | wc -l; }
wait_for() { while [ "$(in_slurm)" -lt "$1" ]; do sleep 0.2; done; }
echo "load average $(cut -d' ' -f1-3 /proc/loadavg)"

begin=$(now)
for ((i = 0; i < single; i++)); do submit one.yaml >/dev/null; done
wait_for "$single"
echo "$single jobs, one submit each, until Slurm has all: $(per_s "$single" "$begin" "$(now)")"

begin=$(now)
(cd "$work" && queue sweep one.yaml --set job.max_replacements="$(seq -s, 1 "$sweep")") >"$out" 2>"$err"
answered=$(now)
wait_for $((single + sweep))
echo "a sweep of $sweep, until it is accepted: $(per_s "$sweep" "$begin" "$answered")"
echo "                   until Slurm has it: $(per_s "$sweep" "$begin" "$(now)")"

daemon=$(tr -dc 0-9 <"$LOCKSTEP_HOME/lock")
ticks() { awk '{ print $14 + $15 }' "/proc/$daemon/stat"; }
children() { awk '{ print $16 + $17 }' "/proc/$daemon/stat"; }
own=$(ticks) others=$(children) begin=$(now)
sleep 30
awk -v own=$(($(ticks) - own)) -v others=$(($(children) - others)) -v hz="$(getconf CLK_TCK)" -v s="$(awk -v a="$begin" -v b="$(now)" 'BEGIN { print b - a }')" -v n=$((single + sweep)) \
    'BEGIN { printf "%d waiting jobs, a look every 2 s: the daemon takes %.1f %% of a core, its squeue %.1f %%\n", n, 100 * own / hz / s, 100 * others / hz / s }'
grep VmRSS "/proc/$daemon/status"
