#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a PyTorch run with the model, batch and optimizer of bench/slow_links.sh, which starts four of them.

    slow_links_peer.py HOOK RANK TEXT STEPS LAYERS WIDTH CONTEXT BATCH

DistributedDataParallel over Gloo; HOOK: dense, fp16 (fp16_compress_hook) or powersgdR (powerSGD_hook of rank R, from
the third step on, with error feedback and warm start). Rank 0 prints one JSON object. Needs torch.
"""
import json
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional as F

HEADS, RANKS = 6, 4


class Block(nn.Module):
    def __init__(self, width, context):
        super().__init__()
        self.heads, self.size = HEADS, width // HEADS
        inner = (width * 8 // 3 + 63) // 64 * 64
        self.norms = nn.ModuleList(nn.RMSNorm(width, eps=1e-5) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        angle = torch.outer(torch.arange(context), 1e4 ** (-torch.arange(0, self.size, 2) / self.size))
        self.register_buffer("cos", angle.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angle.sin().repeat(1, 2), persistent=False)

    def turn(self, x):
        left, right = x.chunk(2, -1)
        return x * self.cos + torch.cat((-right, left), -1) * self.sin

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(self.turn(q), self.turn(k), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        gate, up = self.up(self.norms[1](x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, layers, width, context):
        super().__init__()
        self.table, self.norm = nn.Embedding(256, width), nn.RMSNorm(width, eps=1e-5)
        self.blocks = nn.Sequential(*(Block(width, context) for _ in range(layers)))
        self.head = nn.Linear(width, 256, bias=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                scale = (2 * layers) ** -0.5 if ".out." in name or ".down." in name else 1.0
                nn.init.normal_(p, std=0.02 * scale)

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.table(ids))))


def sent_bytes():
    return int(open("/sys/class/net/eth0/statistics/tx_bytes").read())


def main():
    hook, rank = sys.argv[1], int(sys.argv[2])
    text = open(sys.argv[3], "rb").read()
    steps, layers, width, context, batch = map(int, sys.argv[4:9])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    os.environ.update(MASTER_ADDR="10.77.0.1", MASTER_PORT="29511", GLOO_SOCKET_IFNAME="eth0")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    raw = Model(layers, width, context)
    if hook.startswith("powersgd"):  # with several buckets its sums meet in other orders on other ranks, and Gloo ends the run
        dist._DEFAULT_FIRST_BUCKET_BYTES = 1 << 30
    model = nn.parallel.DistributedDataParallel(raw, bucket_cap_mb=1024 if hook.startswith("powersgd") else 25)
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook.startswith("powersgd"):
        state = powerSGD_hook.PowerSGDState(None, int(hook[8:]), start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    matrices = [p for p in raw.parameters() if p.dim() == 2]
    vectors = [p for p in raw.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    draw = random.Random(rank)
    times, losses, begun = [], [], 0
    for step in range(steps):
        start = time.monotonic()
        begun = sent_bytes() if step == 3 else begun
        at = [draw.randrange(len(text) - context - 1) for _ in range(batch // RANKS)]
        rows = torch.tensor([list(text[a : a + context + 1]) for a in at])
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(raw.parameters(), 1.0)
        optimizer.step()
        times.append(time.monotonic() - start)
        losses.append(loss.item())
    sent = (sent_bytes() - begun) / max(steps - 3, 1)
    last = torch.tensor(statistics.mean(losses[-max(steps // 10, 1) :]))
    dist.all_reduce(last)
    if rank == 0:
        parameters = sum(p.numel() for p in raw.parameters())
        print(json.dumps({"parameters": parameters, "step_s": statistics.median(times[3:]), "wire": sent, "loss": last.item() / RANKS}))
    dist.destroy_process_group()


main()
