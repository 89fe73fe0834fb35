#!/usr/bin/env bash
# Builds and tests everything on a Debian 12 machine: ./test.sh [--quick]
#   fuzz           each libFuzzer target for some seconds, with clang
#   tsan           the unit tests that start threads, under ThreadSanitizer
#   dev            all unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
#   release        all tests, unit and integration
# --quick: release only, without the tests labelled slow. A compiler warning is an error. Stops at the first preset that fails.
# The last lines list the tests that were skipped, with the reason.
set -eu
cd "$(dirname "$0")"
case ${1:-} in
    "" | --quick) ;;
    *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
tools/install.sh $(grep -hv '^#' tools/packages tools/packages-test)

jobs=$(nproc)
# Tests call Python a thousand times and need no packages: Debian's own starts in 20 ms, one through a wrapper of pyenv in 100.
PATH=/usr/bin:$PATH
phase() { printf '== %s  (%d s)\n' "$*" "$SECONDS"; }

# Skipped tests and single cases of the last run of PRESET, with the reason that each printed.
skipped() { # skipped PRESET
    local log=build/$1/Testing/Temporary/LastTest.log
    [ ! -f "$log" ] || awk -v preset="$1" '
        / Testing: / { test = $3; reason = "" }
        /^skipped: / { reason = substr($0, 10); print preset ": " test ": " reason }
        /^\[  SKIPPED \] [a-z_0-9]+$/ && !seen[test $4]++ { print preset ": " test ": case " $4 (reason != "" ? ": " reason : said != "" ? ": " said : "") }
        { said = $0 ~ /^\[/ ? "" : $0 }' "$log" >> build/skipped.txt
}

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
    # Many tests wait most of the time, for deadlines, signals and daemons; fuzz targets count seconds and need a core each.
    local verdict=0 at_once=$((jobs * 2))
    [ "$preset" != fuzz ] || at_once=$jobs
    ctest --test-dir "build/$preset" --output-on-failure --timeout 900 --no-tests=error -j "$at_once" "$@" </dev/null || verdict=$?
    skipped "$preset"
    return $verdict
}

mkdir -p build
: > build/skipped.txt
if [ "${1:-}" = --quick ]; then
    run release -LE slow
else
    export ASAN_OPTIONS=detect_leaks=1:strict_string_checks=1 UBSAN_OPTIONS=print_stacktrace=1
    run fuzz -L fuzz
    run tsan -L threads
    run dev -L unit
    run release
fi
if [ -s build/skipped.txt ]; then
    echo "skipped:"
    sort -u build/skipped.txt | sed 's/^/  /'
fi
phase "all passed"
