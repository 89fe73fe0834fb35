#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts, one of which is wrong, never connects, or goes away: the run ends within its deadline and names it, leaves nothing behind, and a rerun resumes.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

steps=20000
train=("$LOCKSTEP" train tiny.yaml --json --set train.steps=$steps --set train.schedule.steps=$steps --set train.leaves=4 --set eval.every_steps=0
    --set checkpoint.every_steps=25 --set eval.batches=1 --threads 1)
hosts_file two.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2"
hosts_file three.hosts "host0 10.77.0.1" "host1 10.77.0.2" "host2 10.77.0.3"

# begin NAME STEP ARGUMENT...: a run from host 0 in the background that has passed STEP.
begin() {
    local name=$1 step=$2
    shift 2
    background "$name" 0 "${train[@]}" --run-dir "$name" "$@"
    trainer=$pid
    passed "$name" "$step"
}
# process_in HOST WORD: processes of a host whose command line has the word.
process_in() {
    local pid
    for pid in $(netns_processes); do
        [ "$(readlink "/proc/$pid/ns/net")" = "$(readlink "/proc/${netns_holders[$1]}/ns/net")" ] || continue
        tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "lockstep $2 " && echo "$pid"
    done
}

# ---- before the first step ----
hosts_file unknown.hosts "host0 10.77.0.1" "elsewhere 10.77.0.99"
expect 1 netns_run 0 "${train[@]}" --run-dir unknown --hosts unknown.hosts
says "cannot start an agent on host elsewhere" "exit code 255" "Could not resolve hostname" "[elsewhere]"
nothing_left "a host that ssh does not know"

# A command that hangs.
printf '#!/bin/sh\nexec sleep 600\n' >deaf.ssh
chmod +x deaf.ssh
expect 1 netns_run 0 env LOCKSTEP_SSH="$scratch/deaf.ssh" "${train[@]}" --run-dir deaf --hosts two.hosts --start-timeout 4
says "no agent connected from host host1" "within 4 s" "waiting for agents on host1"
nothing_left "a host that never comes"

# Agents that should be started by hand and are not; a port that is in use.
export LOCKSTEP_TOKEN=$token
expect 1 netns_run 0 "${train[@]}" --run-dir hand --coordinator 10.77.0.1:29540 --ranks 3 --local-ranks 2 --start-timeout 3
says "1 of 3 ranks (rank 2 and above) still have no host" "lockstep agent --coordinator 10.77.0.1:29540"
background taker 0 python3 -c "import socket,time; s=socket.socket(); s.bind(('10.77.0.1',29541)); s.listen(); print(1, flush=True); time.sleep(60)"
taker=$pid
for i in $(seq 500); do [ ! -s taker.out ] || break; sleep 0.01; done
expect 2 netns_run 0 "${train[@]}" --run-dir hand --coordinator 10.77.0.1:29541 --ranks 3 --local-ranks 2 --start-timeout 3
says "port 29541 is taken" "for instance"
kill -9 "$taker"
expect 1 netns_run 1 "$LOCKSTEP" agent --coordinator 10.77.0.1:29542 --timeout 1
says "no coordinator at 10.77.0.1:29542 within 1 s"

# An agent with another token, one too many, another program, and a stranger at the port: each is refused, and the run continues.
background hand 0 "${train[@]}" --run-dir hand --coordinator 10.77.0.1:29540 --ranks 2 --local-ranks 1 --steps 200
trainer=$pid
expect 2 netns_run 1 env LOCKSTEP_TOKEN=ffff2233445566778899aabbccddeeff "$LOCKSTEP" agent --coordinator 10.77.0.1:29540
says "wrong token"
expect 2 netns_run 1 env -u LOCKSTEP_TOKEN "$LOCKSTEP" agent --coordinator 10.77.0.1:29540
says "wrong token"
netns_run 1 python3 - <<'PY'
import socket
s = socket.create_connection(("10.77.0.1", 29540), 5)
s.settimeout(5)
s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
s.recv(100)
PY
background agent 1 "$LOCKSTEP" agent --coordinator 10.77.0.1:29540
agent=$pid
passed hand 10
expect 2 netns_run 2 "$LOCKSTEP" agent --coordinator 10.77.0.1:29540
says "all 2 ranks already have a host"
ended hand "$trainer" 0
ended agent "$agent" 0
unset LOCKSTEP_TOKEN
nothing_left "strangers"

