#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes folders as they are published for the families gpt2, llama, mistral, qwen2 and qwen3: small models with random weights
and keys drawn from what such files hold. Deterministic from the seed; needs nothing but Python.

    published.py SEED COUNT DIR

DIR/list has a line for each folder, with tabs: its name, then "loads", or the exit code and what the error must say. A folder
NAME-again holds the same model in the other spelling of its config.json (transformers 4 and 5), and must give the same loss.
"""
import json
import os
import random
import struct
import sys

# Key -> (values that change nothing here, where they come from). Sources: T4 and T5, the configuration classes of transformers
# 4.57 and 5.23; otherwise the config.json of the named model on the Hugging Face hub.
EVERYWHERE = {
    "use_cache": ([True, False], "T4"),
    "torch_dtype": (["float32", "bfloat16", "float16"], "T4"),
    "dtype": (["float32", "bfloat16"], "T5"),
    "transformers_version": (["4.31.0", "5.23.0"], "T4"),
    "initializer_range": ([0.02, 0.041666666666666664], "T4; SmolLM-135M"),
    "pad_token_id": ([None, 0, -1], "T4; Llama-2-7b-hf; -1 in early conversions of Llama"),
    "bos_token_id": ([None, 1], "T4; Qwen2.5-0.5B has null with its tokenizer"),
    "eos_token_id": ([None, 2, [2, 3], [2, 5, 2]], "T4; Llama-3.1-8B-Instruct has a list"),
    "_name_or_path": (["", "org/name"], "T4"),
    "return_dict": ([True], "T4"),
    "id2label": ([{"0": "LABEL_0", "1": "LABEL_1"}], "T4"),
    "output_attentions": ([False], "T4"),
    "quantization_config": ([None], "T4"),
}
GPT2 = {
    "n_ctx": ([32], "gpt2"),
    "n_inner": ([None], "gpt2"),
    "resid_pdrop": ([0.1, 0], "gpt2"),
    "embd_pdrop": ([0.1], "gpt2"),
    "attn_pdrop": ([0.1], "gpt2"),
    "summary_type": (["cls_index"], "gpt2"),
    "summary_use_proj": ([True], "gpt2"),
    "summary_activation": ([None], "gpt2"),
    "summary_proj_to_labels": ([True], "gpt2"),
    "summary_first_dropout": ([0.1], "gpt2"),
    "task_specific_params": ([{"text-generation": {"do_sample": True, "max_length": 50}}], "gpt2"),
    "scale_attn_weights": ([True], "T4"),
    "scale_attn_by_inverse_layer_idx": ([False], "T4"),
    "reorder_and_upcast_attn": ([False, True], "T4"),
    "activation_function": (["gelu_new", "gelu_pytorch_tanh"], "gpt2; T4"),
    "_num_labels": ([1], "distilgpt2"),
    "gradient_checkpointing": ([False], "gpt2-medium forks of 2020"),
}
LLAMA_LIKE = {
    "hidden_act": (["silu"], "T4"),
    "attention_dropout": ([0.0, 0], "T4"),
    "rms_norm_eps": ([1e-5, 1e-6], "Llama-2-7b-hf; Qwen2.5-0.5B"),
    "pretraining_tp": ([1], "Llama-2-7b-hf"),
    "mlp_bias": ([False], "Llama-3.1-8B"),
    "partial_rotary_factor": ([1.0], "T5"),
    "rope_interleaved": ([False], "SmolLM-135M"),
    "is_llama_config": ([True], "SmolLM-135M"),
}
OF_FAMILY = {
    "llama": {"attention_bias": ([False], "Llama-3.1-8B"), "sliding_window": ([None, 4096], "forks; no effect")},
    "mistral": {"sliding_window": ([None, 4096, 7], "Mistral-7B-v0.1; v0.3 has null")},
    "qwen2": {"use_sliding_window": ([False], "Qwen2.5-0.5B"), "max_window_layers": ([21, 1], "Qwen2.5-0.5B"),
              "sliding_window": ([32768, None], "Qwen2.5-0.5B"), "use_mrope": ([False], "Qwen2.5-0.5B")},
    "qwen3": {"attention_bias": ([False], "Qwen3-0.6B"), "use_sliding_window": ([False], "Qwen3-0.6B"),
              "max_window_layers": ([28], "Qwen3-0.6B"), "sliding_window": ([None], "Qwen3-0.6B")},
}
# rope_scaling without its type. 32: the context of these models.
ROPE = [
    None,
    ("default", {}),
    ("linear", {"factor": 2.0}),  # deepseek-coder-6.7b has factor 4.0 under "type"
    ("dynamic", {"factor": 2.0}),  # internlm2-chat-7b, Yarn-era Llama 2 forks
    ("llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}),
    ("yarn", {"factor": 4.0, "original_max_position_embeddings": 32}),  # Qwen2.5, as its model card says
    ("yarn", {"factor": 4.0, "original_max_position_embeddings": 8, "attention_factor": 1.1, "beta_fast": 16,
              "beta_slow": 2, "truncate": False}),  # T5
    ("yarn", {"factor": 2.0, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 0.7}),  # T5
]
TOKENIZER_CONFIG = {
    "model_max_length": ([1024, 1e30, int(1e30), 131072], "Llama-2-7b-hf has int(1e30)"),
    "add_bos_token": ([True, False], "Llama-2-7b-hf"),
    "clean_up_tokenization_spaces": ([False], "T4"),
    "tokenizer_class": (["PreTrainedTokenizerFast", "LlamaTokenizer", "GPT2Tokenizer"], "T4"),
    "chat_template": (["{{ messages }}", [{"name": "default", "template": "{{ messages }}"}]], "T4"),
    "pad_token": ([None, "<pad>"], "T4"),
    "bos_token": ([None, "<s>"], "Qwen2.5-0.5B has null"),
    "eos_token": (["</s>", {"__type": "AddedToken", "content": "</s>", "lstrip": False, "normalized": False,
                            "rstrip": False, "single_word": False}], "Llama-2-7b-hf has the object"),
    "added_tokens_decoder": ([{"0": {"content": "<pad>", "lstrip": False, "special": True}}], "T4"),
    "sp_model_kwargs": ([{}], "Llama-2-7b-hf"),
    "legacy": ([False, None], "Llama-2-7b-hf"),
}
GENERATION_CONFIG = {
    "eos_token_id": ([2, [2, 6], None], "Llama-3.1-8B-Instruct"),
    "pad_token_id": ([0, None], "Llama-2-7b-hf"),
    "max_length": ([4096, int(1e30)], "Llama-2-7b-hf"),
    "do_sample": ([True], "Llama-2-7b-hf"),
    "temperature": ([0.6], "Llama-2-7b-hf"),
    "transformers_version": (["4.31.0"], "T4"),
}
PATTERNS = [None, r"\s?\p{L}+", r"[0-9][0-9][0-9]",
            r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
ADDED = [{"content": "<pad>", "special": True}, {"content": "<s>", "special": True}, {"content": "</s>", "special": True},
         {"content": "<tool>", "special": False, "lstrip": True, "rstrip": True, "normalized": True},
         {"content": "  ", "special": False, "normalized": False}]


def refuse_key(key, value, says):
    return lambda d: (d["config"].__setitem__(key, value), says)[1]


def refuse_rope(kind):
    def change(d):
        d["config"].pop("rope_parameters", None)
        d["config"]["rope_scaling"] = {"type": kind, "factor": 2.0, "short_factor": [1.0], "long_factor": [1.0]}
        return f'rope_type is "{kind}"'
    return change


def refuse_tokenizer(section, value, says):
    return lambda d: (d["tokenizer"].__setitem__(section, value), says)[1]


def refuse_model(key, value, says):
    return lambda d: (d["tokenizer"]["model"].__setitem__(key, value), says)[1]


# What none of ours computes, and what the error must name.
FEATURES = [
    (None, refuse_key("model_type", "mixtral", 'model_type is "mixtral"')),
    (None, refuse_key("quantization_config", {"quant_method": "gptq", "bits": 4}, "quantization_config is set (gptq)")),
    (None, refuse_key("quantization_config", {"quant_method": "bitsandbytes"}, "quantization_config is set (bitsandbytes)")),
    (["gpt2"], refuse_key("activation_function", "relu", 'activation_function is "relu"')),
    (["gpt2"], refuse_key("scale_attn_by_inverse_layer_idx", True, "scale_attn_by_inverse_layer_idx")),
    (["gpt2"], refuse_key("add_cross_attention", True, "add_cross_attention")),
    (["llama", "mistral", "qwen2", "qwen3"], refuse_key("hidden_act", "gelu", 'hidden_act is "gelu"')),
    (["llama", "qwen2"], refuse_rope("longrope")),
    (["llama", "qwen2"], refuse_rope("mrope")),
    (["llama"], refuse_key("partial_rotary_factor", 0.5, "partial_rotary_factor is 0.5")),
    (None, refuse_key("vocab_size", int(1e30), "vocab_size is 1e+30, allowed is 1 to")),
    (None, refuse_tokenizer("normalizer", {"type": "NFKC"}, 'the normalizer "NFKC"')),
    (None, refuse_tokenizer("normalizer", {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
                            'the normalizer "Lowercase"')),
    (None, refuse_tokenizer("decoder", {"type": "WordPiece"}, 'the decoder "WordPiece"')),
    (None, refuse_tokenizer("pre_tokenizer", {"type": "BertPreTokenizer"}, '"BertPreTokenizer"')),
    (None, refuse_tokenizer("pre_tokenizer", {"type": "Split", "pattern": {"Regex": r"\w+"}, "behavior": "Isolated"},
                            r"has \w, which is supported only in")),
    (None, refuse_model("type", "Unigram", 'the model "Unigram"')),
    (None, refuse_model("type", "WordPiece", 'the model "WordPiece"')),
    (None, refuse_model("dropout", 0.1, '"dropout"')),
]


def draw(r, table, share):
    return {key: r.choice(values) for key, (values, _) in table.items() if r.random() < share}


def byte_alphabet():
    """The characters by which byte-level vocabularies write bytes (GPT-2's encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) if b in plain else chr(256 + sum(c not in plain for c in range(b))) for b in range(256)]


def make_tokenizer(r):
    pieces = [a["content"] for a in ADDED[:3]] + byte_alphabet() + ["th", "the", "\u0120th", "in"]
    added = ADDED[:3] + [a for a in ADDED[3:] if r.random() < 0.5]
    pieces += [a["content"] for a in added[3:]]
    vocab = {p: i for i, p in enumerate(pieces)}
    merges = [["t", "h"], ["th", "e"], ["\u0120", "th"], ["i", "n"]]
    if r.random() < 0.5:
        merges = [" ".join(m) for m in merges]  # tokenizers before 0.20
    steps = [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
    pattern = r.choice(PATTERNS)
    if pattern:
        steps.insert(0, {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False})
    inner = {p: i for p, i in vocab.items() if i < 3 + 256 + 4}
    entry = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": vocab[a["content"]], **entry, **a} for a in added],
        "normalizer": r.choice([None, {"type": "NFC"}]),
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": inner, "merges": merges},
    }, len(pieces)


def make_config(r, family, vocab):
    heads = r.choice([2, 4])
    width, layers, context = heads * r.choice([4, 8]), r.choice([1, 2]), 32
    if family == "gpt2":
        sizes = {"n_embd": width, "n_layer": layers, "n_head": heads, "n_positions": context, "layer_norm_epsilon": 1e-5}
        return {"model_type": family, "architectures": ["GPT2LMHeadModel"], "vocab_size": vocab, **sizes,
                **draw(r, GPT2, 0.4), **draw(r, EVERYWHERE, 0.4)}
    config = {"model_type": family, "architectures": [family.capitalize() + "ForCausalLM"], "vocab_size": vocab,
              "hidden_size": width, "intermediate_size": r.choice([16, 24]), "num_hidden_layers": layers,
              "num_attention_heads": heads, "num_key_value_heads": r.choice([1, 2, heads]),
              "max_position_embeddings": context, "rms_norm_eps": 1e-6, "tie_word_embeddings": r.random() < 0.5}
    if family == "qwen3" or r.random() < 0.4:
        config["head_dim"] = width // heads
    if family != "qwen3" and r.random() < 0.2:
        config["head_dim"] = None
    config |= draw(r, LLAMA_LIKE, 0.4) | draw(r, OF_FAMILY[family], 0.5) | draw(r, EVERYWHERE, 0.4)
    spell_rope(r, config, r.choice(ROPE), r.choice([10000, 10000.0, 500000.0, 1000000]), r.random() < 0.5)
    return config


def spell_rope(r, config, scaling, theta, newer):
    """rope_theta and rope_scaling as transformers 4 writes them, or rope_parameters as 5 does."""
    kind, numbers = scaling or ("default", {})
    if newer:
        config["rope_parameters"] = {"rope_type": kind, "rope_theta": theta, **numbers}
        return
    config["rope_theta"] = theta
    config["rope_scaling"] = {r.choice(["type", "rope_type"]): kind, **numbers} if scaling else None


def respell(config):
    """The same model in the other spelling."""
    other = dict(config)
    if "rope_parameters" in config:
        numbers = dict(other.pop("rope_parameters"))
        other["rope_theta"] = numbers.pop("rope_theta")
        other["rope_scaling"] = numbers
    elif config["model_type"] != "gpt2":
        numbers = dict(other.pop("rope_scaling") or {"rope_type": "default"})
        numbers.setdefault("rope_type", numbers.pop("type", "default"))
        other["rope_parameters"] = numbers | {"rope_theta": other.pop("rope_theta")}
    return other


def shapes_of(c):
    """Name -> shape, as the classes of transformers save them."""
    if c["model_type"] == "gpt2":
        w, f = c["n_embd"], 4 * c["n_embd"]
        out = {"wte.weight": (c["vocab_size"], w), "wpe.weight": (c["n_positions"], w), "ln_f.weight": (w,), "ln_f.bias": (w,)}
        for i in range(c["n_layer"]):
            for name, shape in {"ln_1": (w,), "ln_2": (w,), "attn.c_attn": (w, 3 * w), "attn.c_proj": (w, w),
                                "mlp.c_fc": (w, f), "mlp.c_proj": (f, w)}.items():
                out |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[-1:]}
        return {"transformer." + k: v for k, v in out.items()}
    w, f, heads, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    d = c.get("head_dim") or w // heads
    out = {"model.embed_tokens.weight": (c["vocab_size"], w), "model.norm.weight": (w,)}
    if not c["tie_word_embeddings"]:
        out["lm_head.weight"] = (c["vocab_size"], w)
    for i in range(c["num_hidden_layers"]):
        layer = {"input_layernorm.weight": (w,), "post_attention_layernorm.weight": (w,), "mlp.gate_proj.weight": (f, w),
                 "mlp.up_proj.weight": (f, w), "mlp.down_proj.weight": (w, f), "self_attn.q_proj.weight": (heads * d, w),
                 "self_attn.k_proj.weight": (kv * d, w), "self_attn.v_proj.weight": (kv * d, w),
                 "self_attn.o_proj.weight": (w, heads * d)}
        if c["model_type"] == "qwen2":
            layer |= {"self_attn.q_proj.bias": (heads * d,), "self_attn.k_proj.bias": (kv * d,), "self_attn.v_proj.bias": (kv * d,)}
        if c["model_type"] == "qwen3":
            layer |= {"self_attn.q_norm.weight": (d,), "self_attn.k_norm.weight": (d,)}
        out |= {f"model.layers.{i}.{k}": v for k, v in layer.items()}
    return out


