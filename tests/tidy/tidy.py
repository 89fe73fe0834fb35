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

# Rooms: every folder with code, and the rooms of its own layer that it may include. The table has no circle.
rooms = {}
block = re.search(r"```rooms\n(.*?)```", read("docs/ARCHITECTURE.md"), re.S)
for row in block.group(1).splitlines() if block else []:
    if row.strip():
        name, *allowed = row.split()
        rooms[name] = set(allowed)


def rooms_below(room, seen):
    for next_room in sorted(rooms.get(room, set()) - seen):
        seen.add(next_room)
        rooms_below(next_room, seen)
    return seen


for room in rooms:
    if not os.path.isdir(os.path.join(root, "src", room)):
        breach("docs/ARCHITECTURE.md", 1, f"room {room} is in the table and not in src/")
    if room in rooms_below(room, set()):
        breach("docs/ARCHITECTURE.md", 1, f"room {room} stands below itself: the rooms table has a circle")


def check_rooms(path, number, target):
    here, there = os.path.dirname(path)[len("src/"):], os.path.dirname(target)
    if here != there and here.split("/")[0] == there.split("/")[0] and there not in rooms.get(here, set()):
        breach(path, number, f"{here} may not include {there}: allowed is {' '.join(sorted(rooms.get(here, []))) or 'no room'}")


sources = files(".c", ".h", ".cu", ".cuh", under=["src"])
# include/lockstep is the public face: every layer may include it, as "lockstep/file.h"; it stands on nothing but itself.
public = files(".h", under=["include"])
for path in sources:
    layer = path.split("/")[1]
    if layer not in table:
        breach(path, 1, f"folder {layer} is not in the table of docs/ARCHITECTURE.md")
        continue
    if os.path.dirname(path)[len("src/"):] not in rooms:
        breach(path, 1, f"room {os.path.dirname(path)[len('src/'):]} is not in the rooms table of docs/ARCHITECTURE.md")
    for number, line in enumerate(read(path).splitlines(), 1):
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if not match:
            continue
        target = match.group(1).split("/")[0]
        if os.path.join("include", match.group(1)) in public:
            continue
        if path.startswith("src/compute/cuda/device/") and match.group(1).startswith("compute/cuda_on_cpu/") and \
                os.path.exists(os.path.join(root, "tests", match.group(1))):
            continue  # the tests compile the kernels of a GPU for the processor
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
    "pthread_cond_timedwait": "pthread_cond_clockwait with CLOCK_MONOTONIC: the wall clock may be set back",
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

# ---- names: one definition of an ls_ type or LS_ macro, one file of a name in a layer ----
defined = {}
definition = re.compile(r"^(?:typedef )?(?:struct|enum|union) (ls_\w+) \{|^\} (ls_\w+);|^#define (LS_\w+)|^typedef [^;{]*\b(ls_\w+);", re.M)
for path in sources + public:
    for match in definition.finditer(read(path)):
        name = next(group for group in match.groups() if group)
        if match.group(0).startswith("typedef") and re.match(rf"typedef (?:struct|enum|union) {name} {name};", match.group(0)):
            continue  # an opaque type: its struct is the definition
        first = defined.setdefault(name, path)
        if first != path:
            breach(path, 1, f"{name} is defined in {first} too: a name is defined once")

# compute/ is apart: an op has one name in kernels/, cpu/ and cpu/isa/.
homes = {}
for path in sources:
    layer, name = path.split("/")[1], os.path.splitext(os.path.basename(path))[0]
    first = homes.setdefault((layer, name), os.path.dirname(path))
    if first != os.path.dirname(path) and layer != "compute":
        breach(path, 1, f"{first} has a file named {name} too: a layer has each name once")

# ---- widths: comments at most 100 columns, code at most 110; drawings and tables are free ----
def check_widths(path, text):
    in_table = in_comment = False
    for number, line in enumerate(text.splitlines(), 1):
        in_table = "clang-format off" in line or in_table and "clang-format on" not in line
        starts = not in_comment and re.match(r"\s*(/\*|//)", line)
        is_comment = in_comment or starts or "/* " in re.sub(r'"(?:\\.|[^"\\])*"', "", line)
        if in_comment or re.search(r"/\*(?!.*\*/)", re.sub(r'"(?:\\.|[^"\\])*"', "", line)):
            in_comment = "*/" not in line
        is_drawn = re.match(r"\s*(/?\*|//)", line) and re.search(r"\S {3,}\S|[\u2500-\u257f\u25a0-\u25ff]", line)
        if not in_table and not is_drawn and len(line) > (100 if is_comment else 110):
            breach(path, number, f"{len(line)} columns: at most 100 with a comment, 110 without")


# ---- English: phrases that readers had to read twice, in anything a person can meet ----
tics = re.compile(r"\b(nobody|whoever|who comes|goes on|is none|are none|so long behind|was told of|is told of|can't be learned|"
                  r"behind (?:it|its|their|that|which|them|this|these|each)|somebody)\b", re.I)
for path in sources + public:
    text = read(path)
    for match in re.finditer(r'"((?:\\.|[^"\\\n])* (?:\\.|[^"\\\n])*)"', re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)):
        said = tics.search(match.group(1))
        if said:
            breach(path, text.count("\n", 0, match.start()) + 1, f"'{said.group(1)}' in a text: name the subject, use a plain verb, 'after' for time")

# ---- every file: licence line, sane length; headers: guard, and somebody includes them ----
every = sources + public + files(".c", ".h", under=["tests", "bench", "examples", "tools"])
included = set()
for path in every:
    included.update(re.findall(r'#\s*include\s+"([^"]+)"', read(path)))
for path in every:
    text = read(path)
    if not text.startswith("// SPDX-License-Identifier: Apache-2.0\n"):
        breach(path, 1, "the first line must be the SPDX licence line")
    if text.count("\n") > (800 if path.startswith(("src/", "include/")) else 1000) and "tables" not in path:
        breach(path, 1, f"{text.count(chr(10))} lines: split files at {800 if path.startswith(('src/', 'include/')) else 1000:,}")
    if path.startswith(("src/", "include/")) and "tables" not in path:
        check_widths(path, text)
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
