# SPDX-License-Identifier: Apache-2.0
# A queue on the cluster of tests/lib/slurm.sh, as its user: commands, and waiting for what becomes of jobs. Source it behind slurm_up.
export LOCKSTEP_HOME=$slurm/home
work=$slurm/work
slurm_as mkdir "$work" "$slurm/bin" # programs in $slurm/bin come first
queue() { slurm_as env LOCKSTEP_HOME="$LOCKSTEP_HOME" PATH="$slurm/bin:$PATH" "$slurm/lockstep" "$@"; }
submit() { (cd "$work" && queue submit "$@") 2>"$err"; }
# of JOB KEY: what the queue says of it.
of() { queue ps "$1" --json 2>"$err" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2"; }
# until WHAT COMMAND...: until it succeeds; a minute and a half at most.
until_true() {
    local what=$1 end=$((SECONDS + 90))
    shift
    checks=$((checks + 1))
    while [ $SECONDS -lt $end ]; do
        "$@" && return 0
        sleep 0.1
    done
    fail "$what: never"
    queue ps --all
    tail -n 20 "$LOCKSTEP_HOME/daemon.log"
}
is() { [ "$(of "$1" state)" = "$2" ]; }
is_epoch() { [ "$(of "$1" epoch)" = "$2" ] && is "$1" RUNNING; }
ref_of() { cut -d' ' -f1 "$LOCKSTEP_HOME/jobs/$1/slurm-ref-${2:-1}"; }
why_is() { queue why "$1" --json >"$out" 2>"$err" && [ "$(field "$out" stage)" = "$2" ]; }
kill_daemon() { kill -9 "$(tr -dc 0-9 <"$LOCKSTEP_HOME/lock")"; }
