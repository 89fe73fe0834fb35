#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All-reduce on one host beside OpenMPI and Gloo, runs in turn (A B C, C B A, ...), median of the rounds' ratios. Usage:
#   bench/allreduce_pairs.sh [--peer PYTHON] [--rounds N] [--ranks "2 4"] [--sizes "1024 16384 ..."] [--batch-ms MS] [--without NAME]...
# float32, sum, in place, correctness checked before each timing. A round is one run per contender and rank count; a run takes the median of
# five batches per size. Contenders:
#   lockstep  'lockstep bench allreduce'; the binary: LOCKSTEP, default build/release/lockstep
#   openmpi   bench/allreduce_mpi.c, compiled here by mpicc (Debian: openmpi-bin libopenmpi-dev). Its default settings; where ranks exceed
#             cores also --oversubscribe and mpi_yield_when_idle, without which it gets nowhere
#   gloo      bench/allreduce_gloo.py under PYTHON, an interpreter that has torch (PyPI: torch)
# Beside them stand N processes that copy the same bytes at the same time, the limit of a direct all-reduce; 'lockstep bench allreduce' measures
# them in turn with its own calls.
# A contender that is not installed is left out, and said so. The table goes to stdout, all runs to runs/bench/allreduce.jsonl.
set -eu
cd "$(dirname "$0")/.."
usage() { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
peer="" rounds=5 ranks="2 4" sizes="1024 16384 262144 1048576 16777216 67108864" batch_ms=30 without=" "
while [ $# -gt 0 ]; do
    case $1 in
    --peer) peer=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    --sizes) sizes=$2; shift 2 ;;
    --batch-ms) batch_ms=$2; shift 2 ;;
    --without) without+="$2 "; shift 2 ;;
    *) usage ;;
    esac
done
lockstep=${LOCKSTEP:-build/release/lockstep}
cores=$(nproc) runs=runs/bench/allreduce.jsonl batches=5
mkdir -p runs/bench
: > "$runs"

contenders=()
add() { # add NAME REASON COMMAND...: a contender, when the command succeeds
    local name=$1 reason=$2
    shift 2
    case $without in *" $name "*) return ;; esac
    if "$@" >/dev/null 2>&1; then contenders+=("$name"); else echo "without $name: $reason" >&2; fi
}
add lockstep "no $lockstep: build it" test -x "$lockstep"
add openmpi "no mpicc or mpirun (Debian: openmpi-bin libopenmpi-dev)" eval 'command -v mpirun && mpicc -O2 bench/allreduce_mpi.c -o runs/bench/allreduce_mpi'
add gloo "give --peer PYTHON, one that has torch" "${peer:-false}" -c "import torch.distributed"

run() { # run NAME RANKS: one JSON object
    case $1 in
    lockstep) timeout 120 "$lockstep" bench allreduce --ranks "$2" --bytes "${sizes// /,}" --rounds "$batches" --json ;;
    openmpi)
        local more=()
        [ "$2" -le "$cores" ] || more=(--oversubscribe --mca mpi_yield_when_idle 1)
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            timeout 120 mpirun "${more[@]}" -np "$2" runs/bench/allreduce_mpi "$batches" "$batch_ms" $sizes ;;
    gloo) timeout 120 "$peer" bench/allreduce_gloo.py --ranks "$2" --batches "$batches" --batch-ms "$batch_ms" $sizes ;;
    esac
}
for count in $ranks; do
    for round in $(seq "$rounds"); do
        order=("${contenders[@]}")
        [ $((round % 2)) = 1 ] || order=($(printf '%s\n' "${contenders[@]}" | tac))
        for name in "${order[@]}"; do
            if run "$name" "$count" > runs/bench/one.json 2> runs/bench/one.err; then
                python3 -c 'import json, sys; print(json.dumps({"round": int(sys.argv[1]), "ranks": int(sys.argv[2]), "who": sys.argv[3], "run": json.load(sys.stdin)}))' \
                    "$round" "$count" "$name" < runs/bench/one.json >> "$runs"
            else
                echo "$name, $count ranks, round $round failed:" >&2
                tail -n 5 runs/bench/one.err >&2
            fi
        done
        echo "$count ranks: round $round of $rounds done, $SECONDS s" >&2
    done
done
python3 bench/allreduce_table.py "$runs" --json runs/bench/allreduce.json
