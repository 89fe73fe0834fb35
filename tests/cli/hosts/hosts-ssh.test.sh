#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train --hosts over a real sshd, which runs in another network namespace with keys of its own: the bits of one process, and the message
# for a person whose key is refused.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"
PATH=$PATH:/usr/sbin
command -v sshd >/dev/null && command -v ssh-keygen >/dev/null || netns_skip "no sshd (Debian: openssh-server)"
[ "$(id -u)" -eq 0 ] || netns_skip "sshd wants to be root"
[ -d /run/sshd ] || mkdir -p /run/sshd || netns_skip "no /run/sshd"

train=("$LOCKSTEP" train tiny.yaml --json --threads 1)
mkdir -m 700 keys
for key in host user stranger; do ssh-keygen -q -t ed25519 -N '' -f "keys/$key"; done
cat >sshd.conf <<CONF
Port 2222
ListenAddress 10.77.0.2
HostKey $scratch/keys/host
AuthorizedKeysFile $scratch/keys/user.pub
PidFile $scratch/sshd.pid
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
CONF
background sshd 1 "$(command -v sshd)" -D -e -f "$scratch/sshd.conf"
sshd=$pid
for i in $(seq 500); do
    grep -q "Server listening" sshd.err && break
    kill -0 "$sshd" 2>/dev/null || netns_skip "sshd does not start here: $(tail -n 1 sshd.err)"
    sleep 0.01
done
echo "[10.77.0.2]:2222 $(cat keys/host.pub)" >known
hosts_file two.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2"
ssh="ssh -p 2222 -F none -o UserKnownHostsFile=$scratch/known -o IdentitiesOnly=yes"

expect 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")
expect 0 netns_run 0 env LOCKSTEP_SSH="$ssh -i $scratch/keys/user" "${train[@]}" --run-dir two --hosts two.hosts
same "over sshd" "$(hashes "$out")" "$reference"
same "over sshd: ranks" "$(started two)" "0:host0 1:host1 2:host1"

expect 1 netns_run 0 env LOCKSTEP_SSH="$ssh -i $scratch/keys/stranger" "${train[@]}" --run-dir stranger --hosts two.hosts
says "cannot start an agent on host host1" "exit code 255" "Permission denied"
hosts_file three.hosts "host0 10.77.0.1" "host1 10.77.0.2" "host2 10.77.0.3"
expect 1 netns_run 0 env LOCKSTEP_SSH="$ssh -i $scratch/keys/user" "${train[@]}" --run-dir three --hosts three.hosts
says "cannot start an agent on host host2" "[host2] ssh: connect to host 10.77.0.3 port 2222: Connection refused"
kill "$sshd"
nothing_left "over sshd" 10 # nor does the agent of host1 wait for a trainer that has ended
finish
