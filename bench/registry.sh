#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a registry stores of one base and ten fine-tunes of it, beside what their differences are; and how long the lineage of a model eight generations deep takes.
#   LOCKSTEP=build/release/lockstep bench/registry.sh
# Differences: the bytes of all distinct tensors (and of files that are no tensors), counted here by their SHA-256. Four of the ten are full
# fine-tunes, in which every tensor changes, three change the last layer alone (train.freeze), three are LoRA adapters.
set -eu
LOCKSTEP=$(realpath "${LOCKSTEP:-build/release/lockstep}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export LOCKSTEP_HOME=$work/home
python3 - <<'PY'
import random
random.seed(1)
words = "the king said to his people that a day of light and water will come over every land".split()
open("text.txt", "w").write("\n".join(" ".join(random.choice(words) for _ in range(10)) for _ in range(3000)))
PY
run() { # run NAME MODEL EXTRA
    cat >"$1.yaml" <<YAML
name: $1
model: $2
data: {train: [text.txt], validation_fraction: 0}
train: {steps: 2, global_batch: 4, micro_batch: 2, leaves: 2, seed: ${4:-1}}
checkpoint: {every_steps: 0}
log: {tensorboard: false}
registry: {add: false}
$3
YAML
    "$LOCKSTEP" train "$1.yaml" >/dev/null 2>&1
}
run base "{family: llama, layers: 6, heads: 8, width: 512, context: 64}" "tokenizer: {kind: bytes}"
"$LOCKSTEP" export runs/base -o out/base >/dev/null
"$LOCKSTEP" registry add out/base --name base --store
for i in 1 2 3 4; do
    run full$i "{from: out/base, context: 64}" "tokenizer: {kind: bytes}" $i
    "$LOCKSTEP" export runs/full$i -o out/full$i >/dev/null
done
for i in 1 2 3; do
    run part$i "{from: out/base, context: 64}" "tokenizer: {kind: bytes}" $i
    rm -r runs/part$i
    sed -i 's/^train: {/train: {freeze: ["model.embed*", "lm_head*", "model.norm*", "model.layers.[0-4].*"], /' part$i.yaml
    "$LOCKSTEP" train part$i.yaml >/dev/null 2>&1
    "$LOCKSTEP" export runs/part$i -o out/part$i >/dev/null
    run lora$i "{from: out/base, context: 64}" "adapter: {kind: lora, rank: 8}" $i
    "$LOCKSTEP" export runs/lora$i --adapter -o out/lora$i >/dev/null
done
for name in full1 full2 full3 full4 part1 part2 part3 lora1 lora2 lora3; do
    "$LOCKSTEP" registry add out/$name --name $name --store --parent base
done
python3 - home/registry out <<'PY'
import hashlib, json, os, struct, sys
stored = sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(sys.argv[1]) for f in files)
seen, apart, distinct, first = set(), 0, 0, 0
for folder in ["base"] + sorted(set(os.listdir(sys.argv[2])) - {"base"}):
    for name in sorted(os.listdir(os.path.join(sys.argv[2], folder))):
        data = open(os.path.join(sys.argv[2], folder, name), "rb").read()
        apart += len(data)
        parts = [data]
        if name.endswith(".safetensors"):
            size = struct.unpack("<Q", data[:8])[0]
            header = json.loads(data[8:8 + size])
            parts = [data[:8 + size]] + [data[8 + size:][slice(*t["data_offsets"])] for n, t in header.items() if n != "__metadata__"]
        for part in parts:
            digest = hashlib.sha256(part).digest()
            if digest not in seen:
                seen.add(digest)
                distinct += len(part)
    first = first or apart
print("one base %.1f MB; eleven apart %.1f MB; distinct tensors %.1f MB; stored %.1f MB = %.3f of the distinct"
      % (first / 1e6, apart / 1e6, distinct / 1e6, stored / 1e6, stored / distinct))
PY
"$LOCKSTEP" registry verify
parent=()
for g in 0 1 2 3 4 5 6 7 8; do
    echo "$g" >g$g.txt
    "$LOCKSTEP" registry add g$g.txt --name generation$g "${parent[@]}" >/dev/null
    parent=(--parent generation$g)
done
python3 - "$LOCKSTEP" <<'PY'
import subprocess, sys, time
times = []
for _ in range(21):
    begun = time.monotonic()
    out = subprocess.run([sys.argv[1], "registry", "lineage", "generation8"], capture_output=True, check=True).stdout
    times.append(time.monotonic() - begun)
assert out.count(b"generation") >= 9
print("lineage of 8 generations, the whole command: median %.1f ms, slowest %.1f ms of %d" % (1e3 * sorted(times)[10], 1e3 * max(times), len(times)))
PY
