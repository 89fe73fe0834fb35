#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares decisions of `data prepare` with those of datatrove, document by document.

    python3 bench/preparation_peer.py build/release/lockstep FILE.jsonl...

Needs the packages datatrove, spacy, nltk and xxhash. Each FILE has JSON objects with a text. Prints for
each rule how many documents both keep, how many only one of them keeps, and the share that is equal; then for
each step seconds of processor time: of `data prepare` with one thread as a whole, reading and writing included,
and of datatrove's function alone, which is called for one text after another.
"""
import json
import resource
import subprocess
import sys
import time
import tempfile
from pathlib import Path

from datatrove.data import Document
from datatrove.pipeline.dedup.minhash import MinhashConfig, MinhashDedupSignature
from datatrove.pipeline.formatters import PIIFormatter
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


def speed(binary, path, texts, folder):
    """Seconds of processor time for each step, ours and theirs."""
    signer, masker = MinhashDedupSignature(str(folder), config=MinhashConfig(n_grams=5)), PIIFormatter()
    steps = {rule: (lambda text, rule=rule: RULES[rule].filter(Document(text=text, id="0"))) for rule in RULES}
    steps["dedup_minhash"] = lambda text: signer.get_signature(signer.get_shingles(text))
    steps["pii"] = masker.format
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    all_ours = all_theirs = 0.0
    for step, call in steps.items():
        pipeline = folder / f"speed-{step}.yaml"
        pipeline.write_text(f"input: [{path}]\nsteps:\n  - step: {step}\n")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run = [binary, "data", "prepare", pipeline, "-o", folder / f"speed-{step}", "--threads", "1"]
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        our = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        begun = time.process_time()
        for text in texts:
            try:
                call(text)
            except (ZeroDivisionError, ValueError):  # a text without words
                pass
        their = time.process_time() - begun
        all_ours, all_theirs = all_ours + our, all_theirs + their
        print(f"{step}: {our:.2f} s and {their:.1f} s of datatrove, {their / our:.0f} times; "
              f"{megabytes / our:.0f} and {megabytes / their:.2f} MB/s", flush=True)
    print(f"together: {all_theirs / all_ours:.0f} times")


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
        speed(binary, path, texts, folder)


if __name__ == "__main__":
    main()
