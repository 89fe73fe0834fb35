#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Requests to a run that trains: its status, more or fewer ranks, save now, stop. Ranks that join and leave change no bit. What is not possible is
# refused with the reason.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=4000 --set train.leaves=6 --set train.global_batch=12
    --set checkpoint.every_steps=50000 --set eval.every_steps=50000 --set job.max_ranks=5 --set job.min_ranks=2)

# begin DIR ARGUMENT...: starts a run in the background and waits until it trains.
begin() {
    dir=$1
    shift
    "${train[@]}" --run-dir "$dir" "$@" >"$dir.out" 2>"$dir.err" </dev/null &
    pid=$!
    wait_for trains
}
trains() { "$LOCKSTEP" resize "$dir" --json | grep -q '"doing": "training"'; }
wait_for() {
    for _ in $(seq 2400); do
        "$@" 2>/dev/null && return 0
        kill -0 $pid 2>/dev/null || break
        sleep 0.025
    done
    fail "waited in vain: $*"
    cat "$dir.err"
}
happened() { grep -q "\"event\":\"$1\"${2-}" "$dir/events.jsonl"; }
ended() {
    wait $pid
    same "$dir: exit code" $? "$1"
}
# ask DIR JSON: the answer of the control socket; ask DIR - sends garbage.
ask() {
    python3 - "$1" "$2" <<'PY'
import socket, struct, sys
address = open(sys.argv[1] + "/control").read().strip().removeprefix("unix:")
link = socket.socket(socket.AF_UNIX)
link.settimeout(20)
link.connect(address)
data = sys.argv[2].encode()
link.sendall(struct.pack("<I", len(data)) + data)
need = struct.unpack("<I", link.recv(4, socket.MSG_WAITALL))[0]
print(link.recv(need, socket.MSG_WAITALL).decode())
PY
}
# ranks_of FILE: the ranks that hold a part, of a `resize --json`.
ranks_of() {
    python3 -c '
import json, sys
print(*(r["rank"] for r in json.load(open(sys.argv[1]))["ranks"] if r["parts"]))' "$1"
}

expect 0 "${train[@]}" --run-dir whole
reference=$(hashes "$out")
expect 2 "$LOCKSTEP" resize whole
says "no process is training in whole"
expect 2 "$LOCKSTEP" resize nowhere
says "nowhere" "run directory"

# Up, down, and up again, while it trains.
begin team --ranks 3
expect 0 "$LOCKSTEP" resize team
prints "3 ranks (2 to 5 possible)" "rank 0" "rank 2" "part 2"
expect 0 "$LOCKSTEP" resize team --json
same "the team at first" "$(ranks_of "$out")" "0 1 2"
expect 0 "$LOCKSTEP" resize team --ranks 5
prints "rank 3 (pid" "rank 4 (pid" "joined" "5 ranks (2 to 5 possible)"
check "joined" happened rank_joined
expect 0 "$LOCKSTEP" resize team --ranks 2 --json
same "the team when it is smallest" "$(ranks_of "$out")" "0 1"
expect 0 "$LOCKSTEP" diagnose team
prints "2 of 2 ranks run"
check "left" happened rank_left
check "said for people" eval 'grep -q "^rank 4 joins after step [0-9]*$" team.err && grep -q "^rank 4 leaves after step [0-9]*$" team.err'
expect 0 "$LOCKSTEP" resize team --ranks 4 --no-wait
wait_for eval '"$LOCKSTEP" resize team | grep -q "4 ranks"'
for wrong in 1 6 100000; do
    expect 2 "$LOCKSTEP" resize team --ranks $wrong
    says "$wrong ranks" "2 to 5"
done
expect 2 "$LOCKSTEP" resize team --ranks x

# A rank that gets SIGTERM leaves and is not replaced.
victim=$(python3 -c 'import json,sys; print(next(r["pid"] for r in json.load(sys.stdin)["ranks"] if r["rank"] == 1))' \
    < <("$LOCKSTEP" resize team --json))
kill -TERM "$victim"
wait_for eval '"$LOCKSTEP" resize team | grep -q "3 ranks"'
expect 0 "$LOCKSTEP" resize team --json
same "the team without rank 1" "$(ranks_of "$out")" "0 2 3"
check "its process is gone" eval "! kill -0 $victim 2>/dev/null"

