#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training over slow links: four hosts of network namespaces, each limited to RATE, with each
# scheme in turn. Needs root, or user namespaces, and iproute2.
#
#   bench/slow_links.sh [--rate 100mbit] [--steps 8] [--layers 12] [--width 384] [--context 64]
#       [--batch 4] [--schemes "dense int8 topk"]
#
# A scheme is what is sent, with what comes back after a plus: topk+int8; or "torch:HOOK", the
# same model and batch in PyTorch (bench/slow_links_peer.py; PEER_PYTHON, default python3, has
# torch). "loss" is the mean of the last tenth of the steps, of the training batches.
#
# With 12 layers and width 384 the byte model has 21 million parameters. A step's time is the
# median of all steps but the first two, one rank per host with one thread; "sent" is what the
# first rank sent per step as the run counts it, "wire" what its network card sent, with all
# headers, from step 2 to the end. Top-k runs without warm-up, so that every step sends the
# final share. The binary: LOCKSTEP, default build/release/lockstep.
#
# "local:H[:BITS[:DELAY]]" makes one round of H local steps; its step is the mean, with the outer
# step. "waiting" is the share of the time in which the first rank neither computed nor updated.
set -u
cd "$(dirname "$0")/.."
. tests/lib/netns.sh
netns_as_root "$0" "$@"
rate=100mbit steps=8 layers=12 width=384 context=64 batch=4 schemes="dense int8 topk"
while [ $# -gt 0 ]; do
    case $1 in
    --rate) rate=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --layers) layers=$2; shift 2 ;;
    --width) width=$2; shift 2 ;;
    --context) context=$2; shift 2 ;;
    --batch) batch=$2; shift 2 ;;
    --schemes) schemes=$2; shift 2 ;;
    *) sed -n '3,/^set/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
source_dir=$PWD
program=$(realpath "${LOCKSTEP:-build/release/lockstep}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
netns_begin 4
netns_write_ssh "$work/ssh"
export LOCKSTEP_SSH=$work/ssh LOCKSTEP_HOME=$work/home
cat "$source_dir"/docs/*.md "$source_dir"/docs/guide/*.md >text.txt
cat >run.yaml <<YAML
name: link
model: {layers: $layers, heads: 6, width: $width, context: $context}
tokenizer: {kind: bytes}
data: {train: [text.txt]}
train: {steps: $steps, global_batch: $batch, micro_batch: 1, leaves: 4, optimizer: {lr: 1.0e-3}, schedule: {kind: constant, warmup_steps: 0}}
parallel: {ranks: 4, zero: 0}
eval: {every_steps: 0}
sample: {every_steps: 0}
checkpoint: {every_steps: 0}
YAML
printf 'host%d 10.77.0.%d\n' 0 1 1 2 2 3 3 4 >four.hosts
cp /etc/hosts hosts.etc
for host in 0 1 2 3; do printf '10.77.0.%d host%d\n' $((host + 1)) $host >>hosts.etc; done
for host in 0 1 2 3; do # PyTorch asks for names, and there is no name server
    netns_inside "${netns_holders[$host]}" mount --bind hosts.etc /etc/hosts
    netns_rate $host "$rate"
done

wire() { netns_inside "${netns_holders[0]}" sh -c 'cat /sys/class/net/e*/statistics/tx_bytes' | awk '{ s += $1 } END { print s }'; }
# wire_at STEP: what host 0 has sent when the run has passed it.
wire_at() {
    while kill -0 "$trainer" 2>/dev/null && [ "$(wc -l 2>/dev/null <"run/metrics.jsonl" || echo 0)" -lt "$1" ]; do sleep 0.02; done
    wire
}
# peer HOOK: four ranks of PyTorch.
peer() {
    local host ranks=()
    for host in 3 2 1 0; do
        OMP_NUM_THREADS=1 netns_run $host "${PEER_PYTHON:-python3}" "$source_dir/bench/slow_links_peer.py" "$1" $host text.txt \
            "$steps" "$layers" "$width" "$context" "$batch" >peer$host.json 2>peer$host.txt &
        ranks+=($!)
    done
    wait "${ranks[@]}" || { tail -n 3 peer?.txt; exit 1; }
    python3 -c '
import json, sys
r = json.load(open("peer0.json"))
print("%-15s %.1f M parameters  step %7.3f s  wire %8.3f MB  loss %.4f" % ("torch:" + sys.argv[1], r["parameters"] / 1e6, r["step_s"], r["wire"] / 1e6, r["loss"]))' "$1"
}
for scheme in $schemes; do
    case $scheme in torch:*) peer "${scheme#torch:}"; continue ;; esac
    case $scheme in
    dense) sets=() ;;
    local:*)
        IFS=: read -r _ rounds bits delay <<<"$scheme"
        sets=(--set "train.local.steps=$rounds" --set train.local.workers=4 --set "train.steps=$rounds" --set "train.local.bits=${bits:-32}"
            --set "train.local.delay=${delay:-0}")
        ;;
    *) sets=(--set "train.compression.kind=${scheme%+*}") ;;
    esac
    case $scheme in *+*) sets+=(--set "train.compression.weights=${scheme#*+}") ;; esac
    rm -rf run
    netns_exec 0 "$program" train run.yaml --run-dir run --threads 1 --json --hosts four.hosts "${sets[@]}" >out.json 2>error.txt &
    trainer=$!
    first=$(wire_at 2)
    last=$(wire_at $((steps - 1)))
    wait "$trainer" || { tail -3 error.txt; exit 1; }
    case $scheme in local:*) last=$first ;; esac # what the card sent in half a round says nothing
    python3 - "$scheme" $(((last - first) / (steps - 3))) <<'PY'
import json, os, statistics, sys
scheme, wire = sys.argv[1], int(sys.argv[2])
lines = [json.loads(line) for line in open("run/metrics.jsonl")]
tail = lines[-max(len(lines) // 10, 1):]
loss = statistics.mean(l["loss"] for l in tail)
lines = lines[2:]
middle = statistics.mean if scheme.startswith("local") else statistics.median
step = middle(l["step_s"] for l in lines)
busy = middle(l["forward_s"] + l["backward_s"] for l in lines)
sent = middle(l.get("link_bytes", 0) for l in lines) * (len(lines) / (len(lines) + 2) if scheme.startswith("local") else 1)
waiting = 1 - sum(l["forward_s"] + l["backward_s"] + l["reduce_s"] + l["optimizer_s"] for l in lines) / sum(l["step_s"] for l in lines)
results = json.load(open("results.json")) if os.path.exists("results.json") else []
results.append((step, sent))
json.dump(results, open("results.json", "w"))
parameters = json.load(open("out.json"))["parameters"]
print(f"{scheme:15} {parameters / 1e6:.1f} M parameters  step {step:7.3f} s ({results[0][0] / step:5.2f}x), computing {busy:.3f} s, waiting {100 * waiting:.0f} %  "
      f"sent {sent / 1e6:8.3f} MB ({results[0][1] / max(sent, 1):6.2f}x fewer)  wire {wire / 1e6:8.3f} MB  loss {loss:.4f}")
PY
done
