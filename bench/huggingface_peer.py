#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random models and tokenizers, written by transformers' own classes, through `lockstep import` and `lockstep export` and back.

    python3 bench/huggingface_peer.py LOCKSTEP [--count 50] [--seed 1]     needs torch and transformers

For each model: the tensors of the export are those of the original bit for bit; transformers computes the same logits from both;
the loss of `lockstep eval` is that of transformers; random strings get the same ids from the original, the export and
`lockstep tokenize`; eos_token_id and pad_token_id are kept. The last line counts; the exit code is 1 if anything differs.
"""
import argparse
import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import tokenizers
import torch
import transformers

FAMILIES = {
    "gpt2": transformers.GPT2Config, "llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
    "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config,
}
PATTERNS = [
    None,  # that of GPT-2
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\s?\p{L}+|[一-龥ࠀ-一가-퟿]+",
    r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
]
WORDS = ["the", " king", "said", " 1234", "naïve", "你好", "Привет", "\n", "  ", "\t", "don't", "<tool>", "<pad>", "</s>", "😀", "_x", "...", "é"]
CONTEXT = 64


def draw_rope(r):
    theta = r.choice([10000.0, 500000.0, 1000000.0])
    kind = r.choice(["default", "linear", "dynamic", "yarn", "yarn", "llama3"])
    numbers = {"rope_type": kind, "rope_theta": theta}
    if kind != "default":
        numbers["factor"] = r.choice([2.0, 4.0])
    if kind == "llama3":
        numbers |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
    if kind == "yarn":
        numbers["original_max_position_embeddings"] = r.choice([8, 16, CONTEXT])
        if r.random() < 0.5:
            numbers |= r.choice([{"attention_factor": 1.25}, {"mscale": 1.0, "mscale_all_dim": 0.7}, {"truncate": False},
                                 {"beta_fast": 16, "beta_slow": 2}])
    return kind, numbers


def draw_config(r, family, vocab):
    heads = r.choice([2, 4])
    width = heads * r.choice([8, 16])
    ids = {"bos_token_id": r.choice([None, 1]), "eos_token_id": r.choice([2, [2, 0], [2, 5, 0]]), "pad_token_id": r.choice([None, 0])}
    shared = {"vocab_size": vocab, **ids, "initializer_range": 0.2}
    if family == "gpt2":
        return "learned", transformers.GPT2Config(**shared, n_embd=width, n_layer=r.choice([1, 2]), n_head=heads, n_positions=CONTEXT,
                                                  tie_word_embeddings=r.random() < 0.7)
    kind, rope = draw_rope(r)
    more = {}
    if family == "llama":
        more = {"attention_bias": r.random() < 0.5, "mlp_bias": r.random() < 0.5}
    if family == "mistral":
        more = {"sliding_window": r.choice([None, 7])}
    if family in ("qwen2", "qwen3"):
        more = r.choice([{}, {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": r.choice([0, 1])}])
    return kind, FAMILIES[family](**shared, **more, hidden_size=width, intermediate_size=r.choice([16, 40]), num_hidden_layers=r.choice([1, 2]),
                                  num_attention_heads=heads, num_key_value_heads=r.choice([k for k in (1, 2, 4) if heads % k == 0]),
                                  head_dim=r.choice([8, 16]) if family != "qwen2" else width // heads, max_position_embeddings=CONTEXT,
                                  tie_word_embeddings=r.random() < 0.5, rope_parameters=rope)


def draw_text(r):
    return "".join(r.choice(WORDS) + r.choice(["", " ", ""]) for _ in range(r.randrange(1, 30)))


def draw_tokenizer(r):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    pattern = r.choice(PATTERNS)
    pre = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = pre.ByteLevel(add_prefix_space=False) if pattern is None else pre.Sequence(
        [pre.Split(tokenizers.Regex(pattern), "isolated"), pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=["<pad>", "<s>", "</s>"], show_progress=False,
                                             initial_alphabet=pre.ByteLevel.alphabet())
    tokenizer.train_from_iterator([draw_text(r) for _ in range(50)], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    fast.add_tokens([tokenizers.AddedToken("<tool>", lstrip=r.random() < 0.5, rstrip=r.random() < 0.5, normalized=r.random() < 0.5)])
    return fast


def lockstep(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


def loss_of(model, ids):
    ids = torch.tensor([ids])
    return torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits[0], ids[0, 1:]).item()


def check_model(program, folder, again, r, vocab, kind, differences):
    old, new = load(folder), load(again)
    tensors = dict(new.named_parameters())
    for name, p in old.named_parameters():
        if not torch.equal(p, tensors[name]):
            differences.append(f"tensor {name}")
    ids = torch.tensor([[r.randrange(vocab) for _ in range(CONTEXT)]])
    gap = (old(ids).logits - new(ids).logits).abs().max().item()
    if gap != 0.0:
        differences.append(f"logits {gap}")
    length = 2 * CONTEXT if kind == "dynamic" else CONTEXT  # dynamic scaling begins beyond max_position_embeddings
    stream = [r.randrange(vocab) for _ in range(length + 1)]
    (folder / "ids").write_text(" ".join(map(str, stream)))
    loss = json.loads(lockstep(program, "eval", folder, "--tokens", folder / "ids", "--context", length, "--json"))["loss"]
    if abs(loss - loss_of(old, stream)) > 1e-4:
        differences.append(f"loss {loss} and {loss_of(old, stream)}")
    for key in ("eos_token_id", "pad_token_id", "bos_token_id"):
        if getattr(old.config, key) != getattr(new.config, key):
            differences.append(f"{key} {getattr(old.config, key)} and {getattr(new.config, key)}")
    return abs(loss - loss_of(old, stream))


def check_tokenizer(program, folder, again, r, differences):
    # Not AutoTokenizer: for qwen2 that puts its own pattern in place of the one in tokenizer.json.
    old, new = (transformers.PreTrainedTokenizerFast.from_pretrained(f) for f in (folder, again))
    strings = [draw_text(r) for _ in range(20)]
    for i, text in enumerate(strings):
        (folder / "text").write_bytes(text.encode())
        here = [int(w) for w in lockstep(program, "tokenize", "encode", "--tokenizer", again, folder / "text").split()]
        wanted = old.encode(text, add_special_tokens=False)
        if not wanted == here == new.encode(text, add_special_tokens=False):
            differences.append(f"ids of {text!r}: {wanted} and {here}")
    return len(strings)


def check(program, folder, r, counts):
    family = r.choice(list(FAMILIES))
    tokenizer = draw_tokenizer(r)
    vocab = len(tokenizer) + r.choice([0, 3])
    kind, config = draw_config(r, family, vocab)
    torch.manual_seed(r.randrange(1 << 30))
    dtype = r.choice([torch.float32, torch.bfloat16, torch.float16])
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    original, again = folder / "original", folder / "again"
    model.save_pretrained(original, max_shard_size=r.choice(["1GB", "30KB"]))
    tokenizer.save_pretrained(original)
    lockstep(program, "import", original, "-o", folder / "checkpoint")
    lockstep(program, "export", folder / "checkpoint", "-o", again)
    differences = []
    with torch.no_grad():
        worst = check_model(program, original, again, r, vocab, kind, differences)
    counts["strings"] += check_tokenizer(program, original, again, r, differences)
    counts[family] += 1
    counts["rope " + kind] += 1
    counts["worst loss"] = max(counts["worst loss"], worst)
    return f"{family} {kind} {dtype}", differences


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    counts, failed = collections.Counter(), 0
    for k in range(options.count):
        with tempfile.TemporaryDirectory() as folder:
            try:
                what, differences = check(str(pathlib.Path(options.program).resolve()), pathlib.Path(folder), random.Random(options.seed * 1000 + k), counts)
            except RuntimeError as error:
                what, differences = "", [str(error)]
        failed += bool(differences)
        for difference in differences:
            print(f"model {k} {what}: {difference}", flush=True)
    worst = counts.pop("worst loss", 0.0)
    print(f"{options.count} models, {failed} differ; {dict(counts)}; largest difference of a loss {worst:.1e}")
    sys.exit(failed > 0)


main()
