#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sweep of 4 on a new corpus: seconds until all have their tokens, each with a cache of its own (as when nothing is shared, or waited for) and with
# one for all, in turn; and the processor time of each. Then what a hit costs.
# Usage: LOCKSTEP=build/release/lockstep bench/cache.sh [MIB [ROUNDS]]
set -eu
: "${LOCKSTEP:?set LOCKSTEP to the program}"
LOCKSTEP=$(realpath "$LOCKSTEP")
bench=$(dirname "$LOCKSTEP")/bench_cache
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOCKSTEP_HOME=$folder/home
cd "$folder"
python3 - "$LOCKSTEP" "${1:-40}" "${2:-3}" <<'PY'
import json, os, random, resource, shutil, statistics, subprocess, sys, time
program, mib, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
random.seed(1)
words = ["".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 9))) for _ in range(20000)]
with open("corpus.jsonl", "w") as out:
    while out.tell() < mib << 20:
        out.write(json.dumps({"text": " ".join(random.choices(words, k=80))}) + "\n")
with open("corpus.jsonl") as corpus, open("head.jsonl", "w") as out:
    for _ in range(4000):
        out.write(corpus.readline())
subprocess.run([program, "tokenize", "train", "head.jsonl", "-o", "tokenizer.json", "--vocab", "4000"], check=True, capture_output=True)

def sweep(folders):
    for name in set(folders):
        shutil.rmtree(name, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.time()
    jobs = [subprocess.Popen([program, "data", "prepare", "corpus.jsonl", "--tokenizer", "tokenizer.json", "--cache-dir", name],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for name in folders]
    for job in jobs:
        assert job.wait() == 0
    wall = time.time() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

own, shared = [], []
for _ in range(rounds):
    own.append(sweep([f"own-{i}" for i in range(4)]))
    shared.append(sweep(["shared"] * 4))
for name, runs in (("a cache each", own), ("one cache", shared)):
    print(f"{name:13} wall s {' '.join(f'{w:.2f}' for w, _ in runs)}, median {statistics.median(w for w, _ in runs):.2f}; "
          f"processor s, median {statistics.median(c for _, c in runs):.2f}")
ratios = [a[0] / b[0] for a, b in zip(own, shared)]
print(f"a cache each / one cache, wall: {statistics.median(ratios):.2f} (of {rounds} pairs: {min(ratios):.2f} to {max(ratios):.2f})")
PY
"$bench"
