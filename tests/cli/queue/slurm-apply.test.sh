#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm-config --apply: two hosts of namespaces, each with folders of its own where Slurm, munge and MariaDB keep things, become a cluster with accounting; the
# queue runs a job on both nodes; and the same once more. No systemd there.
[ "$(id -u)" -eq 0 ] || { echo "skipped: installing Slurm needs root"; exit 77; }
PATH=$PATH:/usr/sbin:/sbin
for program in slurmctld slurmd slurmdbd munged mariadbd; do
    command -v "$program" >/dev/null || { echo "skipped: no $program here (Debian: slurmctld slurmd slurmdbd slurm-wlm-mysql-plugin munge mariadb-server)"; exit 77; }
done
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

for host in 0 1; do
    netns_run "$host" sh -euc 'for folder in /run /etc/slurm /etc/munge /var/spool /var/log /var/lib/munge /var/lib/mysql; do mkdir -p $folder; mount -t tmpfs tmpfs $folder; done
        install -d -o munge -g munge -m 700 /var/log/munge /var/lib/munge
        install -d -o mysql -g mysql -m 700 /var/log/mysql /var/lib/mysql; mkdir /run/lock' || netns_skip "mounting in a namespace is not permitted"
done
hosts_file two.hosts "host0 10.77.0.1" "host1 10.77.0.2"
apply=("$LOCKSTEP" slurm-config --hosts two.hosts --shared "$scratch" --control-host host0 --apply)
logs() { netns_run 0 sh -c 'tail -n 5 /var/log/slurm/*.log' 2>/dev/null; netns_run 1 sh -c 'tail -n 5 /var/log/slurm/*.log' 2>/dev/null; }

netns_run 1 sh -c 'echo ClusterName=theirs >/etc/slurm/slurm.conf'
expect 1 "${apply[@]}" -o conf
prints "host1: it belongs to the Slurm cluster 'theirs' (/etc/slurm/slurm.conf)"
check "nothing was written" test ! -e conf
netns_run 1 rm /etc/slurm/slurm.conf
expect 2 "$LOCKSTEP" slurm-config --hosts two.hosts --shared "$scratch" --control-host far --apply -o conf
says "the controller is to run on host far, which is not in two.hosts"
expect 2 "$LOCKSTEP" slurm-config --apply -o conf
says "--apply needs the hosts to install on: give --hosts FILE"

expect 0 "${apply[@]}" -o conf || logs
prints "Slurm runs on 2 hosts, the controller on host0"
says "host0: slurmctld, slurmdbd with MariaDB and slurmd runs" "host1: slurmd runs"
same "a job on both" "$(netns_run 0 srun -N 2 hostname | sort | tr '\n' ' ')" "host0 host1 "
same "the secrets" "$(stat -c '%a' conf/munge.key conf/slurmdbd.conf | tr '\n' ' ')" "600 600 "
check "none on a node" netns_run 1 test ! -e /etc/slurm/slurmdbd.conf

# The queue on top of it.
cat >both.yaml <<'YAML'
name: both
parallel: {ranks: 4}
job: {account: alpha, ranks_per_node: 2, command: [sh, -c, 'echo "rank $RANK on $(hostname)"']}
YAML
export LOCKSTEP_HOME=$scratch/home
queue() { netns_run 0 "$LOCKSTEP" "$@"; }
expect 0 queue up --engine slurm
expect 0 queue submit both.yaml
expect 0 queue wait 1
expect 0 queue logs 1
prints "rank 0 on host" "rank 3 on host"
same "its hosts" "$(grep -o 'host[01]$' "$out" | sort -u | tr '\n' ' ')" "host0 host1 "
expect 0 queue down

# Again: what is there stays, and accounting knows the jobs.
expect 0 "${apply[@]}" -o conf || logs
same "a job after that" "$(netns_run 0 srun -N 2 hostname | sort | tr '\n' ' ')" "host0 host1 "
accounted() { [ "$(netns_run 0 sacct -a -n -X -P -o state | grep -c COMPLETED)" -ge 3 ]; }
check "accounting has them" eval 'for i in $(seq 100); do accounted && break; sleep 0.1; done; accounted'
finish
