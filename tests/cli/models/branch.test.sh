#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Branches of a model on three corpora, trained apart and merged: averages, task arithmetic, stitched layers, a mixture with trained routers, and
# the losses of all in one table; what cannot be merged is refused by name.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# Three corpora: words in lower case, in capitals, and numbers.
write_text lower.txt 200 1
tr a-z A-Z <lower.txt >upper.txt
awk 'BEGIN { srand(2); for (i = 0; i < 200; i++) { for (j = 0; j < 12; j++) printf "%d ", rand() * 1000; print "." } }' >digits.txt

expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir base --steps 4
quick=(--set train.global_batch=4 --set train.optimizer.lr=3e-3 --set 'eval.every_steps=0' --set sample.prompt='a: b')
expect 0 "$LOCKSTEP" branch base --data lower.txt --data upper.txt --data digits.txt -o branches --steps 12 "${quick[@]}" --train --json
check "what was started" python3 - "$out" "$PWD" <<'PY'
import hashlib, json, sys
root, here = json.load(open(sys.argv[1])), sys.argv[2]
saved = json.load(open("branches/branch.json"))
assert [b["name"] for b in root["branches"]] == ["lower", "upper", "digits"], root
assert len(root["base"]["digest"]) == 64 and saved["base"] == root["base"]
for branch in saved["branches"]:
    (file,) = branch["files"]
    assert file["sha256"] == hashlib.sha256(open(file["path"], "rb").read()).hexdigest()
    assert branch["data"] == f"{here}/{branch['name']}.txt"
assert all(b["result"]["status"] == "done" or b["result"]["step"] == 12 for b in root["branches"])
PY
same "settings of all branches" "$(grep -c 'lr: 3e-3' branches/*.yaml | cut -d: -f2 | sort -u)" 1
check "a text with a colon" grep -q 'prompt: "a: b"' branches/lower.yaml
all=(branches/lower branches/upper branches/digits)
texts=(--eval lower.txt --eval upper.txt --eval digits.txt)

# ---- averages ----

expect 0 "$LOCKSTEP" merge "${all[@]}" -o average "${texts[@]}" --json
check "the average" python3 - "$out" <<'PY'
import json, struct, sys
def tensors(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: struct.unpack(f"<{(e['data_offsets'][1] - e['data_offsets'][0]) // 4}f",
                                data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]])
            for name, e in header.items() if name != "__metadata__"}
root = json.load(open(sys.argv[1]))
assert root["method"] == "average" and len(root["models"]) == 4 and len(root["models"][0]["losses"]) == 3
parents = [tensors(f"branches/{name}/checkpoints/12/model.safetensors") for name in ("lower", "upper", "digits")]
merged = tensors("average/0/model.safetensors")
float32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
for name, values in merged.items():
    for k, value in enumerate(values):
        total = 0.0
        for p in parents:
            total += 1.0 / 3.0 * p[name][k]
        assert value == float32(total), (name, k)
lineage = json.load(open("average/0/MANIFEST.json"))["extra"]["merge"]
assert lineage["digest"] == root["digest"] and [p["path"] for p in lineage["parents"]] == [p["path"] for p in root["parents"]]
losses = {row["model"]: [c["loss"] for c in row["losses"]] for row in root["models"]}
for i, name in enumerate(("lower", "upper", "digits")):
    assert min(losses, key=lambda m: losses[m][i]) == f"branches/{name}", losses
PY
digest=$(field "$out" digest)
expect 0 "$LOCKSTEP" merge "${all[@]}" -o again --weights 0.333333333333,0.333333333333,0.333333333334
expect 0 "$LOCKSTEP" eval "${all[@]}" average --data lower.txt --data upper.txt
prints "branches/upper" "average" "mean" "nats per token"
expect 0 "$LOCKSTEP" export average -o exported
expect 0 "$LOCKSTEP" merge exported branches/lower -o mixed --weights 1,0 --json
same "the digest of a model exported and merged with nothing" "$(field "$out" digest)" "$digest"
expect 0 "$LOCKSTEP" sample average --prompt "the " --max-tokens 4

expect 0 "$LOCKSTEP" merge branches/lower -o back --method task-arithmetic --base base --scale 0 --json
check "scale 0 is the base" python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["digest"] == r["base"]["digest"]' "$out"
expect 0 "$LOCKSTEP" merge branches/lower branches/upper -o added --method task-arithmetic --base base --scale 0.5

# ---- layers and experts ----

expect 0 "$LOCKSTEP" merge branches/lower branches/upper -o tall --method stitch --layers A:0-1,B:1
expect 0 "$LOCKSTEP" eval tall --data lower.txt --json
same "layers" "$(field tall/0/config.json num_hidden_layers)" 3
expect 0 "$LOCKSTEP" merge branches/lower branches/upper -o whole --method stitch --layers A:0-1 --json
check "all layers of one model" python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); assert r["digest"] == r["parents"][0]["digest"]' "$out"

