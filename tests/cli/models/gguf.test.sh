#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# export --gguf, read by a small reader of its own: names, order and values of the tensors of all families, types of the mixtures,
# keys, tokenizer, template, Modelfile; what is refused; disk, memory, threads.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
mkdir tools
cat >tools/models.py <<'PY'
"""Writes a Hugging Face directory with random weights: models.py FAMILY DIR KEY=VALUE..."""
import array, json, os, random, struct, sys

def shapes(c, family):
    w, f, v = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    if family == "gpt2":
        out = {"transformer.wte.weight": [v, w], "transformer.wpe.weight": [c["n_positions"], w], "transformer.ln_f.weight": [w], "transformer.ln_f.bias": [w]}
        for i in range(c["num_hidden_layers"]):
            p = f"transformer.h.{i}."
            out |= {p + "ln_1.weight": [w], p + "ln_1.bias": [w], p + "attn.c_attn.weight": [w, 3 * w], p + "attn.c_attn.bias": [3 * w],
                    p + "attn.c_proj.weight": [w, w], p + "attn.c_proj.bias": [w], p + "ln_2.weight": [w], p + "ln_2.bias": [w],
                    p + "mlp.c_fc.weight": [w, f], p + "mlp.c_fc.bias": [f], p + "mlp.c_proj.weight": [f, w], p + "mlp.c_proj.bias": [w]}
        return out
    d = c["head_dim"]
    q, k = c["num_attention_heads"] * d, c["num_key_value_heads"] * d
    out = {"model.embed_tokens.weight": [v, w], "model.norm.weight": [w]}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = [v, w]
    for i in range(c["num_hidden_layers"]):
        p, a = f"model.layers.{i}.", f"model.layers.{i}.self_attn."
        out |= {p + "input_layernorm.weight": [w], a + "q_proj.weight": [q, w], a + "k_proj.weight": [k, w], a + "v_proj.weight": [k, w], a + "o_proj.weight": [w, q],
                p + "post_attention_layernorm.weight": [w], p + "mlp.gate_proj.weight": [f, w], p + "mlp.up_proj.weight": [f, w], p + "mlp.down_proj.weight": [w, f]}
        if family == "qwen2" or c.get("attention_bias"):
            out |= {a + "q_proj.bias": [q], a + "k_proj.bias": [k], a + "v_proj.bias": [k]}
        if c.get("attention_bias"):
            out[a + "o_proj.bias"] = [w]
        if family == "qwen3":
            out |= {a + "q_norm.weight": [d], a + "k_norm.weight": [d]}
    return out

