#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Collectives between hosts made of namespaces: the address is found, a slow link is only slow, a link that is cut is named by all, and nobody
# hangs or stays behind.
set -u
: "${LS_SOURCE_DIR:=$(cd "$(dirname "$0")/../../.." && pwd)}" "${LS_BUILD_DIR:=$LS_SOURCE_DIR/build/release}"
. "$LS_SOURCE_DIR/tests/lib/netns.sh"
netns_as_root "$0" "$@"
bench=$LS_BUILD_DIR/bench_comm_net
[ -x "$bench" ] || { echo "skipped: no $bench (it is built in Release)"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
netns_begin 3 2
failures=0
fail() {
    failures=$((failures + 1))
    echo "FAIL: $*"
    head -c 400 "$scratch"/rank-*
}

# start ARGUMENTS...: a rank on each host; rank-N has what it says.
port=4700
start() {
    local rank
    pids=() port=$((port + 1))
    for rank in 2 1 0; do
        LOCKSTEP_HOST=$rank LOCKSTEP_RANK=$rank LOCKSTEP_SIZE=3 LOCKSTEP_COORDINATOR=$(netns_address 0):$port LOCKSTEP_TOKEN=00112233445566778899aabbccddeeff \
            netns_exec "$rank" timeout -s KILL 60 "$bench" $([ "$rank" -eq 0 ] && echo --serve) "$@" >"$scratch/rank-$rank" 2>&1 &
        pids[$rank]=$!
    done
}

start --seconds 0.2 --timeout 20 1024 1048576
for rank in 0 1 2; do wait "${pids[$rank]}" || fail "rank $rank ends with $?"; done
[ "$(grep -c ' us ' "$scratch/rank-0")" -eq 2 ] || fail "two sizes are measured"

start --any-order --seconds 0.2 --timeout 20 1048576
for rank in 0 1 2; do wait "${pids[$rank]}" || fail "rank $rank ends with $? in a ring"; done

netns_slow 1 20mbit
start --seconds 0.2 --timeout 30 262144
for rank in 0 1 2; do wait "${pids[$rank]}" || fail "rank $rank ends with $? behind a slow link"; done
netns_slow 1 ""

for how in port down; do
    netns_rate 0 1gbit
    start --seconds 50 --timeout 10 4194304
    sleep 2
    begin=$SECONDS
    netns_cut 1 $how
    netns_cut 1 $how 1
    for rank in 0 1 2; do
        wait "${pids[$rank]}"
        code=$?
        [ $code -eq 5 ] || [ $code -eq 1 ] || fail "cut ($how): rank $rank ends with $code"
    done
    [ $((SECONDS - begin)) -le 20 ] || fail "cut ($how): took $((SECONDS - begin)) s"
    grep -q 'rank 1 (' "$scratch/rank-0" || fail "cut ($how): rank 0 does not name rank 1"
    grep -q 'rank 1 (' "$scratch/rank-2" || fail "cut ($how): rank 2 does not name rank 1"
    grep -q 'rank [02] (' "$scratch/rank-1" || fail "cut ($how): rank 1 names nobody"
    netns_mend 1
    netns_mend 1 1
done
cat "$scratch"/rank-*
[ -z "$(netns_processes)" ] || fail "something stays behind"
exit $((failures > 0))
