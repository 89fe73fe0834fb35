#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plan beside measurement, for ranks that divide a model: own memory of each rank, idle share of
# stages, bytes of each axis, time of a step; then the mesh that `parallel: auto` chooses beside
# the fastest measured one.
# Usage: bench/mesh_plan.sh LOCKSTEP [--keep] [--steps N] [--rounds N] [--minutes N] [--width N]
#     [--layers N] [--micro-batches N] [MESH ...]
#   MESH: RANKS,TENSOR,CONTEXT,PIPELINE,SCHEDULE,ZERO; without: the meshes of the table of
#       memory, then all of up to 4 ranks
# Calibrates the machine first (a minute; not with --keep), so it should be idle. Rounds take
# turns over the meshes and end after so many minutes (default 8, calibration included). A mesh's
# time is the median of its steps after the first, which touches the memory of all others.
set -u
[ $# -ge 1 ] || { sed -n '3,/^set/s/^# \{0,1\}//p' "$0" | sed '$d' >&2; exit 2; }
program=$(realpath "$1")
shift
steps=4 rounds=1 minutes=8 width=768 layers=6 micro=8 keep='' meshes=()
while [ $# -gt 0 ]; do
    case $1 in
    --keep) keep=1; shift ;;
    --minutes) minutes=$2; shift 2 ;;
    --layers) layers=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --rounds) rounds=$2; shift 2 ;;
    --width) width=$2; shift 2 ;;
    --micro-batches) micro=$2; shift 2 ;;
    *) meshes+=("$1"); shift ;;
    esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$program" "$work/lockstep" # a build beside the bench must not change what it runs
