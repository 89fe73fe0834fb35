# SPDX-License-Identifier: Apache-2.0
# A private Slurm cluster for a test, run by an ordinary user ("nobody" when the test runs as root; root when it says slurm_root=yes). Source it behind
# tests/cli/lib.sh:
#
#   slurm_need                   ends the test with 77 where Slurm is not installed
#   slurm_up NODES [OPTION...]   starts it; $slurm is its folder, SLURM_CONF is exported. OPTION: of lockstep slurm-config. A test that has a function
#                                slurm_edit changes the files there first
#   slurm_as COMMAND...          runs a command as its user; $slurm/lockstep is the program under test, where that user can run it
#   slurm_lose NODE              ends the node's slurmd and all that runs there, as a machine that loses power would
#   slurm_down                   stops it; done anyway when the test ends

slurm="" slurm_root=no

slurm_need() {
    PATH=$PATH:/usr/sbin:/sbin
    local program
    for program in slurmctld slurmd munged srun sbatch; do
        command -v "$program" >/dev/null || {
            echo "skipped: no $program here (Debian: slurmctld slurmd slurm-client munge slurm-wlm-basic-plugins)"
            exit 77
        }
    done
}

slurm_as() {
    if [ "$(id -u)" -eq 0 ] && [ "$slurm_root" = no ]; then
        setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups env HOME="$slurm" TMPDIR="$slurm" "$@"
    else
        "$@"
    fi
}

slurm_up() {
    local nodes=$1 port
    shift
    slurm=$(mktemp -d /tmp/lockstep-slurm-XXXXXX)
    trap 'slurm_down; clean_up' EXIT
    cp "$LOCKSTEP" "$slurm/lockstep" # where that user can reach it
    chmod 755 "$slurm" "$slurm/lockstep"
    [ "$(id -u)" -ne 0 ] || [ "$slurm_root" = yes ] || chown nobody "$slurm"
    # Others may run a cluster on this machine: which ports depends on the process. All below 32768, where the kernel takes ports for connections.
    port=$((17000 + $$ % 90 * 30))
    while (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do port=$((port < 19670 ? port + 30 : 17000)); done
    slurm_as "$slurm/lockstep" slurm-config --local --nodes "$nodes" --port "$port" -o "$slurm" "$@" >/dev/null || exit 1
    echo "FirstJobId=$((100 + $$ % 300 * 40))" >>"$slurm/slurm.conf" # the port where a job's nodes meet goes by its number
    ! declare -F slurm_edit >/dev/null || slurm_edit
    slurm_as "$slurm/start" || {
        tail -n 20 "$slurm"/log/*.log
        exit 1
    }
    export SLURM_CONF=$slurm/slurm.conf
}

# All at once: nobody is left to tell how the others ended. The youngest first: the kernel sends SIGHUP and SIGCONT to stopped processes whose parent has
# gone, and an agent that still gets them reports that a signal ended it.
slurm_lose() {
    local process parent there
    there=$(for process in /proc/[0-9]*; do
        grep -qzsxF "SLURMD_NODENAME=$1" "$process/environ" && grep -qzsxF "SLURM_CONF=$SLURM_CONF" "$process/environ" || continue
        echo "${process#/proc/}"
        parent=$(sed -n 's/^PPid:\t//p' "$process/status" 2>/dev/null)
        [ "$(cat "/proc/$parent/comm" 2>/dev/null)" != slurmstepd ] || echo "$parent"
    done | sort -u)
    there=$(ps -o pid= --sort=-start_time -p "$(cat "$slurm/run/$1.pid") $(echo $there)")
    kill -STOP $there
    kill -9 $there
}

slurm_down() {
    local daemon
    daemon=$(cat "$slurm/home/lock" 2>/dev/null | tr -dc 0-9) # of a test that did not come to its end
    [ -z "$daemon" ] || ! grep -qa "^$slurm/lockstep" "/proc/$daemon/cmdline" 2>/dev/null || kill -9 "$daemon"
    [ -z "$slurm" ] || slurm_as "$slurm/stop"
    [ -z "$slurm" ] || rm -rf "$slurm"
    slurm=""
}
