#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Folders as they are published (published.py): each loads, or is refused by the name of what it needs. What ends a text; runs with
# a larger vocabulary or a longer context than the imported model's.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# ---- any published folder ----

mkdir drawn && python3 "$LS_SOURCE_DIR/tests/cli/models/published.py" 20261122 40 drawn
seq 3 34 | tr '\n' ' ' >ids
printf 'the tin <tool> x 2024,  the   end' >sentence
loaded=0 refused=0 pairs=0
while IFS=$'\t' read -r name wanted text; do
    if [ "$wanted" != loads ]; then
        refused=$((refused + 1))
        expect "$wanted" "$LOCKSTEP" eval "drawn/$name" --data sentence
        says "$name" "$text"
        continue
    fi
    loaded=$((loaded + 1))
    expect 0 "$LOCKSTEP" tokenize encode --tokenizer "drawn/$name" sentence
    expect 0 "$LOCKSTEP" eval "drawn/$name" --tokens ids --json
    case $name in
        *-again) pairs=$((pairs + 1)) && same "$name: loss in the other spelling" "$(field "$out" loss)" "$loss" ;;
    esac
    loss=$(field "$out" loss)
done <drawn/list
check "$loaded folders loaded, $pairs twice, $refused refused" test $loaded -ge 25 -a $pairs -ge 5 -a $refused -ge 8
for name in $(awk '$2 == "loads" && NR % 8 == 0 { print $1 }' drawn/list); do
    expect 0 "$LOCKSTEP" eval "drawn/$name" --tokens ids --json
    loss=$(field "$out" loss)
    expect 0 "$LOCKSTEP" import "drawn/$name" -o "imported-$name"
    expect 0 "$LOCKSTEP" export "imported-$name" -o "exported-$name"
    expect 0 "$LOCKSTEP" eval "exported-$name" --tokens ids --json
    same "$name: loss after import and export" "$(field "$out" loss)" "$loss"
    expect 0 "$LOCKSTEP" tokenize encode --tokenizer "exported-$name" sentence
    cp "$out" wanted
    expect 0 "$LOCKSTEP" tokenize encode --tokenizer "drawn/$name" sentence
    check "$name: ids after import and export" cmp "$out" wanted
done

# ---- what is no model ----

expect 2 "$LOCKSTEP" import meta-llama/Llama-2-7b -o x
says "there is no folder meta-llama/Llama-2-7b here" "lockstep pull meta-llama/Llama-2-7b -o DIR"
mkdir adapter && echo '{}' >adapter/adapter_config.json
expect 2 "$LOCKSTEP" import adapter -o x
says "adapter has no adapter_model.safetensors"
echo GGUF >model.gguf && mkdir -p models--org--name/snapshots
expect 2 "$LOCKSTEP" import model.gguf -o x
says "model.gguf is a GGUF file, which lockstep cannot read"
expect 2 "$LOCKSTEP" import models--org--name -o x
says "models--org--name is a folder of the Hugging Face cache"
golden=$LS_SOURCE_DIR/tests/golden/models/llama
mkdir bare && cp "$golden/model.safetensors" bare
expect 3 "$LOCKSTEP" eval bare --tokens ids
says "bare has model.safetensors but no config.json"

# ---- what ends a text: the golden model with a tokenizer of 70 characters ----