cp -r branches/lower/checkpoints/12 copy
expect 0 "$LOCKSTEP" merge branches/lower copy -o alike --method experts
expect 0 "$LOCKSTEP" eval branches/lower alike --data lower.txt --json
check "a mixture of equal experts is the model, whatever its routers say" python3 -c '
import json, sys
one, mixture = (row["losses"][0]["loss"] for row in json.load(open(sys.argv[1]))["models"])
assert abs(one - mixture) < 1e-6, (one, mixture)' "$out"
expect 0 "$LOCKSTEP" merge "${all[@]}" -o mixture --method experts "${texts[@]}"
prints "lockstep train mixture/router.yaml" "mixture"
expect 0 "$LOCKSTEP" train mixture/router.yaml --json --run-dir routed --set train.steps=6 --set train.global_batch=4 --set eval.every_steps=0
check "only the routers were trained" python3 - <<'PY'
import glob, json, struct
def tensors(folder):
    found = {}
    for path in glob.glob(f"{folder}/model*.safetensors"):
        data = open(path, "rb").read()
        size = struct.unpack("<Q", data[:8])[0]
        for name, e in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                found[name] = data[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]]
    return found
before, after = tensors("mixture/0"), tensors("routed/checkpoints/6")
changed = sorted(name for name in before if before[name] != after[name])
assert changed == [f"model.layers.{i}.block_sparse_moe.gate.weight" for i in range(2)], changed
assert any(".experts.2.w3." in name for name in before)
PY
expect 0 "$LOCKSTEP" eval average routed --data lower.txt --data upper.txt --data digits.txt --json

# ---- what cannot be merged ----

expect 0 "$LOCKSTEP" train tiny.yaml --run-dir deep --steps 1 --set model.layers=3
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir other --steps 1 --set model.family=gpt2 --set model.kv_heads=4
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir words --steps 1 --set tokenizer.kind=train --set tokenizer.vocab=300 --set model.vocab=300
expect 2 "$LOCKSTEP" merge base deep -o no
says "deep differs from base: layers is 3, not 2" "--method stitch"
expect 2 "$LOCKSTEP" merge base other -o no
says "the family is gpt2, not llama"
expect 2 "$LOCKSTEP" merge base words branches/lower -o no
says "vocab is" "the tokenizer is another one" "base and branches/lower can still be merged"
expect 2 "$LOCKSTEP" merge branches/lower branches/upper -o no --method task-arithmetic --base deep
says "the base deep differs"
expect 2 "$LOCKSTEP" merge branches/lower branches/upper -o no --method task-arithmetic
says "--base"
expect 2 "$LOCKSTEP" merge branches/lower branches/upper -o no --weights 0.5,0.6
says "add up to 1.1"
expect 2 "$LOCKSTEP" merge branches/lower branches/upper -o no --weights 1
says "fewer numbers"
expect 2 "$LOCKSTEP" merge branches/lower branches/upper -o no --weights 1,x
expect 2 "$LOCKSTEP" merge branches/lower branches/lower -o no
says "given twice"
expect 2 "$LOCKSTEP" merge branches/lower -o no
expect 2 "$LOCKSTEP" merge branches/lower branches/upper -o average
says "already holds a checkpoint"
for layers in A:0,B:2 A:1 A:0 C:0-1 A:0-1,B:5 A0 A:1-0; do
    expect 2 "$LOCKSTEP" merge base deep -o no --method stitch --layers $layers
done
expect 2 "$LOCKSTEP" merge deep deep -o no --method stitch --layers A:0,B:2
says "leaves a gap: layer 1 is missing"
expect 2 "$LOCKSTEP" merge other other -o no --method experts
expect 2 "$LOCKSTEP" merge other deep -o no --method experts
cp -r branches/lower/checkpoints/12 torn && truncate -s 100000 torn/model.safetensors
expect 3 "$LOCKSTEP" merge torn branches/upper -o no
expect 2 "$LOCKSTEP" merge nowhere branches/upper -o no
check "nothing was left" test ! -e no

expect 2 "$LOCKSTEP" branch base -o more
says "--data FILE is missing"
expect 2 "$LOCKSTEP" branch base --data lower.txt --data ./lower.txt -o more
says "two branches have the name lower"
expect 2 "$LOCKSTEP" branch base --data lower.txt -o more --set train.stepz=3
says "train.stepz"
expect 2 "$LOCKSTEP" branch base --data lower.txt --name a --name b -o more
expect 2 "$LOCKSTEP" branch base --data lower.txt -o branches
says "already has branches"
expect 2 "$LOCKSTEP" branch base --data nothing.txt -o more
expect 2 "$LOCKSTEP" eval base deep other --tokens ids

# ---- adapters ----

sed '/^model:/d; /^tokenizer:/d' tiny.yaml >lora.yaml
echo "model: {from: base}
adapter: {kind: lora, rank: 2}" >>lora.yaml
expect 0 "$LOCKSTEP" train lora.yaml --json --run-dir first --steps 4
expect 0 "$LOCKSTEP" train lora.yaml --json --run-dir second --steps 4 --set train.seed=8 --set adapter.rank=3
expect 0 "$LOCKSTEP" merge first second -o full
expect 0 "$LOCKSTEP" merge first second -o joint --adapter --json
same "the rank of the joint adapter" "$(field joint/adapter_config.json r)" 5
expect 0 "$LOCKSTEP" eval full joint --data text.txt --json
check "merged models and merged adapters" python3 -c '
import json, sys
full, joint = (row["losses"][0]["loss"] for row in json.load(open(sys.argv[1]))["models"])
assert abs(full - joint) < 1e-5, (full, joint)' "$out"
expect 2 "$LOCKSTEP" merge first base -o no --adapter
says "has no adapter"
expect 2 "$LOCKSTEP" branch first --data lower.txt -o more
says "is an adapter"

finish
