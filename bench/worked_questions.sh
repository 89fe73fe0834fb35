#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fine-tuning on real worked questions (GSM8K), and the share of right answers before and after, with their intervals.
# The base model is small and trained here on the text of the training questions, so both figures are low; the command is
# the point: the same three steps serve a large base model.
# Usage: bench/worked_questions.sh LOCKSTEP FOLDER [--base-steps N] [--epochs N] [--limit N]
#   FOLDER  has gsm8k_train.jsonl and gsm8k_test.jsonl
set -eu
[ $# -ge 2 ] || { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
lockstep=$(realpath "$1") folder=$(realpath "$2")
shift 2
base_steps=800 epochs=2 limit=0
while [ $# -gt 0 ]; do
    case $1 in
    --base-steps) base_steps=$2 ;;
    --epochs) epochs=$2 ;;
    --limit) limit=$2 ;;
    *) echo "unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
python3 - "$folder/gsm8k_train.jsonl" <<'PY'
import json, sys
with open("text.txt", "w") as out:
    for line in open(sys.argv[1]):
        r = json.loads(line)
        out.write(r["question"] + "\n" + r["answer"] + "\n\n")
PY
cat >base.yaml <<YAML
name: base
model: {family: llama, layers: 4, heads: 4, width: 256, context: 512}
tokenizer: {kind: train, vocab: 2048}
data: {train: [text.txt], validation_fraction: 0.02}
train: {steps: $base_steps, global_batch: 8, micro_batch: 4, leaves: 2, optimizer: {lr: 2.0e-3}}
eval: {every_steps: 0}
sample: {every_steps: 0}
YAML
"$lockstep" train base.yaml >/dev/null
"$lockstep" new chat tuned --data "$folder/gsm8k_train.jsonl" --model runs/base >/dev/null
"$lockstep" train tuned/train.yaml --set train.epochs="$epochs" | grep -E 'finished|loss|state_hash'
"$lockstep" eval runs/base runs/tuned --records "$folder/gsm8k_test.jsonl" --extract '#### *(.*)' --max-tokens 200 --limit "$limit"
