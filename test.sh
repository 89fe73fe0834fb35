#!/usr/bin/env bash
# Builds and tests everything on a Debian 12 machine: ./test.sh [--quick]
#   release        all tests, unit and integration
#   dev            unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   tsan           the threaded ones under ThreadSanitizer
#   fuzz           each libFuzzer target for some seconds
# --quick: release only.
set -eu
cd "$(dirname "$0")"
tools/install.sh $(grep -v '^#' tools/packages) git python3 libcmocka-dev clang clang-tidy clang-format libclang-rt-14-dev llvm-14 bible-kjv librsvg2-bin

jobs=$(nproc)
run() { # run PRESET CTEST-ARGUMENTS...
    local preset=$1
    shift
    echo "== $preset"
    cmake --preset "$preset" >/dev/null
    cmake --build "build/$preset" -j "$jobs" | { grep -E 'warning|error|FAILED' || true; }
    cmake --build "build/$preset" -j "$jobs" >/dev/null
    ctest --test-dir "build/$preset" --output-on-failure --timeout 900 "$@"
}

quick=${1:-}
if [ "$quick" != --quick ]; then
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    run fuzz -L fuzz -j "$jobs"
    run tsan -L threads -j 1
    run dev -L unit -j "$jobs"
fi
run release -j 1
