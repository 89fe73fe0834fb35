#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plan --link: bytes, times and memory of every scheme agree with each other and with the formulas written down; the alternative of a plan whose
# network takes long; wrong rates and machines are refused by name.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

expect 0 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:4 --hosts 4 --link 100Mbit --json
check "the schemes" python3 - "$out" <<'PY'
import json, math, sys
root = json.load(open(sys.argv[1]))
link = root["link"]
n, values, rate = link["hosts"], link["values"], link["link_bytes_ps"]
assert n == 4 and rate == 12.5e6 and 0 <= values - root["parameters"] < 1024 * 14 and link["network_share"] == 0
rows = {row["scheme"]: row for row in link["schemes"]}
assert list(rows) == ["dense", "int8", "topk 1 %"] + [f"local {h}{form}" for h in (10, 50, 100, 500) for form in ("", ", int8", ", int4")], list(rows)
dense, state = rows["dense"], 4 * values
assert math.isclose(dense["sent_bytes"], 2 * (n - 1) / n * state) and dense["memory_bytes"] == dense["checkpoint_bytes"] == 0
per = {"int8": 1 + 4 / 256, "int4": 0.5 + 4 / 128}
for name, row in rows.items():
    assert math.isclose(row["step_time_s"] * row["computing"], link["compute_s"], rel_tol=1e-9)
    assert math.isclose(row["fewer"], dense["sent_bytes"] / row["sent_bytes"], rel_tol=1e-9)
    latency = 2 * 0.001 / row["steps"]
    assert math.isclose(row["step_time_s"], link["compute_s"] + row["packing_s"] + row["sent_bytes"] / rate + latency, rel_tol=1e-9), name
    form = name.split(", ")[-1]
    if form in per:
        assert math.isclose(row["sent_bytes"] * row["steps"], 2 * (n - 1) / n * values * per[form], rel_tol=1e-4), name
assert rows["int8"]["fewer"] >= 3.9 and rows["topk 1 %"]["fewer"] >= 40
assert rows["local 100, int8"]["fewer"] >= 390 and rows["local 100, int4"]["fewer"] >= 700
assert rows["int8"]["memory_bytes"] == 2 * state * (n + 1) and rows["topk 1 %"]["checkpoint_bytes"] == state * (3 * n + 1)
assert rows["local 50, int8"]["checkpoint_bytes"] == 3 * state * (n - 1) + 2 * state
enough = [name for name, row in rows.items() if row["computing"] >= 0.75]
assert link["pays"] == enough[0], (link["pays"], enough)
PY
expect 0 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:4 --hosts 4 --link 200Mbit
prints "link: 4 machines, 25 MB/s each way" "local 100, int4" "pays: topk 1 %" "train.compression: {kind: topk, ratio: 0.01, groups: 4}"
expect 0 "$LOCKSTEP" plan gpt2 --nodes dgx-h100:2 --link 100GB/s
prints "pays: dense"

# The network takes over a fifth of this step, and there is another way; of that one it does not.
expect 0 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:32
prints "% of the step is network" "(--link "
expect 0 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:32 --json
check "the alternative as JSON" python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["link"]["network_share"] > 0.2' "$out"
expect 0 "$LOCKSTEP" plan llama3-8b --gpus h100:64 --json
check "no alternative" python3 -c 'import json, sys; assert "link" not in json.load(open(sys.argv[1]))' "$out"

expect 2 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:4 --hosts 4 --link 100
says "--link is '100'" "100Mbit"
expect 2 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:4 --hosts 4 --link 0Mbit
expect 2 "$LOCKSTEP" plan gpt2 --gpus rtx-4090:4 --hosts 3 --link 1Gbit
says "--hosts is 3"
expect 2 "$LOCKSTEP" plan gpt2 --gpus h100:8 --link 1Gbit
says "is one machine"
expect 2 "$LOCKSTEP" plan gpt2 --link 1Gbit
says "say which"
expect 2 "$LOCKSTEP" plan gpt2 --gpus h100:8 --hosts 4
says "only with --link"
expect 2 "$LOCKSTEP" plan llama3-70b --gpus rtx-4090:8 --hosts 8 --link 1Gbit
says "does not fit on one of 8 machines"

finish
