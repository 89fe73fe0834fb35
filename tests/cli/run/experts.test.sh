#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models with experts: the same bits for any number of threads, ranks, stages and ranks that divide the experts, after a kill and with anything recomputed; text, evaluation
# and export; what is refused, by name.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

sizes=(--set model.experts=4 --set model.experts_per_token=2 --set train.leaves=6)
train=("$LOCKSTEP" train tiny.yaml --json "${sizes[@]}")

for family in mixtral qwen3-moe; do
    expect 0 "${train[@]}" --set model.family=$family --run-dir $family --threads 1
    reference=$(hashes "$out")
    expect 0 "${train[@]}" --set model.family=$family --run-dir $family-threads --threads 3 --set train.recompute=selective
    same "$family, 3 threads" "$(hashes "$out")" "$reference"
    for ranks in 2 3; do
        expect 0 "${train[@]}" --set model.family=$family --run-dir $family-$ranks --ranks $ranks --threads 1 --set train.recompute=full
        same "$family, $ranks ranks" "$(hashes "$out")" "$reference"
    done
    expect 0 "${train[@]}" --set model.family=$family --run-dir $family-stages --ranks 2 --threads 1 --set parallel.pipeline=2
    same "$family, 2 stages" "$(hashes "$out")" "$reference"
    # RANKS EXPERT PIPELINE RECOMPUTE; 6 leaves: a group of four computes 4, then 2 side by side
    for mesh in "4 4 1 selective" "4 2 2 full"; do
        set -- $mesh
        expect 0 "${train[@]}" --set model.family=$family --run-dir "$family-$1-$2-$3" --ranks "$1" --threads 1 --set "parallel.expert=$2" \
            --set "parallel.pipeline=$3" --set "train.recompute=$4"
        same "$family, $1 ranks, expert $2, pipeline $3" "$(hashes "$out")" "$reference"
        check "$family, expert $2: bytes to and from experts near the plan's" python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))
sent, plan = run["mesh"]["sent_bytes"], run["predicted"]["sent_bytes"]
assert run["mesh"]["expert"] == int(sys.argv[2]) and sent["pipeline"] == plan["pipeline"] and sent["data"] == plan["data"], sent
assert 0.5 * plan["expert"] < sent["expert"] < 1.5 * plan["expert"] and plan["expert"] > 0, (sent, plan)' "$out" "$2"
    done
    # cut in pieces; RANKS TENSOR CONTEXT EXPERT PIPELINE RECOMPUTE
    pieces=("${train[@]}" --threads 1 --set model.family=$family --set train.tensor_cut=2 --set train.sequence_cut=2)
    expect 0 "${pieces[@]}" --run-dir $family-cut --threads 2
    cut=$(hashes "$out")
    for mesh in "2 2 1 1 1 selective" "2 1 2 1 1 none" "4 2 1 2 1 none" "8 2 2 1 2 full"; do
        set -- $mesh
        expect 0 "${pieces[@]}" --run-dir "$family-cut-$1-$2-$3-$4" --ranks "$1" --set "parallel.tensor=$2" --set "parallel.context=$3" \
            --set "parallel.expert=$4" --set "parallel.pipeline=$5" --set "train.recompute=$6"
        same "$family, cut, $1 ranks, tensor $2, context $3, expert $4, pipeline $5" "$(hashes "$out")" "$cut"
        check "$family, tensor $2, context $3: bytes of their axes as planned" python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))
sent, plan = run["mesh"]["sent_bytes"], run["predicted"]["sent_bytes"]
assert all(sent[axis] == plan[axis] for axis in ("tensor", "context", "pipeline", "data")), (sent, plan)' "$out"
    done
    expect 0 "${train[@]}" --set model.family=$family --run-dir $family-pieces --steps 5
    expect 0 "${train[@]}" --set model.family=$family --run-dir $family-pieces
    same "$family, in two pieces" "$(hashes "$out")" "$reference"
done

# The balance loss is part of what is computed, and of the run's identity.
expect 0 "${train[@]}" --set model.family=mixtral --run-dir unbalanced --set train.balance_loss=0
differs "without balance loss" "$(field "$out" state_hash)" "$("$LOCKSTEP" state-hash mixtral)"
expect 2 "${train[@]}" --set model.family=mixtral --run-dir mixtral --set train.balance_loss=0

# kill -9 in the middle, then again.
long=("${train[@]}" --set model.family=mixtral --set train.steps=60 --set checkpoint.every_steps=5)
expect 0 "${long[@]}" --run-dir whole
reference=$(hashes "$out")
"${long[@]}" --run-dir killed >killed.out 2>&1 </dev/null &
pid=$!
for _ in $(seq 2000); do
    [ -f killed/metrics.jsonl ] && [ "$(wc -l <killed/metrics.jsonl)" -ge 12 ] && break
    sleep 0.01
done
kill -9 $pid 2>/dev/null
wait $pid 2>/dev/null
expect 0 "${long[@]}" --run-dir killed
same "after kill -9" "$(hashes "$out")" "$reference"

# A rank dies while others visit its experts, while leaves are added up, and when the last ones are complete.
expect 0 "${train[@]}" --set model.family=qwen3-moe --run-dir whole-moe
reference=$(hashes "$out")
for fault in "rank=1,at=leaf" "rank=0,at=merge" "rank=3,at=ready"; do
    LS_TEST_FAULT="do=die,step=3,$fault" expect 0 "${train[@]}" --set model.family=qwen3-moe --run-dir "dies-${fault//[=,]/-}" --ranks 4 \
        --threads 1 --set parallel.expert=2 --set parallel.pipeline=2
    same "killed at $fault" "$(hashes "$out")" "$reference"
