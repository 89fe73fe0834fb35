#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Directories written by transformers, both ways: import, eval against golden losses, export with the same bytes, training from an
# import. With LOCKSTEP_PEER_PYTHON naming a Python that has torch and transformers, these load the export and compare logits.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
mkdir reading && cat >reading/tensor_file.py <<'PY'
import json, struct, sys

def read(path):
    """Name -> (dtype, shape, bytes)."""
    data = open(path, "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8:8 + n]), data[8 + n:]
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], body[v["data_offsets"][0]:v["data_offsets"][1]]) for k, v in header.items()}

def read_folder(folder):
    import glob
    tensors = {}
    for path in glob.glob(folder + "/model*.safetensors"):
        tensors.update(read(path))
    return tensors
PY
export PYTHONPATH=$scratch/reading

# Token ids of the first golden sequence in `ids`; prints the mean of its golden losses.
golden_sequence() {
    python3 - "$1" "$2" <<'PY'
import struct, sys
from tensor_file import read
golden = read(sys.argv[1] + "/golden.safetensors")
row = int(sys.argv[2])
rows, length = golden["tokens"][1]
tokens = struct.unpack(f"<{rows * length}i", golden["tokens"][2])[row * length:(row + 1) * length]
losses = struct.unpack(f"<{rows * (length - 1)}f", golden["losses"][2])[row * (length - 1):(row + 1) * (length - 1)]
open("ids", "w").write(" ".join(map(str, tokens)))
print(sum(losses) / len(losses))
PY
}
near() { python3 -c 'import sys; a, b, d = map(float, sys.argv[1:]); sys.exit(not abs(a - b) <= d)' "$@"; }
# same_tensors A B: the same names, types, shapes and bytes.
same_tensors() {
    python3 - "$1" "$2" <<'PY'
import sys
from tensor_file import read_folder
a, b = read_folder(sys.argv[1]), read_folder(sys.argv[2])
if not a or a.keys() != b.keys():
    sys.exit(f"names differ: {sorted(a.keys() ^ b.keys())}")
bad = [k for k in a if a[k] != b[k]]
if bad:
    sys.exit(f"tensors differ: {bad}")
PY
}
# What transformers has to say, asked at the end in one process because it takes long to start: lines of
#   logits A B         both folders give the same logits
#   loss FOLDER LOSS   the loss of the ids in FOLDER/ids
#   text FOLDER        the ids of the text in FOLDER/text are those in FOLDER/ids
: >questions
ask_peer() {
    "$LOCKSTEP_PEER_PYTHON" - <<'PY'
import torch, transformers
transformers.utils.logging.disable_progress_bar()
failed = 0

def load(folder):
    model, report = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    if report["missing_keys"] or report["unexpected_keys"] or report["mismatched_keys"]:
        raise SystemExit(f"{folder}: {report}")
    return model.eval()

def ids_of(folder):
    return [int(word) for word in open(folder + "/ids").read().split()]

for line in open("questions"):
    kind, folder, *rest = line.split()
    if kind == "logits":
        ids = torch.arange(24).reshape(1, 24) * 7 % 70
        difference = (load(folder)(ids).logits - load(rest[0])(ids).logits).abs().max().item()
        good = difference <= 1e-4
    elif kind == "loss":
        ids = torch.tensor([ids_of(folder)])
        loss = torch.nn.functional.cross_entropy(load(folder)(ids[:, :-1]).logits[0], ids[0, 1:]).item()
        difference = f"{loss} here"
        good = abs(loss - float(rest[0])) <= 1e-4
    else:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        difference = tokenizer.encode(open(folder + "/text").read(), add_special_tokens=False)
        good = difference == ids_of(folder)
    if not good:
        print("transformers:", line.strip(), difference)
        failed += 1
raise SystemExit(failed > 0)
PY
}

# Tokens to train on: ids below the golden vocabulary of 70.
python3 -c 'import random, struct; r = random.Random(3); open("tokens.bin", "wb").write(struct.pack("<6000H", *(min(int(r.expovariate(0.1)), 69) for _ in range(6000))))'
cat >from.yaml <<'YAML'
name: from
model: {from: imported, context: 24}
data: {train: [tokens.bin], validation_fraction: 0.1}
train: {steps: 3, global_batch: 4, micro_batch: 2, leaves: 2, optimizer: {lr: 1.0e-3}, schedule: {warmup_steps: 0}}
YAML

