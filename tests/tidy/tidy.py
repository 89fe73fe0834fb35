#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""House rules that a compiler does not check. Usage: tidy.py SOURCE_DIR. Prints every breach and exits 1 when there is one."""
import os
import re
import subprocess
import sys

root = sys.argv[1]
breaches = []


def breach(path, line, text):
    breaches.append(f"{path}:{line}: {text}")


def read(path):
    with open(os.path.join(root, path), errors="replace") as file:
        return file.read()


def files(*suffixes, under):
    found = []
    for folder in under:
        for where, dirs, names in os.walk(os.path.join(root, folder)):
            dirs[:] = [d for d in dirs if d not in ("build", "runs", "corpus")]
            found += [os.path.relpath(os.path.join(where, n), root) for n in names if n.endswith(suffixes)]
    return sorted(found)


def without_comments(text):
    blank = lambda match: re.sub(r"[^\n]", " ", match.group(0))
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"", blank, text, flags=re.S)


# ---- layers: the table in docs/ARCHITECTURE.md, the includes, and the build say the same ----
table = {}
block = re.search(r"```layers\n(.*?)```", read("docs/ARCHITECTURE.md"), re.S)
for row in block.group(1).splitlines():
    name, *allowed = row.split()
    table[name] = set(allowed)

# Rooms: folders of a layer with a direction among themselves. Files beside the rooms stand below them.
rooms = {}
block = re.search(r"```rooms\n(.*?)```", read("docs/ARCHITECTURE.md"), re.S)
for row in block.group(1).splitlines() if block else []:
    name, *allowed = row.split()
    rooms[name] = set(allowed)


def check_rooms(path, number, target):
    here, there = os.path.dirname(path)[len("src/"):], os.path.dirname(target)
    if there not in rooms or here == there or here.split("/")[0] != there.split("/")[0]:
        return
    if there not in rooms.get(here, set()):
        breach(path, number, f"{here} may not include {there}: allowed is {' '.join(sorted(rooms.get(here, []))) or 'no room'}")