# No request, however wrong, disturbs the run.
for words in '' '[]' '{"request": "fly"}' '{"request": "resize"}' '{"request": "leave", "rank": 77}' "$(head -c 5000 /dev/zero | tr '\0' '{')"; do
    check "'${words:0:40}' is refused" grep -q '"ok":false' <(ask team "$words")
done
ended 0
same "team" "$(hashes team.out)" "$reference"
check "the socket is gone" [ ! -e team/control ]

# Save now; then continue from there with another number of ranks.
begin asked --ranks 2
check "save now" grep -q '"ok":true' <(ask asked '{"request": "checkpoint"}')
wait_for happened checkpoint
step=$(ls asked/checkpoints | head -1)
check "step $step is none of the usual ones" [ "$step" -gt 0 -a "$step" -lt 4000 ]
check "stop" grep -q '"ok":true' <(ask asked '{"request": "stop"}')
ended 75
check "who told it to" happened notice ',"source":"control"'
begin asked --ranks 3
kill -9 $pid
wait $pid 2>/dev/null
expect 2 "$LOCKSTEP" resize asked
says "no process is training in asked any more"
expect 0 "${train[@]}" --run-dir asked --ranks 4
same "asked" "$(hashes "$out")" "$reference"

# One rank of an elastic run is a process of its own: others can join it.
begin one --ranks 1 --set job.elastic=true --set job.min_ranks=1
expect 0 "$LOCKSTEP" resize one --ranks 3
prints "3 ranks (1 to 5 possible)"
expect 0 "$LOCKSTEP" resize one --ranks 1
ended 0
same "one" "$(hashes one.out)" "$reference"

# Ranks that divide the model join and leave by crews.
begin crews --ranks 2 --set parallel.pipeline=2 --set job.max_ranks=4
expect 0 "$LOCKSTEP" resize crews --ranks 4
prints "4 ranks (2 to 4 possible)"
expect 2 "$LOCKSTEP" resize crews --ranks 3
says "3 ranks" "a multiple of 2"
expect 0 "$LOCKSTEP" resize crews --ranks 2
ended 0
same "crews" "$(hashes crews.out)" "$reference"

# Ranks that joined are seen and taken over like those that began the run.
begin grown --ranks 2 --set train.steps=1000000 --set job.hang_timeout=2s
expect 0 "$LOCKSTEP" resize grown --ranks 4
expect 0 "$LOCKSTEP" diagnose grown
prints "4 of 4 ranks run"
stopped=$("$LOCKSTEP" resize grown --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["ranks"][3]["pid"])')
kill -STOP "$stopped"
wait_for happened recovered ".*\"lost\":\[3\]"
check "why it was lost" happened rank_lost ",\"rank\":3,.*was stopped for"
kill -TERM $pid
ended 75

# A leaf may take longer than job.hang_timeout: a rank that computes it is not lost when the others pause for one that joins.
# The time-out is a third of a leaf as it is on this machine now: on a busy one, single operations take longer, too.
slow=(--set train.micro_batch=6 --set train.leaves=2 --set train.steps=1000000 --set model.layers=16 --set model.width=128 --set model.context=512
    --set model.ffn=256 --set job.min_ranks=1 --set job.max_ranks=2)
expect 0 "${train[@]}" --run-dir measured "${slow[@]}" --steps 1
patience=$(python3 -c 'import json; print(max(300, int(1000 * json.loads(open("measured/metrics.jsonl").readline())["step_s"] / 6)))')
begin slow --ranks 2 "${slow[@]}" --set "job.hang_timeout=${patience}ms"
expect 0 "$LOCKSTEP" resize slow --ranks 1 --timeout 600
expect 0 "$LOCKSTEP" resize slow --ranks 2 --timeout 600
check "no rank was lost" eval '! happened rank_lost'
kill -TERM $pid
ended 75

# A run of one process answers requests, but cannot be resized.
begin alone
expect 0 "$LOCKSTEP" resize alone
prints "one process"
expect 2 "$LOCKSTEP" resize alone --ranks 2
says "one process" "--ranks N"
check "save now, in one process" grep -q '"ok":true' <(ask alone '{"request": "checkpoint"}')
wait_for happened checkpoint
kill -TERM $pid
ended 75

finish
