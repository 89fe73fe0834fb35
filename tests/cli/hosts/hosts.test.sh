#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts, made of network namespaces: the bits of one process, however ranks are started and distributed.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

# 5 leaves: uneven for 2, 3 and 4 ranks.
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=10 --set train.leaves=5 --set train.steps=12 --threads 1)

# run NAME ARGUMENT...: trains from host 0 and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 netns_run 0 "${train[@]}" --run-dir "$name" "$@" && got=$(hashes "$out")
}

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")

# ---- train --hosts: agents over ssh ----
hosts_file two.hosts host0 "host1  slots=2 10.77.0.2  # by address"
run two --hosts two.hosts
same "two hosts" "$got" "$reference"
same "two hosts: ranks" "$(started two)" "0:host0 1:host1 2:host1"
nothing_left "two hosts"

# Host names that only ssh knows.
hosts_file four.hosts "# four" "" host0 host1 host2 host3
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts four.hosts
says "the address under which the other hosts" host3 --coordinator
run named --hosts four.hosts --coordinator 10.77.0.1:29530
same "four hosts that ssh knows" "$got" "$reference"

# From here on every program knows them.
cat /etc/hosts >hosts.etc
for host in 0 1 2 3; do
    printf '10.77.0.%d host%d node%d\n' $((host + 1)) $host $((host + 1)) >>hosts.etc
done
for host in 0 1 2 3; do netns_inside "${netns_holders[$host]}" mount --bind hosts.etc /etc/hosts; done
run four --hosts four.hosts
same "four hosts" "$got" "$reference"
same "four hosts: ranks" "$(started four)" "0:host0 1:host1 2:host2 3:host3"
run between --hosts four.hosts --set eval.every_steps=1 --set checkpoint.every_steps=3 --set sample.every_steps=2 --set sample.max_tokens=8
same "four hosts, evaluations, checkpoints and samples in between" "$got" "$reference"
between_loss=$(field "$out" val_loss)
for stage in 0 1 2 3; do
    run "zero-$stage" --hosts two.hosts --set parallel.zero=$stage
    same "two hosts, ZeRO stage $stage" "$got" "$reference"
done
run alone-3 --hosts two.hosts --set parallel.zero=3 --set parallel.shadow=false
same "two hosts, stage 3 without shadows" "$got" "$reference"
run four-3 --hosts four.hosts --set parallel.zero=3
same "four hosts, stage 3 with shadows" "$got" "$reference"
# With stage 3 the weights are brought together for all of this.
run between-3 --hosts two.hosts --set parallel.zero=3 --set eval.every_steps=1 --set checkpoint.every_steps=3 --set sample.every_steps=2 --set sample.max_tokens=8
same "stage 3, evaluations, checkpoints and samples in between" "$got" "$reference"
same "stage 3: the loss of its last evaluation" "$(field "$out" val_loss)" "$between_loss"

# The trainer's host may be anywhere in the file; the file has more slots than the ranks asked for.
hosts_file last.hosts "host2 slots=2" "host1 slots=4" "host0 slots=2"
expect 0 netns_run 0 "$LOCKSTEP" train tiny.yaml --set train.leaves=8 --set train.global_batch=16 --hosts last.hosts --dry-run
prints ">     8" # ranks: all slots
run last --hosts last.hosts --ranks 4
same "host 0 last in the file" "$got" "$reference"
same "host 0 last: ranks" "$(started last)" "0:host0 1:host0 2:host2 3:host2"
hosts_file alone.hosts "host0 slots=3" host1
run alone --hosts alone.hosts --ranks 3
same "ranks that fit on this host" "$got" "$reference"

# A run can be resumed on any other hosts: checkpoints have the state of all of them.
expect 0 netns_run 0 "${train[@]}" --run-dir pieces --hosts four.hosts --steps 1
expect 0 netns_run 0 "${train[@]}" --run-dir pieces --ranks 2 --steps 5
expect 0 netns_run 0 "${train[@]}" --run-dir pieces --hosts last.hosts --ranks 5 --steps 7
run pieces --hosts two.hosts
same "in pieces on 4, 1, 2 and 2 hosts" "$got" "$reference"
nothing_left "pieces"