models=0
for golden in "$LS_SOURCE_DIR"/tests/golden/models/*/; do
    golden=${golden%/} name=$(basename "$golden")
    models=$((models + 1))
    rm -rf imported
    expect 0 "$LOCKSTEP" import "$golden" -o imported
    expect 0 "$LOCKSTEP" checkpoint verify imported
    for row in 0 1; do
        wanted=$(golden_sequence "$golden" $row)
        for from in imported "$golden"; do
            expect 0 "$LOCKSTEP" eval "$from" --tokens ids --json
            check "$name: loss $(field "$out" loss) is not $wanted" near "$(field "$out" loss)" "$wanted" 1e-4
        done
    done
    same "$name: predicted tokens" "$(field "$out" tokens)" 24

    expect 0 "$LOCKSTEP" export imported -o "exported-$name"
    check "$name: tensors after a round trip" same_tensors "$golden" "exported-$name"
    expect 0 "$LOCKSTEP" import "exported-$name" -o "again-$name"
    same "$name: state hash of the second import" "$("$LOCKSTEP" state-hash "again-$name")" "$("$LOCKSTEP" state-hash imported)"

    # Training from the import, from the folder itself, and from the export: the same start, so the same end.
    expect 0 "$LOCKSTEP" train from.yaml --json --run-dir "run-$name"
    trained=$(hashes "$out")
    expect 0 "$LOCKSTEP" train from.yaml --json --run-dir "run-hf-$name" --set model.from="exported-$name" --threads 3
    same "$name: training from the export" "$(hashes "$out")" "$trained"
    expect 0 "$LOCKSTEP" train from.yaml --json --run-dir "run-$name"
    same "$name: the finished run" "$(hashes "$out")" "$trained"
    expect 0 "$LOCKSTEP" export "run-$name" -o "trained-$name"
    check "$name: three steps change the weights" test "$(md5sum <"trained-$name/model.safetensors")" != "$(md5sum <"exported-$name/model.safetensors")"
    expect 0 "$LOCKSTEP" eval "run-$name" --tokens ids --json
    loss=$(field "$out" loss)
    expect 0 "$LOCKSTEP" eval "trained-$name" --tokens ids --json
    same "$name: loss of run and export" "$(field "$out" loss)" "$loss"
    cp ids "trained-$name/"
    printf 'logits %s exported-%s\nloss trained-%s %s\n' "$golden" "$name" "$name" "$loss" >>questions
done
check "golden models" test $models -ge 5

# Weights that bitsandbytes packed are read as the values it computes with. Under an adapter, its codes and their float32 values
# give the same run and the same merge; by themselves they are trained only after an import.
for kind in nf4 int8; do
    packed=$LS_SOURCE_DIR/tests/golden/packed_models/$kind
    expect 0 "$LOCKSTEP" eval "$packed" --tokens ids --json
    loss=$(field "$out" loss)
    expect 0 "$LOCKSTEP" import "$packed" -o "imported-$kind"
    expect 0 "$LOCKSTEP" eval "imported-$kind" --tokens ids --json
    same "$kind: loss of the import" "$(field "$out" loss)" "$loss"
    expect 2 "$LOCKSTEP" train from.yaml --run-dir refused --set model.from="$packed"
    says "has packed weights" "adapter.kind: lora" "lockstep import"
    for base in fp32 $kind; do
        expect 0 "$LOCKSTEP" train from.yaml --json --run-dir "lora-$kind-$base" --set model.from="$packed" \
            --set adapter.kind=lora --set adapter.base=$base
        hashes "$out" >"lora-$base"
        expect 0 "$LOCKSTEP" export "lora-$kind-$base" -o "merged-$kind-$base"
    done
    same "$kind: a run on its codes" "$(cat lora-$kind)" "$(cat lora-fp32)"
    check "$kind: merged weights" same_tensors "merged-$kind-$kind" "merged-$kind-fp32"
done

# A model trained here, with its tokenizer.
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir own --set tokenizer.kind=train --set tokenizer.vocab=300
expect 0 "$LOCKSTEP" export own -o own-hf
check "config and tokenizer" test -s own-hf/config.json -a -s own-hf/tokenizer.json
expect 0 "$LOCKSTEP" import own-hf -o own-again
expect 0 "$LOCKSTEP" eval own --data text.txt --json
loss=$(field "$out" loss)
expect 0 "$LOCKSTEP" eval own-again --data text.txt --json
same "loss after export and import" "$(field "$out" loss)" "$loss"
expect 0 "$LOCKSTEP" eval own-hf --data text.txt --json
same "loss of the export" "$(field "$out" loss)" "$loss"
# A tokenizer of bytes travels too.
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir bytes --steps 2
expect 0 "$LOCKSTEP" export bytes -o bytes-hf
expect 0 "$LOCKSTEP" eval bytes --data text.txt --json
loss=$(field "$out" loss)
expect 0 "$LOCKSTEP" eval bytes-hf --data text.txt --json
same "loss of the export with bytes" "$(field "$out" loss)" "$loss"
expect 0 "$LOCKSTEP" sample bytes-hf --prompt "the king" --max-tokens 8 --temperature 0

for model in own bytes; do
    printf 'the king said to his people: caf\303\251, light and water.' >$model-hf/text
    "$LOCKSTEP" tokenize encode --tokenizer $model-hf $model-hf/text >$model-hf/ids
    head -c 60 $model-hf/text >sentence # within the context
    "$LOCKSTEP" tokenize encode --tokenizer $model-hf sentence | cut -d' ' -f1-32 >ids
    expect 0 "$LOCKSTEP" eval $model --tokens ids --json
    mkdir $model-loss && cp $model-hf/* $model-loss/ && cp ids $model-loss/
    printf 'text %s-hf\nloss %s-loss %s\n' $model $model "$(field "$out" loss)" >>questions
done
if [ -n "${LOCKSTEP_PEER_PYTHON:-}" ]; then
    check "transformers agrees to $(wc -l <questions) questions" ask_peer
else
    echo "LOCKSTEP_PEER_PYTHON is not set: transformers did not load the exports"
fi
finish
