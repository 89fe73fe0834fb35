#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What the daemon costs with many jobs: 100 run on 100 slots and 1,000 wait. Measures memory at the end, and processor time over SECONDS (default 30)
# during which no job changes and the list is asked for once a second. Usage: LOCKSTEP=build/release/lockstep bench/daemon_load.sh [SECONDS]
set -eu
: "${LOCKSTEP:?set LOCKSTEP to the program}"
LOCKSTEP=$(realpath "$LOCKSTEP")
seconds=${1:-30}
folder=$(mktemp -d)
export LOCKSTEP_HOME=$folder/home
trap '"$LOCKSTEP" down --cancel --timeout 300 >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
cd "$folder"
"$LOCKSTEP" up --slots 100 >/dev/null
begin=$(date +%s.%N)
python3 - "$LOCKSTEP_HOME" <<'PY'
# Two sweeps: each is one turn.
import json, os, socket, sys
for keys in (range(550), range(550, 1100)):
    body = json.dumps({"file": "name: sleeper\njob: {command: [sleep, 100000], grace: 1s}\n", "directory": os.getcwd(), "set": {"job.deadline": [f"{100000 + k}s" for k in keys]}})
    s = socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1] + "/socket")
    s.sendall((f"POST /v1/sweeps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n" + body).encode())
    answer = b""
    while part := s.recv(65536):
        answer += part
    if b" 201 " not in answer.split(b"\r\n")[0]:
        sys.exit(answer.decode())
PY
echo "1,100 jobs submitted in $(python3 -c "import sys, time; print(f'{time.time() - float(sys.argv[1]):.2f}')" "$begin") s"
pid=$(cat "$LOCKSTEP_HOME/lock")
ticks() { sed 's/.*) //' "/proc/$pid/stat" | awk '{print $12 + $13}'; }
until "$LOCKSTEP" nodes --json | grep -q '"used": 100'; do sleep 0.2; done
first=$(ticks)
for _ in $(seq "$seconds"); do
    "$LOCKSTEP" ps --json >/dev/null
    sleep 1
done
last=$(ticks)
python3 - "$first" "$last" "$seconds" "$(getconf CLK_TCK)" "$(grep VmRSS "/proc/$pid/status" | awk '{print $2}')" <<'PY'
import sys
first, last, seconds, ticks, rss = map(float, sys.argv[1:])
print(f"daemon with 100 running and 1,000 waiting jobs: {rss / 1024:.1f} MiB, {100 * (last - first) / ticks / seconds:.2f} % of a core")
PY