# Another binary on host 1, started there by the stand-in for ssh.
{ cat "$LOCKSTEP"; echo; } >other.program
chmod +x other.program
printf '#!/bin/bash\nexec %s "${@//%s/%s}"\n' "$scratch/ssh" "${LOCKSTEP//\//\\/}" "$scratch/other.program" >ssh.other
chmod +x ssh.other
expect 6 netns_run 0 env LOCKSTEP_SSH="$scratch/ssh.other" "${train[@]}" --run-dir other --hosts two.hosts
says "host host1 runs a different lockstep" "same binary on all hosts"
nothing_left "another binary"

# Other data under the same path.
sed 's/king/queen/' text.txt >queen.txt
netns_inside "${netns_holders[1]}" mount --bind "$scratch/queen.txt" "$scratch/text.txt"
expect 6 netns_run 0 "${train[@]}" --run-dir queen --hosts two.hosts
says "host1" "data"
netns_inside "${netns_holders[1]}" umount "$scratch/text.txt"
nothing_left "other data"

# Two hosts that reach the trainer, and not each other.
if command -v nft >/dev/null; then
    printf 'add table bridge cut\nadd chain bridge cut forward { type filter hook forward priority 0; }\nadd rule bridge cut forward %s\nadd rule bridge cut forward %s\n' \
        "ip saddr 10.77.0.2 ip daddr 10.77.0.3 drop" "ip saddr 10.77.0.3 ip daddr 10.77.0.2 drop" | netns_inside "$netns_switch" nft -f -
    background wall 0 "${train[@]}" --run-dir wall --hosts three.hosts
    for i in $(seq 300); do grep -q "not connected yet" wall.err && break; sleep 0.1; done
    holds wall.err "[host2] " "rank 2 is not connected yet to rank 1 (host1" "10.77.0.2:" "firewall"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    netns_mend 1
    nothing_left "a firewall"
fi

# ---- in the middle of a run that needs all its ranks ----
begin killed 60 --hosts two.hosts --set job.min_ranks=3
kill -9 $(process_in 1 rank | head -1)
ended killed "$trainer" 5 "rank" "host1"
nothing_left "a rank of another host, killed"

begin agentless 60 --hosts two.hosts --set job.min_ranks=3
kill -9 $(process_in 1 agent)
ended agentless "$trainer" 5 "host1"
nothing_left "an agent, killed"

begin headless 60 --hosts three.hosts
kill -9 "$trainer"
wait "$trainer" 2>/dev/null
nothing_left "a trainer, killed"

begin cut 60 --hosts three.hosts --set job.min_ranks=3
netns_cut 2
ended cut "$trainer" 5 "host2"
netns_mend 2
left=$(process_in 2 agent)
for i in $(seq 250); do left=$(process_in 2 agent); [ -n "$left" ] || break; sleep 0.1; done
nothing_left "a host, cut off"

# Ctrl-C and SIGTERM save, on all hosts' behalf; Ctrl-C to an agent ends the run with its name.
begin asked 60 --hosts three.hosts
expect 2 netns_run 1 "${train[@]}" --run-dir asked # another host sees the same folder
says "in use by process $trainer on host0"
kill -TERM "$trainer"
ended asked "$trainer" 75
nothing_left "SIGTERM"
saved=$(field asked.out step)
check "SIGTERM: the step it stopped at is saved" test -f "asked/checkpoints/$saved/MANIFEST.json"
begin told 60 --hosts two.hosts
kill -INT $(process_in 1 agent)
ended told "$trainer" 5 "the agent of host host1 was ended by a signal"
nothing_left "an agent, told to end"

# Interrupted anywhere and resumed: the bits of one process.
short=(--steps 400)
expect 0 "${train[@]}" --run-dir whole --ranks 1 "${short[@]}"
reference=$(hashes "$out")
for name in killed agentless headless cut asked told; do
    expect 0 netns_run 0 "${train[@]}" --run-dir "$name" --hosts three.hosts "${short[@]}"
    [ "$(field "$out" step)" != 400 ] || same "$name, gone on with" "$(hashes "$out")" "$reference"
done
finish
