#!/usr/bin/env bash
# Builds and tests everything on a Debian 12 machine: ./test.sh [--quick]
#   fuzz           each libFuzzer target for some seconds, with clang
#   tsan           the unit tests of the threaded layers under ThreadSanitizer
#   dev            all unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   release        all tests, unit and integration
# --quick: release only. A compiler warning is an error here. Ends at the first preset that fails.
set -eu
cd "$(dirname "$0")"
case ${1:-} in
    "" | --quick) ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
tools/install.sh $(grep -hv '^#' tools/packages tools/packages-test)

jobs=$(nproc)
phase() { printf '== %s  (%d s)\n' "$*" "$SECONDS"; }

run() { # run PRESET CTEST-ARGUMENTS...
    local preset=$1
    shift
    phase "$preset: build"
    mkdir -p "build/$preset"
    if ! { cmake --preset "$preset" -DCMAKE_COMPILE_WARNING_AS_ERROR=ON && cmake --build "build/$preset" -j "$jobs"; } \
        >"build/$preset/build.log" 2>&1; then
        grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking)' "build/$preset/build.log" | tail -n 200
        echo "building $preset failed; the whole output is in build/$preset/build.log" >&2
        return 1
    fi
    phase "$preset: test"
    ctest --test-dir "build/$preset" --output-on-failure --timeout 900 --no-tests=error -j "$jobs" "$@" </dev/null
}

if [ "${1:-}" != --quick ]; then
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    run fuzz -L fuzz
    run tsan -L threads
    run dev -L unit
fi
run release
phase "all passed"
