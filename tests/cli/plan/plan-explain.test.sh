#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plan --explain: every term ends in the figure of the answer, and what it is put together from adds up to it. plan --gpus here:1: what can be asked of this machine.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

plan=("$LOCKSTEP" plan)

# explains OPTIONS...: each term of that answer against its JSON.
explains() {
    check "explained: $*" python3 - "$@" <<'PY'
import json, math, os, re, subprocess, sys
plan = [os.environ["LOCKSTEP"], "plan", *sys.argv[1:]]
def run(*more):
    done = subprocess.run([*plan, *more], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{more}: exit code {done.returncode}, {done.stderr}")
    return done.stdout
answer = json.loads(run("--json"))
wrong = []
def near(what, a, b, relative=1e-4, absolute=1e-9):
    if not (math.isfinite(a) and math.isclose(a, b, rel_tol=relative, abs_tol=absolute)):
        wrong.append(f"{what}: {a} and {b}")
for term, seconds in answer["breakdown_s"].items():
    text = run("--explain", term)
    result = re.search(r"^= (\S+) s of a step of (\S+) s, ", text, re.M)
    if not result or "nan" in text or "inf " in text:
        wrong.append(f"{term}: {text}")
        continue
    near(f"{term} and the answer", float(result[1]), seconds)
    near(f"{term}'s step and the answer", float(result[2]), answer["step_time_s"])
    parts = [float(x) for x in re.findall(r"[=,] (\S+) s$", text[:result.start()], re.M)]
    if parts:
        near(f"{term} and its parts", sum(parts), float(result[1]))
for term in ("weights", "gradients", "optimizer", "activations", "buffers", "memory"):
    text = run("--explain", term)
    shown = re.findall(r"^(?:%s = |.*= ).*?([\d.]+) GiB(?: of .*|   .*|$)" % term, text, re.M)
    total = answer["memory_gib"]["total" if term == "memory" else term]
    if not any(math.isclose(float(x), total, abs_tol=0.00501) for x in shown):
        wrong.append(f"{term} is {total} GiB: {text}")
parts = [float(x) for x in re.findall(r" ([\d.]+)(?= \+| = | GiB)", run("--explain", "memory").splitlines()[-1 if "here:1" not in sys.argv else 0])]
near("memory's parts", sum(parts[:5]), parts[5], absolute=0.03)
text = run("--explain", "step")
near("step", sum(float(x) for x in re.findall(r"^  \S+ +(\S+) s ", text, re.M)), answer["step_time_s"], 1e-3)
near("days", float(re.search(r"= (\S+)\s*$", run("--explain", "days"))[1]), answer["days"], 1e-3)
near("mfu", float(re.search(r"= (\S+) %", run("--explain", "mfu"))[1]), 100 * answer["mfu"], absolute=0.051)
near("goodput", float(run("--explain", "goodput").split()[-1]), answer["goodput"])
if answer["cost_usd"]:
    text = run("--explain", "cost")
    near("cost", float(re.search(r"^a run = (\S+) USD", text, re.M)[1]), answer["cost_usd"]["run"], 1e-6, 0.01)
    near("cost's parts", sum(float(x) for x in re.findall(r"^  \S+ +(\S+) USD$", text, re.M)), answer["cost_usd"]["run"], 1e-6, 0.03)
if answer["power_kw"]:
    near("power", float(re.search(r"^meter .* = (\S+) kW", run("--explain", "power"), re.M)[1]), answer["power_kw"], absolute=0.051)
if wrong:
    sys.exit("\n".join(wrong)[:3000])
PY
}

explains llama3-70b --gpus h100:64 --tokens 1T --strategy tp=8,pp=4,cp=1,ep=1,vpp=5,mb=1,zero=1,recompute=selective
explains llama3-70b --gpus h100:64 --tokens 1T --strategy tp=2,pp=8,cp=2,ep=1,vpp=1,mb=1,zero=1,recompute=full,schedule=zb-h1
explains llama3-8b --gpus a100:16 --tokens 100B --stack fsdp --strategy tp=1,pp=1,cp=1,ep=1,mb=1,zero=3,recompute=full
explains mixtral-8x7b --nodes dgx-h100:8 --tokens 1T --strategy tp=2,pp=4,cp=1,ep=8,vpp=1,mb=1,zero=1,recompute=none
explains gpt3-175b --gpus a100:512 --tokens 300B --stack megatron-2021 --strategy tp=8,pp=8,cp=1,ep=1,vpp=3,mb=1,zero=0,recompute=full

# ---- this machine ----
expect 2 "${plan[@]}" gpt2 --gpus here:1
says "lockstep calibrate"
expect 0 "$LOCKSTEP" calibrate --quick
explains gpt2 --gpus here:1 --tokens 1B
explains gpt2 --gpus here:1 --tokens 1B --strategy mb=2,recompute=full --global-batch 8 --seq 256

# What it can't do is refused, with what it can.
cannot() {
    expect 2 "${plan[@]}" gpt2 --gpus here:1 --tokens 1B "${@:3}"
    says "$1" "$2"
    check "no answer: ${*:3}" test ! -s "$out"
}
cannot "tp is 8" "mb and recompute" --strategy tp=8
cannot "dp is 2" "mb and recompute" --strategy dp=2
cannot "bf16" "fp32" --precision bf16
cannot "muon" "adamw" --optimizer muon
cannot "fsdp" "lockstep" --stack fsdp
cannot "mb (the micro-batch) is 7" "512" --strategy mb=7 --global-batch 512
cannot "2048" "1024" --seq 2048
cannot "zb-h1" "no schedule to choose" --schedule zb-h1
cannot "here:2" "here:1" --gpus here:2
expect 0 "${plan[@]}" gpt2 --gpus here:1 --tokens 1B --strategy mb=2,recompute=full --json
check "mb and recompute are as asked" python3 -c "
import json
s = json.load(open('$out'))['strategy']
assert s['mb'] == 2 and s['recompute'] == 'full', s"
expect 0 "${plan[@]}" gpt2 --gpus here:1 --tokens 1B --all
prints "the cost excludes its energy"
# Every label of the answer is a word that is explained, in capitals or not.
for word in strategy memory cost other MFU tokens/s risk band plan training buying memory/GPU hfu run; do
    expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --explain $word
    check "$word says something" test -s "$out"
done

finish
