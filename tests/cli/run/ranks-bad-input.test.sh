#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Wrong numbers, addresses, tokens and files for ranks and hosts: a clear error, quickly, with what would work; and nothing is left over.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
unset LOCKSTEP_TOKEN LOCKSTEP_RANK LOCKSTEP_SIZE LOCKSTEP_COORDINATOR RANK WORLD_SIZE MASTER_ADDR MASTER_PORT SLURM_PROCID OMPI_COMM_WORLD_RANK

# quick CODE COMMAND...: like expect; a command that hangs counts as another exit code.
quick() { local code=$1; shift; expect "$code" timeout 30 "$@"; }
# left_over: processes started by this test that still run.
left_over() { for pid in $(pgrep -f -- "$LOCKSTEP"); do tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qxF "LOCKSTEP_HOME=$LOCKSTEP_HOME" && echo "$pid"; done; }
# free_port: a port that is not in use at the moment.
free_port() { python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# occupy: takes a port, which lands in $taken, and answers nothing.
occupy() {
    python3 -c '
import socket, time
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); time.sleep(60)' >"$scratch/port" &
    occupant=$!
    local try
    for try in $(seq 200); do [ -s "$scratch/port" ] && break; sleep 0.02; done
    taken=$(cat "$scratch/port")
}
train=("$LOCKSTEP" train tiny.yaml)

# ---- rank counts ----
quick 2 "${train[@]}" --ranks 0
says "ranks is 0, allowed is auto or a whole number, 1 to"
quick 2 "${train[@]}" --ranks -1
says "ranks"
quick 2 "${train[@]}" --ranks two
says "two" "allowed is"
quick 2 "${train[@]}" --ranks 4
says "parallel.ranks is 4, but the batch of a step is divided into only 3 shares" "use at most 3 ranks" "train.leaves"
quick 2 "${train[@]}" --ranks 4 --dry-run
says "use at most 3 ranks"
quick 2 "${train[@]}" --ranks 2 --set train.leaves=5
says "leaves"
check "a refused run leaves no run directory" [ ! -e runs/tiny ]
quick 0 "${train[@]}" --ranks 3 --dry-run
prints "leaves each" "imbalance"

# ---- help teaches ----
quick 0 "$LOCKSTEP" train --help
prints "--ranks" "Examples:" "--ranks 4" "--hosts hosts.txt"
for command in agent diagnose trace; do
    quick 0 "$LOCKSTEP" $command --help
    prints "Examples:" "lockstep $command"
done
quick 0 "$LOCKSTEP" help --all
prints "diagnose " "trace " "agent "

# ---- bench ----
quick 2 "$LOCKSTEP" bench allreduce --transport pigeon
says "pigeon" "shm" "tcp"
quick 2 "$LOCKSTEP" bench allreduce --ranks 0
says "ranks is 0" "1 to 64"
quick 2 "$LOCKSTEP" bench allreduce --bytes 6
says "6 bytes" "multiple of 4"
quick 2 "$LOCKSTEP" bench allreduce --bytes 1KiB,many
says "many"

# ---- diagnose, trace ----
for command in diagnose trace; do
    quick 2 "$LOCKSTEP" $command
    says "RUN"
    quick 2 "$LOCKSTEP" $command "$scratch/nowhere"
    says "$scratch/nowhere"
done
quick 0 "${train[@]}" --run-dir alone --ranks 1
quick 0 "$LOCKSTEP" diagnose alone
prints "finished: the run ended well" "one process has no flight recorders"
quick 2 "$LOCKSTEP" trace alone
says "alone" "flight"

# ---- files of hosts ----
export LOCKSTEP_TOKEN=0123456789abcdef0123456789abcdef
hosts() { printf '%s\n' "$@" >hosts; }
quick 2 "${train[@]}" --ranks 2 --hosts missing
says "missing" "No such file"
hosts
quick 2 "${train[@]}" --ranks 2 --hosts hosts
says "does not list any host" "host [slots=N] [address]"
hosts "localhost slots=x"
quick 2 "${train[@]}" --ranks 2 --hosts hosts
says "hosts:1" "slots=x" "must be 1 to 256"
hosts "localhost slots=1" "localhost slots=1"
quick 2 "${train[@]}" --ranks 2 --hosts hosts
says "hosts:2" "localhost is listed twice"
hosts "localhost slots=2"
quick 2 "${train[@]}" --ranks 3 --hosts hosts
says "3 ranks" "2 slots"
hosts "localhost slots=1" "host.invalid slots=1"
expect 2 timeout 90 "${train[@]}" --ranks 2 --hosts hosts # asking for a name that is not there may take a while
says "host.invalid"

