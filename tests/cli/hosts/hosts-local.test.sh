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
outer = [e for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"] == "outer_step"]
sent = [e["sent_bytes"] for e in outer]
planned = 100 * next(row["sent_bytes"] for row in json.load(open("plan.json"))["link"]["schemes"] if row["scheme"] == sys.argv[2])
print(sent, planned)
assert sent == [round(planned)] * 3 and abs(planned - round(planned)) < 1e-6, (sent, planned)
assert all(e["slowest_s"] >= e["fastest_s"] > 0 and e["slowest_rank"] in (0, 1) for e in outer), outer
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

# Fragments: the bits of one process, each exchange as large as the plan says, and stops while either is on its way.
pieces=(--set train.local.workers=2 --set train.local.fragments=2 --set train.local.delay=1 --set train.local.bits=8)
sed 's/^  steps: 12$/&\n  local: {steps: 4, workers: 3, fragments: 2}/' tiny.yaml >pieces.yaml
expect 0 "$LOCKSTEP" plan pieces.yaml --gpus rtx-4090:2 --hosts 2 --link 100Mbit --json
cp "$out" plan.json
expect 0 "${train[@]}" "${pieces[@]}" --run-dir pieces-one
cut=$(hashes "$out")
expect 0 netns_run 0 "${train[@]}" "${pieces[@]}" --run-dir pieces-two --hosts two.hosts
same "fragments on two hosts" "$(hashes "$out")" "$cut"
check "bytes of each fragment" python3 - pieces-two <<'PY'
import json, sys
sent = [e["sent_bytes"] for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"] == "outer_step"]
row = next(row for row in json.load(open("plan.json"))["link"]["schemes"] if row["scheme"] == "local 100, int8")
print(sent, row)
assert len(sent) == 6 and sent[:2] * 3 == sent and max(sent) == row["peak_bytes"] and abs(sum(sent[:2]) - 100 * row["sent_bytes"]) < 1e-6
PY
pieces=("${pieces[@]:2}")
expect 0 "${train[@]}" "${pieces[@]}" --run-dir pieces-four
cut=$(hashes "$out")
expect 0 netns_run 0 "${train[@]}" "${pieces[@]}" --run-dir pieces-three --hosts three.hosts --steps 5
expect 0 netns_run 0 "${train[@]}" "${pieces[@]}" --run-dir pieces-three --hosts two.hosts --steps 7
expect 0 "${train[@]}" "${pieces[@]}" --run-dir pieces-three
same "three hosts while one fragment is on its way, two while the other is, then one" "$(hashes "$out")" "$cut"

# Memory is planned for the ranks of this host, with the packed copy of a delay: 8 % of it here.
large=(--set model.layers=4 --set model.width=256 --set model.ffn=1024 --set train.local.workers=2 --set train.local.delay=2)
expect 0 netns_run 0 "${train[@]}" "${large[@]}" --run-dir memory --hosts two.hosts
check "memory within 5 % of the plan" python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))
measured, planned = run["peak_rss_bytes"], run["predicted"]["memory_bytes"]
print(measured, planned, measured / planned)
assert abs(measured / planned - 1) < 0.05' "$out"

expect 0 netns_run 0 "${train[@]}" --run-dir three --hosts three.hosts --steps 6
expect 0 "${train[@]}" --run-dir three
same "three hosts up to the middle of a round, then one" "$(hashes "$out")" "$reference"

# Four hosts, one worker on each, with several threads.
hosts_file four.hosts host0 "host1 10.77.0.2" "host2 10.77.0.3" "host3 10.77.0.4"
expect 0 netns_run 0 "${train[@]}" --run-dir four --hosts four.hosts --steps 6 --threads 2
expect 0 netns_run 0 "${train[@]}" --run-dir four --hosts two.hosts --threads 3
same "four hosts up to the middle of a round, then two" "$(hashes "$out")" "$reference"

