#!/usr/bin/env bash
# The example as a user starts it: processes that know of each other by environment variables alone.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
program=$LS_BUILD_DIR/example_allreduce

# start SIZE ARGUMENTS...: a process per rank, texts in rank-N, exit codes in codes.
start() {
    local size=$1 rank pids=()
    shift
    export WORLD_SIZE=$size MASTER_ADDR=127.0.0.1
    MASTER_PORT=$((20000 + RANDOM % 12000)) # free, or the run is tried again
    export MASTER_PORT
    for ((rank = 0; rank < size; rank++)); do
        RANK=$rank timeout 60 "$program" "$@" >"rank-$rank" 2>&1 </dev/null &
        pids+=($!)
    done
    codes=
    for pid in "${pids[@]}"; do
        wait "$pid"
        codes="$codes$? "
    done
}
start_anywhere() {
    for _ in 1 2 3; do
        start "$@"
        grep -q 'in use\|is taken' rank-0 || return
    done
}
check() { # WHAT COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || { fail "$what"; head -c 2000 rank-*; }
}

for size in 1 2 3 4; do
    start_anywhere $size
    check "$size ranks end well, not with $codes" [ "$codes" = "$(printf '0 %.0s' $(seq $size))" ]
    check "$size ranks print the sum" grep -q "rank 0 of $size on host 0: 10 sums of 1000000 elements are $((size * (size + 1) / 2))" rank-0
done

start_anywhere 3 --wrong 1
check "a wrong rank ends all with 6, not $codes" [ "$codes" = "6 6 6 " ]
for rank in 0 1 2; do
    check "rank $rank names the wrong call" grep -q 'rank 1 (.* called broadcast of 1000000 f32 root 0 (examples/allreduce.c:' "rank-$rank"
    check "rank $rank names the right one" grep -q '2 of 3 agree on all_reduce sum of 1000000 f32' "rank-$rank"
done

expect 2 "$program" --nonsense
export WORLD_SIZE=two RANK=0
expect 2 "$program"
grep -q WORLD_SIZE "$err" || fail "a bad variable is named"
finish
