#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures `data prepare` on a corpus with planted duplicates and test questions.

    python3 bench/preparation.py build/release/lockstep TEXT.txt EVALUATION.jsonl [DOCUMENTS]

The corpus: documents of 150 words drawn from TEXT. Planted: copies, copies with one or two words changed, copies with
60 words changed (which are not duplicates), and records of EVALUATION, wrapped after every fifth word and in capitals.

Printed: the agreement of removed documents with a brute-force comparison (Jaccard similarity of sequences of 5 words
of at least 0.8), recall and false positives of decontamination, megabytes per second of processor time for each step
with one thread, and scratch.
"""
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

STEPS = ["normalise", "gopher_quality", "gopher_repetition", "fineweb", "dedup_exact", "dedup_minhash", "pii"]


def corpus(words, questions, count):
    """Texts, and the numbers of those with a question."""
    rng = random.Random(5)
    texts, marked = [], set()
    for number in range(count):
        kind = rng.random()
        if kind < 0.15 and number > 100:
            source = rng.choice([i for i in (rng.randrange(number) for _ in range(50)) if i not in marked])
            text = texts[source].split(" ")
            for _ in range(rng.choice([0, 1, 2, 60])):
                text[rng.randrange(len(text) - 1)] = rng.choice(words) + "x"
            texts.append(" ".join(text))
            continue
        text = [rng.choice(words) for _ in range(150)]
        for at in range(10, 150, 10):
            text[at] = rng.choice(["and.", "the", "of", "with", "that."])
        text.append("end.")
        if kind > 0.97:
            question = rng.choice(questions).upper().split()
            text[70:70] = [word + ("\n" if i % 5 == 4 else "") for i, word in enumerate(question)]
            marked.add(number)
        texts.append(" ".join(text))
    return texts, marked


def grams(text):
    words = re.findall(r"\w+", text.lower())
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)}


def brute_force(texts):
    """Numbers of the documents that are similar to an earlier one, directly or by others."""
    index, sets, parents = {}, [], list(range(len(texts)))

    def root(i):
        while parents[i] != i:
            parents[i] = parents[parents[i]]
            i = parents[i]
        return i

    for number, text in enumerate(texts):
        own = grams(text)
        shared = {}
        for gram in own:
            for other in index.setdefault(gram, []):
                shared[other] = shared.get(other, 0) + 1
            index[gram].append(number)
        for other, common in shared.items():
            if common / (len(own) + len(sets[other]) - common) >= 0.8:
                a, b = root(number), root(other)
                parents[max(a, b)] = min(a, b)
        sets.append(own)
    return {i for i in range(len(texts)) if root(i) != i}


def prepare(binary, folder, name, steps):
    (folder / f"{name}.yaml").write_text(f"input: [{folder}/in.jsonl]\nsteps:\n{steps}")
    out = folder / name
    run = [binary, "data", "prepare", folder / f"{name}.yaml", "-o", out, "--threads", "1", "--json"]
    report = json.loads(subprocess.run(run, check=True, capture_output=True).stdout)
    gone = json.loads(subprocess.run([binary, "data", "removed", out, "-n", "0", "--json"], check=True, capture_output=True).stdout)
    return report, {record["line"] - 1 for record in gone["documents"]}


def main():
    binary, text, evaluation = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 20000
    words = sorted(set(re.findall(r"[a-z]{3,}", Path(text).read_text().lower())))
    questions = [json.loads(line)["question"] for line in open(evaluation, encoding="utf-8")]
    texts, marked = corpus(words, questions, count)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "in.jsonl", "w", encoding="utf-8") as out:
            out.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        size = (folder / "in.jsonl").stat().st_size
        _, found = prepare(binary, folder, "similar", "  - step: dedup_minhash\n")
        truth = brute_force(texts)
        print(f"{count} documents, {size / 1e6:.1f} MB; duplicates: brute force {len(truth)}, found {len(found)}, "
              f"Jaccard of the sets {len(found & truth) / max(1, len(found | truth)):.4f}")
        report, found = prepare(binary, folder, "tests", f"  - step: decontaminate\n    against: [{evaluation}]\n")
        other = count - len(marked)
        print(f"decontamination: recall {len(found & marked)} of {len(marked)}, false positives {len(found - marked)} of {other}")
        steps = "".join(f"  - step: {step}\n" for step in STEPS) + f"  - step: decontaminate\n    against: [{evaluation}]\n"
        report, _ = prepare(binary, folder, "all", steps)
        figures = report["figures"]
        print("MB/s: " + ", ".join(f"{step['step']} {step['mb_per_s']:.0f}" for step in figures["steps"])
              + f", reading {figures['read_mb_per_s']:.0f}, writing {figures['write_mb_per_s']:.0f}, "
              f"all {figures['mb_per_s']:.1f} (wall)")
        print(f"scratch {figures['scratch_bytes'] / size:.3f} of the input; kept {report['kept']} documents")


if __name__ == "__main__":
    main()