# ---- tokens and addresses ----
LOCKSTEP_TOKEN=123 quick 2 "$LOCKSTEP" agent --coordinator 127.0.0.1:1
says "LOCKSTEP_TOKEN has 3 characters" "16 to 127 hexadecimal digits"
quick 2 "$LOCKSTEP" agent --coordinator 127.0.0.1:1 --token-file missing
says "missing" "No such file"
quick 2 "$LOCKSTEP" agent
says "--coordinator HOST:PORT"
quick 1 "$LOCKSTEP" agent --coordinator "127.0.0.1:$(free_port)" --timeout 1
says "no coordinator at 127.0.0.1:" "Connection refused"
quick 2 "${train[@]}" --ranks 3 --coordinator 127.0.0.1:0
says "--local-ranks"
quick 1 "$LOCKSTEP" agent --coordinator "127.0.0.1:$(free_port)" --timeout 3
says "waiting for the coordinator at 127.0.0.1:" "Connection refused" "s left)"
LOCKSTEP_TOKEN= quick 2 "${train[@]}" --ranks 3 --local-ranks 2 --coordinator 0.0.0.0:0 --run-dir waits
says "no token" "the run's rendezvous store" "127.0.0.1"
LOCKSTEP_TOKEN= quick 1 "${train[@]}" --ranks 3 --local-ranks 2 --coordinator 127.0.0.1:0 --run-dir waits --start-timeout 3
says "waiting for ranks 2..2: start 'lockstep agent --coordinator 127.0.0.1:" "on the other hosts (" "s left)" "after 3 s"
port=$(free_port) # not in the background: until it is known there is no agent
"$LOCKSTEP" agent --coordinator "127.0.0.1:$port" 2>"$err" &
agent=$!
for _ in $(seq 1000); do
    grep -q "waiting for the coordinator" "$err" && break
    sleep 0.02
done
kill "$agent"
wait "$agent"
same "exit code of an agent that was told to end before its run began" "$?" 5
says "was ended by a signal"
check "no message is lost where nobody could have had it" eval '! grep -q "could not send a message" "$err"'
occupy
quick 2 "${train[@]}" --ranks 3 --local-ranks 2 --coordinator "127.0.0.1:$taken" --run-dir again
says "port $taken is taken" "choose another"
quick 1 "$LOCKSTEP" agent --coordinator "127.0.0.1:$taken" --timeout 1
says "no coordinator at 127.0.0.1:$taken" "does not answer"
kill "$occupant"
wait "$occupant" 2>/dev/null
quick 0 "${train[@]}" --ranks 3 --run-dir again # the directory of a run that never began is as good as new

# A coordinator that waits for its second host: strangers and a wrong token are refused, the right one is not, and the bits are those of one process.
quick 0 "${train[@]}" --run-dir one --json
one=$(hashes "$out")
port=$(free_port)
timeout 60 "${train[@]}" --ranks 3 --local-ranks 2 --coordinator "127.0.0.1:$port" --run-dir two --json >two.json 2>two.err &
trainer=$!
for try in $(seq 400); do
    python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1])), 1)' "$port" 2>/dev/null && break
    sleep 0.02
done
python3 - "$port" <<'PY'
import os, socket, sys
for hello in (b"GET / HTTP/1.0\r\n\r\n", os.urandom(4096), b"\xff" * 64, b""):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 2) as s:
        s.sendall(hello)
PY
LOCKSTEP_TOKEN=ffffffffffffffffffffffffffffffff quick 2 "$LOCKSTEP" agent --coordinator "127.0.0.1:$port" --timeout 10
says "wrong token"
LOCKSTEP_HOST=elsewhere quick 0 "$LOCKSTEP" agent --coordinator "127.0.0.1:$port" --timeout 10
wait "$trainer"
same "exit code of a run that strangers called" "$?" 0
same "hashes after strangers, with a second host" "$one" "$(hashes two.json)"

for try in $(seq 100); do [ -z "$(left_over)" ] && break; sleep 0.05; done
same "processes left" "none$(left_over)" none
finish