cp -r "$golden" model && chmod -R u+w model
python3 - <<'PY'
import json
vocab = {chr(48 + i): i for i in range(70)}
json.dump({"model": {"type": "BPE", "vocab": vocab, "merges": []}}, open("model/tokenizer.json", "w"))
PY
# eos FILE VALUE: sets eos_token_id.
eos() {
    python3 - "$1" "$2" <<'PY'
import json, os, sys
value = json.load(open(sys.argv[1])) if os.path.exists(sys.argv[1]) else {}
value["eos_token_id"] = json.loads(sys.argv[2])
json.dump(value, open(sys.argv[1], "w"))
PY
}
generate() { "$LOCKSTEP" sample "$1" --prompt 05 --max-tokens 12 --temperature 0; }
eos model/config.json null
text=$(generate model)
check "12 tokens are generated: $text" test ${#text} -eq 14
character=${text:5:1}
before=${text%%"$character"*}
[ -n "$before" ] || before=${text:0:2}${text:2:3} # the prompt is never cut
id=$(($(printf '%d' "'$character") - 48))
unused=0
while [[ $text == *$(printf "\\x$(printf %x $((48 + unused)))")* ]]; do unused=$((unused + 1)); done
eos model/config.json "[$unused, $id]"
shorter=$(generate model)
check "the second id of a list ends a text: $shorter" test ${#shorter} -lt 14 -a "${text#"$shorter$character"}" != "$text"
expect 0 "$LOCKSTEP" import model -o listed
expect 0 "$LOCKSTEP" export listed -o listed-hf
same "after import" "$(generate listed)" "$shorter"
same "the list after export" "$(field listed-hf/config.json eos_token_id)" "[$unused, $id]"
eos model/config.json null
eos model/generation_config.json "$id"
same "generation_config.json ends a text, too" "$(generate model)" "$shorter"
rm model/generation_config.json
eos model/config.json 1000000000000000019884624838656
same "an id beyond all vocabularies ends none" "$(generate model)" "$text"
printf '{"model_max_length": 1000000000000000019884624838656}' >model/tokenizer_config.json
same "model_max_length of transformers" "$(generate model)" "$text"

# ---- a larger vocabulary: tokens added to the tokenizer of a model ----

python3 - <<'PY'
import json, random
root = json.load(open("model/tokenizer.json"))
root["added_tokens"] = [{"id": 70 + i, "content": f"<{i}>", "special": True} for i in range(3)]
json.dump(root, open("model/tokenizer.json", "w"))
r = random.Random(1)
open("digits.txt", "w").write("\n".join("".join(chr(48 + r.randrange(70)) for _ in range(40)) + "<1>" for _ in range(400)).replace("\n", "0"))
PY
cat >grown.yaml <<'YAML'
name: grown
model: {from: model, context: 24}
data: {train: [digits.txt], validation_fraction: 0.1}
train: {steps: 4, global_batch: 4, micro_batch: 1, leaves: 4, optimizer: {lr: 1.0e-3}, schedule: {warmup_steps: 0}}
checkpoint: {every_steps: 2}
eval: {every_steps: 0}
sample: {every_steps: 0}
YAML
expect 0 "$LOCKSTEP" train grown.yaml --run-dir grown
grep -qF "vocabulary: 73 rows, 70 in model.from; each new row begins as the mean of those" "$out" "$err" || fail "no line about the vocabulary"
check "run.yaml has the vocabulary" grep -q "vocab: 73" grown/run.yaml
# The export has the added tokens, with their ids.
expect 0 "$LOCKSTEP" export grown -o grown-hf
printf 'A<1>B<0><2>' >added
expect 0 "$LOCKSTEP" tokenize encode --tokenizer model added
cp "$out" wanted
expect 0 "$LOCKSTEP" tokenize encode --tokenizer grown-hf added
check "added tokens after training and export" cmp "$out" wanted
same "their ids" "$(tr ' ' '\n' <wanted | grep -c '^7[012]$')" 3
same "the added tokens of the export" "$(python3 -c 'import json; print([(t["id"], t["content"], t["special"]) for t in json.load(open("grown-hf/tokenizer.json"))["added_tokens"]])')" \
    "[(70, '<0>', True), (71, '<1>', True), (72, '<2>', True)]"
same "rows of the export" "$(field grown-hf/config.json vocab_size)" 73
hash=$("$LOCKSTEP" state-hash grown)
expect 0 "$LOCKSTEP" train grown.yaml --run-dir grown-two --ranks 2
same "two ranks" "$("$LOCKSTEP" state-hash grown-two)" "$hash"
expect 0 "$LOCKSTEP" train grown.yaml --run-dir grown-set --set model.vocab=80
differs "another vocabulary is another run" "$("$LOCKSTEP" state-hash grown-set)" "$hash"
expect 2 "$LOCKSTEP" train grown.yaml --run-dir grown-set --set model.vocab=72
says "model.vocab is 72, but the tokenizer has 73 token ids"
expect 2 "$LOCKSTEP" train grown.yaml --run-dir x --set model.vocab=60
says "model.vocab is 60, but the model named in model.from has a vocabulary of 70"
# With a learning rate of 0 the new rows stay what they began as: the mean of the old ones.
expect 0 "$LOCKSTEP" train grown.yaml --run-dir begun --set train.optimizer.lr=0 --steps 2
expect 0 "$LOCKSTEP" export begun -o begun-hf
python3 - "$golden" >"$out" <<'PY'
import json, struct, sys

def read(folder, name):
    data = open(folder + "/model.safetensors", "rb").read()
    n = struct.unpack("<Q", data[:8])[0]
    t = json.loads(data[8:8 + n])[name]
    a, b = t["data_offsets"]
    rows, cols = t["shape"]
    v = struct.unpack(f"<{rows * cols}f", data[8 + n + a:8 + n + b])
    return [v[i * cols:(i + 1) * cols] for i in range(rows)]

for name in ("model.embed_tokens.weight", "lm_head.weight"):
    old, new = read(sys.argv[1], name), read("begun-hf", name)
    mean = [sum(c) / len(old) for c in zip(*old)]
    good = len(new) == 73 and new[:70] == old and all(abs(a - b) <= 1e-7 for row in new[70:] for a, b in zip(row, mean))
    print(name, "good" if good else "bad")
PY
prints "model.embed_tokens.weight good" "lm_head.weight good"

# ---- a longer context ----

expect 2 "$LOCKSTEP" train grown.yaml --run-dir x --set model.context=128
says "model.context is 128, but the context of the model named in model.from is 64" "model.rope_scaling: {kind: yarn}"
for kind in linear dynamic yarn; do
    expect 0 "$LOCKSTEP" train grown.yaml --run-dir "long-$kind" --set model.context=128 --set model.rope_scaling.kind=$kind
    grep -qF "context: 128 tokens, 64 in model.from; rotary scaling $kind with factor 2 from 64" "$out" "$err" || fail "no line about $kind"
    expect 0 "$LOCKSTEP" export "long-$kind" -o "long-$kind-hf"
    check "$kind in config.json" grep -q "\"rope_type\": \"$kind\"" "long-$kind-hf/config.json"
    expect 0 "$LOCKSTEP" eval "long-$kind" --data digits.txt --context 128 --json
    loss=$(field "$out" loss)
    expect 0 "$LOCKSTEP" eval "long-$kind-hf" --data digits.txt --context 128 --json
    same "$kind: loss of the export" "$(field "$out" loss)" "$loss"
done
hash=$("$LOCKSTEP" state-hash long-yarn)
expect 0 "$LOCKSTEP" train grown.yaml --run-dir long-two --ranks 2 --set model.context=128 --set model.rope_scaling.kind=yarn
same "yarn on two ranks" "$("$LOCKSTEP" state-hash long-two)" "$hash"
expect 2 "$LOCKSTEP" train grown.yaml --run-dir x --set model.from="$LS_SOURCE_DIR/tests/golden/models/gpt2" --set tokenizer.kind=file \
    --set tokenizer.file=model/tokenizer.json --set model.context=128 --set tokenizer.replace=true
says "gpt2" "learned positions"
finish
