#!/usr/bin/env bash
# up --engine slurm when things happen in Slurm without the queue: jobs are cancelled, requeued or held by others, and the controller goes away and comes back.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 2 --gpus 0 --cpus 2 --node-timeout 5s
. "$LS_SOURCE_DIR/tests/lib/slurm_queue.sh"
slurm_as tee "$work/job.yaml" >/dev/null <<'YAML'
name: job
job: {command: [sh, -c, 'echo "begun $LOCKSTEP_EPOCH"; sleep 1000'], restartable: true, grace: 1s}
YAML
slurm_as tee "$work/brief.yaml" >/dev/null <<YAML
name: brief
job: {command: [sh, -c, 'until [ -e $work/go ]; do sleep 0.1; done; exit 7']}
YAML
expect 0 queue up --engine slurm

# ---- others ----
mine=$(submit job.yaml)
theirs=$(submit job.yaml)
held=$(submit job.yaml)
brief=$(submit brief.yaml)
for job in $mine $theirs $held $brief; do until_true "job $job runs" is "$job" RUNNING; done
slurm_as scancel "$(ref_of "$mine")"
slurm_as scontrol requeue "$(ref_of "$theirs")"
expect 0 queue hold "$held" # it does not save within its grace
until_true "cancelled in Slurm" is "$mine" CANCELLED
queue why "$mine" >"$out"
prints "cancelled in Slurm"
until_true "held, not cancelled" is "$held" HELD
until_true "restarted by Slurm" is_epoch "$theirs" 2
slurm_as scontrol requeuehold "$(ref_of "$theirs" 2)"
until_true "held in Slurm" why_is "$theirs" hold
expect 0 queue release "$theirs"
until_true "restarted when it was released here" is_epoch "$theirs" 3

# ---- no controller: nothing is concluded from silence; later the queue knows what ended meanwhile, and does what was asked meanwhile ----
controller=$(cat "$slurm/run/slurmctld.pid")
kill "$controller"
is_gone() { ! grep -q '^State:.[^ZX]' "/proc/$controller/status" 2>/dev/null; } # a zombie, too: in a container nothing may reap it
until_true "the controller is gone" is_gone
touch "$work/go"
late=$(submit job.yaml)
expect 0 queue release "$held"
until_true "it says so" why_is "$late" gang
same "meanwhile" "$(of "$brief" state)" RUNNING
slurm_as slurmctld -f "$SLURM_CONF"
until_true "the one that ended" is "$brief" FAILED
same "its exit code" "$(of "$brief" exit_code)" 7
until_true "the one that was submitted" is "$late" RUNNING
until_true "the one that was released" is "$held" RUNNING
until_true "the one that was queued again" is "$theirs" RUNNING
for job in $late $held $theirs; do expect 0 queue cancel "$job"; done
for job in $late $held $theirs; do until_true "job $job" is "$job" CANCELLED; done
expect 0 queue down
finish