def tensor_bytes(r, shape, dtype):
    count = 1
    for n in shape:
        count *= n
    values = [(1.0 if len(shape) == 1 else 0.0) + r.gauss(0.0, 0.1) for _ in range(count)]
    if dtype == "BF16":
        return b"".join(struct.pack("<f", v)[2:] for v in values)
    return struct.pack(f"<{count}{'f' if dtype == 'F32' else 'e'}", *values)


def write_safetensors(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + b"".join(t[2] for t in tensors.values()))


def write_weights(r, folder, config):
    dtype = r.choice(["F32", "BF16", "F16"])
    tensors = {n: (dtype, s, tensor_bytes(r, s, dtype)) for n, s in shapes_of(config).items()}
    if config["model_type"] == "llama" and r.random() < 0.3:  # transformers before 4.32 saved this buffer
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = ("F32", [2], struct.pack("<2f", 1.0, 0.1))
    if config["model_type"] == "gpt2" and r.random() < 0.3:
        tensors = {n.removeprefix("transformer."): t for n, t in tensors.items()}
    if r.random() < 0.7:
        write_safetensors(f"{folder}/model.safetensors", tensors)
        return
    names = sorted(tensors)
    parts = [names[: len(names) // 2], names[len(names) // 2:]]
    index = {"metadata": {"total_size": sum(len(t[2]) for t in tensors.values())}, "weight_map": {}}
    for k, part in enumerate(parts):
        file = f"model-{k + 1:05}-of-00002.safetensors"
        write_safetensors(f"{folder}/{file}", {n: tensors[n] for n in part})
        index["weight_map"] |= {n: file for n in part}
    write_json(f"{folder}/model.safetensors.index.json", index)


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, indent=2, ensure_ascii=False)


def write_folder(r, folder, d, seed):
    os.makedirs(folder)
    write_json(f"{folder}/config.json", d["config"])
    write_json(f"{folder}/tokenizer.json", d["tokenizer"])
    for name in ("tokenizer_config", "generation_config", "special_tokens_map"):
        if d[name] is not None:
            write_json(f"{folder}/{name}.json", d[name])
    write_weights(random.Random(seed), folder, d["weights"])


def main(seed, count, out):
    r = random.Random(seed)
    with open(f"{out}/list", "w", encoding="utf-8") as listing:
        for k in range(count):
            family = r.choice(["gpt2", "llama", "mistral", "qwen2", "qwen3"])
            tokenizer, vocab = make_tokenizer(r)
            config = make_config(r, family, vocab + r.choice([0, 0, 5]))
            d = {"config": config, "weights": dict(config), "tokenizer": tokenizer,
                 "tokenizer_config": draw(r, TOKENIZER_CONFIG, 0.5) if r.random() < 0.8 else None,
                 "generation_config": draw(r, GENERATION_CONFIG, 0.5) if r.random() < 0.6 else None,
                 "special_tokens_map": {"eos_token": "</s>"} if r.random() < 0.4 else None}
            name, weights_seed = f"{k:03}-{family}", r.random()
            if r.random() < 0.35:
                fitting = [change for families, change in FEATURES if not families or family in families]
                says = r.choice(fitting)(d)
                write_folder(r, f"{out}/{name}", d, weights_seed)
                # A number out of range is corrupt data, anything else an unknown feature.
                listing.write(f"{name}\t{3 if 'allowed is' in says else 2}\t{says}\n")
                continue
            write_folder(r, f"{out}/{name}", d, weights_seed)
            listing.write(f"{name}\tloads\n")
            if family != "gpt2" and r.random() < 0.5:
                write_folder(r, f"{out}/{name}-again", d | {"config": respell(config)}, weights_seed)
                listing.write(f"{name}-again\tloads\n")


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
