#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Local steps (train.local) on several hosts: workers on their own hosts, the bits of one process, little on the link, and a lost host.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"
train=("$LOCKSTEP" train tiny.yaml --json --threads 1 --set train.leaves=4 --set train.local.steps=4 --set train.local.workers=4 --set checkpoint.every_steps=3)
write_text text.txt 400 5
write_run tiny.yaml

expect 0 "${train[@]}" --run-dir one
reference=$(hashes "$out")
hosts_file two.hosts host0 "host1 10.77.0.2"
hosts_file three.hosts host0 "host1 10.77.0.2" "host2 10.77.0.3"
expect 0 netns_run 0 "${train[@]}" --run-dir two --hosts two.hosts
same "two hosts" "$(hashes "$out")" "$reference"

# Fewer bits: the bits of one process, and what a host sends in a round is what the plan says, to the byte.
expect 0 "$LOCKSTEP" plan tiny.yaml --gpus rtx-4090:2 --hosts 2 --link 100Mbit --json
cp "$out" plan.json
for form in 32: 8:", int8" 4:", int4"; do
    bits=${form%%:*} packed=(--set train.local.workers=2 --set train.local.bits=${form%%:*})
    expect 0 "${train[@]}" "${packed[@]}" --run-dir "one-$bits"
    alone=$(hashes "$out")
    expect 0 netns_run 0 "${train[@]}" "${packed[@]}" --run-dir "bits-$bits" --hosts two.hosts
    same "$bits bits on two hosts" "$(hashes "$out")" "$alone"
    check "bytes of an outer step with $bits bits" python3 - "bits-$bits" "local 100${form#*:}" <<'PY'
import json, sys
sent = [e["sent_bytes"] for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"] == "outer_step"]
planned = 100 * next(row["sent_bytes"] for row in json.load(open("plan.json"))["link"]["schemes"] if row["scheme"] == sys.argv[2])
print(sent, planned)
assert sent == [round(planned)] * 3 and abs(planned - round(planned)) < 1e-6, (sent, planned)
PY
done

# A delay: outer gradients cross the link while workers train; a stop between making and applying one loses nothing.
late=(--set train.local.delay=2 --set train.local.bits=8)
expect 0 "${train[@]}" "${late[@]}" --run-dir late-one
delayed=$(hashes "$out")
expect 0 netns_run 0 "${train[@]}" "${late[@]}" --run-dir late-two --hosts two.hosts
same "delayed on two hosts" "$(hashes "$out")" "$delayed"
expect 0 netns_run 0 "${train[@]}" "${late[@]}" --run-dir late-three --hosts three.hosts --steps 7
expect 0 netns_run 0 "${train[@]}" "${late[@]}" --run-dir late-three --hosts two.hosts
same "three hosts up to the middle of an exchange, then two" "$(hashes "$out")" "$delayed"

expect 0 netns_run 0 "${train[@]}" --run-dir three --hosts three.hosts --steps 6
expect 0 "${train[@]}" --run-dir three
same "three hosts up to the middle of a round, then one" "$(hashes "$out")" "$reference"

# A rank of another host dies while its worker trains, and in the outer step: the run ends, and continues with the same bits.
for fault in step=16,at=leaf step=17,at=block; do
    export LS_TEST_FAULT=do=die,rank=1,$fault
    expect 5 netns_run 0 timeout 60 "${train[@]}" --run-dir "lost-$fault" --hosts two.hosts
    says "rank 1" "run the same command again"
    unset LS_TEST_FAULT
    expect 0 netns_run 0 "${train[@]}" --run-dir "lost-$fault" --hosts two.hosts
    same "a host lost at $fault" "$(hashes "$out")" "$reference"
done
# The same while an outer gradient is on its way: the checkpoint before has it.
export LS_TEST_FAULT=do=die,rank=1,step=16,at=leaf
expect 5 netns_run 0 timeout 60 "${train[@]}" "${late[@]}" --run-dir lost-late --hosts two.hosts
unset LS_TEST_FAULT
expect 0 netns_run 0 "${train[@]}" "${late[@]}" --run-dir lost-late --hosts two.hosts
same "a host lost during a delay" "$(hashes "$out")" "$delayed"
nothing_left "lost"

hosts_file many.hosts "host0 slots=2" "host1 slots=2 10.77.0.2"
expect 2 netns_run 0 "${train[@]}" --run-dir many --hosts many.hosts
says "one rank on each of several hosts" "slots=1"
hosts_file three.hosts host0 "host1 10.77.0.2" "host2 10.77.0.3"
expect 2 netns_run 0 "${train[@]}" --run-dir few --hosts three.hosts --set train.local.workers=2
says "use at most 2 ranks"
finish
