#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The trace of a run is one valid Chrome trace of all ranks, live and afterwards.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --set train.global_batch=12 --set train.leaves=6 --set eval.every_steps=0 --set checkpoint.every_steps=0 --set eval.batches=1 --threads 1)
LS_TEST_FAULT="do=delay,rank=2,ms=5" expect 0 "${train[@]}" --set train.steps=20 --run-dir "$scratch/run" --ranks 3
expect 0 "$LOCKSTEP" trace "$scratch/run" -o "$scratch/trace.json" --json
same "ranks" "$(field "$out" ranks)" 3

# look FILE: every event has what its phase needs, slices of a track nest or follow each other, arrows begin and end.
look() {
    python3 - "$1" <<'PY'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
tracks, arrows, names = {}, {}, set()
for e in events:
    assert e["ph"] in "XMsf" and isinstance(e["pid"], int) and isinstance(e["tid"], int) and e["name"], e
    if e["ph"] == "M":
        names.add((e["name"], e["args"]["name"]))
        continue
    assert e["ts"] >= 0, e
    if e["ph"] == "X":
        assert e["dur"] >= 0, e
        tracks.setdefault((e["pid"], e["tid"]), []).append(e)
    else:
        arrows.setdefault(e["id"], []).append(e["ph"])
assert all(sorted(a) == ["f", "s"] for a in arrows.values())
for rank in range(3):
    spans = sorted((e["ts"], e["dur"]) for e in tracks[rank, 1])
    for (a, da), (b, _) in zip(spans, spans[1:]):
        assert a + da <= b + 0.002, (rank, a, da, b)
assert sum(n == "process_name" for n, _ in names) == 3
cats = {e["cat"] for t in tracks.values() for e in t}
assert {"forward", "backward", "tree_reduce", "step"} <= cats, cats
assert any("layer 1 linear" in e["name"] for t in tracks.values() for e in t)
assert all("seq" in e["args"] and "site" in e["args"] for (p, t), es in tracks.items() if t > 1 for e in es)
print(len(arrows) > 0)
PY
}
same "a valid trace with arrows" "$(look "$scratch/trace.json")" True
expect 0 "$LOCKSTEP" trace "$scratch/run"
prints "run/trace/trace.json: 3 ranks"
same "the same by default in the run" "$(look "$scratch/run/trace/trace.json")" True
expect 2 "$LOCKSTEP" trace "$scratch/run" -o "$scratch/no/such/folder.json"

# Live.
"${train[@]}" --set train.steps=100000 --run-dir "$scratch/live" --ranks 3 >"$scratch/live.out" 2>&1 </dev/null &
pid=$!
for i in $(seq 2000); do
    [ -s "$scratch/live/metrics.jsonl" ] && [ "$(wc -l <"$scratch/live/metrics.jsonl")" -gt 5 ] && break
    sleep 0.01
done
expect 0 "$LOCKSTEP" trace "$scratch/live" -o "$scratch/live.json"
check "a valid trace while it runs" look "$scratch/live.json"
kill -INT $pid
wait $pid
finish
