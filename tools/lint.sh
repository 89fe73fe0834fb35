#!/usr/bin/env bash
# Runs clang-tidy with the checks of .clang-tidy: tools/lint.sh [FILE...]   (default: every source file, about 5 minutes on 2 cores)
# Needs clang-tidy and a configured build/release. Exits 1 when there is a finding.
set -eu
cd "$(dirname "$0")/.."
[ -f build/release/compile_commands.json ] || cmake --preset release >/dev/null
if [ $# -eq 0 ]; then
    # src/compute/cpu/isa is compiled once per instruction set; the analyzer gains nothing from vector code.
    mapfile -t files < <(find src -name '*.c' -not -path 'src/compute/cpu/isa/*' | sort)
    set -- "${files[@]}"
fi
lint_one() {
    local include=(--extra-arg=-include --extra-arg="$PWD/tools/lint.h")
    [ "$1" = src/base/status.c ] && include=() # it defines what lint.h replaces
    clang-tidy --quiet --warnings-as-errors='*' -p build/release "${include[@]}" "$1" 2>/dev/null
}
export -f lint_one
printf '%s\0' "$@" | xargs -0 -n 1 -P "$(nproc)" bash -c 'lint_one "$0"'
