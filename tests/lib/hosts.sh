# SPDX-License-Identifier: Apache-2.0
# For tests of runs on several hosts, sourced behind tests/cli/lib.sh: four hosts of namespaces, and what stands in for ssh to them.
. "$LS_SOURCE_DIR/tests/lib/netns.sh"
[ "$(id -u)" -eq 0 ] || { cd / && rm -rf "$scratch"; } # the test starts again as root of a user namespace, with a new scratch folder
netns_as_root "$0" "$@"
netns_begin 4
netns_write_ssh "$scratch/ssh"
export LOCKSTEP_SSH=$scratch/ssh
unset LOCKSTEP_TOKEN
token=00112233445566778899aabbccddeeff

# hosts_file FILE LINE...
hosts_file() { printf '%s\n' "${@:2}" >"$1"; }

# nothing_left WHAT [SECONDS]: no process is left in any host, after half a minute or SECONDS at most.
nothing_left() {
    local left end=$((SECONDS + ${2:-30}))
    while left=$(netns_processes) && [ -n "$left" ] && [ $SECONDS -lt $end ]; do
        sleep 0.05
    done
    same "$1: processes left" "none$left" none
}

# background NAME HOST COMMAND...: in the background with output in NAME.out and NAME.err; its process is $pid.
background() {
    local name=$1 host=$2
    shift 2
    netns_exec "$host" "$@" >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
}

# ended NAME PID CODE TEXT...: it ends with CODE within 40 seconds and its stderr holds each text.
ended() {
    local name=$1 pid=$2 code=$3 got i
    shift 3
    for i in $(seq 4000); do
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.01
    done
    kill -9 "$pid" 2>/dev/null && fail "$name hung"
    wait "$pid"
    got=$?
    checks=$((checks + 1))
    [ "$got" -eq "$code" ] || { fail "$name ended with $got instead of $code"; tail -n 5 "$name.err"; }
    [ $# -eq 0 ] || holds "$name.err" "$@"
}

# passed DIR STEP: waits until a run has passed a step, at most 30 seconds.
passed() {
    local i lines=()
    for i in $(seq 3000); do
        mapfile -t lines 2>/dev/null <"$1/metrics.jsonl"
        [ ${#lines[@]} -le "$2" ] || return 0
        sleep 0.01
    done
    fail "$1 did not pass step $2"
}

# started DIR: "rank:host" of all ranks that were started, in order.
started() {
    python3 - "$1" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
print(*[f"{e['rank']}:{e['host']}" for e in events if e["event"] == "rank_started"])
PY
}

# processes_in DIR HOST: agent and ranks of a host, as the run's events have them.
processes_in() {
    python3 - "$1" "$2" <<'PY'
import json, sys
ranks = [e["pid"] for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"] == "rank_started" and e["host"] == sys.argv[2]]
print(open(f"/proc/{ranks[0]}/stat").read().rsplit(")", 1)[1].split()[1], *ranks)
PY
}
