#!/usr/bin/env bash
# slurm-config: the cluster it writes starts as an ordinary user and runs a gang on several adjacent nodes; nothing is left when it stops.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"

expect 2 "$LOCKSTEP" slurm-config && says '--output DIR'
expect 2 "$LOCKSTEP" slurm-config -o c --local --nodes 65 --slurm-version 22.05 && says 'the number of nodes is 65; it must be 1 to 64'
expect 2 "$LOCKSTEP" slurm-config -o c --prefix 'n;rm' --slurm-version 22.05 && says 'letters, digits'
expect 2 "$LOCKSTEP" slurm-config -o c --slurm-version 17.11 && says '20.11 or newer'
expect 3 "$LOCKSTEP" slurm-config -o c --slurm-version new && says 'which is not understood'
mkdir 'a folder'
expect 2 "$LOCKSTEP" slurm-config -o 'a folder' --local --slurm-version 22.05 && says 'absolute path'

# A cluster of hosts: without private key, port or script, and in the keywords of that version.
expect 0 "$LOCKSTEP" slurm-config -o hosts --slurm-version 24.05 --nodes 100 --leaf-nodes 32 --control-host head
check "words of 24.05" grep -q '^PreemptParameters=send_user_signal' hosts/slurm.conf
check "the last leaf" grep -q '^SwitchName=leaf3 Nodes=n\[96-99\]$' hosts/topology.conf
check "no scripts" test ! -e hosts/start
check "no key that is gone" bash -c '! grep -q CgroupAutomount hosts/cgroup.conf'
expect 0 "$LOCKSTEP" slurm-config -o old --slurm-version 22.05 --json && same "version" "$(field "$out" version)" "[22, 5]"
expect 0 "$LOCKSTEP" slurm-config -o "$PWD/here" --local --slurm-version 22.05
check "a local cluster of 22.05 needs no /sys/fs/cgroup" grep -q '^CgroupPlugin=cgroup/v1$' here/cgroup.conf
expect 0 "$LOCKSTEP" slurm-config -o "$PWD/newer" --local --slurm-version 24.05
check "nor one of 24.05" grep -q '^CgroupPlugin=disabled$' newer/cgroup.conf
check "words of 22.05" grep -q '^SlurmctldParameters=preempt_send_user_signal' old/slurm.conf

[ "$failures" -eq 0 ] || finish
slurm_need
slurm_up 4 --leaf-nodes 2 --gpus 8 --gpu-kind h100
expect 0 slurm_as srun --nodes 2 --ntasks-per-node 4 --gpus-per-node 4 --switches=1 sh -c 'echo "$SLURM_PROCID $SLURM_TOPOLOGY_ADDR $CUDA_VISIBLE_DEVICES"'
same "ranks" "$(wc -l <"$out")" 8
same "leaves" "$(cut -d' ' -f2 "$out" | cut -d. -f2 | sort -u | wc -l)" 1
same "GPUs of each" "$(cut -d' ' -f3 "$out" | sort -u)" 0,1,2,3

# A job that runs when the cluster is stopped ends with it, including slurmstepd.
expect 0 slurm_as sbatch --nodes 1 --output /dev/null --wrap 'sleep 1000 & sleep 1000'
for _ in $(seq 600); do
    [ "$(slurm_as squeue -h -t running | wc -l)" -eq 1 ] && break
    sleep 0.1
done
folder=$slurm
slurm_as "$folder/stop"
left=$(for process in /proc/[0-9]*; do
    grep -qzsxF "SLURM_CONF=$folder/slurm.conf" "$process/environ" && cat "$process/comm" 2>/dev/null
done | grep -cE '^(slurm|munged|sleep)')
same "processes left" "$left" 0
finish
