# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of the queue: a daemon of this test's own, which is ended with all its jobs, whatever happens.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

end_queue() {
    "$LOCKSTEP" down --cancel >/dev/null 2>&1
    # A daemon that was killed has left its jobs: their folders name the runners.
    pkill_runners
    clean_up
}
# Ends runners of this test by the number that each has written into its claim.
pkill_runners() {
    local claim pid
    for claim in "$LOCKSTEP_HOME"/jobs/*/claim-*; do
        [ -f "$claim" ] || continue
        pid=$(tr -cs '0-9' ' ' <"$claim" | awk '{print $1}')
        [ -n "$pid" ] && grep -qa lockstep "/proc/$pid/cmdline" 2>/dev/null && kill -9 "$pid" 2>/dev/null
    done
}
trap end_queue EXIT

# queue_up [OPTION...]: starts it in the background; its own log is $scratch/daemon.log.
queue_up() {
    "$LOCKSTEP" up --foreground --slots 2 "$@" >>"$scratch/daemon.log" 2>&1 </dev/null &
    daemon=$!
    wait_until "the daemon answers" "$LOCKSTEP" ps
}
# wait_until WHAT COMMAND...: until it succeeds; a minute and a half at most.
wait_until() {
    local what=$1 i
    shift
    checks=$((checks + 1))
    for ((i = 0; i < 900; i++)); do
        "$@" >/dev/null 2>&1 </dev/null && return 0
        sleep 0.1
    done
    fail "$what: never"
    tail -5 "$scratch/daemon.log"
    return 1
}
# type_when_shown TEXT KEYS: prints KEYS as soon as screen.txt holds TEXT, after half a minute at the latest.
type_when_shown() {
    local i
    for ((i = 0; i < 600; i++)); do
        grep -qF -- "$1" screen.txt 2>/dev/null && break
        sleep 0.05
    done
    printf %s "$2"
}
state_of() { "$LOCKSTEP" ps "$1" --json 2>/dev/null | python3 -c 'import json, sys; print(json.load(sys.stdin)["state"])'; }
is_state() { [ "$(state_of "$1")" = "$2" ]; }
# json EXPRESSION: of the document `d` that the last command printed.
json() { python3 -c "import json; d = json.load(open('$out')); print($1)"; }

# Jobs of milliseconds, one that waits for a file, one that fails.
printf 'name: hello\njob: {command: [sh, -c, "echo rank $RANK of $WORLD_SIZE"]}\n' >hello.yaml
printf 'name: waits\njob: {command: [sh, -c, "echo begun; until [ -e %s/go ]; do sleep 0.05; done; echo done"]}\n' "$scratch" >waits.yaml
printf 'name: fails\njob: {command: [sh, -c, "exit 3"]}\n' >fails.yaml