# A rank of another host dies while its worker trains, in the outer step, before there is a checkpoint, and while an outer gradient is on its way:
# all return to the newest checkpoint, which has the workers, and the bits stay the same. lost NAME FAULT HOSTS EXPECTED ARGUMENT...
lost() {
    LS_TEST_FAULT=do=die,rank=1,$2 expect 0 netns_run 0 timeout 60 "${train[@]}" --run-dir "lost-$1" --hosts "$3.hosts" "${@:5}"
    same "lost, $1" "$(hashes "$out")" "$4"
    holds "lost-$1/events.jsonl" '"event":"returned"' '"how":"checkpoint"'
}
lost leaf step=16,at=leaf two "$reference"
lost outer step=17,at=block three "$reference"
lost early step=3,at=agreed two "$reference"
lost late step=16,at=leaf two "$delayed" "${late[@]}"
lost pieces step=27,at=leaf three "$cut" "${pieces[@]}"
nothing_left "lost"

# A host is cut off while an outer gradient is on its way, so only its silence tells of it. It is started again and joins at the end of a round.
long=(--set train.steps=4000 --set checkpoint.every_steps=10 --set job.node_lease=1 --set train.local.delay=2)
background joins 0 "${train[@]}" --run-dir joins --hosts three.hosts "${long[@]}"
trainer=$pid
passed joins 10
netns_cut 1
for try in $(seq 3000); do ! grep -q '"event":"recovered"' joins/events.jsonl || break; sleep 0.01; done
netns_mend 1
for try in $(seq 3000); do ! grep -q '"event":"rank_joined"' joins/events.jsonl || break; sleep 0.01; done
passed joins $(($(wc -l <joins/metrics.jsonl) + 8))
kill -TERM $trainer
ended joins $trainer 75
check "the host joined at the end of a round" python3 - joins <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
steps = [e["step"] for e in events if e["event"] == "rank_joined"]
print(steps)
assert steps and all(step % 4 == 0 for step in steps)
PY
expect 0 "${train[@]}" --run-dir joins-one "${long[@]}" --steps "$(field joins.out step)"
same "a host that came back" "$(hashes joins.out)" "$(hashes "$out")"
nothing_left "joins"

# Several ranks on a host share the worker's steps there.
hosts_file many.hosts "host0 slots=2" "host1 slots=2 10.77.0.2"
two=(--set train.local.workers=2)
expect 0 "${train[@]}" "${two[@]}" --run-dir pairs-one
pairs=$(hashes "$out")
expect 0 netns_run 0 "${train[@]}" "${two[@]}" --run-dir pairs --hosts many.hosts
same "two ranks on each of two hosts" "$(hashes "$out")" "$pairs"
LS_TEST_FAULT=do=die,rank=3,step=6,at=leaf expect 0 netns_run 0 timeout 60 "${train[@]}" "${two[@]}" --run-dir pairs-lost --hosts many.hosts
same "one of them lost" "$(hashes "$out")" "$pairs"
holds pairs-lost/events.jsonl '"event":"returned"'

# An outer gradient that is not finite: its round is made once more on all hosts, and then refused.
export LS_TEST_FAULT=flip=parameter,rank=0,at=8192,bit=30,step=22
expect 1 netns_run 0 timeout 60 "${train[@]}" --run-dir wild --hosts two.hosts --set checkpoint.every_steps=4
says "the outer gradient of round 2 is not finite" "The round is made once more" "the training diverges"
unset LS_TEST_FAULT
expect 0 netns_run 0 "${train[@]}" --run-dir wild --hosts two.hosts --set checkpoint.every_steps=4
same "after a round that was not finite" "$(hashes "$out")" "$reference"
nothing_left "not finite"

# Agents that people start: none takes more ranks than a worker has leaves.
export LOCKSTEP_TOKEN=$token
background by-hand 0 timeout 60 "${train[@]}" --run-dir by-hand --ranks 3 --local-ranks 1 --coordinator 10.77.0.1:29712
trainer=$pid
for host in 1 2; do background by-hand.$host $host timeout 60 "$LOCKSTEP" agent --coordinator 10.77.0.1:29712; done
ended by-hand $trainer 0
same "agents started by hand" "$(hashes by-hand.out)" "$reference"
same "hosts with a rank" 3 "$(started by-hand | tr ' ' '\n' | cut -d: -f2 | sort -u | wc -l)"
nothing_left "by hand"

expect 2 netns_run 0 "${train[@]}" --run-dir many --hosts many.hosts
says "this host has 2 ranks" "divided between 1 at most" "slots=N"
expect 2 netns_run 0 "${train[@]}" --run-dir few --hosts three.hosts --set train.local.workers=2
says "use at most 2 hosts"
finish
