#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Three hosts that stream a token set for three epochs, each with a cache of its own: with data.share_blocks they fetch each block from the bucket
# once. The bits are those of one process.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"
. "$LS_SOURCE_DIR/tests/lib/s3.sh"
export LOCKSTEP_TOKEN=$token
s3_start 3 10.77.0.4
write_text text.txt 800 3
expect 0 netns_run 0 "$LOCKSTEP" data prepare text.txt --tokenizer bytes --to s3://bucket/set
sed 's|^data:.*|data: {train: ["s3://bucket/set"], validation_fraction: 0}|; /^  steps:/d' tiny.yaml >set.yaml
train=("$LOCKSTEP" train set.yaml --json --threads 1 --set model.context=512 --set model.layers=1 --set train.epochs=3 --set train.global_batch=6
    --set eval.every_steps=0 --set checkpoint.every_steps=100)
# fetched: how often each block of the set was fetched, in the mean, and of how many blocks.
fetched() {
    python3 - <<'PY'
import re
count = {}
for line in open("s3/asked"):
    ranged = re.match(r"GET /bucket/set/0\S* 0 bytes=(\d+)-(\d+)", line)
    for block in range(int(ranged[1]) // 1024, int(ranged[2]) // 1024 + 1) if ranged else ():
        count[block] = count.get(block, 0) + 1
print(f"{sum(count.values()) / max(1, len(count)):.2f} {len(count)}")
PY
}
# run NAME ARGUMENT...: on three hosts, each with a home of its own.
run() {
    local name=$1 host agents=()
    shift
    : >s3/asked
    for host in 1 2; do
        background "$name-$host" $host env LOCKSTEP_HOME="$scratch/$name-home$host" "$LOCKSTEP" agent --coordinator 10.77.0.1:29911 --slots 1
        agents[host]=$pid
    done
    expect 0 netns_run 0 env LOCKSTEP_HOME="$scratch/$name-home0" "${train[@]}" --run-dir "$name" --ranks 3 --local-ranks 1 --coordinator 10.77.0.1:29911 "$@"
    got=$(hashes "$out")
    read -r times blocks <<<"$(fetched)"
    echo "$name: each of $blocks blocks fetched $times times"
    for host in 1 2; do ended "$name-$host" "${agents[host]}" 0; done
}
expect 0 netns_run 0 "${train[@]}" --run-dir one --ranks 1
reference=$(hashes "$out")
run apart
same "each host for itself" "$got" "$reference"
check "each host fetches what it reads" test "${times/./}" -ge 200
run shared --set data.share_blocks=true
same "shared" "$got" "$reference"
check "together they fetch each block once, but for those that two want at the same moment" test "${times/./}" -le 150
finish
