#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/unicode_tables.c: categories, White_Space, word characters, and what NFC and NFD need.

The split patterns of tokenizers are defined over one version of Unicode. Hugging Face's `tokenizers` 0.2x use Oniguruma
with Unicode 16, so the script insists on it: pip install unicodedata2==16.0.0, then

    python3 cmake/unicode_tables.py > src/tokenizer/unicode_tables.c
"""
import sys

import unicodedata2 as ud

VERSION = "16.0.0"
CATEGORIES = ["Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf",
              "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"]
WHITE_SPACE = {*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
# Other_Alphabetic that is neither a letter, a mark nor a letter number: circled and squared letters.
OTHER_ALPHABETIC = {*range(0x24B6, 0x24EA), *range(0x1F130, 0x1F14A), *range(0x1F150, 0x1F16A), *range(0x1F170, 0x1F18A)}
BLOCK = 256
WIDTH = 160


def is_word(c, category):
    """\\w of the Rust regex crate: Alphabetic, M, Nd, Pc, Join_Control."""
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or c in OTHER_ALPHABETIC or c in (0x200C, 0x200D)


def surrogate(c):
    return 0xD800 <= c < 0xE000


def property_byte(c, second_of_pair):
    category = ud.category(chr(c))
    value = CATEGORIES.index(category)
    value |= 0x20 if c in WHITE_SPACE else 0
    value |= 0x40 if is_word(c, category) else 0
    if not surrogate(c):
        s = chr(c)
        if ud.combining(s) or ud.normalize("NFC", s) != s or c in second_of_pair:
            value |= 0x80
    return value


def canonical(c):
    text = ud.decomposition(chr(c))
    if not text or text.startswith("<"):
        return None
    return [int(part, 16) for part in text.split()]


def runs_of(block):
    """A block as initialisers: a run of four or more equal values is one of them."""
    parts, at = [], 0
    while at < len(block):
        end = at
        while end < len(block) and block[end] == block[at]:
            end += 1
        parts += [f"[{at} ... {end - 1}] = {block[at]}"] if end - at >= 4 else [str(block[at])] * (end - at)
        at = end
    return parts


def wrapped(parts):
    line = indent = " " * 4
    for part in parts:
        if len(line) + len(part) + 2 > WIDTH:
            print(line.rstrip())
            line = indent
        line += part + ", "
    print(line.rstrip())


def main():
    if ud.unidata_version != VERSION:
        sys.exit(f"Unicode {VERSION} is needed, this is {ud.unidata_version}")
    decompositions = {c: canonical(c) for c in range(0x110000) if not surrogate(c) and canonical(c)}
    pairs = sorted((parts[0], parts[1], c) for c, parts in decompositions.items()
                   if len(parts) == 2 and ud.normalize("NFC", chr(parts[0]) + chr(parts[1])) == chr(c))
    second = {b for _, b, _ in pairs} | set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))

    blocks, index = {}, []
    for start in range(0, 0x110000, BLOCK):
        block = tuple(property_byte(c, second) for c in range(start, start + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    marks = [(c, ud.combining(chr(c))) for c in range(0x110000) if not surrogate(c) and ud.combining(chr(c))]
    runs = []
    for c, value in marks:
        if runs and runs[-1][1] == c - 1 and runs[-1][2] == value:
            runs[-1][1] = c
        else:
            runs.append([c, c, value])

    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Written by cmake/unicode_tables.py from Unicode {VERSION}. Do not edit.")
    print("// clang-format off")
    print('#include "tokenizer/unicode.h"\n')
    assert len(blocks) < 256
    print(f"const uint8_t ls_unicode_index[{len(index)}] = {{")
    wrapped(runs_of(index))
    print("};\n")
    print(f"const uint8_t ls_unicode_blocks[{len(blocks)}][{BLOCK}] = {{")
    for block in blocks:
        parts = runs_of(block)
        parts[0] = "{" + parts[0]
        parts[-1] += "}"
        wrapped(parts)
    print("};\n")
    print("/* first, last, combining class */")
    print(f"const ls_unicode_mark ls_unicode_marks[] = {{")
    wrapped("{%#x, %#x, %d}" % tuple(r) for r in runs)
    print(f"}};\nconst unsigned ls_unicode_mark_count = {len(runs)};\n")
    print("/* code point, its canonical decomposition (one step; the second is 0 for singletons) */")
    print("const ls_unicode_pair ls_unicode_decompositions[] = {")
    wrapped("{%#x, %#x, %#x}" % (c, p[0], p[1] if len(p) > 1 else 0) for c, p in sorted(decompositions.items()))
    print(f"}};\nconst unsigned ls_unicode_decomposition_count = {len(decompositions)};\n")
    print("/* first and second code point, what they compose to */")
    print("const ls_unicode_pair ls_unicode_compositions[] = {")
    wrapped("{%#x, %#x, %#x}" % pair for pair in pairs)
    print(f"}};\nconst unsigned ls_unicode_composition_count = {len(pairs)};")


main()
