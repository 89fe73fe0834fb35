#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The hosts that other tests use: they reach each other, links are cut and slowed and mended, and nothing stays behind.
set -u
: "${LS_SOURCE_DIR:=$(cd "$(dirname "$0")/../.." && pwd)}"
if [ "${1:-}" = victim ]; then # what the second half of this test interrupts
    . "$LS_SOURCE_DIR/tests/lib/netns.sh"
    netns_begin 2
    netns_exec 0 sleep 371 &
    netns_exec 1 sh -c 'sleep 372 & sleep 373' &
    readlink "/proc/${netns_holders[0]}/ns/net" "/proc/${netns_holders[1]}/ns/net" "/proc/$netns_switch/ns/net" >"$2.part"
    mv "$2.part" "$2"
    wait
    exit
fi

. "$LS_SOURCE_DIR/tests/lib/netns.sh"
netns_as_root "$0" "$@"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
check() { # check WHAT COMMAND...
    local what=$1
    shift
    "$@" || { failures=$((failures + 1)); echo "FAIL: $what"; }
}
refuse() { # refuse WHAT COMMAND...
    local what=$1
    shift
    ! "$@" || { failures=$((failures + 1)); echo "FAIL: $what"; }
}

# hears FROM TO: of the lines that host FROM sends, one arrives at host TO within two seconds (after a cut, addresses are asked for once a second).
hears() {
    netns_exec "$1" python3 -c '
import socket, sys, time
while True:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", (sys.argv[1], 7000))
    time.sleep(0.05)' "$(netns_address "$2")" 2>/dev/null &
    local mouth=$! code
    disown "$mouth"
    netns_run "$2" timeout 2 python3 -c '
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[1], 7000))
sys.exit(s.recv(100) != b"hello")' "$(netns_address "$2")"
    code=$?
    kill -9 "$mouth"
    return $code
}
# Seconds that 4 MB from host 0 to host 1 take.
seconds_for_4_mb() {
    rm -f "$scratch/ears"
    netns_run 1 timeout 20 python3 -c '
import socket, sys, time
s = socket.create_server((sys.argv[1], 7001)); print("ready", flush=True)
c = s.accept()[0]; begun = time.time(); left = 4000000
while left:
    left -= len(c.recv(min(left, 65536)))
print(time.time() - begun)' "$(netns_address 1)" >"$scratch/ears" &
    local ears=$! try
    for try in $(seq 100); do [ -s "$scratch/ears" ] && break; sleep 0.01; done
    netns_run 0 timeout 20 python3 -c '
import socket, sys
s = socket.create_connection((sys.argv[1], 7001)); s.sendall(bytes(4000000))' "$(netns_address 1)"
    wait "$ears"
    sed -n 2p "$scratch/ears"
}
carrier() { netns_run "$1" cat /sys/class/net/eth0/carrier; }

netns_begin 3 2
check "host 0 reaches host 2" hears 0 2
check "host 2 reaches host 0" hears 2 0
check "host 1 is on the second network too" netns_run 1 sh -c 'ip -o address show eth1 | grep -q 10.77.1.2/24'
check "a host has its own name" [ "$(netns_run 2 uname -n)" = host2 ]
check "a host has its own /dev/shm" netns_run 0 sh -c "echo x > /dev/shm/mine; [ -f /dev/shm/mine ]"
refuse "/dev/shm of host 0 is seen by host 1" netns_run 1 test -e /dev/shm/mine
check "files are shared" netns_run 1 test -d "$scratch"
check "the folder stays" [ "$(netns_run 1 pwd)" = "$PWD" ]
check "an exit code comes back" [ "$(netns_run 1 sh -c 'exit 9'; echo $?)" = 9 ]

