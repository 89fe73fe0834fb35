#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decisions of `data prepare` with those of datatrove, document by document.

    python3 bench/preparation_peer.py build/release/lockstep FILE.jsonl...

Needs the packages datatrove, spacy, nltk and xxhash. Each FILE has JSON objects with a text. Prints for
each rule how many documents both keep, how many only one of them keeps, and the share that is equal.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter

RULES = {
    "gopher_quality": GopherQualityFilter(),
    "gopher_repetition": GopherRepetitionFilter(),
    "c4": C4QualityFilter(),
    "fineweb": FineWebQualityFilter(),
}


def ours(binary, rule, path, folder):
    """Texts that the step keeps, by id, and reasons of what it removes, by line."""
    pipeline = folder / f"{rule}.yaml"
    pipeline.write_text(f"input: [{path}]\nsteps:\n  - step: {rule}\n")
    out = folder / rule
    subprocess.run([binary, "data", "prepare", pipeline, "-o", out], check=True, stdout=subprocess.DEVNULL)
    kept, reasons = {}, {}
    for part in (out / "data").glob("*.zst"):
        for line in subprocess.run(["zstd", "-dc", part], check=True, capture_output=True).stdout.splitlines():
            record = json.loads(line)
            kept[record["id"]] = record["text"]
    for part in (out / "removed").glob("*.zst"):
        for line in subprocess.run(["zstd", "-dc", part], check=True, capture_output=True).stdout.splitlines():
            record = json.loads(line)
            reasons[record["line"] - 1] = record["reason"] + ": " + record["why"]
    return kept, reasons


def theirs(rule, texts):
    kept, reasons = {}, {}
    for number, text in enumerate(texts):
        document = Document(text=text, id=str(number))
        try:
            verdict = RULES[rule].filter(document)
        except ZeroDivisionError:  # a text without words
            verdict = (False, "division by zero")
        if verdict is True:
            kept[number] = document.text
        else:
            reasons[number] = verdict[1]
    return kept, reasons


def main():
    binary = sys.argv[1]
    texts = []
    for path in sys.argv[2:]:
        with open(path, encoding="utf-8") as lines:
            texts += [json.loads(line)["text"] for line in lines]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "texts.jsonl"
        with open(path, "w", encoding="utf-8") as out:
            for number, text in enumerate(texts):
                out.write(json.dumps({"id": number, "text": text}) + "\n")
        print(f"{len(texts)} documents")
        for rule in RULES:
            our, our_reasons = ours(binary, rule, path, folder)
            their, their_reasons = theirs(rule, texts)
            only_ours, only_theirs = sorted(our.keys() - their.keys()), sorted(their.keys() - our.keys())
            both = our.keys() & their.keys()
            other = [i for i in both if our[i] != their[i]]
            equal = 100.0 * (len(texts) - len(only_ours) - len(only_theirs)) / len(texts)
            print(f"{rule}: both keep {len(both)}, only lockstep {len(only_ours)}, only datatrove {len(only_theirs)}: "
                  f"{equal:.3f} % equal; other text {len(other)}")
            for i in only_ours[:4]:
                print(f"  {i}: datatrove: {their_reasons[i]}")
            for i in only_theirs[:4]:
                print(f"  {i}: lockstep: {our_reasons.get(i)}")


if __name__ == "__main__":
    main()
