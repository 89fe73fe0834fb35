#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that goes on can be asked: who is in it, to have more or fewer ranks, to save now, to stop. Ranks that join and leave change no bit.
# What can't be done is refused with the reason.
. "$(dirname "$0")/lib.sh"

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
# ask DIR JSON: what the control socket answers; ask DIR - sends garbage.
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
says "no process trains in whole"
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
check "left" happened rank_left
check "said for people" eval 'grep -q "^rank 4 joins behind step [0-9]*$" team.err && grep -q "^rank 4 leaves behind step [0-9]*$" team.err'
expect 0 "$LOCKSTEP" resize team --ranks 4 --no-wait
wait_for eval '"$LOCKSTEP" resize team | grep -q "4 ranks"'
for wrong in 1 6 100000; do
    expect 2 "$LOCKSTEP" resize team --ranks $wrong
    says "$wrong ranks" "2 to 5"
done
expect 2 "$LOCKSTEP" resize team --ranks x

# One that is told to end leaves; it is not replaced.
victim=$(python3 -c 'import json,sys; print(next(r["pid"] for r in json.load(sys.stdin)["ranks"] if r["rank"] == 1))' \
    < <("$LOCKSTEP" resize team --json))
kill -TERM "$victim"
wait_for eval '"$LOCKSTEP" resize team | grep -q "3 ranks"'
expect 0 "$LOCKSTEP" resize team --json
same "the team without rank 1" "$(ranks_of "$out")" "0 2 3"
check "its process is gone" eval "! kill -0 $victim 2>/dev/null"

# Anything may be asked; nothing of it disturbs the run.
for words in '' '[]' '{"request": "fly"}' '{"request": "resize"}' '{"request": "leave", "rank": 77}' "$(head -c 5000 /dev/zero | tr '\0' '{')"; do
    check "'${words:0:40}' is refused" grep -q '"ok":false' <(ask team "$words")
done
ended 0
same "team" "$(hashes team.out)" "$reference"
check "the socket is gone" [ ! -e team/control ]

# Save now; then go on from there, with another number of ranks.
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
says "no process trains in asked any more"
expect 0 "${train[@]}" --run-dir asked --ranks 4
same "asked" "$(hashes "$out")" "$reference"

# One rank of an elastic run is a process of its own: others can join it.
begin one --ranks 1 --set job.elastic=true --set job.min_ranks=1
expect 0 "$LOCKSTEP" resize one --ranks 3
prints "3 ranks (1 to 5 possible)"
expect 0 "$LOCKSTEP" resize one --ranks 1
ended 0
same "one" "$(hashes one.out)" "$reference"

# One process can be asked, but not shared out.
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