netns_cut 1
refuse "a shut port lets frames in" hears 0 1
refuse "a shut port lets frames out" hears 1 0
check "a shut port keeps the carrier" [ "$(carrier 1)" = 1 ]
check "others go on" hears 0 2
netns_mend 1
check "a mended port works" hears 0 1
netns_cut 1 down
check "a pulled cable is seen" [ "$(carrier 1)" = 0 ]
netns_mend 1
check "a cable put back works" hears 1 0
if command -v nft >/dev/null; then
    netns_run 0 ip neighbour replace "$(netns_address 1)" lladdr "$(netns_run 1 cat /sys/class/net/eth0/address)" dev eth0
    netns_run 1 ip neighbour replace "$(netns_address 0)" lladdr "$(netns_run 0 cat /sys/class/net/eth0/address)" dev eth0
    netns_cut 1 in
    refuse "what is dropped on its way in arrives" hears 0 1
    check "the other direction is open" hears 1 0
    netns_mend 1
    netns_cut 1 out
    check "dropped on its way out: in is open" hears 0 1
    refuse "what is dropped on its way out arrives" hears 1 0
    netns_mend 1
    check "mended after a drop" hears 1 0
fi

fast=$(seconds_for_4_mb)
netns_rate 0 20mbit # 4 MB in 1.6 s, less what the bucket holds
slow=$(seconds_for_4_mb)
netns_rate 0 ""
netns_slow 1 20mbit
received=$(seconds_for_4_mb)
netns_slow 1 ""
echo "4 MB: $fast s, at 20 Mbit/s $slow s to send, $received s to receive"
check "a rate slows a sender" python3 -c "import sys; sys.exit(not 1.2 < float('$slow') < 6)"
check "a slow link slows a receiver" python3 -c "import sys; sys.exit(not 1.2 < float('$received') < 6)"
check "without a rate it is fast" python3 -c "import sys; sys.exit(not float('$fast') < 1)"

netns_write_ssh "$scratch/ssh"
check "ssh by name" [ "$("$scratch/ssh" -o BatchMode=yes -p 22 host1 'uname -n; true')" = host1 ]
check "ssh by address" [ "$("$scratch/ssh" root@10.77.0.3 uname -n)" = host2 ]
refuse "ssh to a host that is not there" "$scratch/ssh" host9 true 2>/dev/null

netns_exec 2 sleep 370 &
sleeper=$!
disown $sleeper
sleep 0.2
check "netns_exec: the number is the program's" grep -qx sleep "/proc/$sleeper/comm"
spaces=$(for pid in "${netns_holders[@]}" "$netns_switch"; do readlink "/proc/$pid/ns/net"; done)
netns_end
netns_end # a second time: nothing

# gone SPACES...: within five seconds no process is left in any of these network namespaces.
gone() {
    local try space
    for try in $(seq 50); do
        local left=0
        for space in "$@"; do
            readlink /proc/[0-9]*/ns/net 2>/dev/null | grep -qxF "$space" && left=1
        done
        [ $left = 0 ] && return 0
        sleep 0.1
    done
    return 1
}
check "netns_end ends everything" gone $spaces
for signal in TERM HUP KILL; do
    rm -f "$scratch/spaces"
    setsid bash "$0" victim "$scratch/spaces" &
    victim=$!
    for try in $(seq 300); do [ -s "$scratch/spaces" ] && break; sleep 0.05; done
    check "the victim of $signal has begun" [ -s "$scratch/spaces" ]
    kill -s $signal "$victim"
    wait "$victim" 2>/dev/null
    # After SIGKILL a child of a program in the host is nobody's: it is ended here, the hosts end by themselves.
    [ $signal != KILL ] || for link in /proc/[0-9]*/ns/net; do
        pid=${link#/proc/} pid=${pid%%/*}
        grep -qxF "$(readlink "$link" || echo none)" "$scratch/spaces" && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -q '^sleep 37[23]' && kill -9 "$pid"
    done
    check "nothing is left after SIG$signal" gone $(cat "$scratch/spaces")
done
echo "$failures failures"
[ $failures -eq 0 ]
