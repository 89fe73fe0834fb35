# SPDX-License-Identifier: Apache-2.0
# Hosts made of namespaces, for tests and benches: N of them on one switch, with links that can be slowed and cut. Source it in bash.
#
#   . tests/lib/netns.sh
#   netns_begin 4                      host 0..3, named host0..host3, with 10.77.0.1..4; exits with 77 and the reason where that is not permitted
#   netns_rate 0 1gbit                 host 0 sends at most that
#   netns_run 2 lockstep agent ...     in host 2, to the end
#   netns_exec 3 lockstep agent ... &  in the background: $! is the program itself
#   netns_cut 1                        nothing comes or goes any more; netns_mend 1 ends that
#
# A host has its own network, host name, /sys and /dev/shm, so that a program that asks whether two processes share a host is told no. It
# shares files and process numbers with all others: a test can stop and kill what runs in it.
#
# Namespaces have no names here and live as long as the processes in them: the holders, which the kernel kills with this shell, and what
# netns_run and netns_exec start, likewise. So two tests at once do not meet, and nothing stays behind, not even after kill -9. What the
# programs themselves started is killed by netns_end, which runs at the end of the shell (an EXIT trap, put before one that is set already).
# All functions belong into the main shell: what is started in a ( subshell ) ends with that.

netns_holders=() # process number per host
netns_switch=""  # process number of the switch's holder

netns_skip() {
    echo "skipped: $*"
    exit 77
}

# netns_as_root SCRIPT ARGUMENTS...: goes on as root of a user namespace where this user may have one. First line of a script: netns_as_root "$0" "$@"
netns_as_root() {
    [ "$(id -u)" -ne 0 ] || return 0
    unshare -r -n -m true 2>/dev/null || netns_skip "namespaces need root, or user namespaces"
    exec unshare -r -n -m bash "$@"
}

# ip and tc may lie where only the PATH of root leads.
netns_find_programs() {
    local program
    PATH=$PATH:/usr/sbin:/sbin
    for program in ip bridge tc nsenter unshare setpriv hostname; do
        command -v "$program" >/dev/null || netns_skip "no program '$program' (Debian: iproute2, util-linux)"
    done
}

# Starts a process that holds new namespaces open, and waits until it does. Sets netns_holder.
netns_hold() {
    local mine tries=0
    mine=$(readlink /proc/self/ns/net)
    setpriv --pdeathsig KILL unshare --net --mount --uts sleep 7200 </dev/null >/dev/null 2>&1 &
    netns_holder=$!
    disown "$netns_holder"
    while [ "$(readlink "/proc/$netns_holder/ns/uts" 2>/dev/null)" = "$(readlink /proc/self/ns/uts)" ] ||
        [ "$(readlink "/proc/$netns_holder/ns/net" 2>/dev/null)" = "$mine" ]; do
        tries=$((tries + 1))
        [ -d "/proc/$netns_holder" ] && [ $tries -lt 500 ] || netns_skip "namespaces are not permitted here"
        sleep 0.01
    done
}

# netns_inside PID COMMAND...: runs it in the namespaces of a holder, in the folder of this shell.
netns_inside() {
    local pid=$1
    shift
    nsenter --target "$pid" --net --mount --uts --wdns="$PWD" -- "$@"
}

# netns_begin HOSTS [NETWORKS]: host I has one interface per network, eth0, eth1, ..., with address 10.77.NETWORK.(I + 1).
netns_begin() {
    local hosts=$1 networks=${2:-1} host network ends
    [ -z "$netns_switch" ] || { echo "netns_begin: there are hosts already, netns_end first" >&2; return 1; }
    netns_find_programs
    ends=$(trap -p EXIT)
    eval "set -- $ends" # trap -- 'what is set' EXIT
    trap "netns_end; ${3:-}" EXIT
    netns_hold
    netns_switch=$netns_holder
    for ((network = 0; network < networks; network++)); do
        netns_inside "$netns_switch" ip link add "switch$network" type bridge stp_state 0 forward_delay 0 mcast_snooping 0 ||
            netns_skip "no network of our own: bridges are not permitted or not in this kernel"
        netns_inside "$netns_switch" ip link set "switch$network" up
    done
    for ((host = 0; host < hosts; host++)); do
        netns_hold
        netns_holders+=("$netns_holder")
        netns_inside "$netns_holder" sh -c "
            hostname host$host && mount -t sysfs sysfs /sys && mount -t tmpfs -o size=1g tmpfs /dev/shm && ip link set lo up" ||
            netns_skip "mounting in a namespace is not permitted"
        for ((network = 0; network < networks; network++)); do
            netns_connect "$host" "$network"
        done
    done
}

# Host HOST gets an interface on network NETWORK; the other end is the switch's port HOST.NETWORK.
netns_connect() {
    local host=$1 network=$2
    netns_inside "$netns_switch" ip link add "port$host.$network" type veth peer name "eth$network" netns "${netns_holders[$host]}" ||
        netns_skip "no veth pair in this kernel"
    netns_inside "$netns_switch" ip link set "port$host.$network" master "switch$network" up
    netns_inside "${netns_holders[$host]}" ip address add "$(netns_address "$host" "$network")/24" dev "eth$network"
    netns_inside "${netns_holders[$host]}" ip link set "eth$network" up
}

# netns_address HOST [NETWORK]
netns_address() { echo "10.77.${2:-0}.$(($1 + 1))"; }

