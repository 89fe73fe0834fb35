#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# slurm-config --hosts: hosts that are asked over a stand-in for ssh, which runs the question here with each host's own programs.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# tool HOST NAME TEXT: what the program NAME prints on that host.
tool() {
    mkdir -p "hosts.d/$1"
    printf '#!/bin/sh\n%s\n' "$3" >"hosts.d/$1/$2" && chmod +x "hosts.d/$1/$2"
}
# host NAME: one that fits the others.
host() {
    tool "$1" hostname "echo $1"
    tool "$1" slurmd 'echo slurm-wlm 22.05.8'
    tool "$1" nproc 'echo 8'
    tool "$1" id 'echo 1234'
    tool "$1" awk 'echo 16000'
    tool "$1" ls ''
    tool "$1" sha256sum 'echo abcdef'
}
cat >fake-ssh <<EOF
#!/bin/sh
[ -d "$scratch/hosts.d/\$1" ] || { echo "ssh: connect to host \$1 port 22: No route to host" >&2; exit 255; }
PATH=$scratch/hosts.d/\$1:\$PATH exec sh -c "\$2"
EOF
chmod +x fake-ssh
export LOCKSTEP_SSH=$scratch/fake-ssh
host alpha
host beta
printf 'alpha\nbeta\n' >hosts.txt

# Two that fit: written for them.
expect 0 "$LOCKSTEP" slurm-config --hosts hosts.txt -o good --control-host alpha
prints alpha beta "slurm-wlm 22.05.8" "a configuration for Slurm 22.05"
check "each host by its name" grep -q '^NodeName=beta NodeAddr=beta CPUs=8 .*RealMemory=16000 State=UNKNOWN$' good/slurm.conf
check "the mark is gone" bash -c '! ls -a | grep -q lockstep-shared'
tool beta ls 'printf "/dev/nvidia0\n/dev/nvidia1\n"'
tool beta nvidia-smi 'echo NVIDIA H200 NVL'
expect 0 "$LOCKSTEP" slurm-config --hosts hosts.txt -o gpus --json
same "read from the host" "$(field "$out" version)" "[22, 5]"
check "its GPUs" grep -q '^NodeName=beta Name=gpu Type=h200_nvl File=/dev/nvidia\[0-1\]$' gpus/gres.conf
check "and only its" bash -c '! grep -q alpha gpus/gres.conf'

# Everything that does not fit is named with its host, and nothing is written.
tool beta date 'echo $(($(/bin/date +%s) + 90)).5'
tool beta id 'case "$2" in slurm) ;; *) echo 77 ;; esac'
tool beta sha256sum 'echo 123456'
tool beta cat ':'
tool beta slurmd 'echo slurm-wlm 23.11.4'
expect 1 "$LOCKSTEP" slurm-config --hosts hosts.txt -o bad
prints "ahead of this host's: set both by NTP" "beta: user $(id -un) has the number 77, and 1234 on the first host" "user slurm has the number (nothing)" \
    "beta: slurmd -V says slurm-wlm 23.11.4, and slurm-wlm 22.05.8 on the first host" "the hash of /etc/munge/munge.key is 123456" "it does not see this host's folder $scratch"
says "with the hosts of hosts.txt: nothing was written"
check "nothing was written" test ! -e bad
host beta
rm hosts.d/beta/date hosts.d/beta/cat
tool beta slurmd 'exit 127'
tool beta hostname 'echo other'
printf 'alpha\nbeta\ngamma 10.0.0.9\n' >hosts.txt
expect 1 "$LOCKSTEP" slurm-config --hosts hosts.txt -o bad --json
same "as JSON" "$(python3 -c "import json; print([len(h['problems']) > 0 for h in json.load(open('$out'))['hosts']])")" "[False, True, True]"
expect 1 "$LOCKSTEP" slurm-config --hosts hosts.txt -o bad
prints "it calls itself 'other'" "it has no slurmd" "gamma: it does not answer over ssh as 10.0.0.9: ssh: connect to host 10.0.0.9"

# Bad input.
expect 2 "$LOCKSTEP" slurm-config --hosts none.txt -o bad
printf 'alpha\n' >one.txt
expect 2 "$LOCKSTEP" slurm-config --hosts one.txt -o bad
says "one.txt lists 1 hosts; a cluster of 2 to 16"
expect 2 "$LOCKSTEP" slurm-config --hosts hosts.txt -o bad --local
says "can't be combined"
expect 2 "$LOCKSTEP" slurm-config --hosts hosts.txt -o bad --shared nowhere
says "the shared folder nowhere does not exist"
finish