cd "$work" || exit 1
python3 -c '
import random
random.seed(1)
open("text.txt", "w").write(" ".join(random.choice("the cat sat on a mat and ran".split()) for _ in range(60000)))'
cat >run.yaml <<YAML
name: mesh
model: {family: llama, layers: $layers, heads: 12, width: $width, context: 128}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0}
train: {steps: $steps, global_batch: $((4 * micro)), micro_batch: 1, leaves: 4, tensor_cut: 4, sequence_cut: 2}
eval: {every_steps: 0}
sample: {every_steps: 0}
checkpoint: {every_steps: 0}
YAML
if [ ${#meshes[@]} -eq 0 ]; then
    meshes=(2,2,1,1,1f1b,1 2,1,2,1,1f1b,1 2,1,1,2,1f1b,1 4,1,1,4,1f1b,1 4,1,1,4,zero-bubble,1 2,1,1,1,1f1b,1 2,1,1,1,1f1b,2 2,1,1,1,1f1b,3
        1,1,1,1,1f1b,1 3,1,1,1,1f1b,1 4,1,1,1,1f1b,1 3,1,1,3,1f1b,1 2,1,1,2,interleaved,1 2,1,1,2,zero-bubble,1 3,1,1,3,zero-bubble,1
        4,4,1,1,1f1b,1 4,2,2,1,1f1b,1 4,2,1,2,1f1b,1 4,1,2,2,1f1b,1 4,2,1,1,1f1b,1 4,1,2,1,1f1b,1 4,1,1,2,1f1b,1)
fi
[ -n "$keep" ] || ./lockstep calibrate | grep -E 'cores|calibration' # with what it got of the processor, if that was not all
echo "load $(cut -d' ' -f1-3 /proc/loadavg) at the begin, $(nproc) cores; $layers layers, width $width, 4 leaves of $micro micro-batches of 128 tokens"
for ((round = 0; round < rounds; round++)); do
    for mesh in "${meshes[@]}"; do
        [ $SECONDS -lt $((60 * minutes)) ] || { echo "round $((round + 1)): no time left for $mesh"; continue; }
        IFS=, read -r ranks tensor context pipeline schedule zero <<<"$mesh"
        rm -rf run
        ./lockstep train run.yaml --json --threads 1 --run-dir run --ranks "$ranks" --set parallel.tensor="$tensor" --set parallel.context="$context" \
            --set parallel.pipeline="$pipeline" --set parallel.schedule="$schedule" --set parallel.zero="$zero" >"result-$mesh-$round.json" 2>error.txt ||
            { echo "$mesh: $(tail -1 error.txt)"; rm -f "result-$mesh-$round.json"; continue; }
        cp run/metrics.jsonl "steps-$mesh-$round.jsonl"
    done
done
./lockstep train run.yaml --dry-run --json --threads 1 --set parallel=auto >auto.json 2>/dev/null || echo '{}' >auto.json
python3 - "$rounds" "${meshes[@]}" <<'PY'
import json, os, statistics, sys
rounds, meshes = int(sys.argv[1]), sys.argv[2:]
print("| mesh: ranks, tensor, context, pipeline, schedule, zero | own memory of ranks, MiB: planned | measured | measured / planned | stages idle: planned | measured "
      "| MiB per step by axis (planned exactly) | step, s: predicted | measured (fastest) | measured / predicted |\n" + "|---" * 10 + "|")
ratios, times = [], {}
for mesh in meshes:
    done = [r for r in range(rounds) if os.path.exists(f"steps-{mesh}-{r}.jsonl")]
    if not done:
        continue
    results = [json.load(open(f"result-{mesh}-{r}.json")) for r in done]
    later = [json.loads(line)["step_s"] for r in done for line in list(open(f"steps-{mesh}-{r}.jsonl"))[1:]]
    step, predicted = statistics.median(later), results[0]["predicted"]["step_s"]
    times[mesh] = (step, predicted)
    rate = f"{predicted:.2f} | {step:.2f} ({min(later):.2f}) | {step / predicted:.2f}" if predicted else f"| {step:.2f} |"
    if "mesh" not in results[0]:
        print(f"| {mesh} |  |  |  |  |  | none | {rate} |")
        continue
    m, p = results[0]["mesh"], results[0]["predicted"]
    plan = [b / 2**20 for b in p["rank_memory_bytes"]]
    got = [max(r["mesh"]["rank_memory_bytes"][i] for r in results) / 2**20 for i in range(len(plan))]
    off = max((g / q for g, q in zip(got, plan)), key=lambda x: abs(x - 1))
    ratios.append(off)
    exact = all(r["mesh"]["sent_bytes"] == p["sent_bytes"] for r in results)
    sent = ", ".join(f"{a} {b / 2**20:.1f}" for a, b in m["sent_bytes"].items() if b) or "none"
    share = lambda x: "" if x is None else f"{100 * x:.1f} %"
    bubble = None if m["bubble"] is None else statistics.median(r["mesh"]["bubble"] for r in results)
    print(f"| {mesh} | {', '.join(f'{x:.1f}' for x in plan)} | {', '.join(f'{x:.1f}' for x in got)} | {off:.3f} | {share(p['bubble'])} | {share(bubble)} "
          f"| {sent}{'' if exact else ' NOT AS PLANNED'} | {rate} |")
if ratios:
    print(f"\nmemory: {sum(abs(r - 1) <= 0.05 for r in ratios)} of {len(ratios)} meshes within 5 %, worst {max(ratios, key=lambda r: abs(r - 1)):.3f}")
known = {m: t for m, t in times.items() if t[1]}
if known:
    errors = [abs(t / p - 1) for t, p in known.values()]
    print(f"step time: median error {100 * statistics.median(errors):.1f} % over {len(errors)} meshes")
chosen = json.load(open("auto.json")).get("mesh")
if chosen:
    best = min(times, key=lambda m: times[m][0])
    name = f"{chosen['ranks']},{chosen['tensor']},{chosen['context']},{chosen['pipeline']},{chosen['schedule']},1"
    print(f"auto chose {name}; the fastest measured is {best}, {times[best][0]:.3f} s a step" +
          (f", the choice {times[name][0]:.3f} s: {100 * (times[name][0] / times[best][0] - 1):.1f} % slower" if name in times else ""))
PY
echo "load $(cut -d' ' -f1-3 /proc/loadavg) at the end"
