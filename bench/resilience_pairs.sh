#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same fault on PyTorch and here, runs in turn: what is noticed, when the next step is finished, what is lost, whether the bits are the same.
# Usage: bench/resilience_pairs.sh --peer PYTHON [--rounds N] [--ranks N] [--only ours|theirs] [CASE ...]
#   fault   kill -9 of one rank in the middle of a step: torchrun + DDP over Gloo + DCP (sync and async) beside ours, with --ranks ranks; one undisturbed run of each
#   fewer   the same, but the job goes on with half as many ranks
#   store   fault on PyTorch with torchrun's default store (bench/resilience_torch.py says why it is not the default here): how many come back
#   dcp     saving and loading the same state, beside raw O_DIRECT I/O of the same bytes (for ours: lockstep bench checkpoint)
#   crash   kill -9 at a random moment of a save, into the same folder and into a new one: what is loaded afterwards
#   flip    one random bit of a data file turned round: noticed or loaded
# Model: 6 x 384, context 32, batch 4, one thread per rank, a checkpoint every 5 of 20 steps, killed in step 13. PYTHON: one with torch.
# Each run is a line of bench/results/resilience-CASE.jsonl; --only replaces those of one side. The binary: LOCKSTEP, default build/release/lockstep.
# DIR: a folder on the disk to be measured, default runs/bench.
set -eu
cd "$(dirname "$0")/.."
peer="" rounds=3 ranks=2 only="" cases=()
while [ $# -gt 0 ]; do
    case $1 in
    --peer) peer=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --ranks) ranks=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    -*) sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2 ;;
    *) cases+=("$1"); shift ;;
    esac
done
[ -n "$peer" ] || [ "$only" = ours ] || { echo "which PyTorch? give --peer PYTHON, one that has torch" >&2; exit 2; }
[ ${#cases[@]} -gt 0 ] || cases=(fault fewer store dcp crash flip)
lockstep=${LOCKSTEP:-build/release/lockstep} place=${DIR:-runs/bench}
mkdir -p "$place" runs/bench bench/results
python3 - <<'PY'
import os, random
random.seed(1)
if not os.path.exists("runs/bench/text.txt"):
    with open("runs/bench/text.txt", "wb") as f:
        f.write(bytes(random.randrange(32, 127) for _ in range(800000)))
PY
shape=(--steps 20 --every 5 --batch 4 --context 32 --dir "$place")

# ours RANKS [KILL_STEP [RANKS_AFTER]]: a run, a rank of which is killed in the middle of that step; a run that ends is started again.
ours() {
    [ "$only" != theirs ] || return 0
    python3 - "$lockstep" "$place/resilience" "$@" <<'PY'
import json, os, shutil, signal, statistics, subprocess, sys, time
lockstep, folder, ranks = sys.argv[1:4]
kill_step, after = (int(sys.argv[i]) if len(sys.argv) > i else 0 for i in (4, 5))
settings = {"data.train": "runs/bench/text.txt", "data.validation_fraction": "0", "train.steps": "20", "train.schedule.steps": "2000", "train.global_batch": "4", "train.leaves": "4",
            "train.micro_batch": "1", "model.context": "32", "checkpoint.every_steps": "5", "eval.every_steps": "0", "sample.every_steps": "0"}

def start(n):
    command = [lockstep, "train", "examples/small.yaml", "--json", "--run-dir", folder, "--ranks", str(n), "--threads", "1"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

def lines(name):
    try:
        return [json.loads(line) for line in open(f"{folder}/{name}.jsonl") if line.endswith("\n")]
    except OSError:
        return []

def wait(child, condition, limit_s=120):
    end = time.time() + limit_s
    while time.time() < end:
        if condition():
            return True
        if child.poll() is not None:
            return condition()
        time.sleep(0.001)
    child.kill()
    sys.exit(f"no end after {limit_s} s")

shutil.rmtree(folder, ignore_errors=True)
result = {"case": "lockstep", "ranks": int(ranks), "every": 5, "steps": 20}
child = start(ranks)
if kill_step:
    wait(child, lambda: len(lines("metrics")) >= kill_step - 1)
    rows = lines("metrics")
    time.sleep(0.5 * statistics.median(row["step_s"] for row in rows))
    before = len(lines("metrics"))
    pid = [e["pid"] for e in lines("events") if e["event"] == "rank_started"][1]
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    if after:
        time.sleep(1)
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
        child.wait()
    on = wait(child, lambda: len(lines("metrics")) > before) if not after else False
    if not on:  # it ended: again
        child.wait()
        result["ended_with"] = child.returncode
        child = start(after or ranks)
        wait(child, lambda: len(lines("metrics")) > before)
    now = time.time()
    lost = [e for e in lines("events") if e["event"] == "rank_lost"]
    result.update(killed_in_step=before + 1, noticed_s=lost[0]["time"] - killed if lost else None, next_step_s=now - killed)
summary = json.load(child.stdout)
child.wait()
result.update(state_hash=summary["state_hash"], step_s=statistics.median(row["step_s"] for row in lines("metrics")))
if kill_step:
    steps = [row["step"] for row in lines("metrics")]
    result["steps_lost"] = len(steps) - len(set(steps))
    result["lost_work_s"] = summary["time"]["lost_work"]
    result["recoveries"] = summary["recoveries"]
stalls = [e["stall_s"] for e in lines("events") if e["event"] == "checkpoint"]
result["save_stall_s"] = statistics.median(stalls) if stalls else None
shutil.rmtree(folder)
print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}))
PY
}
theirs() {
    [ "$only" != ours ] || return 0
    timeout 400 "$peer" bench/resilience_torch.py "$@" 2>runs/bench/one.err || { tail -n 5 runs/bench/one.err >&2; return 1; }
}

