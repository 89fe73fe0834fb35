#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/tokenizers/splits.json: the ids that the library tokenizers gives for pre-tokenizers whose pattern is
none of the known ones. The vocabulary and merges are those of gpt2.json; only the pre-tokenizer is another.

    python3 tests/golden/make_splits.py        needs the package tokenizers (made with 0.23.3)

splits.json: {"base": "gpt2.json", "cases": [{"name", "pre_tokenizer", "ids": [[...] for each text of cases.json]}]}
"""
import json
import pathlib

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent / "tokenizers"
LAST = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


# The patterns are those of the tokenizer.json of the named models, or small ones for each behaviour.
CASES = {
    "deepseek-llm": [split(r"[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(r"[一-龥ࠀ-一가-퟿]+"),
                     {"type": "Digits", "individual_digits": True}],
    "deepseek-v3": [split(r"\p{N}{1,3}"), split(r"[一-龥぀-ゟ゠-ヿ]+"),
                    split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                          " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")],
    "mistral-nemo": [split(r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
                           r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|"
                           r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")],
    "falcon": [{"type": "Digits", "individual_digits": False}, split(r"[0-9][0-9][0-9]")],
    "possessive": [split(r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,2}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")],
    "scripts": [split(r"[\p{Han}\p{Hiragana}\p{Katakana}]+|\P{Latin}")],
    "lines": [split(r"^.|(?i:THE|\s\S$)")],
    "empty": [split(r"\d*")],
    "removed": [split(r"\s+", "Removed")],
    "inverted": [split(r"\p{L}+", "Removed", True)],
    "contiguous": [split(r"[aeiou]", "Contiguous")],
    "previous": [split(r"[.!? ]", "MergedWithPrevious")],
    "next": [split(r"[.!? ]", "MergedWithNext")],
    "next inverted": [split(r"\S+", "MergedWithNext", True)],
    "text": [split(" ", "MergedWithNext", kind="String"), split("e", kind="String")],
    "gpt2 pattern, removed": [split(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+", "Removed")],
}


def main():
    texts = [bytes.fromhex(t).decode("utf-8", "replace") for t in json.loads((HERE / "cases.json").read_text())["texts"]]
    root = json.loads((HERE / "gpt2.json").read_text(encoding="utf-8"))
    cases = []
    for name, steps in CASES.items():
        root["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps + [LAST]}
        tokenizer = Tokenizer.from_str(json.dumps(root))
        ids = [tokenizer.encode(t, add_special_tokens=False).ids for t in texts]
        cases.append({"name": name, "pre_tokenizer": root["pre_tokenizer"], "ids": ids})
    out = json.dumps({"base": "gpt2.json", "cases": cases}, separators=(",", ":"), ensure_ascii=False)
    (HERE / "splits.json").write_text(out + "\n", encoding="utf-8")


main()
