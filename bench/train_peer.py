#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same training step in PyTorch: forward, backward, AdamW, float32, on the CPU. Prints one JSON object.

Usage: PYTHON bench/train_peer.py MODEL [--mode eager|compile] [--threads N] [--steps N] [--batch N] [--context N] [--ranks N]
MODEL: gpt2 (GPT-2 124M) or small (6 layers x 384, Llama-like, byte vocabulary), as in bench/train_pairs.sh.
Written the way a PyTorch user would: fused attention (scaled_dot_product_attention), fused AdamW where there is one.
--ranks N, N > 1: DistributedDataParallel over Gloo, with its default settings; N processes of this host share the batch, each with its threads.
"""
import argparse
import json
import os
import resource
import sys
import tempfile
import time

begun = time.time()
import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("model", choices=["gpt2", "small"])
parser.add_argument("--mode", choices=["eager", "compile"], default="eager")
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--steps", type=int, default=12)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--context", type=int, default=256)
parser.add_argument("--ranks", type=int, default=1)
options = parser.parse_args()
torch.set_num_threads(options.threads)
rank = 0
if options.ranks > 1:  # torch is imported once, before the ranks part; rank 0 prints
    if options.batch % options.ranks != 0:
        sys.exit(f"a batch of {options.batch} can't be shared by {options.ranks} ranks alike")
    meeting = tempfile.mkdtemp()
    children = []
    for other in range(1, options.ranks):
        child = os.fork()
        if child == 0:
            rank, children = other, []
            break
        children.append(child)
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=rank, world_size=options.ranks)
torch.manual_seed(1)

shape = {"gpt2": dict(layers=12, heads=12, width=768, ffn=3072, vocab=50257, llama=False),
         "small": dict(layers=6, heads=6, width=384, ffn=1024, vocab=256, llama=True)}[options.model]


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        bias = not c["llama"]
        norm = nn.RMSNorm if c["llama"] else nn.LayerNorm
        self.norm1, self.norm2 = norm(c["width"]), norm(c["width"])
        self.qkv = nn.Linear(c["width"], 3 * c["width"], bias=bias)
        self.out = nn.Linear(c["width"], c["width"], bias=bias)
        self.up = nn.Linear(c["width"], (2 if c["llama"] else 1) * c["ffn"], bias=bias)
        self.down = nn.Linear(c["ffn"], c["width"], bias=bias)

    def forward(self, x, cos, sin):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.c["heads"], -1).permute(2, 0, 3, 1, 4)
        if self.c["llama"]:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, w))
        h = self.up(self.norm2(x))
        if self.c["llama"]:
            gate, up = h.chunk(2, dim=-1)
            h = F.silu(gate) * up
        else:
            h = F.gelu(h, approximate="tanh")
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, c, context):
        super().__init__()
        self.c = c
        self.table = nn.Embedding(c["vocab"], c["width"])
        self.positions = None if c["llama"] else nn.Embedding(context, c["width"])
        self.blocks = nn.ModuleList(Block(c) for _ in range(c["layers"]))
        self.norm = (nn.RMSNorm if c["llama"] else nn.LayerNorm)(c["width"])
        self.head = nn.Linear(c["width"], c["vocab"], bias=False)
        if not c["llama"]:
            self.head.weight = self.table.weight
        half = c["width"] // c["heads"] // 2
        angles = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens, targets):
        x = self.table(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


model = Model(shape, options.context)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model) if options.mode == "compile" else model
if options.ranks > 1:
    run = torch.nn.parallel.DistributedDataParallel(run)
    torch.manual_seed(1 + rank)
seconds = []
first_step_s = None
for step in range(options.steps):
    tokens = torch.randint(0, shape["vocab"], (options.batch // options.ranks, options.context + 1))
    start = time.time()
    loss = run(tokens[:, :-1], tokens[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    loss.item()
    seconds.append(time.time() - start)
    first_step_s = first_step_s or time.time() - begun
counted = seconds[2:] or seconds
middle = sorted(counted)[len(counted) // 2]
tokens = options.batch * options.context
if rank == 0:
    mode = options.mode if options.ranks == 1 else f"{options.mode} ddp gloo"
    print(json.dumps({"peer": f"torch {torch.__version__} {mode}", "parameters": sum(p.numel() for p in model.parameters()),
                      "tokens_per_s": tokens / middle, "tokens_per_s_mean": tokens * len(counted) / sum(counted), "step_s": middle,
                      "first_step_s": first_step_s, "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
                      "loss": loss.item(), "ranks": options.ranks, "threads": options.threads, "pid": os.getpid()}), flush=True)
if options.ranks > 1:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
    if rank == 0:
        for child in children:
            os.waitpid(child, 0)
        os.remove(f"{meeting}/store")
        os.rmdir(meeting)
