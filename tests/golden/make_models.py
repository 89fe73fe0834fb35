#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden models of tests/golden/models with PyTorch and transformers.

    python tests/golden/make_models.py tests/golden/models [NAME...]

Per model a folder as `save_pretrained` writes it (config.json, model.safetensors or shards with an index) and
golden.safetensors with

    tokens        (2, 25) int32    inputs are columns 0..23, targets columns 1..24
    logits        (2, 24, vocab)   float32
    losses        (2, 24)          float32, cross-entropy per token, nats
    loss          (1)              float64, their sum
    grad.<name>   float32          gradient of that sum with respect to each parameter of the file

Everything is computed in float64 and rounded once at the end. transformers computes some pieces (RMS norm, eager softmax) in
float32 whatever the model's type; here the norm is replaced by the same formula in float64 and attention runs through
torch's float64 kernel. The rotary tables stay as transformers makes them, in float32: they are part of the models.
"""
import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import save_file

SEQUENCES, LENGTH = 2, 24
SIZES = dict(vocab_size=70, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             max_position_embeddings=64, attn_implementation="sdpa")
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=16)

MODELS = {
    "gpt2": transformers.GPT2Config(vocab_size=70, n_embd=32, n_layer=2, n_head=4, n_positions=48, bos_token_id=1,
                                    eos_token_id=2, attn_implementation="sdpa"),
    "llama": transformers.LlamaConfig(**SIZES, num_key_value_heads=4, rms_norm_eps=1e-5),
    "llama_rope_scaling": transformers.LlamaConfig(**SIZES, num_key_value_heads=2, head_dim=16, rope_parameters=LLAMA3,
                                                   tie_word_embeddings=True),
    "llama_biases": transformers.LlamaConfig(**SIZES, num_key_value_heads=1, attention_bias=True, mlp_bias=True,
                                             rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
    "mistral": transformers.MistralConfig(**SIZES, num_key_value_heads=2, head_dim=16, sliding_window=7),
    "qwen2": transformers.Qwen2Config(**SIZES, num_key_value_heads=2, tie_word_embeddings=True, use_sliding_window=True,
                                      sliding_window=9, max_window_layers=1, bos_token_id=3, eos_token_id=4),
    "qwen3": transformers.Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=16),
    "mixtral": transformers.MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
                                          experts_implementation="eager"),
    "qwen3_moe": transformers.Qwen3MoeConfig(**SIZES, num_key_value_heads=2, head_dim=16, num_experts=5,
                                             num_experts_per_tok=3, moe_intermediate_size=24, norm_topk_prob=False,
                                             experts_implementation="eager"),
}
SHARDED = {"mistral": "40KB"}


def norm_in_input_type(self, x):
    return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon))


def shake(model):
    """Every parameter away from its neutral value, so that a missing bias or gain shows."""
    with torch.no_grad():
        for name, p in sorted(model.named_parameters()):
            noise = torch.randn(p.shape, generator=GENERATOR, dtype=torch.float32)
            if p.dim() == 2:
                p.copy_(0.2 * noise)
            elif "norm" in name or "ln_" in name:
                p.copy_(0.2 * noise + (1.0 if name.endswith("weight") else 0.0))
            else:
                p.copy_(0.1 * noise)


def as_in_files(name, gradient):
    """transformers 5 keeps the matrices of all experts in one parameter each, but writes them one by one."""
    name = name.replace(".mlp.", ".block_sparse_moe.") if MIXTRAL else name
    parts = ("w1", "w3", "w2") if MIXTRAL else ("gate_proj", "up_proj", "down_proj")
    if name.endswith(".experts.gate_up_proj"):
        stem = name.removesuffix("gate_up_proj")
        return {f"{stem}{e}.{part}.weight": half for e, one in enumerate(gradient) for part, half in zip(parts, one.chunk(2))}
    if name.endswith(".experts.down_proj"):
        return {f"{name.removesuffix('down_proj')}{e}.{parts[2]}.weight": one for e, one in enumerate(gradient)}
    return {name: gradient}


def golden(model, tokens):
    model = model.double().eval()
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = norm_in_input_type.__get__(module)
    logits = model(input_ids=tokens[:, :-1].long()).logits
    assert logits.dtype == torch.float64
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:].long(), reduction="none")
    loss = losses.sum()
    loss.backward()
    out = {"tokens": tokens, "logits": logits, "losses": losses}
    for name, p in model.named_parameters():
        out |= {"grad." + file_name: gradient for file_name, gradient in as_in_files(name, p.grad).items()}
    out = {k: (v if v.dtype == torch.int32 else v.detach().float()).contiguous() for k, v in out.items()}
    return out | {"loss": loss.detach().reshape(1)}


def main(folder, *names):
    for name, config in MODELS.items() if not names else ((name, MODELS[name]) for name in names):
        global GENERATOR, MIXTRAL
        MIXTRAL = name == "mixtral"
        GENERATOR = torch.Generator().manual_seed(1234)
        out = pathlib.Path(folder) / name
        shutil.rmtree(out, ignore_errors=True)
        model = transformers.AutoModelForCausalLM.from_config(config)
        shake(model)
        model.save_pretrained(out, max_shard_size=SHARDED.get(name, "1GB"))
        (out / "generation_config.json").unlink(missing_ok=True)
        tokens = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH + 1), generator=GENERATOR, dtype=torch.int32)
        result = golden(model, tokens)
        save_file(result, out / "golden.safetensors")
        print(name, json.dumps({"loss": result["loss"].item(), "files": sorted(p.name for p in out.iterdir())}))


if __name__ == "__main__":
    main(*sys.argv[1:])
