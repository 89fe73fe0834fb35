#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce across hosts beside OpenMPI over TCP and Gloo: one rank in each of N network namespaces, links of RATE, runs in turn (A B C,
# C B A, ...), median of the rounds' ratios, and the share of the links' limit that we reach. Usage:
#   bench/netns_pairs.sh [--peer PYTHON] [--rounds N] [--hosts N] [--rate 1gbit] [--sizes "1024 16777216 ..."] [--batch-ms MS] [--without NAME]...
# The limit of a ring is 2(N-1)/N * bytes / payload; at 1 Gbit/s a link carries 119.6 MB/s of payload in Ethernet frames of 1,500 bytes
# (other rates in proportion; --rate "" leaves links unlimited and the share out). Contenders: lockstep (bench/bench_comm_net.c: the collectives
# library, sums in the order of the tree; BENCH_COMM_NET, default build/release/bench_comm_net), openmpi and gloo as in bench/allreduce_pairs.sh. OpenMPI
# is held to TCP by having its ranks on different hosts. Needs root, iproute2. The table goes to stdout, all runs to runs/bench/netns.jsonl.
set -eu
cd "$(dirname "$0")/.."
usage() { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
peer="" rounds=5 hosts=4 rate=1gbit sizes="1024 16384 262144 1048576 16777216" batch_ms=100 without=" "
while [ $# -gt 0 ]; do
    case $1 in
    --peer) peer=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --hosts) hosts=$2; shift 2 ;;
    --rate) rate=$2; shift 2 ;;
    --sizes) sizes=$2; shift 2 ;;
    --batch-ms) batch_ms=$2; shift 2 ;;
    --without) without+="$2 "; shift 2 ;;
    *) usage ;;
    esac
done
lockstep=$(realpath -m "${BENCH_COMM_NET:-build/release/bench_comm_net}") runs=runs/bench/netns.jsonl batches=3
mkdir -p runs/bench
: > "$runs"

contenders=()
add() { # add NAME REASON COMMAND...: a contender, when the command succeeds
    local name=$1 reason=$2
    shift 2
    case $without in *" $name "*) return ;; esac
    if "$@" >/dev/null 2>&1; then contenders+=("$name"); else echo "without $name: $reason" >&2; fi
}
add lockstep "no $lockstep: cmake --build build/release --target bench_comm_net" test -x "$lockstep"
add openmpi "no mpicc or mpirun (Debian: openmpi-bin libopenmpi-dev)" eval 'command -v mpirun && mpicc -O2 bench/allreduce_mpi.c -o runs/bench/allreduce_mpi'
add gloo "give --peer PYTHON, one that has torch" "${peer:-false}" -c "import torch.distributed"

. tests/lib/netns.sh
netns_begin "$hosts"
for ((host = 0; host < hosts; host++)); do netns_rate "$host" "$rate"; done
netns_write_ssh runs/bench/netns_ssh

# as_ranks COMMAND...: one in each host, with the variables of its launcher; rank 0 prints. Each run has a port of its own.
port=29500 token=""
as_ranks() {
    local host pids=() failed=0
    for ((host = hosts - 1; host >= 0; host--)); do
        RANK=$host WORLD_SIZE=$hosts LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=$(netns_address 0) MASTER_PORT=$port \
            LOCKSTEP_HOST=$host LOCKSTEP_RANK=$host LOCKSTEP_SIZE=$hosts LOCKSTEP_COORDINATOR=$(netns_address 0):$port LOCKSTEP_TOKEN=$token \
            GLOO_SOCKET_IFNAME=eth0 netns_exec "$host" timeout 120 "$@" &
        pids+=($!)
    done
    for host in "${pids[@]}"; do wait "$host" || failed=1; done
    return $failed
}
run() { # run NAME: one JSON object
    case $1 in
    lockstep)
        token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
        as_ranks "$lockstep" --serve --seconds "$(python3 -c "print(7e-3 * $batch_ms)")" $sizes | python3 -c '
import json, re, sys
rows = [{"bytes": int(size), "us": float(us)} for size, us in re.findall(r"(\d+) bytes +([0-9.]+) us", sys.stdin.read())]
print(json.dumps({"results": rows})) if rows else sys.exit(1)' ;;
    openmpi)
        local list="" host
        for ((host = 0; host < hosts; host++)); do list+=${list:+,}$(netns_address "$host"):1; done
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 netns_run 0 timeout 120 mpirun -np "$hosts" --host "$list" \
            --mca plm_rsh_agent "$PWD/runs/bench/netns_ssh" --mca btl tcp,self --mca btl_tcp_if_include eth0 --mca oob_tcp_if_include eth0 \
            --mca mpi_yield_when_idle "$((hosts > $(nproc)))" "$PWD/runs/bench/allreduce_mpi" "$batches" "$batch_ms" $sizes ;;
    gloo) as_ranks "$peer" bench/allreduce_gloo.py --batches "$batches" --batch-ms "$batch_ms" $sizes ;;
    esac
}
for round in $(seq "$rounds"); do
    order=("${contenders[@]}")
    [ $((round % 2)) = 1 ] || order=($(printf '%s\n' "${contenders[@]}" | tac))
    for name in "${order[@]}"; do
        port=$((port + 1))
        if run "$name" > runs/bench/one.json 2> runs/bench/one.err; then
            python3 -c 'import json, sys; print(json.dumps({"round": int(sys.argv[1]), "ranks": int(sys.argv[2]), "who": sys.argv[3], "run": json.load(sys.stdin)}))' \
                "$round" "$hosts" "$name" < runs/bench/one.json >> "$runs"
        else
            echo "$name, round $round failed:" >&2
            tail -n 5 runs/bench/one.err >&2
        fi
    done
    echo "round $round of $rounds done, $SECONDS s" >&2
done
link=$(python3 -c '
import re, sys
number, unit = re.fullmatch(r"([0-9.]+)([kmg]?)bit", sys.argv[1] or "0bit").groups()
print(float(number) * {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}[unit] / 1e9 * 119.6e6)' "$rate")
python3 bench/allreduce_table.py "$runs" --link-bytes-ps "$link" --json runs/bench/netns.json
