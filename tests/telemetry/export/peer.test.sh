#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A run that is interrupted and resumed, read by others: TensorBoard's own reader for tb/, and curve_hash worked out again from
# metrics.jsonl in Python. Skipped without LOCKSTEP_PEER_PYTHON (a Python with tensorboard).
set -eu
[ -n "${LOCKSTEP_PEER_PYTHON:-}" ] || { echo "skipped: set LOCKSTEP_PEER_PYTHON to a Python with tensorboard to compare with it"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for i in $(seq 300); do echo "line $i of a small text about nothing in particular, $((i * 7919 % 1000))"; done > text.txt
cat > run.yaml <<'YAML'
name: peer
model: {family: llama, layers: 1, heads: 2, width: 32, context: 32}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0.1}
train: {steps: 12, global_batch: 4, micro_batch: 4, leaves: 1}
checkpoint: {every_steps: 5}
eval: {every_steps: 4}
YAML
"$LOCKSTEP" train run.yaml --run-dir run --steps 8 --json > first.json
# What a kill right behind step 8 would leave: no checkpoint of it, and a torn line.
rm -r run/checkpoints/8
printf '{"step": 9, "lo' >> run/metrics.jsonl
"$LOCKSTEP" train run.yaml --run-dir run --json > second.json
"$LOCKSTEP" train run.yaml --run-dir whole --json > whole.json
"$LOCKSTEP_PEER_PYTHON" - <<'PYTHON'
import hashlib, json, logging, struct
logging.disable(logging.CRITICAL)
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

lines = [json.loads(line) for line in open("run/metrics.jsonl")]
assert [line["step"] for line in lines] == list(range(1, 13)), lines
curve = hashlib.sha256(b"".join(struct.pack("<Qf", line["step"], line["loss"]) for line in lines)).hexdigest()
second, whole = json.load(open("second.json")), json.load(open("whole.json"))
assert curve == second["curve_hash"] == whole["curve_hash"], (curve, second["curve_hash"], whole["curve_hash"])
assert second["state_hash"] == whole["state_hash"]
assert second["time"]["lost_work"] > 0, second["time"]
assert abs(sum(second["time"].values()) - second["wall_s"]) < 1e-6

events = EventAccumulator("run/tb")
events.Reload()
losses = events.Scalars("loss")
assert [event.step for event in losses] == list(range(1, 13)), losses
assert all(struct.pack("<f", event.value) == struct.pack("<f", line["loss"]) for event, line in zip(losses, lines))
assert [event.step for event in events.Scalars("val_loss")] == [4, 8, 12]
assert {"lr", "grad_norm", "tokens_per_s"} <= set(events.Tags()["scalars"])
print("TensorBoard reads", len(losses), "steps, curve_hash", curve[:12], "worked out again")
PYTHON
