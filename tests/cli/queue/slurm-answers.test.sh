#!/usr/bin/env bash
# up --engine slurm when sbatch has no space, no answer, or prints nonsense, and when Slurm has lost its records: then another user's job has the number of ours.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 2 --gpus 0 --cpus 2 --node-timeout 5s
. "$LS_SOURCE_DIR/tests/lib/slurm_queue.sh"
# The real sbatch, unless $slurm/twist says how it should fail.
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

# ---- other terms for a job that waits there; what Slurm decides is refused with the command of Slurm ----
wide=$(submit job.yaml --ranks 4)
queue_ref() { queue ps "$1" --json | sed -n 's/.*"engine_ref": *"\([0-9_]*\)".*/\1/p'; }
has_limit() { local ref; ref=$(queue_ref "$1"); [ -n "$ref" ] && slurm_as scontrol show job "$ref" | grep -q "TimeLimit=$2"; }
until_true "Slurm has it" has_limit "$wide" ""
expect 0 queue change "$wide" --time-limit 3h
until_true "Slurm has the new limit" has_limit "$wide" 03:00:00
expect 2 queue change "$wide" --after "$full"
says "Slurm has job $wide already"
expect 2 queue drain
says "scontrol update NodeName=NODE State=DRAIN"
expect 0 queue cancel "$wide"

echo nonsense >"$slurm/twist"
nonsense=$(submit job.yaml)
until_true "no number" is "$nonsense" FAILED
queue why "$nonsense" >"$out"
prints "sbatch printed 'hello'"
rm "$slurm/twist"

# ---- a controller that lost its records starts counting again: a number may then belong to another user's job ----
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
