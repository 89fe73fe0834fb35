#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# train.freeze: the same bits with any number of ranks, in pieces, through the death of a rank; frozen parameters never change and are in every
# checkpoint as one linked file; patterns that match nothing or everything are refused.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --json --threads 1 --set train.freeze='[embed_tokens, layers.0]')

# tensor CHECKPOINT NAME: the SHA-256 of a tensor, wherever its file is.
tensor() {
    python3 - "$1" "$2" <<'PY'
import glob, hashlib, json, struct, sys
for path in sorted(glob.glob(sys.argv[1] + "/model*.safetensors")):
    data = open(path, "rb").read()
    header = json.loads(data[8:8 + struct.unpack("<Q", data[:8])[0]])
    if sys.argv[2] in header:
        start = 8 + struct.unpack("<Q", data[:8])[0]
        a, b = header[sys.argv[2]]["data_offsets"]
        print(hashlib.sha256(data[start + a:start + b]).hexdigest())
PY
}
# inode FILE
inode() { stat -c %i "$1"; }

expect 0 "${train[@]}" --run-dir one
reference=$(hashes "$out")
same "parameters that are trained, and that are not" "$(field "$out" parameters frozen_parameters)" "34976 17472"
for ranks in 2 3; do
    expect 0 "${train[@]}" --run-dir "ranks-$ranks" --ranks $ranks
    same "$ranks ranks" "$(hashes "$out")" "$reference"
done
for recompute in selective full; do
    expect 0 "${train[@]}" --run-dir "$recompute" --set train.recompute=$recompute
    same "recompute $recompute" "$(hashes "$out")" "$reference"
done
LS_TEST_FAULT=do=die,rank=1,step=5,at=block expect 0 "${train[@]}" --run-dir killed --ranks 3
same "a rank was killed while it updated" "$(hashes "$out")" "$reference"
check "a rank was lost" grep -q '"rank_lost"' killed/events.jsonl

# Frozen parameters are guarded too.
for rank in 0 1; do
    at=$((20000 + rank * 16000)) # embeddings, layer 0
    LS_TEST_FAULT="flip=parameter,step=7,rank=$rank,at=$at,bit=3" expect 6 "${train[@]}" --run-dir flipped-$rank --ranks 2 --set train.hash_every_steps=1
    says "step 7: silent corruption: the parameters of frozen" "no longer what the update of step 6 left"
done

# In pieces with different numbers of ranks; a finished run and its checkpoints agree.
expect 0 "${train[@]}" --run-dir pieces --steps 3 --ranks 3
expect 0 "${train[@]}" --run-dir pieces --steps 8 --ranks 1
expect 0 "${train[@]}" --run-dir pieces --ranks 2
same "in pieces" "$(hashes "$out")" "$reference"
same "state-hash of a checkpoint" "$("$LOCKSTEP" state-hash pieces/checkpoints/12)" "${reference%% *}"

# One file for all of them, and it does not change.
file=model-00002-of-00002.safetensors
same "the file of frozen tensors is one" "$(inode one/checkpoints/4/$file)" "$(inode one/checkpoints/12/$file)"
same "after a resume, too" "$(inode pieces/checkpoints/8/$file)" "$(inode pieces/checkpoints/12/$file)"
differs "what is trained is not" "$(inode one/checkpoints/4/model-00001-of-00002.safetensors)" "$(inode one/checkpoints/12/model-00001-of-00002.safetensors)"
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir plain
for name in model.embed_tokens.weight model.layers.0.mlp.up_proj.weight; do
    same "$name" "$(tensor one/checkpoints/4 $name)" "$(tensor one/checkpoints/12 $name)"
    differs "$name, when it is trained" "$(tensor plain/checkpoints/4 $name)" "$(tensor plain/checkpoints/12 $name)"
done
differs "model.layers.1.mlp.up_proj.weight" "$(tensor one/checkpoints/4 model.layers.1.mlp.up_proj.weight)" \
    "$(tensor one/checkpoints/12 model.layers.1.mlp.up_proj.weight)"
for step in 4 8 12; do expect 0 "$LOCKSTEP" checkpoint verify one/checkpoints/$step; done
expect 0 "$LOCKSTEP" export one -o hf
expect 0 "$LOCKSTEP" sample one --prompt "the king" --max-tokens 4

# Older checkpoints are pruned and the file stays; then it is damaged: the next checkpoint writes its own and repairs the older one.
expect 0 "$LOCKSTEP" checkpoint prune one --keep-last 1 --keep-best 0
expect 0 "$LOCKSTEP" checkpoint verify one/checkpoints/12
expect 0 "${train[@]}" --run-dir damaged --steps 4
printf '\xff\xff\xff' | dd of=damaged/checkpoints/4/$file bs=1 seek=5000 conv=notrunc 2>/dev/null
expect 3 "$LOCKSTEP" checkpoint verify damaged/checkpoints/4
cp -a damaged again
expect 3 "${train[@]}" --run-dir again
says "$file"

# Copies of the weights alone share the file as well; and another run can start from the result.
expect 0 "${train[@]}" --run-dir snapshots --set checkpoint.weights_every_steps=3
same "with snapshots" "$(hashes "$out")" "$reference"
same "snapshots share a file" "$(inode snapshots/checkpoints/weights/3/$file)" "$(inode snapshots/checkpoints/weights/12/$file)"
expect 0 "$LOCKSTEP" sample snapshots/checkpoints/weights/12 --prompt "the king" --max-tokens 4
grep -v '^model:' tiny.yaml >from.yaml
printf 'model: {from: one, context: 32}\n' >>from.yaml
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir tuned --set train.freeze='[lm_head, layers.1, norm]' --ranks 2
for name in lm_head.weight model.norm.weight model.layers.1.mlp.up_proj.weight; do
    same "$name of model.from" "$(tensor tuned/checkpoints/12 $name)" "$(tensor one/checkpoints/12 $name)"
done
differs "model.layers.0.mlp.up_proj.weight" "$(tensor tuned/checkpoints/12 model.layers.0.mlp.up_proj.weight)" \
    "$(tensor one/checkpoints/12 model.layers.0.mlp.up_proj.weight)"

# The plan shows it beforehand.
expect 0 "${train[@]}" --dry-run
same "planned" "$(field "$out" parameters trained_parameters)" "34976 17504"
expect 0 "$LOCKSTEP" train tiny.yaml --dry-run --set train.freeze='[embed_tokens, layers.0]'
prints "frozen " "are trained" "two moments of what is trained"

# Another list is another run; patterns that match nothing, everything, or half a matrix are refused.
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir one --set train.freeze='[layers.1]'
says 'train.freeze: [embed_tokens, layers.0] in the run, [layers.1] now'
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir one
says 'train.freeze: [embed_tokens, layers.0] in the run, [] now'
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir none --set train.freeze='[embed_tokens, layer.0]'
says '"layer.0" matches no tensor' 'similar names: layers.0'
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir none --set train.freeze='["*"]'
says 'nothing would be trained'
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir none --set train.freeze='["*.k_proj.*"]'
says 'k_proj.weight would be frozen' 'they are one matrix'
[ ! -e none/checkpoints ] && [ ! -e none/run.yaml ] || fail "a run that was refused left something"
finish