# netns_run HOST COMMAND...: to the end; its exit code.
netns_run() {
    local host=$1
    shift
    netns_inside "${netns_holders[$host]}" setpriv --pdeathsig KILL "$@"
}

# netns_exec HOST COMMAND... &: for the background; $! is the command's own process.
netns_exec() {
    local host=$1
    shift
    exec nsenter --target "${netns_holders[$host]}" --net --mount --uts --wdns="$PWD" -- setpriv --pdeathsig KILL "$@"
}

# netns_write_ssh FILE: a program in the place of ssh: FILE [options] HOST COMMAND... runs the words in the host with that name or address.
netns_write_ssh() {
    local host network
    {
        echo '#!/bin/bash'
        echo '# Options of ssh are passed over, those with a value together with it.'
        echo 'while [ $# -gt 0 ]; do case $1 in -[bcDEeFIiJLlmOopQRSWw]) shift 2 ;; -*) shift ;; *) break ;; esac; done'
        echo 'name=${1#*@}; shift; [ "${1:-}" != -- ] || shift'
        echo 'case $name in'
        for host in "${!netns_holders[@]}"; do
            printf 'host%d' "$host"
            for network in 0 1 2 3; do printf '|%s' "$(netns_address "$host" "$network")"; done
            printf ') holder=%d ;;\n' "${netns_holders[$host]}"
        done
        echo '*) echo "ssh: Could not resolve hostname $name" >&2; exit 255 ;;'
        echo 'esac'
        echo '[ -d "${HOME:-}" ] || HOME=/'
        echo 'exec nsenter --target "$holder" --net --mount --uts --wdns="$HOME" -- /bin/sh -c "$*"'
    } >"$1"
    chmod +x "$1"
}

# netns_rate HOST RATE [NETWORK]: what the host sends; a rate as tc knows it (1gbit, 20mbit). "" ends that.
netns_rate() {
    netns_inside "${netns_holders[$1]}" tc qdisc del dev "eth${3:-0}" root 2>/dev/null || true
    [ -n "$2" ] || return 0
    netns_inside "${netns_holders[$1]}" tc qdisc add dev "eth${3:-0}" root tbf rate "$2" burst 256k latency 50ms ||
        netns_skip "no token bucket filter (sch_tbf) in this kernel"
}

# netns_slow HOST RATE [NETWORK]: what the host sends and what it receives. "" ends that.
netns_slow() {
    netns_rate "$1" "$2" "${3:-0}"
    netns_inside "$netns_switch" tc qdisc del dev "port$1.${3:-0}" root 2>/dev/null || true
    [ -n "$2" ] || return 0
    netns_inside "$netns_switch" tc qdisc add dev "port$1.${3:-0}" root tbf rate "$2" burst 256k latency 50ms
}

# netns_cut HOST [HOW [NETWORK]]: HOW is one of
#   port   the switch's port is shut: the cable looks plugged in, every frame is lost in silence (default)
#   down   the cable is pulled: the host sees its carrier go
#   in     what others send to the host is lost, what it sends arrives; needs nft
#   out    the other way round; needs nft
netns_cut() {
    local port=port$1.${3:-0}
    case ${2:-port} in
    port) netns_inside "$netns_switch" bridge link set dev "$port" state 0 ;;
    down) netns_inside "$netns_switch" ip link set "$port" down ;;
    in) netns_drop "oifname $port" ;;
    out) netns_drop "iifname $port" ;;
    *) echo "netns_cut: '$2' is not port, down, in or out" >&2; return 1 ;;
    esac
}

netns_drop() {
    command -v nft >/dev/null || netns_skip "no program 'nft' (Debian: nftables)"
    netns_inside "$netns_switch" nft -f - <<NFT || netns_skip "no bridge filter in this kernel"
add table bridge cut
add chain bridge cut forward { type filter hook forward priority 0; }
add rule bridge cut forward $1 drop
NFT
}

# netns_mend HOST [NETWORK]: ends every cut of this host, and what was dropped one way for any host.
netns_mend() {
    local port=port$1.${2:-0}
    netns_inside "$netns_switch" nft delete table bridge cut 2>/dev/null || true
    netns_inside "$netns_switch" ip link set "$port" up
    netns_inside "$netns_switch" bridge link set dev "$port" state 3
}

# netns_processes: the process numbers of all that runs in the hosts, without the holders.
netns_processes() {
    find /proc/[0-9]*/ns/net -maxdepth 0 -printf '%l %p\n' 2>/dev/null | awk -v holders="${netns_holders[*]}" '
        { split($2, part, "/"); space[part[3]] = $1 }
        END {
            for (i = split(holders, holder, " "); i > 0; i--) { is_host[space[holder[i]]] = 1; is_holder[holder[i]] = 1 }
            for (pid in space) if (space[pid] != "" && is_host[space[pid]] && !is_holder[pid]) print pid
        }'
}

# netns_end: ends what runs in the hosts, then the hosts. Nothing to do: nothing done.
netns_end() {
    local pids
    [ -n "$netns_switch" ] || return 0
    pids=$(netns_processes)
    [ -z "$pids" ] || kill -9 $pids 2>/dev/null || true
    kill -9 "${netns_holders[@]}" "$netns_switch" 2>/dev/null || true
    netns_holders=() netns_switch=""
    return 0
}
