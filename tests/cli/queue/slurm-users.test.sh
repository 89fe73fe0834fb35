#!/usr/bin/env bash
# A daemon and a cluster run by root, with the jobs of two other users: each job runs as the user who submitted it, and no user can read or end another user's jobs,
# whatever is written to the folders of their own.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
if [ "$(id -u)" -ne 0 ] || ! getent passwd games >/dev/null; then
    echo "skipped: only root can run jobs of several users (here: nobody and games)"
    exit 77
fi
slurm_root=yes
slurm_up 2 --gpus 0 --cpus 2
export LOCKSTEP_HOME=$slurm/home
queue() { "$slurm/lockstep" "$@"; }
as() { # as USER COMMAND...
    local user=$1
    shift
    setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups env HOME=/nonexistent "$@"
}
ann=nobody bob=games
for user in $ann $bob; do
    mkdir "$slurm/$user"
    chown "$user" "$slurm/$user"
done
submit() { # submit USER FILE [OPTION...]: prints the number
    local user=$1
    shift
    (cd "$slurm/$user" && as "$user" "$slurm/lockstep" submit "$@") 2>"$err"
}
state_of() {
    queue ps --all --json 2>"$err" | python3 -c 'import json, sys
print(*(job["state"] for job in json.load(sys.stdin)["jobs"] if str(job["job"]) == sys.argv[1]))' "$1"
}
until_state() { # until_state JOB STATE
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
    tail -n 5 "$LOCKSTEP_HOME/jobs/$1/log" "$LOCKSTEP_HOME/daemon.log"
    return 1
}
until_true() { # until_true WHAT COMMAND...
    local what=$1 tries
    shift
    checks=$((checks + 1))
    for ((tries = 0; tries < 900; tries++)); do
        "$@" && return 0
        sleep 0.1
    done
    fail "$what: never"
}
cat >"$slurm/who.yaml" <<'YAML'
name: who
parallel: {ranks: 2}
job:
  ranks_per_node: 1
  command: [sh, -c, 'echo "uid $(id -u) groups $(id -G) in $PWD"; cat "$LOCKSTEP_HOME/token" || echo no token; echo > "made-$RANK"']
YAML
cat >"$slurm/fill.yaml" <<'YAML'
name: fill
parallel: {ranks: 4}
job: {command: [sleep, "1000"], grace: 1s}
YAML
cat >"$slurm/one.yaml" <<'YAML'
name: one
job: {command: [sh, -c, "echo ran"]}
YAML
mkdir "$slurm/bin" # programs there come first
PATH=$slurm/bin:$PATH expect 0 queue up --engine slurm

# ---- as whom ----
job=$(submit $ann "$slurm/who.yaml")
until_state "$job" SUCCEEDED
expect 0 as $ann "$slurm/lockstep" logs "$job"
prints "uid $(id -u $ann) groups $(id -G $ann) in $slurm/$ann" "no token"
same "owners of what it wrote" "$(stat -c %U "$slurm/$ann/made-0" "$slurm/$ann/made-1" | sort -u)" $ann
same "owners in its folder" "$(stat -c %U "$LOCKSTEP_HOME/jobs/$job"/* | sort -u)" $ann
expect 0 queue logs "$job"

# ---- another's ----
bobs=$(submit $bob "$slurm/fill.yaml")
until_state "$bobs" RUNNING
for command in "why $bobs" "logs $bobs" "cancel $bobs" "hold $bobs" "priority $bobs low" "ps $bobs"; do
    expect 2 as $ann "$slurm/lockstep" $command
    says "belongs to another user"
done
anns=$(submit $ann "$slurm/one.yaml")
waits_for_room() { queue why "$anns" --json >"$out" 2>"$err" && [ "$(field "$out" stage)" = gang ]; }
until_true "it waits for room" waits_for_room
expect 0 as $ann "$slurm/lockstep" why "$anns"
prints "Resources: it is next"

# A hold by root's daemon counts as the user's: a user could not release an administrator's. The release gets lost, and the daemon with it.
held=$(submit $ann "$slurm/one.yaml")
expect 0 as $ann "$slurm/lockstep" hold "$held"
holds() { [ "$(squeue -h -j "$(cut -d' ' -f1 "$LOCKSTEP_HOME/jobs/$held/slurm-ref-1")" -o %r)" = "$1" ]; }
until_true "held in Slurm" holds JobHeldUser
printf '#!/bin/sh\n: >%s/lost\n' "$slurm" >"$slurm/bin/scontrol"
chmod 755 "$slurm/bin/scontrol"
expect 0 as $ann "$slurm/lockstep" release "$held"
until_true "a release that gets lost" test -e "$slurm/lost"
rm "$slurm/bin/scontrol"

# ann writes the Slurm number of bob's job to her own job's folder; a restarted daemon reads that, and must not end bob's job for her.
sed "s/^[0-9_]*/$(cut -d' ' -f1 "$LOCKSTEP_HOME/jobs/$bobs/slurm-ref-1")/" "$LOCKSTEP_HOME/jobs/$anns/slurm-ref-1" >"$slurm/false"
as $ann cp "$slurm/false" "$LOCKSTEP_HOME/jobs/$anns/slurm-ref-1" || fail "ann cannot write to her own folder"
kill -9 "$(tr -dc 0-9 <"$LOCKSTEP_HOME/lock")"
expect 0 queue up --engine slurm
expect 0 as $ann "$slurm/lockstep" cancel "$anns"
until_state "$anns" CANCELLED
same "bob's job" "$(state_of "$bobs")" RUNNING
same "bob's job in Slurm" "$(squeue -h -u $bob -o %T)" RUNNING

# Links in a user's folder are not followed.
echo "root's secret" >"$slurm/secret"
chmod 600 "$slurm/secret"
as $ann sh -c "rm '$LOCKSTEP_HOME/jobs/$job/log'; ln -s '$slurm/secret' '$LOCKSTEP_HOME/jobs/$job/log'"
as $ann "$slurm/lockstep" logs "$job" >"$out" 2>&1
check "no log but her own" sh -c "! grep -q secret '$out'"

# ---- root ends it; a sweep of another's runs then ----
(cd "$slurm/$ann" && as $ann "$slurm/lockstep" sweep "$slurm/one.yaml" --set job.max_replacements=1,2,3 --json) >"$out" 2>"$err"
sweep=$(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1]))["jobs"])' "$out")
expect 0 queue cancel "$bobs"
until_state "$bobs" CANCELLED
until_state "$held" SUCCEEDED # the next daemon said it again
for one in $sweep; do
    until_state "$one" SUCCEEDED
    same "owner of the log of $one" "$(stat -c %U "$LOCKSTEP_HOME/jobs/$one/log")" $ann
done

# ---- a user whom Slurm does not know; a job that could never run ----
if ! getent passwd 29999 >/dev/null; then
    unknown=$(cd / && setpriv --reuid 29999 --regid 29999 --clear-groups "$slurm/lockstep" submit "$slurm/one.yaml")
    until_state "$unknown" FAILED
    expect 0 queue why "$unknown"
    prints "Slurm refused it"
fi
expect 2 queue submit "$slurm/one.yaml" --ranks 6
says "the cluster has 2"
expect 0 queue down
finish
