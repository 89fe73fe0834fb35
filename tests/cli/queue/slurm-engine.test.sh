#!/usr/bin/env bash
# up --engine slurm on a real cluster of four nodes, run by an ordinary user: a gang of two nodes, a run that trains on two nodes, a preemption with a requeue by
# Slurm, a sweep as one array, and a daemon that is killed in between. The loss of a node: slurm-shrink.test.sh.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 4 --leaf-nodes 2 --gpus 0 --cpus 2

# Everything of this test lives where the cluster's user can write.
export LOCKSTEP_HOME=$slurm/home
work=$slurm/work
slurm_as mkdir "$work"
queue() { slurm_as env LOCKSTEP_HOME="$LOCKSTEP_HOME" "$slurm/lockstep" "$@"; }
submit() { (cd "$work" && queue submit "$@"); }

# until_state JOB STATE: waits until `ps` shows that state.
state_of() {
    queue ps --all --json 2>"$err" | python3 -c 'import json, sys
print(*(job["state"] for job in json.load(sys.stdin)["jobs"] if str(job["job"]) == sys.argv[1]))' "$1"
}
until_state() {
    local tries state
    checks=$((checks + 1))
    for ((tries = 0; tries < 900; tries++)); do
        state=$(state_of "$1")
        [ "$state" != "$2" ] || return 0
        case $state in SUCCEEDED | FAILED | CANCELLED) break ;; esac
        sleep 0.1
    done
    fail "job $1 is '$state' instead of $2"
    queue why "$1"
    tail -n 5 "$LOCKSTEP_HOME/jobs/$1/log"
    tail -n 5 "$LOCKSTEP_HOME/daemon.log"
    return 1
}

slurm_as tee "$work/gang.yaml" >/dev/null <<'YAML'
name: gang
parallel: {ranks: 4}
job:
  account: alpha
  command: [sh, -c, 'echo "rank $RANK of $WORLD_SIZE, $LOCAL_RANK on $SLURMD_NODENAME, node $NODE_RANK, meets at $MASTER_ADDR:$MASTER_PORT"']
YAML
# Runs until it is told to stop, and reacts as a run that saves; after a requeue by Slurm it ends at once.
slurm_as tee "$work/saver.sh" >/dev/null <<'SH'
[ "${SLURM_RESTART_COUNT:-0}" -eq 0 ] || exit 0
trap 'touch "$1.saved"; exit 75' TERM
touch "$1.running"
for _ in $(seq 6000); do sleep 0.1; done
SH
write_job() { # write_job NAME RANKS PRIORITY COMMAND
    slurm_as tee "$work/$1.yaml" >/dev/null <<YAML
name: $1
parallel: {ranks: $2}
job: {account: beta, priority: $3, restartable: true, ranks_per_node: 2, command: [$4]}
YAML
}
write_job victim 8 low "sh, $work/saver.sh, $work/victim"
write_job wide 8 high "sleep, 1"

expect 0 queue up --engine slurm
expect 1 queue up --engine slurm --foreground && says "a daemon already runs with"

# A gang.
expect 0 submit gang.yaml --json
same "first job" "$(field "$out" job)" 1
until_state 1 SUCCEEDED
same "ranks" "$(grep -c 'of 4, .* meets at 127.0.0.1:' "$LOCKSTEP_HOME/jobs/1/log")" 4
same "nodes" "$(grep -o 'on n[0-3]' "$LOCKSTEP_HOME/jobs/1/log" | sort -u | wc -l)" 2

# A training run on several nodes: the same bits as on one machine.
write_text text.txt 400 1
cp text.txt "$slurm/text.txt"
chmod 644 "$slurm/text.txt"
write_run tiny.yaml
sed -i "s#$scratch/text.txt#$slurm/text.txt#" tiny.yaml
slurm_as tee "$work/tiny.yaml" <tiny.yaml >/dev/null
expect 0 env LOCKSTEP_HOME="$scratch/home" "$LOCKSTEP" train tiny.yaml --run-dir here --json
here=$(hashes "$out")
expect 0 submit tiny.yaml --ranks 3 --json --set job.ranks_per_node=1
trained=$(field "$out" job)
until_state "$trained" SUCCEEDED
expect 0 queue train "$work/tiny.yaml" --run-dir "$work/runs/tiny" --json
same "hashes of three nodes and of one machine" "$(hashes "$out")" "$here"

# Preemption: a job of a higher partition takes all nodes; the one that saved is requeued by Slurm and continues.
until_file() {
    local tries
    for ((tries = 0; tries < 900; tries++)); do
        [ ! -e "$1" ] || return 0
        sleep 0.1
    done
    fail "no $1"
}
expect 0 submit victim.yaml --json
victim=$(field "$out" job)
until_state "$victim" RUNNING
until_file "$work/victim.running"
expect 0 submit wide.yaml --json
until_state "$(field "$out" job)" SUCCEEDED
until_state "$victim" SUCCEEDED
check "the victim saved" test -e "$work/victim.saved"
expect 0 queue ps --all --json
same "its epoch" "$(python3 -c 'import json, sys
print(*(job["epoch"] for job in json.load(open(sys.argv[1]))["jobs"] if job["job"] == int(sys.argv[2])))' "$out" "$victim")" 2

# A sweep is one array; `why` gives Slurm's reason in our words while it waits for a job that has all nodes.
expect 0 submit wide.yaml --name filler --json --set "job.command=[sleep, 1000]"
filler=$(field "$out" job)
until_state "$filler" RUNNING
slurm_as tee "$work/sweep.yaml" >/dev/null <<'YAML'
name: sweep
parallel: {ranks: 1}
job: {command: [sh, -c, 'echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_JOB_ID"']}
YAML
(cd "$work" && queue sweep sweep.yaml --set job.max_replacements=1,2,3,4 --json) >"$out" 2>"$err"
same "jobs of the sweep" "$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["jobs"]))' "$out")" 4
last=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["jobs"][-1])' "$out")
until_stage() { # until_stage JOB STAGE
    local tries
    checks=$((checks + 1))
    for ((tries = 0; tries < 900; tries++)); do
        queue why "$1" --json >"$out" 2>"$err" && [ "$(field "$out" stage)" = "$2" ] && return 0
        sleep 0.1
    done
    fail "why of job $1 has no stage $2:"
    head -c 1000 "$out"
}
until_stage "$last" gang
prints "Resources"

# The daemon is killed; jobs keep running, and the next daemon finds them. Cancelling works after that.
kill -9 "$(cat "$LOCKSTEP_HOME/lock" | tr -dc 0-9)"
expect 0 queue up --engine slurm
expect 0 queue cancel "$filler"
until_state "$filler" CANCELLED
until_state "$last" SUCCEEDED
same "arrays" "$(cat "$LOCKSTEP_HOME"/jobs/*/log | grep -o 'task [0-3] of [0-9]*' | sort -u | cut -d' ' -f4 | uniq -c | tr -s ' ' | cut -d' ' -f2)" 4

expect 0 queue down
finish
