#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our reading of fastText's models with fastText itself, on models that it trains here.

    bench/language_peer.py [--fasttext fasttext] [--bench build/release/bench_language] [--folder DIR] [--lines 2000]

Writes texts in made-up languages, trains a model for each loss, with and without n-grams of characters and words, quantises
some, and compares label and probability of every line: the labels must be equal where fastText's first choice is clear, the
probabilities within 1e-5. Then times both, in turn, on the last model. Ends with 1 when something differs.
"""
import argparse
import os
import random
import subprocess
import tempfile
import time

MODELS = [  # name, options of training, options of quantising
    ("softmax", "-dim 16 -minn 2 -maxn 4 -bucket 5000", None),
    ("words", "-dim 10", None),
    ("runs", "-dim 12 -wordNgrams 3 -bucket 3000", None),
    ("tree", "-dim 16 -minn 2 -maxn 4 -bucket 5000 -loss hs", None),
    ("sampled", "-dim 16 -minn 1 -maxn 3 -bucket 2000 -loss ns", None),
    ("each", "-dim 9 -minn 2 -maxn 3 -wordNgrams 2 -bucket 4000 -loss ova", None),
    ("codes", "-dim 15 -minn 2 -maxn 4 -bucket 5000", "-dsub 2"),
    ("norms", "-dim 16 -minn 2 -maxn 4 -wordNgrams 2 -bucket 5000 -loss hs", "-qnorm -cutoff 2000 -retrain"),
    ("all_codes", "-dim 16 -minn 3 -maxn 3 -bucket 5000", "-qnorm -qout -cutoff 1500 -dsub 3"),
]


def languages(count, draw):
    """Words of each language: made of its own syllables, some with letters of two and three bytes."""
    extra = ["", "ä", "ß", "é", "ñ", "ж", "я", "日", "本", "ğ"]
    out = []
    for i in range(count):
        syllables = ["".join(draw.choice("bcdfghklmnprstvwz") + draw.choice("aeiou") for _ in range(draw.randint(1, 2)))
                     + (extra[i % len(extra)] if draw.random() < 0.3 else "") for _ in range(30)]
        out.append(["".join(draw.choices(syllables, k=draw.randint(1, 3))) for _ in range(400)])
    return out


def lines_of(words, count, draw):
    for _ in range(count):
        language = draw.randrange(len(words))
        line = [draw.choice(words[language if draw.random() < 0.8 else draw.randrange(len(words))])
                for _ in range(draw.randint(1, 25))]
        yield f"l{language}", draw.choice([" ", "  ", "\t"]).join(line)


def write_texts(folder, count):
    draw = random.Random(7)
    words = languages(300, draw)[:]  # 300 labels: quantising the output needs 256 rows
    train, test = os.path.join(folder, "train.txt"), os.path.join(folder, "test.txt")
    with open(train, "w") as file:
        for label, text in lines_of(words, 6000, draw):
            file.write(f"__label__{label} {text}\n")
    with open(test, "w") as file:
        file.write("\n   \n__label__l1\n__label__unknown zzz\nx\n")
        for _, text in lines_of(words, count, draw):
            file.write(text + "\n")
    return train, test


def compare(name, expected, seen):
    if len(expected) != len(seen):
        raise SystemExit(f"{name}: {len(expected)} lines of fastText, {len(seen)} of ours")
    worst, other = 0.0, 0
    for theirs, ours in zip(expected, seen):
        theirs, ours = theirs.split(), ours.split()
        if len(theirs) < 4:  # "n/a", or one label
            other += len(theirs) == 2 and theirs[0] != ours[0]
            continue
        worst = max(worst, abs(min(float(theirs[1]), 1.0) - float(ours[1])))
        is_clear = float(theirs[1]) - float(theirs[3]) > 1e-5
        other += is_clear and theirs[0] != ours[0]
    print(f"{name}: {len(seen)} lines, {other} labels differ, probabilities by at most {worst:.1e}")
    return other == 0 and worst <= 1e-5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fasttext", default="fasttext")
    parser.add_argument("--bench", default="build/release/bench_language")
    parser.add_argument("--folder")
    parser.add_argument("--lines", type=int, default=2000)
    args = parser.parse_args()
    folder = args.folder or tempfile.mkdtemp(prefix="language-")
    train, test = write_texts(folder, args.lines)
    good = True
    for name, options, quantise in MODELS:
        model = os.path.join(folder, name)
        learn = f"-input {train} -output {model} -epoch 8 -lr 0.5 -thread 1 -verbose 0".split()
        subprocess.run([args.fasttext, "supervised", *learn, *options.split()], check=True, capture_output=True)
        path = model + ".bin"
        if quantise:
            subprocess.run([args.fasttext, "quantize", *learn, *quantise.split()], check=True, capture_output=True)
            path = model + ".ftz"
        theirs = subprocess.check_output([args.fasttext, "predict-prob", path, test, "2"], text=True)
        ours = subprocess.check_output([args.bench, path, test, "--print"], text=True)
        good = compare(name, theirs.splitlines(), ours.splitlines()) and good
    start = time.perf_counter()
    subprocess.check_output([args.fasttext, "predict", path, test])
    print(f"fastText, with its start: {os.path.getsize(test) / (time.perf_counter() - start) / 1e6:.1f} MB/s; ours:",
          subprocess.check_output([args.bench, path, test], text=True).strip())
    raise SystemExit(0 if good else 1)


main()
