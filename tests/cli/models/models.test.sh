#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Models on the way from folder to checkpoint and back: what travels along, what is refused, and the ids and texts commands read.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
golden=$LS_SOURCE_DIR/tests/golden/models/llama

# ---- what travels along ----

expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir own --steps 4 --set tokenizer.kind=train --set tokenizer.vocab=300
expect 0 "$LOCKSTEP" export own -o folder
echo '{"eos_token": "<|endoftext|>", "model_max_length": 32, "chat_template": "{{ messages }}\n"}' >folder/tokenizer_config.json
echo '{"eos_token": "<|endoftext|>"}' >folder/special_tokens_map.json
echo '{"temperature": 0.5, "eos_token_id": 0}' >folder/generation_config.json
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
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir other --steps 2 --set tokenizer.kind=bytes --set tokenizer.replace=true
expect 0 "$LOCKSTEP" export other -o other-exported
check "another tokenizer's settings stay behind" test ! -e other-exported/chat_template.jinja -a -e other-exported/tokenizer.json
check "the bytes have no special token" eval '! grep -q endoftext other-exported/tokenizer_config.json'

# ---- what an export adds ----

expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir spm --steps 2 --set tokenizer.kind=file --set tokenizer.file="$LS_SOURCE_DIR/tests/golden/tokenizers/plain.model" \
    --set checkpoint.weights_every_steps=1
expect 0 "$LOCKSTEP" export spm -o spm-exported
for file in tokenizer.model tokenizer.json; do
    "$LOCKSTEP" tokenize encode text.txt --tokenizer spm-exported/$file >$file.ids
done
check "ids of tokenizer.json and tokenizer.model" cmp tokenizer.json.ids tokenizer.model.ids
same "special tokens" "$(field spm-exported/tokenizer_config.json bos_token eos_token tokenizer_class)" "<s> </s> PreTrainedTokenizerFast"
same "special tokens for older programs" "$(field spm-exported/special_tokens_map.json bos_token eos_token)" "<s> </s>"
same "ids that end a text" "$(field spm-exported/generation_config.json eos_token_id)" "$(field spm-exported/config.json eos_token_id)"
expect 0 "$LOCKSTEP" export own -o own-exported
same "special tokens of a BPE trained here" "$(field own-exported/tokenizer_config.json bos_token eos_token)" "<|endoftext|> <|endoftext|>"
expect 0 "$LOCKSTEP" import spm-exported -o spm-again
sample_of() { "$LOCKSTEP" sample "$1" --prompt "the king" --max-tokens 8 --seed 3; }
same "a sample of the export" "$(sample_of spm-again)" "$(sample_of spm)"
same "the type of a snapshot's weights" "$(field spm/checkpoints/weights/1/config.json torch_dtype)" bfloat16
same "the type of a checkpoint's weights" "$(field spm/checkpoints/2/config.json torch_dtype)" float32
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir nfkc --steps 1 --set tokenizer.kind=file --set tokenizer.file="$LS_SOURCE_DIR/tests/golden/tokenizers/nfkc.model"
expect 0 "$LOCKSTEP" export nfkc -o nfkc-exported
says "tokenizer.json is not written" "sentencepiece"

# ---- the folder of an export ----

cp -r folder kept && cp -r folder before
expect 2 "$LOCKSTEP" export spm -o kept
says "kept is not empty" "--replace"
check "nothing changed" diff -r kept before
expect 0 "$LOCKSTEP" export spm -o kept --replace --dtype bf16 --shard-size 4KB
prints "bf16"
check "nothing of the older model" test ! -e kept/chat_template.jinja -a -e kept/model.safetensors.index.json -a ! -e kept/model.safetensors
same "torch_dtype" "$(field kept/config.json torch_dtype)" bfloat16
same "a sample of bf16" "$(sample_of spm/checkpoints/weights/2)" "$(sample_of kept)"
expect 2 "$LOCKSTEP" export spm -o own --replace
says "own holds" "would be lost"

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
# Added tokens of a file beside them.
size=$(python3 -c 'import json; print(max(json.load(open("pair/vocab.json")).values()) + 1)')
cp -r pair beside && printf '{"<|x|>": %d}' "$size" >beside/added_tokens.json
printf '<|x|>' >beside.text
expect 0 "$LOCKSTEP" tokenize encode --tokenizer beside beside.text
same "the id of a token of added_tokens.json" "$(cat "$out")" "$size"
printf '{"<|x|>": %d}' $((size + 1)) >beside/added_tokens.json
expect 3 "$LOCKSTEP" tokenize encode --tokenizer beside beside.text
says 'the added token "<|x|>" has the id'
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

# ---- ids need no tokenizer: that of the model may be of a kind that lockstep cannot read ----

cp -r folder unigram
rm -f unigram/tokenizer.model unigram/tokenizer_config.json unigram/vocab.json unigram/merges.txt
echo '{"model": {"type": "Unigram", "vocab": []}}' >unigram/tokenizer.json
echo 65 66 67 66 65 >ids
expect 0 "$LOCKSTEP" eval folder --tokens ids
wanted=$(cat "$out")
expect 0 "$LOCKSTEP" eval unigram --tokens ids
same "the loss without its tokenizer" "$(cat "$out")" "$wanted"
expect 0 "$LOCKSTEP" eval unigram --data text.txt --tokenizer bytes
expect 2 "$LOCKSTEP" eval unigram --data text.txt
says Unigram

# ---- what is not there, or not whole ----

cp -r folder pointer
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n' >pointer/model.safetensors
expect 3 "$LOCKSTEP" eval pointer --data text.txt --tokenizer bytes
says "pointer/model.safetensors is a pointer of Git LFS" "git lfs pull"
cp pointer/model.safetensors lfs.txt && cp lfs.txt lfs.jsonl
for file in lfs.txt lfs.jsonl; do
    expect 3 "$LOCKSTEP" data prepare $file
    says "$file is a pointer of Git LFS"
done
for path in runs/none own/none "no folder/x" ./a/b; do
    expect 2 "$LOCKSTEP" eval "$path" --data text.txt
    says "$path does not exist"
done
expect 2 "$LOCKSTEP" eval meta-llama/Llama-2-7b --data text.txt
says "lockstep pull meta-llama/Llama-2-7b"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir damaged
for file in damaged/checkpoints/12/*.safetensors; do
    dd if=/dev/zero of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) count=64 conv=notrunc status=none
done
for command in "eval damaged --data text.txt" "export damaged -o damaged-hf"; do
    expect 3 "$LOCKSTEP" $command
    says "An older checkpoint is there: damaged/checkpoints/8"
done

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
