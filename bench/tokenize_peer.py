#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times Hugging Face's tokenizers and bench_tokenize on the same file in turn, one thread each.

    bench/tokenize_peer.py --peer PYTHON --bench build/release/bench_tokenize TOKENIZER_JSON FILE [--rounds 3]

PYTHON is an interpreter that has the package `tokenizers`. The peer is given the text as one call of encode, and once more
line by line with encode_batch, whichever is faster counts. Prints one JSON object per round and the ratio of the medians.
"""
import argparse
import json
import os
import statistics
import subprocess

PEER = r"""
import json, sys, time
from tokenizers import Tokenizer, __version__
tokenizer = Tokenizer.from_file(sys.argv[1])
text = open(sys.argv[2], "rb").read().decode("utf-8", "replace")
size = len(text.encode())
lines = text.splitlines(keepends=True)
def seconds(call):
    best = []
    for _ in range(3):
        start = time.perf_counter(); result = call(); best.append(time.perf_counter() - start)
    return min(best), result
whole, encoding = seconds(lambda: tokenizer.encode(text, add_special_tokens=False))
batch, _ = seconds(lambda: tokenizer.encode_batch(lines, add_special_tokens=False))
print(json.dumps({"version": __version__, "ids": len(encoding.ids), "whole_MBps": size / whole / 1e6,
                  "lines_MBps": size / batch / 1e6}))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--bench", default="build/release/bench_tokenize")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("tokenizer")
    parser.add_argument("file")
    args = parser.parse_args()
    env = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    ours, peers = [], []
    for _ in range(args.rounds):
        own = json.loads(subprocess.check_output([args.bench, args.tokenizer, args.file]))
        peer = json.loads(subprocess.check_output([args.peer, "-c", PEER, args.tokenizer, args.file], env=env))
        if own["ids"] != peer["ids"]:
            raise SystemExit(f"different numbers of ids: {own['ids']} and {peer['ids']}")
        print(json.dumps({"lockstep": own, "tokenizers": peer}))
        ours.append(own["median_MBps"])
        peers.append(max(peer["whole_MBps"], peer["lines_MBps"]))
    a, b = statistics.median(ours), statistics.median(peers)
    print(f"lockstep {a:.1f} MB/s, tokenizers {b:.1f} MB/s, ratio {a / b:.1f}")


main()
