#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Compressed gradients between hosts: the bits of one process for 1, 2, 3 and 4 hosts, whole groups on a host or not; hosts that join.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=16 --set train.leaves=8 --set train.steps=9 --set checkpoint.every_steps=4
    --threads 1 --set train.schedule.warmup_steps=4)
cat /etc/hosts >hosts.etc
for host in 0 1 2 3; do printf '10.77.0.%d host%d\n' $((host + 1)) $host >>hosts.etc; done
for host in 0 1 2 3; do netns_inside "${netns_holders[$host]}" mount --bind hosts.etc /etc/hosts; done
hosts_file 2.hosts host0 "host1 slots=2"
hosts_file 3.hosts host0 host1 host2
hosts_file 4.hosts host0 host1 host2 host3

# run NAME ARGUMENT...: trains from host 0 and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 netns_run 0 "${train[@]}" --run-dir "$name" "$@" && got=$(hashes "$out")
}

for kind in int8 topk; do
    settings=(--set "train.compression.kind=$kind" --set train.compression.ratio=0.02)
    [ $kind = int8 ] || settings+=(--set train.compression.weights=int8)
    expect 0 "${train[@]}" "${settings[@]}" --run-dir "$kind-one" --ranks 1
    reference=$(hashes "$out")
    for hosts in 2 3 4; do
        run "$kind-$hosts" "${settings[@]}" --hosts $hosts.hosts
        same "$kind: $hosts hosts" "$got" "$reference"
    done
    # what four hosts wrote down of the wire, and one process of what was left over
    check "$kind: metrics" python3 - $kind <<'PY'
import json, math, sys
kind = sys.argv[1]
four, one = ([json.loads(line) for line in open(f"{kind}-{run}/metrics.jsonl")] for run in ("4", "one"))
assert [m["residual_norm"] for m in four] == [m["residual_norm"] for m in one]
assert all(m["dense_bytes"] > 2 * m["link_bytes"] > 0 and isinstance(m["saved_s"], float) for m in four) and "link_bytes" not in one[0]
link = json.load(open(f"{kind}-4/summary.json"))["link"]
assert all(link[key] == sum(m[of] for m in four) for key, of in (("bytes", "link_bytes"), ("dense_bytes", "dense_bytes"))), link
assert math.isclose(link["residual_norm"], four[-1]["residual_norm"], rel_tol=1e-8), link
PY
    # from three hosts, over which groups are spread, to two, and to one process
    run "$kind-moves" "${settings[@]}" --hosts 3.hosts --steps 3
    run "$kind-moves" "${settings[@]}" --hosts 2.hosts --steps 6
    expect 0 "${train[@]}" "${settings[@]}" --run-dir "$kind-moves" --ranks 1
    same "$kind: three hosts, then two, then one" "$(hashes "$out")" "$reference"
done
# a host is lost with what only it had: the three that are left return to the newest checkpoint
settings=(--set train.compression.kind=int8 --set train.compression.ratio=0.02 --set train.steps=60)
background lost 0 "${train[@]}" --run-dir lost "${settings[@]}" --hosts 4.hosts
passed lost 12
kill -9 $(processes_in lost host2)
ended lost $pid 0
expect 0 "${train[@]}" "${settings[@]}" --run-dir long-one --ranks 1
same "a host lost, and the others back at a checkpoint" "$(hashes lost.out)" "$(hashes "$out")"
holds lost/events.jsonl '"event":"returned"' '"how":"checkpoint"'
# a link that slows down to 1 Mbit/s, and carries nothing for a second
background slow 0 "${train[@]}" --run-dir slow "${settings[@]}" --hosts 4.hosts
passed slow 12
netns_slow 1 1mbit
passed slow 16
netns_cut 2
sleep 1
netns_mend 2
netns_slow 1 ""
ended slow $pid 0
same "a link that slows down and drops" "$(hashes slow.out)" "$(hashes "$out")"
nothing_left "the end"
finish