# ---- train --coordinator and lockstep agent: started by hand ----
export LOCKSTEP_TOKEN=$token
background agent1 1 "$LOCKSTEP" agent --coordinator 10.77.0.1:29511 --slots 1
agent1=$pid
echo "$token" >token
chmod 600 token
background agent2 2 env -u LOCKSTEP_TOKEN "$LOCKSTEP" agent --coordinator 10.77.0.1:29511 --slots 2 --token-file token
agent2=$pid
run hand --coordinator 10.77.0.1:29511 --ranks 4 --local-ranks 1
same "agents by hand" "$got" "$reference"
ended agent1 "$agent1" 0
ended agent2 "$agent2" 0
nothing_left "agents by hand"

# ---- torchrun's variables: two hosts of two processes; the second ones wait ----
torchrun() { # RANK
    echo env RANK=$1 WORLD_SIZE=4 LOCAL_RANK=$(($1 % 2)) LOCAL_WORLD_SIZE=2 GROUP_RANK=$(($1 / 2)) MASTER_ADDR=10.77.0.1 MASTER_PORT=29520 \
        TORCHELASTIC_USE_AGENT_STORE=True
}
waiting=()
for rank in 1 2 3; do
    background "torch$rank" $((rank / 2)) $(torchrun $rank) "${train[@]}" --run-dir torch
    waiting+=("$pid")
done
expect 0 netns_run 0 $(torchrun 0) "${train[@]}" --run-dir torch
same "torchrun" "$(hashes "$out")" "$reference"
same "torchrun: ranks" "$(started torch)" "0:host0 1:host0 2:host1 3:host1"
for rank in 1 2 3; do ended "torch$rank" "${waiting[$((rank - 1))]}" 0; done
nothing_left "torchrun"

# ---- srun's variables: three nodes ----
srun() { # PROCID
    echo env SLURM_PROCID=$1 SLURM_NTASKS=3 SLURM_LOCALID=0 SLURM_NODEID=$1 "SLURM_STEP_NODELIST=node[1-3]" SLURM_STEP_TASKS_PER_NODE=1\(x3\) \
        SLURM_JOB_ID=4711 SLURM_STEP_ID=0
}
background node2 1 $(srun 1) "${train[@]}" --run-dir slurm
node2=$pid
background node3 2 $(srun 2) "${train[@]}" --run-dir slurm
node3=$pid
expect 0 netns_run 0 $(srun 0) "${train[@]}" --run-dir slurm
same "srun" "$(hashes "$out")" "$reference"
same "srun: ranks" "$(started slurm | wc -w)" 3
ended node2 "$node2" 0
ended node3 "$node3" 0
nothing_left "srun"
unset LOCKSTEP_TOKEN

# ---- what is refused ----
hosts_file bad.hosts host0 "host1 slots=0"
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts bad.hosts
says "bad.hosts:2" "slots=0"
hosts_file bad.hosts host0 "host1 slots=1 10.77.0.2 more"
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts bad.hosts
says "bad.hosts:2" "one word more than a line may have"
hosts_file bad.hosts host0 "host1" "host1"
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts bad.hosts
says "bad.hosts:3" "twice"
hosts_file bad.hosts host0 '$(reboot)'
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts bad.hosts
says "bad.hosts:2" "not a valid host name"
hosts_file bad.hosts host1 host2
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts bad.hosts
says "none of the 2 hosts" "is this machine"
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts two.hosts --ranks 4
says "4 ranks" "3 slots"
expect 2 netns_run 0 "${train[@]}" --run-dir none --hosts nothing.hosts
says nothing.hosts
expect 2 netns_run 0 "${train[@]}" --run-dir none --coordinator 10.77.0.1:29511 --ranks 4
says --local-ranks
expect 2 netns_run 0 "${train[@]}" --run-dir none --coordinator 10.77.0.1:29511 --ranks 4 --local-ranks 2
says "no token" LOCKSTEP_TOKEN
expect 2 netns_run 0 env LOCKSTEP_TOKEN=secret "${train[@]}" --run-dir none --coordinator 10.77.0.1:29511 --ranks 4 --local-ranks 2
says LOCKSTEP_TOKEN "16 to 127 hexadecimal"
expect 2 "$LOCKSTEP" agent
says --coordinator
finish
