#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`lockstep serve` beside llama.cpp's Python package: time to the first token and tokens per second of one client, runs in
turn on the same float32 weights and threads; then eight clients of `serve` beside one.

    python3 bench/serve_peer.py MODEL_DIR [--lockstep build/release/lockstep] [--threads 1] [--rounds 7]

MODEL_DIR is a Hugging Face directory with a context of 512 tokens or more. Needs llama-cpp-python; run by hand, no test needs it.
"""
import argparse, json, os, statistics, subprocess, tempfile, threading, time, urllib.request

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--lockstep", default="build/release/lockstep")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--port", type=int, default=8131)
args = parser.parse_args()
address = f"127.0.0.1:{args.port}"


def wait_until_ready(server):
    while server.poll() is None:
        try:
            return urllib.request.urlopen(f"http://{address}/health").read()
        except OSError:
            time.sleep(0.05)
    raise SystemExit("lockstep serve ended before it listened")


def ours(ids, count):
    """Seconds to the first token, and seconds of each further token."""
    body = json.dumps({"prompt": [ids], "max_tokens": count, "temperature": 0, "stream": True}).encode()
    request = urllib.request.Request(f"http://{address}/v1/completions", body, {"Content-Type": "application/json"})
    start, first = time.monotonic(), None
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            if line.startswith(b"data: {") and first is None:
                first = time.monotonic()
    return first - start, (time.monotonic() - first) / (count - 1)


def theirs(model, ids, count):
    model.reset()
    start, first = time.monotonic(), None
    for i, _ in enumerate(model.generate(ids, temp=0.0, top_k=1, reset=True), 1):
        first = first or time.monotonic()
        if i == count:
            return first - start, (time.monotonic() - first) / (count - 1)


def prompt(length, salt):
    return [(3 * k + salt) % 200 + 20 for k in range(length)]


def tokens_per_second(clients, count=40):
    start = time.monotonic()
    threads = [threading.Thread(target=ours, args=(prompt(8, 7 * i), count)) for i in range(clients)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return clients * count / (time.monotonic() - start)


def compare(model):
    decode, first = [], []
    for r in range(args.rounds):
        a, b = ours(prompt(8, r), 64), theirs(model, prompt(8, r), 64)
        decode.append(b[1] / a[1])
        a, b = ours(prompt(256, r), 8), theirs(model, prompt(256, r), 8)
        first.append(b[0] / a[0])
    print(f"tokens/s of one client, lockstep / llama.cpp: median {statistics.median(decode):.2f} ({min(decode):.2f} to {max(decode):.2f})")
    print(f"first token after a prompt of 256, llama.cpp / lockstep: median {statistics.median(first):.2f} ({min(first):.2f} to {max(first):.2f})")
    eight = [tokens_per_second(8) / tokens_per_second(1) for _ in range(args.rounds)]
    print(f"eight clients beside one: median {statistics.median(eight):.2f} ({min(eight):.2f} to {max(eight):.2f})")


with tempfile.TemporaryDirectory() as folder:
    gguf = folder + "/model.gguf"
    subprocess.run([args.lockstep, "export", args.model, "--gguf", gguf, "--quant", "f32"], check=True, stdout=subprocess.DEVNULL)
    server = subprocess.Popen([args.lockstep, "serve", args.model, "--listen", address, "--threads", str(args.threads)],
                              stdout=subprocess.DEVNULL, env={**os.environ, "LOCKSTEP_HOME": folder})
    try:
        wait_until_ready(server)
        from llama_cpp import Llama
        compare(Llama(gguf, n_ctx=512, n_threads=args.threads, n_threads_batch=args.threads, verbose=False))
    finally:
        server.terminate()
        server.wait()