sources = files(".c", ".h", ".cu", ".cuh", under=["src"])
# include/lockstep is the public face: every layer may include it, as "lockstep/file.h"; it stands on nothing but itself.
public = files(".h", under=["include"])
for path in sources:
    layer = path.split("/")[1]
    if layer not in table:
        breach(path, 1, f"folder {layer} is not in the table of docs/ARCHITECTURE.md")
        continue
    for number, line in enumerate(read(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if os.path.join("include", match.group(1)) in public:
            continue
        if "/" not in match.group(1) or not os.path.exists(os.path.join(root, "src", match.group(1))):
            breach(path, number, f'include "{match.group(1)}": write it as "layer/file.h"')
        elif target != layer and target not in table[layer]:
            breach(path, number, f"{layer} may not include {target}: allowed is {' '.join(sorted(table[layer])) or 'nothing'}")
        else:
            check_rooms(path, number, match.group(1))

# Public headers, and the examples that show their use, see nothing of what is inside.
for path in public + files(".c", ".h", under=["examples"]):
    for number, line in enumerate(read(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match and os.path.join("include", match.group(1)) not in public:
            breach(path, number, f'include "{match.group(1)}": only system headers and "lockstep/..." are public')

for match in re.finditer(r"^ls_layer\((\w+)(?: MAY_INCLUDE ([\w ]+?))?(?: LINK.*)?\)$", read("cmake/layers.cmake"), re.M):
    built = set((match.group(2) or "").split())
    if built != table.get(match.group(1), built):
        breach("cmake/layers.cmake", 1, f"layer {match.group(1)} is linked to {sorted(built)}, the table says {sorted(table[match.group(1)])}")

# ---- banned: functions that overflow, hide state, or end the process ----
banned = {
    "strcpy": "ls_arena_strdup or memcpy", "strcat": "ls_text_append", "sprintf": "snprintf or ls_text_printf",
    "vsprintf": "vsnprintf", "gets": "fgets", "strtok": "strtok_r or strcspn", "atoi": "strtol with a check",
    "atof": "strtod with a check", "rand": "ls_random_at", "srand": "ls_random_at", "system": "the env's process calls",
    "popen": "the env's process calls", "alloca": "an arena", "localtime": "localtime_r", "gmtime": "gmtime_r",
    "tmpnam": "mkstemp", "mktemp": "mkstemp", "setjmp": "an error status",
}
call = re.compile(r"(?<![\w.>])(" + "|".join(banned) + r")\s*\(")
ends = re.compile(r"(?<![\w.>])(exit|_Exit|quick_exit)\s*\(")
for path in sources:
    code = without_comments(read(path))
    for number, line in enumerate(code.splitlines(), 1):
        for match in call.finditer(line):
            breach(path, number, f"{match.group(1)} is banned, use {banned[match.group(1)]}")
        if ends.search(line) and not path.startswith("src/cli/"):
            breach(path, number, "only cli/ may end the process: return a status")

# ---- every file: licence line, sane length; headers: guard, and somebody includes them ----
every = sources + public + files(".c", ".h", under=["tests", "bench", "examples"])
included = set()
for path in every:
    included.update(re.findall(r'#\s*include\s+"([^"]+)"', read(path)))
for path in every:
    text = read(path)
    if not text.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
        breach(path, 1, "the first line must be the SPDX licence line")
    if text.count("\n") > 1000 and "tables" not in path:
        breach(path, 1, f"{text.count(chr(10))} lines: split files at 1,000")
    if path.startswith("src/") and path.endswith(".h"):
        if path[4:] not in included:
            breach(path, 1, "no file includes this header")
        guard = "LS_" + path[4:-2].replace("/", "_").upper() + "_H"
        if f"#ifndef {guard}\n#define {guard}\n" not in text and "#pragma once" not in text:
            breach(path, 1, f"the include guard should be {guard}")
for path in public:
    guard = "LOCKSTEP_" + os.path.basename(path)[:-2].upper() + "_H"
    if f"#ifndef {guard}\n#define {guard}\n" not in read(path):
        breach(path, 1, f"the include guard should be {guard}")

# ---- docs: every path and path:symbol in backticks exists ----
documents = ["README.md"] + files(".md", under=["docs"])
for path in documents:
    if not os.path.exists(os.path.join(root, path)):
        continue
    for number, line in enumerate(read(path).splitlines(), 1):
        for match in re.finditer(r"`((?:src|tests|bench|docs|examples|tools|cmake|data|include)/[\w./-]+)(?::(\w+))?`", line):
            target, symbol = match.groups()
            full = os.path.join(root, target)
            if not os.path.exists(full):
                breach(path, number, f"{target} does not exist")
            elif symbol and not re.search(rf"\b{symbol}\b", read(target)):
                breach(path, number, f"{target} has no {symbol}")
        for match in re.finditer(r"\]\((?!https?:|#|mailto:)([^)#]+)", line):
            if not os.path.exists(os.path.join(root, os.path.dirname(path), match.group(1))):
                breach(path, number, f"link to {match.group(1)} leads nowhere")

# ---- layout: clang-format agrees (skipped when it is not installed) ----
try:
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
except FileNotFoundError:
    version = ""
if "version 14" in version:
    result = subprocess.run(["clang-format", "--dry-run", "--ferror-limit=1", *[os.path.join(root, p) for p in every]],
                            capture_output=True, text=True)
    for line in result.stderr.splitlines():
        match = re.match(r"(.*?):(\d+):\d+: warning: code should be clang-formatted", line)
        if match:
            breach(os.path.relpath(match.group(1), root), match.group(2), "run clang-format -i")

for text in breaches:
    print(text)
print(f"{len(every)} files, {len(documents)} documents: {len(breaches)} breaches")
sys.exit(1 if breaches else 0)
