#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden models of tests/golden/packed_models with PyTorch, transformers and bitsandbytes.

    python tests/golden/make_packed_models.py tests/golden/packed_models

Per kind a folder as `save_pretrained` writes it, and values.sha256: the hash over the float32 values of all parameters in
the order of their names, packed ones as the portable functions of bitsandbytes read them (its kernel for processors reads
rows that are not whole blocks with wrong scales).
"""
import hashlib
import pathlib
import sys

import bitsandbytes.backends.default.ops as portable
import bitsandbytes.functional as bnb
import bitsandbytes.nn as bnb_nn
import torch
import transformers

SIZES = dict(vocab_size=70, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
KINDS = {
    "nf4": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "nf4_single": dict(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "int8": dict(load_in_8bit=True),
}


def values(module):
    weight = module.weight
    if isinstance(weight, bnb_nn.Params4bit):
        state = weight.quant_state
        scales = bnb.dequantize_blockwise(state.absmax, state.state2) + state.offset if state.nested else state.absmax
        return portable._dequantize_4bit_compute(weight.data.reshape(-1), scales, state.code, 64, state.shape, torch.float32)
    if isinstance(weight, bnb_nn.Int8Params):
        return bnb.int8_vectorwise_dequant(weight.data, weight.SCB if weight.SCB is not None else module.state.SCB)
    return weight.data


root = pathlib.Path(sys.argv[1])
torch.manual_seed(16)
plain = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))
plain.save_pretrained(root / "plain")
for kind, options in KINDS.items():
    model = transformers.AutoModelForCausalLM.from_pretrained(
        root / "plain", quantization_config=transformers.BitsAndBytesConfig(**options), device_map="cpu", dtype=torch.float32)
    model.save_pretrained(root / kind)
    digest = hashlib.sha256()
    for name, module in sorted((n, m) for n, m in model.named_modules() if getattr(m, "weight", None) is not None):
        digest.update(values(module).to(torch.float32).contiguous().numpy().tobytes())
    (root / kind / "values.sha256").write_text(digest.hexdigest() + "\n")
    (root / kind / "generation_config.json").unlink(missing_ok=True)
for file in (root / "plain").iterdir():
    file.unlink()
(root / "plain").rmdir()