# ours_crash: kill -9 while `train` saves after every step; then verify what is the newest, and that no finished save is gone.
ours_crash() {
    [ "$only" != theirs ] || return 0
    python3 - "$lockstep" "$place/resilience" "$rounds" <<'PY'
import json, os, random, shutil, subprocess, sys, time
lockstep, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(1)
counts = {"whole": 0, "older_lost": 0, "error": 0, "in_a_save": 0}
settings = {"data.train": "runs/bench/text.txt", "data.validation_fraction": "0", "train.steps": "1000", "train.global_batch": "1", "train.leaves": "1", "train.micro_batch": "1",
            "model.context": "32", "checkpoint.every_steps": "1", "eval.every_steps": "0", "sample.every_steps": "0"}
for _ in range(rounds):
    shutil.rmtree(folder, ignore_errors=True)
    command = [lockstep, "train", "examples/small.yaml", "--run-dir", folder, "--ranks", "1"] + [word for k, v in settings.items() for word in ("--set", f"{k}={v}")]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    saved = lambda: [json.loads(l)["step"] for l in open(f"{folder}/events.jsonl") if '"checkpoint"' in l and l.endswith("\n")] if os.path.exists(f"{folder}/events.jsonl") else []
    while len(saved()) < 2 and child.poll() is None:
        time.sleep(0.001)
    time.sleep(random.random() * 0.2)
    child.kill()
    child.wait()
    done = max(saved())
    counts["in_a_save"] += any(".tmp-" in name for name in os.listdir(f"{folder}/checkpoints"))
    good = subprocess.run([lockstep, "checkpoint", "verify", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    newest = max(int(n) for n in os.listdir(f"{folder}/checkpoints") if n.isdigit())
    counts["error" if not good else "whole" if newest >= done else "older_lost"] += 1
    shutil.rmtree(folder)
print(json.dumps({"case": "kill -9 in a save", "peer": "lockstep", "rounds": rounds, **counts}))
PY
}
# ours_flip: one bit of a random data file of a checkpoint; checkpoint verify and a resume must both notice.
ours_flip() {
    [ "$only" != theirs ] || return 0
    python3 - "$lockstep" "$place/resilience" "$rounds" <<'PY'
import json, os, random, shutil, subprocess, sys
lockstep, folder, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(1)
counts = {"noticed": 0, "wrong_numbers": 0, "harmless": 0}
shutil.rmtree(folder, ignore_errors=True)
settings = {"data.train": "runs/bench/text.txt", "data.validation_fraction": "0", "train.steps": "2", "train.global_batch": "1", "train.leaves": "1", "train.micro_batch": "1", "model.context": "32"}
subprocess.run([lockstep, "train", "examples/small.yaml", "--run-dir", folder, "--ranks", "1"] + [word for k, v in settings.items() for word in ("--set", f"{k}={v}")],
               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=True)
root = f"{folder}/checkpoints/2"
ask = lambda: subprocess.run([lockstep, "state-hash", root], capture_output=True, text=True)
right = ask().stdout
for _ in range(rounds):
    name = f"{root}/{random.choice([n for n in os.listdir(root) if n.endswith('.safetensors')])}"
    at, bit = random.randrange(os.path.getsize(name)), 1 << random.randrange(8)
    with open(name, "r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ bit]))
    answer = ask()
    verify = subprocess.run([lockstep, "checkpoint", "verify", root], capture_output=True).returncode
    if answer.returncode == 0 and answer.stdout != right:
        counts["wrong_numbers"] += 1
    else:
        counts["noticed" if verify == 3 else "harmless"] += 1
    with open(name, "r+b") as file:
        file.seek(at)
        file.write(old)
shutil.rmtree(folder)
print(json.dumps({"case": "a flipped bit", "peer": "lockstep", "rounds": rounds, **counts}))
PY
}

for case in "${cases[@]}"; do
    file=bench/results/resilience-$case.jsonl
    [ "$case" != fault ] || file=bench/results/resilience-fault-$ranks.jsonl
    touch "$file"
    case $only in # a line of theirs names torch
    ours) grep torch "$file" >"$file.new" || true ;;
    theirs) grep -v torch "$file" >"$file.new" || true ;;
    *) : >"$file.new" ;;
    esac
    mv "$file.new" "$file"
    keep() { tee -a "$file"; }
    case $case in
    fault)
        ours "$ranks" | keep
        theirs fault "${shape[@]}" --ranks "$ranks" --save none | keep
        for _ in $(seq "$rounds"); do
            ours "$ranks" 13 | keep
            for save in sync async; do theirs fault "${shape[@]}" --ranks "$ranks" --save $save --kill-step 13 | keep; done
        done
        ;;
    fewer)
        for n in 4 2; do
            ours $n | keep
            theirs fault "${shape[@]}" --ranks $n --save none | keep
        done
        ours 4 13 2 | keep
        theirs fault "${shape[@]}" --ranks 4 --after-ranks 2 --save sync --kill-step 13 | keep
        ;;
    store) for n in 2 4; do for _ in $(seq "$rounds"); do theirs fault "${shape[@]}" --ranks $n --save sync --kill-step 13 --shared-store | keep; done; done ;;
    dcp)
        theirs speed --dir "$place" --mib 256 --rounds "$rounds" | keep
        [ "$only" = theirs ] || "$lockstep" bench checkpoint --dir "$place" --bytes 256MiB --rounds "$rounds" --json | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)))' | keep
        ;;
    crash)
        for where in same new; do theirs crash --dir "$place" --mib 128 --rounds "$rounds" --where $where | keep; done
        ours_crash | keep
        ;;
    flip)
        theirs flip --dir "$place" --mib 64 --rounds "$rounds" | keep
        ours_flip | keep
        ;;
    *) rm "$file" && echo "no case $case; there is: fault fewer store dcp crash flip" >&2; exit 2 ;;
    esac
    python3 - "$file" <<'PY'
import json, statistics, sys
rows, whole = {}, {}
for row in map(json.loads, open(sys.argv[1])):
    key = (row.get("case", ""), row.get("ranks"), row.get("save", ""), "killed" if "killed_in_step" in row or "resumed" in row else "")
    rows.setdefault(key, []).append(row)
    if row.get("case") in ("torchrun", "lockstep") and not key[3]:
        whole[key[:2]] = row["state_hash"]
for key, runs in rows.items():
    if not key[3]:
        continue
    back = [r for r in runs if r.get("resumed", True)]
    middle = lambda name: [f(r[name] for r in back if r.get(name) is not None) for f in (statistics.median, min, max)] if any(r.get(name) is not None for r in back) else None
    print(json.dumps({"case": key[0], "ranks": key[1], "save": key[2], "runs": len(runs), "came_back": len(back),
                      **{name: middle(name) for name in ("noticed_s", "agent_notices_s", "restarted_s", "next_step_s", "caught_up_s", "steps_lost", "step_s", "save_stall_s")},
                      "same_bits": sum(r["state_hash"] == whole.get(key[:2]) for r in back) if key[:2] in whole else None}))
PY
done
