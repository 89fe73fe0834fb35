#!/usr/bin/env bash
# up --engine slurm when sbatch has no room, no answer or no sense, and when Slurm has lost its records: another's job has the number of ours then.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 2 --gpus 0 --cpus 2 --node-timeout 5s
. "$LS_SOURCE_DIR/tests/lib/slurm_queue.sh"
# sbatch as it is, unless $slurm/twist says how it should fail.
slurm_as tee "$slurm/bin/sbatch" >/dev/null <<SH
#!/bin/sh
case \$(cat $slurm/twist 2>/dev/null) in
spool) echo "sbatch: error: Batch job submission failed: I/O error writing script/environment to file" >&2; exit 1 ;;
lost) $(command -v sbatch) "\$@" >/dev/null; echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2; exit 1 ;;
nonsense) echo hello ;;
*) exec $(command -v sbatch) "\$@" ;;
esac
SH
slurm_as chmod +x "$slurm/bin/sbatch"
slurm_as tee "$work/job.yaml" >/dev/null <<'YAML'
name: job
job: {command: [sh, -c, 'echo "begun $LOCKSTEP_EPOCH"; sleep 1000'], restartable: true, grace: 1s}
YAML
expect 0 queue up --engine slurm

# ---- sbatch ----
echo spool >"$slurm/twist"
full=$(submit job.yaml)
until_true "asked again" why_is "$full" gang
echo lost >"$slurm/twist"
lost=$(submit job.yaml)
until_true "asked again, too" why_is "$lost" gang
rm "$slurm/twist"
until_true "when there is room" is "$full" RUNNING
until_true "when there is an answer" is "$lost" RUNNING
same "it ran once" "$(grep -c begun "$LOCKSTEP_HOME/jobs/$lost/log")" 1
echo nonsense >"$slurm/twist"
nonsense=$(submit job.yaml)
until_true "no number" is "$nonsense" FAILED
queue why "$nonsense" >"$out"
prints "sbatch said 'hello'"
rm "$slurm/twist"

# ---- a controller that has lost its records counts anew: another's number is not this job's ----
kill_daemon
kill -9 "$(cat "$slurm/run/slurmctld.pid")"
rm -rf "$slurm"/state/*
slurm_as slurmctld -c -f "$SLURM_CONF"
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do slurm_as sbatch --hold --output=/dev/null --wrap 'sleep 1' >"$out"; done
expect 0 queue up --engine slurm
expect 0 queue cancel "$full"
until_true "the lost one" is "$full" CANCELLED
until_true "the lost one that goes on" is_epoch "$lost" 3
same "the others'" "$(slurm_as squeue -h -t pending -o %r | grep -c JobHeldUser)" 12
expect 0 queue down --cancel
finish
