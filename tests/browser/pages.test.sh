#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pages in headless Chromium: clicked through, by mouse and keyboard, on wide and narrow screens, dark and light, with and without script, while
# a run trains, and with names that hold markup. With SCREENSHOTS=FOLDER, the pictures of the guide are written there.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"
command -v chromium >/dev/null || { echo "skipped: no chromium (apt-get install chromium)"; exit 77; }
PYTHONPATH=$LS_SOURCE_DIR/tests/browser
export PYTHONPATH

# Four runs that differ in one setting, and one whose every text is hostile.
write_text text.txt 400 1
write_run run.yaml
for rate in 1 2 3 4; do
    expect 0 "$LOCKSTEP" train run.yaml --run-dir "runs/try-$rate" --set train.optimizer.lr="${rate}e-3" --set train.steps=60 --threads 1
done
python3 - <<'PY'
import json, os
evil = '<img src=x onerror=alert(1)><script>alert(2)</script>"\'&\u202e\x1b[2J'
os.makedirs("runs/<b>evil&run")
with open("runs/<b>evil&run/metrics.jsonl", "w") as out:
    for step in range(1, 200):
        out.write(json.dumps({"step": step, "loss": 3 / step if step % 50 else float("nan"), evil: step, "a": -1e300}) + "\n")
with open("runs/<b>evil&run/events.jsonl", "w") as out:
    for event in ("rank_started", "sample", "checkpoint", "alert", "late", evil):
        out.write(json.dumps({"time": 1.79e9, "event": event, "step": 1, "rank": 0, "host": evil, "device": evil, "text": evil, "kind": evil,
                              "path": evil, evil: evil}) + "\n")
json.dump({"run": evil, "status": evil, "predicted": {"step_s": 1}}, open("runs/<b>evil&run/summary.json", "w"))
json.dump({"note": evil, "tags": ["<i>tag</i>"]}, open("runs/<b>evil&run/notes.json", "w"))
open("runs/<b>evil&run/run.yaml", "w").write("name: " + json.dumps(evil) + "\n")
PY

"$LOCKSTEP" view runs --listen 127.0.0.1:0 >view.txt 2>view.log </dev/null &
view=$!
wait_until "view tells its address" grep -q http view.txt
check "the pages of view" python3 "$LS_SOURCE_DIR/tests/browser/pages.py" view "$(grep -o 'http://[^ ]*' view.txt)" "$scratch/runs"
kill -INT "$view"
wait "$view"

# The queue, with a run that trains while it is watched, one that waits, one that failed.
queue_up
expect 0 "$LOCKSTEP" submit fails.yaml
expect 3 "$LOCKSTEP" wait 1
expect 0 "$LOCKSTEP" submit run.yaml --ranks 2 --set train.steps=100000 --set name=watched
expect 0 "$LOCKSTEP" submit hello.yaml --ranks 2
check "the pages of up" python3 "$LS_SOURCE_DIR/tests/browser/pages.py" up "$(cat "$LOCKSTEP_HOME/address")" "$(cat "$LOCKSTEP_HOME/token")"
expect 0 "$LOCKSTEP" cancel 2
finish
