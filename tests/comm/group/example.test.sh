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

# A recorder for each: its folder is made, and between calls a rank is in code of its own.
flight() { for _ in 1 2 3; do
    rm -rf recorded
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + RANDOM % 12000))
    RANK=0 LOCKSTEP_FLIGHT=recorded/flight/rank-0 "$program" >rank-0 2>&1 &
    RANK=1 LOCKSTEP_FLIGHT=recorded/flight/rank-1 "$program" >rank-1 2>&1
    wait
    grep -q 'in use\|is taken' rank-0 || return
done; }
flight
"$LOCKSTEP" diagnose recorded >table 2>&1
check "both ranks are in the table, in code of their own" [ "$(grep -c 'own code' table)" = 2 ]

# The ways to link that the guide names.
cached() { grep -q "^$1:[A-Z]*=$2\$" "$LS_BUILD_DIR/CMakeCache.txt"; }
if cached LS_SANITIZE '' && cached LS_COVERAGE OFF; then
    line=$(sed -n '/^    gcc .*-lls_comm/,/[^\\]$/p' "$LS_SOURCE_DIR/docs/guide/04-the-ring.md" | sed 's/^ *//')
    check "the guide has a line for gcc" [ -n "$line" ]
    cp "$LS_SOURCE_DIR/examples/allreduce.c" sum.c
    (here=$PWD; lockstep=$LS_SOURCE_DIR; eval "${line//\$lockstep\/build\/release/$LS_BUILD_DIR}") >link.log 2>&1
    check "it links a program: $(head -c 500 link.log)" [ -x sum ]
    expect 0 env WORLD_SIZE=1 RANK=0 ./sum
fi

expect 2 "$program" --nonsense
export WORLD_SIZE=two RANK=0
expect 2 "$program"
grep -q WORLD_SIZE "$err" || fail "a bad variable is named"
finish
