#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Time from the start of `lockstep submit` to the first line of the job's first rank, in milliseconds: median and 90th percentile of N (default 50) jobs,
# one after the other on an idle queue of this machine. Usage: LOCKSTEP=build/release/lockstep bench/submit.sh [N]
set -eu
: "${LOCKSTEP:?set LOCKSTEP to the program}"
LOCKSTEP=$(realpath "$LOCKSTEP")
count=${1:-50}
folder=$(mktemp -d)
export LOCKSTEP_HOME=$folder/home
trap '"$LOCKSTEP" down --cancel >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
cd "$folder"
"$LOCKSTEP" up --slots 2 >/dev/null
printf 'name: stamp\njob: {command: [date, +%%s.%%N]}\n' >stamp.yaml
python3 - "$LOCKSTEP" "$LOCKSTEP_HOME" "$count" <<'PY'
import statistics, subprocess, sys, time
program, home, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
spans = []
for _ in range(count):
    begin = time.time()
    job = subprocess.run([program, "submit", "stamp.yaml"], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([program, "wait", job], capture_output=True, check=True)
    with open(f"{home}/jobs/{job}/log") as log:
        spans.append(1e3 * (float(log.readline()) - begin))
spans.sort()
print(f"submit to first line of the first rank: median {statistics.median(spans):.1f} ms, p90 {spans[int(0.9 * count)]:.1f} ms, least {spans[0]:.1f} ms, of {count}")
PY
