#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/tokenizer/template/case_tables.c: what Python's str.upper and str.lower do to single characters above ASCII.

    python3 cmake/case_tables.py > src/tokenizer/template/case_tables.c
"""
import unicodedata

CHARACTERS = [chr(c) for c in range(128, 0x110000) if not 0xD800 <= c < 0xE000]


def runs(change):
    """[first, last, step, difference] of characters that change alike."""
    found = []
    for c in CHARACTERS:
        to = change(c)
        if len(to) != 1 or to == c:
            continue
        first, last, step, difference = found[-1] if found else (0, 0, 0, None)
        gap = ord(c) - last
        if ord(to) - ord(c) == difference and gap in ((1, 2) if first == last else (step,)):
            found[-1] = (first, ord(c), gap, difference)
        else:
            found.append((ord(c), ord(c), 1, ord(to) - ord(c)))
    return found


def odd():
    """Ranges of characters that become several, or whose title case is not their upper case."""
    found = []
    for c in CHARACTERS:
        if len(c.upper()) > 1 or len(c.lower()) > 1 or c.title() != c.upper():
            if found and found[-1][1] == ord(c) - 1:
                found[-1][1] = ord(c)
            else:
                found.append([ord(c), ord(c)])
    return [(a, b, 1, 0) for a, b in found]


def table(name, rows):
    print(f"const ls_jinja_case_run {name}[] = {{")
    for at in range(0, len(rows), 6):
        print("    " + " ".join("{%#x, %#x, %d, %d}," % row for row in rows[at:at + 6]))
    print(f"}};\nconst size_t {name}_count = {len(rows)};\n")


print("// SPDX-License-Identifier: Apache-2.0")
print(f"// Written by cmake/case_tables.py from Unicode {unicodedata.unidata_version}. Do not edit.")
print("// clang-format off")
print('#include "tokenizer/template/jinja.h"\n')
table("ls_jinja_upper", runs(str.upper))
table("ls_jinja_lower", runs(str.lower))
table("ls_jinja_odd_case", odd())
