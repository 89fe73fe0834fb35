#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce between N hosts made of network namespaces, each link limited to RATE, against the limit of the link. Needs root and iproute2.
#
#   bench/netns_allreduce.sh [--ranks 4] [--rate 1gbit|""] [--mbps PAYLOAD] [--seconds S] [-- arguments of bench_comm_net]
#
# The limit of an all-reduce is 2 (N - 1) / N * bytes / payload rate; 1 Gbit/s of Ethernet frames of 1,500 bytes carries 119.6 MB/s of payload.
# Against other libraries: bench/netns_pairs.sh.
set -u
cd "$(dirname "$0")/.."
. tests/lib/netns.sh
netns_as_root "$0" "$@"
ranks=4 rate=1gbit mbps=119.6 seconds=2
while [ $# -gt 0 ]; do
    case $1 in
    --ranks) ranks=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --mbps) mbps=$2; shift 2 ;;
    --seconds) seconds=$2; shift 2 ;;
    --) shift; break ;;
    *) sed -n '3,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
[ -n "$rate" ] || mbps=0
bench=${BENCH_COMM_NET:-build/release/bench_comm_net}
[ -x "$bench" ] || { echo "no $bench: cmake --preset release && cmake --build build/release --target bench_comm_net" >&2; exit 1; }
netns_begin "$ranks"
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
pids=()
for ((rank = 0; rank < ranks; rank++)); do netns_rate "$rank" "$rate"; done
for ((rank = ranks - 1; rank >= 0; rank--)); do
    serve=$([ "$rank" -eq 0 ] && echo --serve)
    LOCKSTEP_HOST=$rank LOCKSTEP_RANK=$rank LOCKSTEP_SIZE=$ranks LOCKSTEP_COORDINATOR=$(netns_address 0):4711 LOCKSTEP_TOKEN=$token \
        netns_exec "$rank" timeout 300 "$bench" $serve --mbps "$mbps" --seconds "$seconds" "$@" &
    pids+=($!)
done
code=0
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit $code
