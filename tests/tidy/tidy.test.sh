#!/usr/bin/env bash
# The house rules, and that each of them can fail.
set -eu
here=$LS_SOURCE_DIR/tests/tidy
python3 "$here/tidy.py" "$LS_SOURCE_DIR"

# A tree with one breach of each kind must be refused, or the check above means nothing.
bad=$(mktemp -d)
trap 'rm -rf "$bad"' EXIT
mkdir -p "$bad/src/base" "$bad/src/model/low" "$bad/src/model/high" "$bad/docs" "$bad/cmake" "$bad/tests" "$bad/bench" "$bad/include/lockstep"
printf '```layers\nmodel base\nbase\n```\n```rooms\nmodel/high model/low\nmodel/low\nmodel/left model/right\nmodel/right model/left\nbase\n```\n`src/base/missing.h` `src/base/a.h:no_such_name`\n' > "$bad/docs/ARCHITECTURE.md"
printf 'ls_layer(base)\nls_layer(model MAY_INCLUDE storage)\n' > "$bad/cmake/layers.cmake"
printf '#include "model/b.h"\nvoid f(char *a, char *b) { strcpy(a, b); exit(1); }\n' > "$bad/src/base/a.h"
printf '// SPDX-License-Identifier: Apache-2.0\n' | tee "$bad/src/model/b.h" > "$bad/src/model/high/d.h"
printf '// SPDX-License-Identifier: Apache-2.0\n#include "model/high/d.h"\n' > "$bad/src/model/low/e.c"
printf '// SPDX-License-Identifier: Apache-2.0\n#include "base/hidden.h"\n' > "$bad/include/lockstep/c.h"
printf 'typedef struct ls_twice {\n    int a;\n} ls_twice;\n' | tee "$bad/src/base/twice.h" > "$bad/src/model/low/twice.h"
printf 'typedef int ls_once;\n' > "$bad/src/model/high/twice.h"
{ printf '// SPDX-License-Identifier: Apache-2.0\n/* %0100d */\nconst char *a = "it goes on behind it";\n' 1; seq -f '/* %.0f */' 900; } > "$bad/src/base/wide.c"
out=$(python3 "$here/tidy.py" "$bad" || true)
for want in "base may not include model" "model/low may not include model/high" "strcpy is banned" "only cli/ may end the process" "SPDX licence line" \
            "no file includes this header" "include guard" "missing.h does not exist" "has no no_such_name" "is linked to" "stands below itself" "is in the table and not in src" "room model is not in the rooms table" "ls_twice is defined in" \
            "has a file named twice too" "columns: at most 100" "'goes on' in a text" "split files at 800" "are public" "should be LOCKSTEP_C_H"; do
    grep -q "$want" <<< "$out" || { echo "tidy.py does not notice: $want"; echo "$out"; exit 1; }
done
