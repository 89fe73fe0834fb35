#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models on the way from folder to checkpoint and back: what travels along, what is refused, and the ids and texts commands read.
. "$(dirname "$0")/lib.sh"
golden=$LS_SOURCE_DIR/tests/golden/models/llama

# ---- what travels along ----

expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir own --steps 4 --set tokenizer.kind=train --set tokenizer.vocab=300
expect 0 "$LOCKSTEP" export own -o folder
echo '{"eos_token": "<|endoftext|>", "model_max_length": 32}' >folder/tokenizer_config.json
echo '{"eos_token": "<|endoftext|>"}' >folder/special_tokens_map.json
echo '{"temperature": 0.5}' >folder/generation_config.json
echo '{{ messages }}' >folder/chat_template.jinja
expect 0 "$LOCKSTEP" import folder -o imported
expect 0 "$LOCKSTEP" export imported -o exported
for file in tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json chat_template.jinja; do
    check "$file after import and export" cmp folder/$file exported/$file
done

sed '/^model:/d; /^tokenizer:/d' tiny.yaml >from.yaml && echo 'model: {from: imported}' >>from.yaml
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir tuned --steps 2
expect 0 "$LOCKSTEP" export tuned -o tuned-exported
for file in tokenizer.json tokenizer_config.json special_tokens_map.json generation_config.json chat_template.jinja; do
    check "$file after import, training and export" cmp folder/$file tuned-exported/$file
done
# With another tokenizer the files of the model's own would be wrong.
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir other --steps 2 --set tokenizer.kind=bytes
expect 0 "$LOCKSTEP" export other -o other-exported
check "another tokenizer's settings stay behind" test ! -e other-exported/tokenizer_config.json -a -e other-exported/tokenizer.json

# GPT-2's two files are a tokenizer as well.
cp -r folder pair && rm pair/tokenizer.json
python3 - <<'PY'
import json
tokenizer = json.load(open("folder/tokenizer.json"))
vocab = dict(tokenizer["model"]["vocab"])
vocab.update((token["content"], token["id"]) for token in tokenizer["added_tokens"])
json.dump(vocab, open("pair/vocab.json", "w"))
merges = [m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]]
open("pair/merges.txt", "w").write("#version: 0.2\n" + "\n".join(merges) + "\n")
PY
expect 0 "$LOCKSTEP" import pair -o pair-imported
prints "with its tokenizer"
sample() { "$LOCKSTEP" sample "$1" --prompt "the king said" --max-tokens 8 --seed 3; }
same "a sample of the import" "$(sample pair-imported)" "$(sample folder)"
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir pair-run --steps 2 --set model.from=pair-imported
expect 0 "$LOCKSTEP" export pair-run -o pair-run-exported
expect 0 "$LOCKSTEP" export pair-imported -o pair-exported
for file in vocab.json merges.txt; do
    check "$file after import and export" cmp pair/$file pair-exported/$file
    check "$file after import, training and export" cmp pair/$file pair-run-exported/$file
done
# Under their older names they travel as the tokenizer.json that stands for them.
cp -r pair old && mv old/vocab.json old/encoder.json && mv old/merges.txt old/vocab.bpe
expect 0 "$LOCKSTEP" import old -o old-imported
same "a sample of the older import" "$(sample old-imported)" "$(sample folder)"

# ---- an import replaces nothing ----

hash=$("$LOCKSTEP" state-hash imported)
expect 2 "$LOCKSTEP" import "$golden" -o imported
says "imported already holds a checkpoint" "choose another -o"
same "the first import" "$("$LOCKSTEP" state-hash imported)" "$hash"
expect 2 "$LOCKSTEP" import "$golden" -o own
expect 2 "$LOCKSTEP" import "$golden" -o own/checkpoints
says "already holds a checkpoint"

# ---- a loss that is no number; a model that does not fit ----

cp -r folder broken
python3 - <<'PY'
import struct
data = bytearray(open("broken/model.safetensors", "rb").read())
start = 8 + struct.unpack("<Q", data[:8])[0]
data[start:] = struct.pack("<f", float("nan")) * ((len(data) - start) // 4)
open("broken/model.safetensors", "wb").write(data)
PY
for json in "" --json; do
    expect 1 "$LOCKSTEP" eval broken --data text.txt $json
    says "is not finite"
    check "nothing printed" test ! -s "$out"
done

mkdir giant
cat >giant/config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 1000000, "hidden_size": 65536,
 "intermediate_size": 262144, "num_hidden_layers": 200, "num_attention_heads": 512, "num_key_value_heads": 512,
 "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false}
JSON
expect 4 "$LOCKSTEP" eval giant --data text.txt --tokenizer bytes
says giant "memory for its parameters"
expect 4 "$LOCKSTEP" sample giant --tokenizer bytes

# ---- ids ----

printf '5 6\0 7\n' >ids
expect 3 "$LOCKSTEP" tokenize decode ids
says "ids: '6' at byte 2 is not a token id"
expect 3 "$LOCKSTEP" eval own --tokens ids
says "ids: '6' at byte 2 is not a token id"
printf '5 \0' >ids
expect 3 "$LOCKSTEP" tokenize decode ids
says "at byte 2"
printf '65 +66' | "$LOCKSTEP" tokenize decode >"$out" 2>"$err" && fail "a sign was taken"
says "standard input: '+66' at byte 3"
printf ' 65\t66\r\n67' >ids
expect 0 "$LOCKSTEP" tokenize decode ids
same "ids with all kinds of space" "$(cat "$out")" ABC

# ---- a tokenizer from JSON lines ----

split -l 100 text.txt part-
python3 - <<'PY'
import glob, json
with open("parts.jsonl", "w") as out:
    for path in sorted(glob.glob("part-*")):
        out.write(json.dumps({"text": open(path).read()}) + "\n\n")
PY
expect 0 "$LOCKSTEP" tokenize train part-* --vocab 300 -o parts.json
expect 0 "$LOCKSTEP" tokenize train parts.jsonl --vocab 300 -o lines.json
check "the same documents, the same tokenizer" cmp parts.json lines.json
echo '{"no_text": 1}' >>parts.jsonl
expect 3 "$LOCKSTEP" tokenize train parts.jsonl --vocab 300 -o lines.json
says "parts.jsonl:9"
printf '\1\2\3\4' >tokens.bin
expect 2 "$LOCKSTEP" tokenize train tokens.bin
says "tokens.bin is a token file"
finish
