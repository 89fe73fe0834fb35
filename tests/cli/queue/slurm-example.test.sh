#!/usr/bin/env bash
# examples/queue/run.sh, as it stands, on a real Slurm cluster of two nodes: ten jobs of three accounts, a sweep, a preemption.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 2 --gpus 0 --cpus 2
export LOCKSTEP_HOME=$slurm/home
cp -r "$LS_SOURCE_DIR/examples" "$slurm/examples" # where the cluster's user can read it
chmod -R a+rX "$slurm/examples"
queue() { slurm_as env LOCKSTEP_HOME="$LOCKSTEP_HOME" LOCKSTEP="$slurm/lockstep" "$@"; }
cd "$slurm" || exit 1

expect 0 queue "$slurm/lockstep" up --engine slurm
expect 0 queue bash "$slurm/examples/queue/run.sh" --here
prints "sweep-12: 4 jobs, 4 SUCCEEDED"
check "the long run was preempted, or was too fast for that" grep -qE "job 1 (was preempted|ended before)" "$out"
same "jobs that succeeded" "$(queue "$slurm/lockstep" ps --all --json | grep -c '"SUCCEEDED"')" 15
expect 0 queue "$slurm/lockstep" down
finish
