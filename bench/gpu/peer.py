#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training speed of PyTorch on this GPU, for the models of bench/gpu/run.sh: torch.compile, scaled_dot_product_attention, fused
AdamW, bfloat16 autocast over float32 weights, a vocabulary padded to a multiple of 64. Usage: peer.py [gpt2-124m|llama-1b|gpt2-1.5b ...]
"""
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {
    # layers, width, heads, key-value heads, ffn, context, Llama's blocks, micro-batch, micro-batches of a step
    "gpt2-124m": (12, 768, 12, 12, 3072, 1024, False, 64, 8),
    "llama-1b": (16, 2048, 32, 8, 8192, 4096, True, 8, 4),
    "gpt2-1.5b": (48, 1600, 25, 25, 6400, 1024, False, 8, 8),
}
VOCABULARY = 50304


def rotate(x, cosine, sine):
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn, llama):
        super().__init__()
        self.heads, self.kv_heads, self.llama, self.size = heads, kv_heads, llama, width // heads
        norm = (lambda: nn.RMSNorm(width, eps=1e-5)) if llama else (lambda: nn.LayerNorm(width))
        self.norm_1, self.norm_2 = norm(), norm()
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.size, bias=not llama)
        self.project = nn.Linear(width, width, bias=not llama)
        self.up = nn.Linear(width, 2 * ffn if llama else ffn, bias=not llama)
        self.down = nn.Linear(ffn, width, bias=not llama)

    def forward(self, x, cosine, sine):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).split(
            [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size], dim=2)
        q = q.view(batch, length, self.heads, self.size).transpose(1, 2)
        k = k.view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        v = v.view(batch, length, self.kv_heads, self.size).transpose(1, 2)
        if self.llama:
            q, k = rotate(q, cosine, sine), rotate(k, cosine, sine)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.project(y.transpose(1, 2).reshape(batch, length, width))
        h = self.up(self.norm_2(x))
        if self.llama:
            gate, up = h.chunk(2, dim=2)
            h = F.silu(gate) * up
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, ffn, context, llama):
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, width)
        self.positions = None if llama else nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, ffn, llama) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5) if llama else nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if not llama:
            self.head.weight = self.table.weight
        half = width // heads // 2
        angles = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(half).float() / half))
        self.register_buffer("cosine", angles.cos().bfloat16(), persistent=False)
        self.register_buffer("sine", angles.sin().bfloat16(), persistent=False)

    def forward(self, tokens, targets):
        x = self.table(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        x = x.bfloat16()
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, VOCABULARY).float(), targets.reshape(-1))


def run(name, steps=5):
    layers, width, heads, kv_heads, ffn, context, llama, micro, accumulate = MODELS[name]
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    model = Model(layers, width, heads, kv_heads, ffn, context, llama).cuda()
    count = sum(p.numel() for p in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    compiled = torch.compile(model)
    tokens = torch.randint(0, 50257, (micro, context + 1), device="cuda")
    times = []
    begin = time.time()
    for step in range(steps + 2):
        torch.cuda.synchronize()
        start = time.time()
        for _ in range(accumulate):
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = compiled(tokens[:, :-1], tokens[:, 1:]) / accumulate
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.time() - start)
    step_s = statistics.median(times[2:])
    tokens_ps = micro * context * accumulate / step_s
    flops = 6 * count + 12 * layers * context * width
    print("%-12s %9.0f tokens/s  MFU %5.2f %%  step %7.1f ms  (PyTorch %s, %.1fM parameters, compiling %.0f s)" % (
        name, tokens_ps, 100 * tokens_ps * flops / 989.4e12, 1e3 * step_s, torch.__version__, count / 1e6,
        time.time() - begin - sum(times[1:])), flush=True)
    del model, compiled, optimizer
    torch.cuda.empty_cache()


for name in sys.argv[1:] or ["gpt2-124m"]:
    try:
        run(name)
    except torch.OutOfMemoryError:
        print("%-12s not enough memory" % name, flush=True)
