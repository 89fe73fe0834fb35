#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Adapters: the same hash with any number of ranks and threads, in pieces, through the death of a rank, for each format of the base; checkpoints
# hold the adapter and name its base, which must not change; merged, apart and as a directory of PEFT they answer alike; wrong input is named.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

expect 0 "$LOCKSTEP" train tiny.yaml --json --threads 1 --run-dir base --steps 4
cat >lora.yaml <<YAML
name: lora
model: {from: base}
adapter: {kind: lora, rank: 4, alpha: 8}
data: {train: [$scratch/text.txt], validation_fraction: 0.1}
train: {steps: 8, global_batch: 12, micro_batch: 1, leaves: 3, optimizer: {lr: 1.0e-2}}
checkpoint: {every_steps: 4}
eval: {every_steps: 4, batches: 2}
YAML
train=("$LOCKSTEP" train lora.yaml --json --threads 1)
loss() { field "$out" loss; }

# ---- the same bits ----
expect 0 "${train[@]}" --run-dir one
reference=$(hashes "$out")
same "parameters, and those of the base" "$(field "$out" parameters frozen_parameters)" "39072 34976"
expect 0 "${train[@]}" --run-dir ranks --ranks 3
same "3 ranks" "$(hashes "$out")" "$reference"
expect 0 "${train[@]}" --run-dir threads --threads 3 --set train.recompute=full
same "3 threads, recompute full" "$(hashes "$out")" "$reference"
LS_TEST_FAULT=do=die,rank=1,step=3,at=block expect 0 "${train[@]}" --run-dir killed --ranks 2
same "a rank was killed while it updated" "$(hashes "$out")" "$reference"
expect 0 "${train[@]}" --run-dir pieces --steps 5 --ranks 2
expect 0 "${train[@]}" --run-dir pieces
same "in pieces" "$(hashes "$out")" "$reference"
same "state-hash of a checkpoint" "$("$LOCKSTEP" state-hash pieces)" "${reference%% *}"
for base in bf16 int8 nf4; do
    expect 0 "${train[@]}" --run-dir "$base" --set adapter.base=$base
    quantised=$(hashes "$out")
    differs "base $base" "$quantised" "$reference"
    expect 0 "${train[@]}" --run-dir "$base-pieces" --set adapter.base=$base --steps 5 --ranks 2
    expect 0 "${train[@]}" --run-dir "$base-pieces" --set adapter.base=$base --ranks 3
    same "base $base in pieces" "$(hashes "$out")" "$quantised"
done
expect 0 "${train[@]}" --run-dir dropped --set adapter.dropout=0.2
dropped=$(hashes "$out")
differs "dropout" "$dropped" "$reference"
for recompute in selective full; do
    expect 0 "${train[@]}" --run-dir "dropped-$recompute" --set adapter.dropout=0.2 --set train.recompute=$recompute --ranks 2
    same "dropout, 2 ranks, recompute $recompute" "$(hashes "$out")" "$dropped"
done
check "a checkpoint does not hold the base" test "$(stat -c %s one/checkpoints/8/model.safetensors)" -lt 40000

# ---- merged, apart, as PEFT's directory ----
expect 0 "$LOCKSTEP" eval one --data text.txt --json
wanted=$(loss)
expect 0 "$LOCKSTEP" export one -o merged
prints "merge checked: logits of up to" "positions of the run's own data"
expect 0 "$LOCKSTEP" export one --adapter -o peft
expect 0 "$LOCKSTEP" export base -o base-hf
for model in "merged" "base-hf --adapter peft" "base --adapter one" "peft"; do
    expect 0 "$LOCKSTEP" eval $model --data text.txt --json
    same "loss of $model" "$(printf '%.6f' "$(loss)")" "$(printf '%.6f' "$wanted")"
done
expect 0 "$LOCKSTEP" sample one --prompt "the king" -t 0 -n 30
cp "$out" answer
expect 0 "$LOCKSTEP" sample base --adapter peft --prompt "the king" -t 0 -n 30
check "the same answer" cmp -s answer "$out"
expect 0 "$LOCKSTEP" export nf4 -o merged-nf4
prints "merge checked"
expect 0 "$LOCKSTEP" eval nf4 --data text.txt --json
wanted=$(loss)
expect 0 "$LOCKSTEP" eval merged-nf4 --data text.txt --json
same "merged into the values of nf4" "$(printf '%.5f' "$(loss)")" "$(printf '%.5f' "$wanted")"
expect 0 "${train[@]}" --run-dir on --steps 1 --set adapter.from=peft --set train.optimizer.lr=0
expect 0 "$LOCKSTEP" eval one --data text.txt --json
wanted=$(loss)
expect 0 "$LOCKSTEP" eval on --data text.txt --json
same "adapter.from begins with that adapter" "$(loss)" "$wanted"
cp -r peft once
expect 0 "${train[@]}" --run-dir whole --set adapter.from=peft
furthered=$(hashes "$out")
expect 0 "${train[@]}" --run-dir furthered --steps 1 --set adapter.from=once
mv once elsewhere
expect 0 "${train[@]}" --run-dir furthered --set adapter.from=once --ranks 2
same "a run that has begun does not need adapter.from" "$(hashes "$out")" "$furthered"

# ---- wrong input ----
expect 2 "${train[@]}" --run-dir bad --set 'adapter.targets=[c_attn]'
says '"c_attn" matches no linear layer' "q_proj, k_proj"
expect 2 "${train[@]}" --run-dir bad --set adapter.kind=none --set adapter.base=nf4
says "a quantised base" "adapter.kind: lora"
expect 2 "${train[@]}" --run-dir bad --set model.from=
says "model.from is not set"
expect 2 "${train[@]}" --run-dir bad --set 'train.freeze=[layers.0]'
says "train.freeze and adapter.kind: lora are both set"
expect 2 "${train[@]}" --run-dir bad --set adapter.kind=none --set adapter.rank=8
says "adapter.rank is set, but has an effect only with adapter.kind: lora"
expect 2 "${train[@]}" --run-dir bad --set model.from=one
says "model.from names a model with an adapter"
expect 2 "${train[@]}" --run-dir bad --set adapter.from=peft --set adapter.rank=8
says "adapter.rank is 8, but the adapter in adapter.from has rank 4"
expect 3 "${train[@]}" --run-dir bad --set adapter.from=base
says "base is not an adapter"
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir other --steps 1 --set model.width=48 --set model.head_dim=12
expect 3 "$LOCKSTEP" sample other --adapter peft --prompt a
says "another base" "lora_A"
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir twin --steps 1 --set train.seed=8
expect 3 "$LOCKSTEP" sample twin --adapter peft --prompt a
says "was trained on another base" "digest"
expect 3 "${train[@]}" --run-dir bad --set model.from=twin --set adapter.from=peft
says "was trained on another base" "digest"
mkdir empty-peft && cp peft/adapter_config.json empty-peft
expect 2 "$LOCKSTEP" sample base --adapter empty-peft --prompt a
says "has no adapter_model.safetensors"
expect 2 "$LOCKSTEP" export base --adapter -o none
says "has no adapter"
mv base gone && mv twin base
expect 3 "${train[@]}" --run-dir pieces --set train.steps=10
says "has changed" "digest"
rm -r base
expect 2 "${train[@]}" --run-dir pieces --set train.steps=10
finish
