#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All-reduce in PyTorch over Gloo, for bench/allreduce_pairs.sh and bench/netns_pairs.sh: float32, sum, in place.

Usage: PYTHON bench/allreduce_gloo.py --ranks N [--batches N] [--batch-ms MS] BYTES...
Starts N ranks on this host; with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in the environment it is one of them. Rank 0 prints one
JSON object. Measured as bench/allreduce_mpi.c does it: batches of about MS milliseconds, slowest rank, median batch.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--batches", type=int, default=5)
parser.add_argument("--batch-ms", type=float, default=30)
parser.add_argument("bytes", type=int, nargs="+")
options = parser.parse_args()
torch.set_num_threads(1)


def batch(data, iterations):
    dist.barrier()
    begun = time.perf_counter()
    for _ in range(iterations):
        dist.all_reduce(data)
    seconds = torch.tensor([(time.perf_counter() - begun) / iterations], dtype=torch.float64)
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item()


def measure(size, rank, ranks):
    pattern = torch.arange(size // 4) % 7
    data = (pattern + rank).float()
    dist.all_reduce(data)
    if not torch.equal(data, (pattern * ranks + ranks * (ranks - 1) // 2).float()):
        sys.exit(f"rank {rank}: wrong sum")
    data.zero_()
    batch(data, 2)
    iterations = max(1, min(20000, int(options.batch_ms / 1e3 / batch(data, 3))))
    seconds = sorted(batch(data, iterations) for _ in range(options.batches))
    return {"bytes": size, "us": 1e6 * seconds[len(seconds) // 2], "us_min": 1e6 * seconds[0], "us_max": 1e6 * seconds[-1],
            "iterations": iterations}


def run(rank, ranks, method):
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=ranks)
    results = [measure(size, rank, ranks) for size in options.bytes]
    if rank == 0:
        print(json.dumps({"peer": f"gloo of torch {torch.__version__}", "ranks": ranks, "results": results}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if "RANK" in os.environ:
    run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")
else:  # torch is imported once, before the ranks part
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(options.ranks):
            child = os.fork()
            if child == 0:
                run(rank, options.ranks, f"file://{folder}/store")
                os._exit(0)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
    sys.exit(any(codes))