def main(family, folder, *settings):
    names = {"gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
    c = {"model_type": family, "architectures": [names[family]], "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 10000.0,
         "tie_word_embeddings": False, "bos_token_id": None, "eos_token_id": [0, 5]}
    c |= {k: json.loads(v) for k, v in (s.split("=", 1) for s in settings)}
    zero = c.pop("zero", False)
    c.setdefault("head_dim", c["hidden_size"] // c["num_attention_heads"])
    if family == "gpt2":
        c |= {"n_positions": c["max_position_embeddings"], "n_ctx": c["max_position_embeddings"], "n_embd": c["hidden_size"], "n_layer": c["num_hidden_layers"], "n_head": c["num_attention_heads"],
              "n_inner": c["intermediate_size"], "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "tie_word_embeddings": True}
    random.seed(7)
    os.makedirs(folder, exist_ok=True)
    header, at, parts = {}, 0, []
    for name, shape in shapes(c, family).items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + 4 * count]}
        at += 4 * count
        if not zero:
            parts.append(array.array("f", (random.gauss(0, 0.05) for _ in range(count))).tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for part in parts:
            f.write(part)
        f.truncate(8 + len(text) + at)
    json.dump(c, open(folder + "/config.json", "w"))

if __name__ == "__main__":
    main(*sys.argv[1:])
PY
cat >tools/gguf_reader.py <<'PY'
"""Reads a GGUF file: (keys, {name: (type, shape, bytes)}), shape slowest first. Nothing may be left over."""
import struct
SIZES = {0: (1, 4), 1: (1, 2), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176), 14: (256, 210), 30: (1, 2)}
NAMES = {0: "F32", 1: "F16", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 30: "BF16"}

def read(path):
    data = open(path, "rb").read()
    at = 0
    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value
    def string():
        nonlocal at
        n = take("Q")
        at += n
        return data[at - n:at].decode()
    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take({4: "I", 5: "i", 6: "f", 7: "?"}[kind])
    assert data[:4] == b"GGUF"
    at = 4
    assert take("I") == 3
    tensors, keys, entries = take("Q"), {}, {}
    for _ in range(take("Q")):
        key = string()
        assert key not in keys, key
        keys[key] = value(take("I"))
    for _ in range(tensors):
        name = string()
        assert name not in entries, name
        shape = [take("Q") for _ in range(take("I"))]
        entries[name] = (take("I"), shape[::-1], take("Q"))
    start = (at + 31) // 32 * 32
    end, out = start, {}
    for name, (kind, shape, offset) in entries.items():
        block, size = SIZES[kind]
        assert shape[-1] % block == 0 and start + offset == end, name
        count = 1
        for n in shape:
            count *= n
        bytes_ = count // block * size
        out[name] = (NAMES[kind], shape, data[end:end + bytes_])
        assert len(out[name][2]) == bytes_
        end += (bytes_ + 31) // 32 * 32
    assert end == len(data), (end, len(data))
    return keys, out

def floats(tensor):
    kind, shape, data = tensor
    if kind == "F32":
        return list(struct.unpack(f"<{len(data) // 4}f", data))
    if kind == "F16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if kind == "BF16":
        return [struct.unpack("<f", b"\0\0" + data[i:i + 2])[0] for i in range(0, len(data), 2)]
    assert kind == "Q8_0"
    out = []
    for i in range(0, len(data), 34):
        d = struct.unpack_from("<e", data, i)[0]
        out += [d * q for q in struct.unpack_from("<32b", data, i + 2)]
    return out
PY
cat >tools/compare.py <<'PY'
"""compare.py FILE.gguf DIR: the values of all tensors of DIR, where llama.cpp looks for them, as exact as their types."""
import json, re, struct, sys
from gguf_reader import floats, read
path, folder = sys.argv[1:]
keys, tensors = read(path)
config = json.load(open(folder + "/config.json"))
family = config["model_type"]
data = open(folder + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm"}
inner = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
         "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "ln_1": "attn_norm",
         "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}
seen = set()
for name, entry in header.items():
    stem, suffix = name.rsplit(".", 1)
    layer = re.match(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.*)", stem)
    theirs = f"blk.{layer[1]}.{inner[layer[2]]}.{suffix}" if layer else f"{outer[stem]}.{suffix}"
    a, b = entry["data_offsets"]
    ours, shape = list(struct.unpack(f"<{(b - a) // 4}f", data[8 + n + a:8 + n + b])), entry["shape"]
    rows, cols = shape if len(shape) == 2 else (len(ours), 1)
    if family == "gpt2" and layer and len(shape) == 2:
        ours = [ours[r * cols + c] for c in range(cols) for r in range(rows)]
        shape = shape[::-1]
    if family in ("llama", "mistral") and theirs.split(".")[-2] in ("attn_q", "attn_k"):
        d = config["head_dim"]
        # Each head: the halves interleaved.
        order = [h * d + half * (d // 2) + j for h in range(rows // d) for j in range(d // 2) for half in range(2)]
        ours = [x for r in order for x in ours[r * cols:(r + 1) * cols]]
    kind, got_shape, _ = tensors[theirs]
    assert got_shape == shape, (theirs, got_shape, shape)
    assert len(shape) == 2 or kind == "F32", theirs
    got = floats(tensors[theirs])
    if kind == "Q8_0":
        # half a step of 1/127, the scale rounded to float16
        for i in range(0, len(ours), 32):
            most = max(map(abs, ours[i:i + 32]))
            assert max(abs(x - y) for x, y in zip(ours[i:i + 32], got[i:i + 32])) <= most * (0.5 / 127 + 1 / 2048) * 1.01, theirs
    elif kind == "F16":
        assert got == [struct.unpack("<e", struct.pack("<e", x))[0] for x in ours], theirs
    elif kind == "BF16":
        assert all(abs(x - y) <= abs(x) / 256 for x, y in zip(ours, got)), theirs
    else:
        assert kind == "F32" and got == ours, theirs
    seen.add(theirs)
assert set(tensors) - seen <= {"rope_freqs.weight"}, set(tensors) - seen
PY
cat >tools/show.py <<'PY'
"""show.py FILE.gguf KEY: a key; show.py FILE.gguf type NAME: the type of a tensor."""
import sys
from gguf_reader import floats, read
keys, tensors = read(sys.argv[1])
if sys.argv[2] == "type":
    print(tensors[sys.argv[3]][0] if sys.argv[3] in tensors else "none")
elif sys.argv[2] == "values":
    print(*(f"{x:.6g}" for x in floats(tensors[sys.argv[3]])))
else:
    print(keys.get(sys.argv[2], "none"))
PY
export PYTHONPATH=$scratch/tools
make() { python3 tools/models.py "$@" && cp words/* "$2"; }
show() { python3 tools/show.py "$@"; }

# A tokenizer of 320 tokens with two that end an answer, a template, generation settings.
mkdir words
for i in $(seq 300); do echo "the quick brown fox $i jumps over the lazy dog, and the other $((i * 7)) dogs look on"; done >text.txt
expect 0 "$LOCKSTEP" tokenize train --vocab 316 -o words/tokenizer.json text.txt
python3 - <<'PY'
import json
j = json.load(open("words/tokenizer.json"))
size = max(j["model"]["vocab"].values()) + 1
assert size <= 318, size
for i, text in enumerate(["<|im_start|>", "<|im_end|>"]):
    j["added_tokens"].append(dict(j["added_tokens"][0], id=size + i, content=text))
json.dump(j, open("words/tokenizer.json", "w"))
template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": template}, open("words/tokenizer_config.json", "w"))
json.dump({"eos_token_id": size + 1, "temperature": 0.7, "top_k": 20}, open("words/generation_config.json", "w"))
open("im_end", "w").write(str(size + 1))
PY
im_end=$(cat im_end)

# ---- every family ----

for family in gpt2 llama mistral qwen2 qwen3; do
    make $family $family
    for quant in f32 q8_0; do
        expect 0 "$LOCKSTEP" export $family --gguf $family-$quant.gguf --quant $quant
        prints "$family-$quant.gguf:" "$quant"
        check "$family in $quant" python3 tools/compare.py $family-$quant.gguf $family
    done
done
for quant in f16 bf16; do
    expect 0 "$LOCKSTEP" export llama --gguf llama-$quant.gguf --quant $quant
    check "llama in $quant" python3 tools/compare.py llama-$quant.gguf llama
done
same "mistral is a llama" "$(show mistral-f32.gguf general.architecture)" llama
same "norms stay float32" "$(show qwen3-q8_0.gguf type blk.0.attn_q_norm.weight)" F32
same "positions stay float32" "$(show gpt2-q8_0.gguf type position_embd.weight)" F32
same "file type" "$(show llama-q8_0.gguf general.file_type)" 7
make llama biased attention_bias=true head_dim=32
expect 0 "$LOCKSTEP" export biased --gguf biased.gguf --quant f32
check "biases and heads of their own width" python3 tools/compare.py biased.gguf biased
# From a checkpoint, with any number of threads: the same bytes.
expect 0 "$LOCKSTEP" import llama -o other/llama
for threads in 1 3; do
    expect 0 "$LOCKSTEP" export other/llama --gguf other/threads-$threads.gguf --quant q4_k_m --threads $threads
done
expect 0 "$LOCKSTEP" export llama --gguf llama-q4.gguf --quant q4_k_m
check "threads don't matter" cmp other/threads-1.gguf other/threads-3.gguf
check "a checkpoint and a directory give the same file" cmp other/threads-1.gguf llama-q4.gguf

# ---- tokenizer, template, ends ----

same "kind of tokenizer" "$(show llama-f32.gguf tokenizer.ggml.model) $(show llama-f32.gguf tokenizer.ggml.pre)" "gpt2 gpt-2"
same "end of a text" "$(show llama-f32.gguf tokenizer.ggml.eos_token_id)" "$im_end"
same "further ends" "$(show llama-f32.gguf tokenizer.ggml.eot_token_id) $(show llama-f32.gguf tokenizer.ggml.eom_token_id)" "0 5"
same "nothing is added" "$(show llama-f32.gguf tokenizer.ggml.add_bos_token)" False
check "template and tokens" python3 - <<'PY'
import json
from gguf_reader import read
keys, tensors = read("llama-f32.gguf")
j = json.load(open("words/tokenizer.json"))
assert keys["tokenizer.chat_template"] == json.load(open("words/tokenizer_config.json"))["chat_template"]
tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
assert len(tokens) == len(types) == 320 == tensors["token_embd.weight"][1][0]
vocab = j["model"]["vocab"]
assert all(tokens[i] == t for t, i in vocab.items())
for added in j["added_tokens"]:
    assert tokens[added["id"]] == added["content"] and types[added["id"]] == 3
known = set(vocab.values()) | {a["id"] for a in j["added_tokens"]}
assert all(types[i] == 5 for i in range(320) if i not in known)
merges = [m if isinstance(m, str) else " ".join(m) for m in j["model"]["merges"]]
assert keys["tokenizer.ggml.merges"] == merges
PY
check "a Modelfile" grep -q 'FROM ./gpt2-f32.gguf' Modelfile
check "with the ends" grep -q 'PARAMETER stop "<|im_end|>"' Modelfile
check "with the settings" grep -q 'PARAMETER temperature 0.7' Modelfile
prints "Modelfile was there before, for ./"
# The directory export has them, too: the template in both places, all ends.
expect 0 "$LOCKSTEP" export llama -o handed
check "template, ends and settings of a directory" python3 - <<'PY'
import json
settings = json.load(open("handed/tokenizer_config.json"))
assert open("handed/chat_template.jinja").read() == settings["chat_template"] and settings["eos_token"] == "<|im_end|>"
generation = json.load(open("handed/generation_config.json"))
assert generation["temperature"] == 0.7 and generation["eos_token_id"] == [int(open("im_end").read()), 0, 5], generation
PY
printf 'another template' >handed/chat_template.jinja
expect 0 "$LOCKSTEP" export handed -o again
same "the file wins" "$(field again/tokenizer_config.json chat_template)" "another template"
# Bytes: no merges, and an end that no text has.
cat >bytes.yaml <<'YAML'
name: letters
model: {family: llama, layers: 1, heads: 2, width: 32, context: 64}
tokenizer: {kind: bytes}
data: {train: [text.txt]}
train: {steps: 1, global_batch: 2, micro_batch: 2, leaves: 1}
YAML
expect 0 "$LOCKSTEP" train bytes.yaml --run-dir bytes
mkdir alone
expect 0 "$LOCKSTEP" export bytes --gguf alone/bytes.gguf
prints "no token ends a text" "Modelfile"
same "bytes" "$(show alone/bytes.gguf tokenizer.ggml.merges) $(show alone/bytes.gguf tokenizer.ggml.eos_token_id) $(show alone/bytes.gguf general.name)" "[] 255 letters"

# An adapter is merged on the way, into the base it was trained on: as a directory export does it.
cat >tuned.yaml <<'YAML'
name: llama
model: {from: llama}
adapter: {kind: lora, rank: 4, base: nf4}
data: {train: [text.txt]}
train: {steps: 2, global_batch: 2, micro_batch: 2, leaves: 1, optimizer: {kind: adamw, lr: 1.0e-2}}
YAML
mkdir merged
expect 0 "$LOCKSTEP" train tuned.yaml --run-dir tuned
for base in trained original; do
    expect 0 "$LOCKSTEP" export tuned -o merged/$base/llama --base $base
    expect 0 "$LOCKSTEP" export merged/$base/llama --gguf merged/$base.gguf --quant f32
    expect 0 "$LOCKSTEP" export tuned --gguf merged/tuned-$base.gguf --quant f32 --base $base
    check "merged into the $base base" cmp merged/$base.gguf merged/tuned-$base.gguf
done
check "the bases differ" test -n "$(cmp merged/trained.gguf merged/original.gguf)"

# The template that a run was trained with is handed over, with the token at which its answers end.
printf "{%% for m in messages %%}<|im_start|>{{ m['role'] }}: {{ m['content'] }}<|im_end|>{%% endfor %%}{%% if add_generation_prompt %%}<|im_start|>assistant: {%% endif %%}" >own.jinja
for i in $(seq 20); do
    echo '{"messages": [{"role": "user", "content": "the quick '$i'"}, {"role": "assistant", "content": "brown fox '$i'"}]}'
done >records.jsonl
cp -r llama plain && rm plain/generation_config.json && echo '{"eos_token": "<|endoftext|>"}' >plain/tokenizer_config.json
for adapter in full lora; do
    cat >chat.yaml <<YAML
name: chat
model: {from: plain}
data: {train: [records.jsonl], template: own.jinja, validation_fraction: 0.1}
train: {steps: 2, global_batch: 2, micro_batch: 2, leaves: 1}
YAML
    [ $adapter = full ] || echo "adapter: {kind: lora, rank: 2}" >>chat.yaml
    expect 0 "$LOCKSTEP" train chat.yaml --run-dir chat-$adapter
    expect 0 "$LOCKSTEP" export chat-$adapter -o chat-$adapter-hf
    check "the template trained with ($adapter)" cmp own.jinja chat-$adapter-hf/chat_template.jinja
    check "its end ($adapter)" grep -q "$im_end" chat-$adapter-hf/generation_config.json
    expect 0 "$LOCKSTEP" export chat-$adapter --gguf chat-$adapter.gguf
    same "the template trained with, in GGUF ($adapter)" "$(show chat-$adapter.gguf tokenizer.chat_template)" "$(cat own.jinja)"
    check "its end, in GGUF ($adapter)" test -n "$(for key in eos eot eom; do show chat-$adapter.gguf tokenizer.ggml.${key}_token_id; done | grep -x "$im_end")"
done

# ---- types of the mixtures, and what takes their place ----

make llama wide zero=true hidden_size=256 intermediate_size=512 num_hidden_layers=8
make gpt2 wide2 zero=true hidden_size=256 intermediate_size=512 num_hidden_layers=8
expect 0 "$LOCKSTEP" export wide --gguf wide-q4.gguf --quant q4_k_m
expect 0 "$LOCKSTEP" export wide --gguf wide-q5.gguf --quant q5_k_m
expect 0 "$LOCKSTEP" export wide --gguf wide-q6.gguf --quant q6_k
expect 0 "$LOCKSTEP" export wide2 --gguf wide2-q4.gguf --quant q4_k_m
check "types" python3 - <<'PY'
from gguf_reader import read
more = {0, 3, 6, 7}
for path, base in (("wide-q4.gguf", "Q4_K"), ("wide-q5.gguf", "Q5_K"), ("wide-q6.gguf", "Q6_K"), ("wide2-q4.gguf", "Q4_K")):
    tensors = read(path)[1]
    tied = "output.weight" not in tensors
    for name, (kind, shape, _) in tensors.items():
        part = name.split(".")[-2]
        if len(shape) == 1 or part == "position_embd":
            wanted = "F32"
        elif part == "output" or (part == "token_embd" and tied):
            wanted = "Q6_K"
        elif part in ("attn_v", "attn_qkv", "ffn_down") and int(name.split(".")[1]) in more:
            wanted = "Q6_K"
        else:
            wanted = base
        assert kind == wanted, (path, name, kind, wanted)
PY
make llama narrow hidden_size=96 intermediate_size=80 num_attention_heads=2
expect 0 "$LOCKSTEP" export narrow --gguf narrow-q4.gguf --quant q4_k_m
prints "token_embd.weight and 11 more: Q5_0 in place of Q4_K, because rows of 96 numbers cannot be divided into blocks of 256" "F16 in place of Q4_K, because rows of 80"
same "the output" "$(show narrow-q4.gguf type output.weight)" Q8_0
expect 0 "$LOCKSTEP" export narrow --gguf narrow-q5.gguf --quant q5_k_m
same "by name" "$(show narrow-q5.gguf type blk.1.attn_q.weight) $(show narrow-q5.gguf type blk.0.ffn_down.weight)" "Q5_1 F16"

# ---- positions ----

make llama three 'rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}' max_position_embeddings=512 rope_theta=500000.0
expect 0 "$LOCKSTEP" export three --gguf three.gguf
check "factors of llama3" python3 - <<'PY'
import math
from gguf_reader import floats, read
keys, tensors = read("three.gguf")
got = floats(tensors["rope_freqs.weight"])
for i, x in enumerate(got):
    wave = 2 * math.pi * 500000.0 ** (2 * i / 16)
    smooth = (64 / wave - 1) / 3
    wanted = 1 if wave < 16 else 8 if wave > 64 else 1 / ((1 - smooth) / 8 + smooth)
    assert abs(x - wanted) < 1e-5 * wanted, (i, x, wanted)
assert len(got) == 8 and keys["llama.rope.freq_base"] == 500000.0 and keys["llama.context_length"] == 512
PY
make qwen2 long 'rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}' max_position_embeddings=512
expect 0 "$LOCKSTEP" export long --gguf long.gguf
same "yarn" "$(show long.gguf qwen2.rope.scaling.type) $(show long.gguf qwen2.rope.scaling.factor) $(show long.gguf qwen2.rope.scaling.original_context_length) $(show long.gguf qwen2.rope.scaling.attn_factor)" "yarn 4.0 128 1.0"
make mistral window sliding_window=32
mkdir apart
expect 0 "$LOCKSTEP" export window --gguf apart/window.gguf
prints "limited to 32 positions, the size of the model's sliding window"
same "the window is the context" "$(show apart/window.gguf llama.context_length)" 32
check "the Modelfile has the same context" grep -qx "PARAMETER num_ctx 32" apart/Modelfile
make llama dynamic 'rope_scaling={"rope_type": "dynamic", "factor": 4.0}'
expect 0 "$LOCKSTEP" export dynamic --gguf dynamic.gguf
prints "limited to 128 positions: longer texts need dynamic"
make qwen2 three2 'rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64}'
expect 2 "$LOCKSTEP" export three2 --gguf refused.gguf
says "llama3 for llama and mistral only" "-o DIR"

# ---- bad input: nothing is left ----

expect 2 "$LOCKSTEP" export llama
says "-o DIR" "--gguf FILE"
expect 2 "$LOCKSTEP" export llama -o x --gguf x.gguf
says "cannot be given together"
for option in --adapter "--dtype bf16" "--shard-size 1MB"; do
    expect 2 "$LOCKSTEP" export llama --gguf x.gguf $option
    says "${option%% *} has no effect with --gguf FILE"
done
expect 2 "$LOCKSTEP" export llama -o x --quant q8_0
says "--quant has no effect without --gguf"
expect 2 "$LOCKSTEP" export llama --gguf x.gguf --quant q3_k
says "q3_k" "q4_k_m"
expect 2 "$LOCKSTEP" export llama --gguf llama-f32.gguf
says "llama-f32.gguf exists" "--replace"
expect 0 "$LOCKSTEP" export llama --gguf llama-f32.gguf --quant f32 --replace
expect 2 "$LOCKSTEP" export llama --gguf other
says "other is a folder"
expect 2 "$LOCKSTEP" export llama --gguf nodir/x.gguf
says "there is no folder nodir for x.gguf: create it"
expect 2 "$LOCKSTEP" export nothing-there --gguf x.gguf
mkdir mute && cp llama/config.json llama/model.safetensors mute
expect 2 "$LOCKSTEP" export mute --gguf x.gguf
says "mute has no tokenizer"
make llama few vocab_size=300
expect 2 "$LOCKSTEP" export few --gguf x.gguf
says "the tokenizer has 3" "the model only 300"
python3 - <<'PY'
import struct
for folder, value in (("sick", float("nan")), ("large", 1e6)):
    import shutil
    shutil.copytree("llama", folder)
    data = bytearray(open("llama/model.safetensors", "rb").read())
    data[-4:] = struct.pack("<f", value)
    open(folder + "/model.safetensors", "wb").write(data)
PY
expect 2 "$LOCKSTEP" export sick --gguf x.gguf
says "blk.1.ffn_down.weight" "not finite"
expect 2 "$LOCKSTEP" export large --gguf x.gguf --quant f16
says "blk.1.ffn_down.weight holds 1e+06" "F16 ends at 65504" "--quant bf16"
mkdir lonely
full() { (ulimit -f 64 && exec "$LOCKSTEP" export llama --gguf lonely/x.gguf --quant f32); }
expect 4 full
says "lonely/x.gguf" "File too large"
if mount -t tmpfs -o size=200k none lonely 2>/dev/null; then
    expect 4 "$LOCKSTEP" export llama --gguf lonely/x.gguf --quant f32
    says "No space left"
    same "nothing is left on the full disk" "$(ls lonely | wc -l)" 0
    umount lonely
else
    echo "can't mount a tmpfs: the limit on file sizes alone was tested"
fi
check "nothing is left" test -z "$(ls lonely)" -a ! -e x.gguf -a ! -e refused.gguf
check "no temporary file" test -z "$(find . -name '*.tmp*')"

# ---- memory: the largest tensor and 64 MiB, not the model ----

if ldd "$LOCKSTEP" 2>/dev/null | grep -q asan || grep -qa AddressSanitizer "$LOCKSTEP"; then
    echo "a sanitizer needs more memory: the bound was not tested"
else
    make llama heavy zero=true hidden_size=512 intermediate_size=4096 num_hidden_layers=10
    expect 0 "$LOCKSTEP" import heavy -o heavy-imported
    for from in heavy heavy-imported; do
        python3 - "$LOCKSTEP" $from >peak <<'PY'
import resource, subprocess, sys
subprocess.run([sys.argv[1], "export", sys.argv[2], "--gguf", sys.argv[2] + ".gguf", "--quant", "q4_k_m"], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
PY
        # 280 MB of weights, 8 MiB the largest
        check "memory from $from: $(cat peak)" test "$(cat peak)" -le $(((8 + 64) << 20)) -a "$(cat peak)" -gt 0
    done
fi
finish
