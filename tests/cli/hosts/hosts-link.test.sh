#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What four hosts send in a step, as their network cards count it, is what plan --link says, and what frames, headers and messages of control add to it.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

cat >wide.yaml <<YAML
name: wide
model: {family: llama, layers: 2, heads: 4, width: 128, ffn: 384, context: 32}
tokenizer: {kind: bytes}
data: {train: [$scratch/text.txt]}
train: {steps: 100, global_batch: 4, leaves: 4, micro_batch: 1, schedule: {warmup_steps: 0, steps: 100}, hash_every_steps: 0, audit_every_steps: 0}
eval: {every_steps: 0}
checkpoint: {every_steps: 1000}
YAML
cat /etc/hosts >hosts.etc
for host in 0 1 2 3; do printf '10.77.0.%d host%d\n' $((host + 1)) $host >>hosts.etc; done
for host in 0 1 2 3; do netns_inside "${netns_holders[$host]}" mount --bind hosts.etc /etc/hosts; done
hosts_file 4.hosts host0 host1 host2 host3

# Bytes that the cards of all hosts have sent so far.
sent() {
    for host in 0 1 2 3; do
        netns_inside "${netns_holders[$host]}" awk -F: '$1 !~ /lo$/ && NR > 2 {split($2, n, " "); print n[9]}' /proc/net/dev
    done | awk '{sum += $1} END {print sum}'
}
# Bytes of a run of $1 steps with the setting $2...
measure() {
    local before after
    before=$(sent)
    expect 0 netns_run 0 "$LOCKSTEP" train wide.yaml --json --threads 1 --hosts 4.hosts --run-dir "${2#*=}-$1" --steps "$1" "${@:2}"
    after=$(sent)
    measured=$((after - before))
}

expect 0 "$LOCKSTEP" plan wide.yaml --gpus rtx-4090:4 --hosts 4 --link 100Mbit --json
cp "$out" plan.json
for case in "dense: train.compression.kind=none" "int8: train.compression.kind=int8" "topk 1 %: train.compression.kind=topk" \
    "local 10: train.local.steps=10 train.local.workers=4"; do
    scheme=${case%%:*} settings=()
    for setting in ${case#*: }; do settings+=("--set=$setting"); done
    measure 10 "${settings[@]}"
    start=$measured
    measure 20 "${settings[@]}"
    check "$scheme: bytes of ten steps" python3 - "$scheme" $((measured - start)) <<'PY'
import json, sys
scheme, measured = sys.argv[1], int(sys.argv[2]) / 10
planned = 4 * next(row["sent_bytes"] for row in json.load(open("plan.json"))["link"]["schemes"] if row["scheme"] == scheme)
print(f"{scheme}: {measured:.0f} bytes in a step, planned {planned:.0f}")
assert 0.999 * planned <= measured <= 1.05 * planned + 80000, (measured, planned)
PY
done
nothing_left "the end"
finish
