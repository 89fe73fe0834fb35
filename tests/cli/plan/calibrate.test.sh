#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A quick calibration, and runs that predict with it. Figures are held to what can't fail on a busy machine: that they are there, and sane.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
sanitized && { echo "skipped: kernels under a sanitizer take minutes to measure"; exit 77; }

# Without a calibration: as ever, with a hint and null.
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir before
prints "the step time is not predicted: this machine was never measured: 'lockstep calibrate'"
same "nothing predicted" "$(field before/summary.json predicted | grep -o "'step_s': None")" "'step_s': None"
check "memory is" test "$(field before/summary.json predicted | grep -c "'memory_bytes': [1-9]")" = 1

expect 0 "$LOCKSTEP" calibrate --quick
prints "measured in" "products GFLOP/s" "$LOCKSTEP_HOME/calibration.json"
expect 0 "$LOCKSTEP" calibrate --quick --json --output other/c.json
python3 - "$out" other/c.json <<'PY' || fail "the calibration's file"
import json, os, sys
printed, kept = (json.load(open(path)) for path in sys.argv[1:])
assert printed == kept
assert printed["format"] == "lockstep-calibration" and printed["version"] == 1
cores = len(os.sched_getaffinity(0))
assert printed["cores"] == cores, (printed["cores"], cores)
pairs = {(s["threads"], s["workers"]) for s in printed["settings"]}
assert (1, 1) in pairs and (cores, 1) in pairs and (1, cores) in pairs, pairs
for setting in printed["settings"]:
    for name, grid in setting["work"].items():
        assert all(0 < s < 100 for s in grid["seconds"]), (name, grid)
assert cores == 1 or any(e["ranks"] == 2 for e in printed["exchanges"])
assert printed["disk"]["write_bytes_ps"] > 0
PY
checks=$((checks + 1))

# With it: before the first step, in the summary, in the report, in the record of all runs.
expect 0 "$LOCKSTEP" train tiny.yaml --dry-run
prints "time    a step takes"
expect 0 "$LOCKSTEP" train tiny.yaml --dry-run --json
check "a dry run's prediction" test "$(field "$out" predicted | grep -c "'step_s': [0-9]")" = 1
for ranks in 1 2; do
    expect 0 "$LOCKSTEP" train tiny.yaml --run-dir "run$ranks" --ranks "$ranks" --threads 1 --set train.steps=40
    prints "time    a step takes" "predicted " "measured / predicted"
    check "the report compares" grep -q "tokens per second</td>" "run$ranks/report.html"
    python3 - "run$ranks/summary.json" <<'PY' || fail "what $ranks ranks predicted"
import json, sys
run = json.load(open(sys.argv[1]))
p = run["predicted"]
doubt = p.pop("doubt")
assert doubt.startswith("quick calibration") and doubt.find("calibrate again") > 0, doubt
mesh = {key: p.pop(key, None) for key in ("bubble", "sent_bytes", "rank_memory_bytes")}
assert ("run2" in sys.argv[1]) == bool(mesh["rank_memory_bytes"]) == (mesh["sent_bytes"] is not None), mesh
assert set(p) == {"memory_bytes", "step_s", "tokens_per_s", "checkpoint_stall_s", "flops_per_step"}, p
# The machine may be busy, during the run or while it was calibrated in a few tries (13 times too slow was seen at a load of 40): this catches
# formulas that are wrong by orders of magnitude.
assert 1e-5 < p["step_s"] < 30 * run["step_s"], (p["step_s"], run["step_s"])
assert abs(p["tokens_per_s"] * p["step_s"] / (run["tokens"] / run["step"]) - 1) < 1e-6, p
assert 1 / 3 < p["memory_bytes"] / run["peak_rss_bytes"] < 3, run
PY
    checks=$((checks + 1))
done
python3 - "$LOCKSTEP_HOME/accuracy.jsonl" <<'PY' || fail "the record of runs"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["ranks"] for row in rows] == [1, 1, 2], rows
assert rows[0]["calibration"] is None and rows[0]["predicted"]["step_s"] is None
assert rows[2]["calibration"] and rows[2]["predicted"]["step_s"] > 0
assert all(row["measured"]["step_s"] > 0 and row["measured"]["memory_bytes"] > 0 for row in rows)
PY
checks=$((checks + 1))

# Fine-tuning on this machine: the three ways of our own trainer.
expect 0 "$LOCKSTEP" plan gpt2 --finetune lora --gpus here:1 --seq 64 --json
check "adapters need less memory, a base in 4 bits less still" python3 - "$out" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
ways = {w["finetune"]: w for w in [d, *d["alternatives"]]}
weights = {k: w["memory_gib"]["weights"] for k, w in ways.items()}
total = {k: w["memory_gib"]["total"] for k, w in ways.items()}
assert d["finetune"] == "lora" and d["fits"] and d["adapter_parameters"] == 2359296 and d["tokens_per_s"] > 0, d
assert total["qlora"] < total["lora"] < total["full"] and weights["qlora"] < 0.55 * weights["lora"], (total, weights)
PY

# parallel: auto asks for the time of every mesh, and says what it chose and what was second. One leaf leaves only the model to divide.
sed 's/^train:/&\n  tensor_cut: 2/' tiny.yaml >auto.yaml
printf 'parallel: auto\n' >>auto.yaml
one_leaf="--set train.leaves=1 --set train.global_batch=8 --set checkpoint.every_steps=0"
expect 0 "$LOCKSTEP" train auto.yaml --run-dir chosen --ranks 2 $one_leaf --json
check "one leaf on two ranks: they divide the model" grep -qE '^ +(tensor|pipeline): 2$' chosen/run.yaml
check "no auto is left" sh -c '! grep -qE "^ +(ranks|tensor|context|pipeline|schedule): auto" chosen/run.yaml'
expect 0 "$LOCKSTEP" train auto.yaml --dry-run --ranks 2 $one_leaf
prints "parallel: auto is 2 ranks (" "the fastest of " "second: 2 ranks (" "ms per step, because "
chosen=$(hashes chosen/summary.json)
expect 0 "$LOCKSTEP" train auto.yaml --run-dir alone --set parallel.tensor=1 --set parallel.pipeline=1 --ranks 1 $one_leaf --json
same "the choice changes no bit" "$(hashes "$out")" "$chosen"
expect 2 "$LOCKSTEP" train auto.yaml --run-dir none --ranks 64 --set job.max_ranks=64 --set train.leaves=2
says "parallel.ranks is 64" "train.leaves"

# Another machine's is told, not used; neither is a broken one.
sed -i 's/"cores": [0-9]*/"cores": 4095/' "$LOCKSTEP_HOME/calibration.json"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir another
prints "is not used: it was measured with 4095 cores"
same "nothing predicted" "$(field another/summary.json predicted | grep -o "'step_s': None")" "'step_s': None"
printf '{"format": "lockstep-calibration"' >"$LOCKSTEP_HOME/calibration.json"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir broken
prints "the step time is not predicted: "

expect 2 "$LOCKSTEP" calibrate --seconds 0
expect 2 "$LOCKSTEP" calibrate somewhere
finish