done
LS_TEST_FAULT="do=die,step=3,rank=3,at=leaf" expect 0 "${pieces[@]}" --run-dir dies-cut --ranks 4 --set parallel.expert=2 --set parallel.tensor=2
same "killed in a leaf whose experts are cut" "$(hashes "$out")" "$cut"

# Text, evaluation, export and import.
expect 0 "$LOCKSTEP" sample mixtral --prompt "the king" --max-tokens 8 --temperature 0
text=$(cat "$out")
expect 0 "$LOCKSTEP" eval mixtral --data text.txt --json
loss=$(field "$out" loss)
expect 0 "$LOCKSTEP" export mixtral -o exported
expect 0 "$LOCKSTEP" eval exported --data text.txt --json
same "loss of the export" "$(field "$out" loss)" "$loss"
expect 0 "$LOCKSTEP" sample exported --prompt "the king" --max-tokens 8 --temperature 0
same "text of the export" "$(cat "$out")" "$text"
check "names of tensors" grep -qa block_sparse_moe.experts.3.w2.weight exported/model.safetensors

# The plan has the numbers of the run.
expect 0 "${train[@]}" --set model.family=qwen3-moe --run-dir planned --dry-run
parameters=$(field "$out" parameters)
sed 's/family: llama/family: qwen3-moe, experts: 4, experts_per_token: 2/' tiny.yaml >moe.yaml
expect 0 "$LOCKSTEP" plan moe.yaml --json
same "parameters" "$(field "$out" parameters)" "$parameters"
expect 0 "$LOCKSTEP" plan exported/config.json --json
check "active parameters" test "$(field "$out" active_parameters)" -lt "$(field "$out" parameters)"

# refused SETTING TEXT...: an experts' run with this setting does not begin.
refused() {
    local setting=$1
    shift
    expect 2 "${train[@]}" --set model.family=mixtral --run-dir refused --set $setting
    says "$@"
}
refused model.experts_per_token=9 "model.experts_per_token is 9, but there are only 4 experts"
refused model.expert_ffn=48 "model.expert_ffn is 48, but in the family mixtral it must equal model.ffn, 64"
refused train.tensor_cut=4 "train.tensor_cut is 4, but must divide model.kv_heads 2 and model.expert_ffn 64; use 2"
refused "train.sequence_cut=4 --set parallel.expert=4 --ranks 4" "parallel.expert is 4 and train.sequence_cut 4" "use parallel.expert 2"
refused parallel.expert=3 "parallel.expert is 3" "model.experts is 4" "use 2"
refused parallel.expert=8 "parallel.expert is 8" "model.experts is 4" "use 4"
refused "parallel.expert=2 --ranks 3" "parallel.ranks is 3" "parallel.expert 2" "for example 4"
refused "parallel.expert=4 --set train.leaves=2 --ranks 4" "parallel.expert is 4" "train.leaves" "use 2"
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir refused --set parallel.expert=2
says "parallel.expert is 2, but model.family llama has no experts"
refused train.device=cuda "the model has experts"
refused model.family=llama "model.experts is set, but model.family llama has no experts"
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir refused --set train.balance_loss=0.5
says "it has an effect only on models with experts"
expect 2 "$LOCKSTEP" export mixtral --gguf refused.gguf --quant f32
says "models with experts have no GGUF form"
cat >adapter.yaml <<YAML
name: adapter
model: {from: exported}
data: {train: [$scratch/text.txt]}
adapter: {kind: lora, targets: [w1]}
train: {steps: 2, global_batch: 2}
YAML
expect 2 "$LOCKSTEP" train adapter.yaml
says '"w1" matches no linear layer' "experts and routers get no adapter"
expect 2 "$LOCKSTEP" train adapter.yaml --set adapter.targets=[all-linear] --set adapter.base=int8
says "adapter.base is int8" "can only be kept as fp32"
expect 0 "$LOCKSTEP" train adapter.yaml --set adapter.targets=[all-linear]

# changed KEY VALUE CODE TEXT: a directory whose config.json has another value is refused.
changed() {
    rm -rf changed && cp -r exported changed
    python3 - "$1" "$2" <<'PY'
import json, sys
config = json.load(open("changed/config.json"))
config[sys.argv[1]] = json.loads(sys.argv[2])
json.dump(config, open("changed/config.json", "w"))
PY
    expect "$3" "$LOCKSTEP" import changed -o never
    says "$4"
}
changed num_local_experts 5 3 "block_sparse_moe.gate.weight has shape [4, 32]"
rm -rf changed && cp -r exported changed
sed -i 's/layers.1.block_sparse_moe.experts.3.w2/layers.1.block_sparse_moe.experts.9.w2/' changed/model.safetensors
expect 3 "$LOCKSTEP" import changed -o never
says "model.layers.1.block_sparse_moe.experts.3.w2.weight is missing"
changed num_experts_per_tok 9 3 "experts_per_token is 9, allowed is 1 to 4"
changed router_jitter_noise 0.1 2 "router_jitter_noise is 0.1, only 0 is supported"
changed quantization_config '{"quant_method": "bitsandbytes", "load_in_8bit": true}' 2 "and not for gpt2, mixtral and qwen3_moe"
expect 0 "$LOCKSTEP" export qwen3-moe -o exported --replace
changed decoder_sparse_step 2 2 "decoder_sparse_step is 2, only 1 (experts in every layer) is supported"
changed mlp_only_layers '[1]' 2 "mlp_only_layers names layers without experts"
finish
