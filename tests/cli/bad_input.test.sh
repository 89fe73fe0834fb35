#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bad input gets a clear error and loses nothing: run files, data, safetensors, checkpoints, memory, disk, losses that are not finite.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

train=("$LOCKSTEP" train tiny.yaml --json)
expect 0 "${train[@]}" --run-dir reference
reference=$(hashes "$out")

# ---- run files: file, line, what was seen, what is allowed ----

# refuse_line SED-COMMAND TEXT...: a run file changed by the sed command is refused, and stderr holds each text.
refuse_line() {
    local change=$1
    shift
    sed "$change" tiny.yaml >bad.yaml
    cmp -s tiny.yaml bad.yaml && fail "no change: $change"
    expect 2 "$LOCKSTEP" train bad.yaml --run-dir bad
    says bad.yaml "$@"
    [ ! -e bad ] || fail "a refused run leaves a folder: $change"
}
refuse_line 's/steps: 12/setps: 12/' "bad.yaml:6" train.setps "train.steps"
refuse_line 's/optimizer:/optimiser:/' "bad.yaml:11" train.optimiser train.optimizer
refuse_line 's/steps: 12/steps: many/' "bad.yaml:6" train.steps many
refuse_line 's/steps: 12/steps: -3/' "bad.yaml:6" train.steps -3
refuse_line 's/steps: 12/steps: 1.5/' "bad.yaml:6" train.steps 1.5
refuse_line 's/lr: 1.0e-2/lr: 70/' "bad.yaml:11" train.optimizer.lr 70 "0 to 10"
refuse_line 's/lr: 1.0e-2/lr: .nan/' "bad.yaml:11" .nan
refuse_line 's/family: llama/family: lama/' "bad.yaml:2" model.family lama llama
refuse_line 's/leaves: 3/leaves: 5/' train.leaves 5 "global_batch 12" "4" "6"
refuse_line 's/micro_batch: 1/micro_batch: 3/' train.micro_batch 3 "micro_batch 1, 2 or 4"
refuse_line 's/kv_heads: 2/kv_heads: 3/' model.kv_heads 3
refuse_line 's/heads: 4, kv_heads: 2/heads: 5/' "model.heads 5" "model.width 32"
refuse_line 's/^train:/train: [1, 2]/' "bad.yaml"
refuse_line 's/^train:/  train: {/' "bad.yaml"
refuse_line 's/name: tiny/name: tiny\nname: twice/' "bad.yaml" name
expect 2 "${train[@]}" --run-dir bad --set train.stepps=3
says --set train.stepps train.steps
expect 2 "${train[@]}" --run-dir bad --set train.steps
says train.steps
expect 2 "${train[@]}" --run-dir bad --run-dri bad
says --run-dri --run-dir
expect 2 "${train[@]}" --run-dir bad --threads 0x
says threads 0x
expect 2 "${train[@]}" --run-dir bad --set train.steps=3 --set train.epochs=2
says train.steps train.epochs
: >empty.yaml
expect 2 "$LOCKSTEP" train empty.yaml --run-dir bad
says empty.yaml
head -c 300 /dev/urandom >noise.yaml
expect 2 "$LOCKSTEP" train noise.yaml --run-dir bad
says noise.yaml
expect 2 "$LOCKSTEP" train "$scratch" --run-dir bad
check "nothing was created" test ! -e bad

# ---- data ----

# refuse_data CODE FILE TEXT...
refuse_data() {
    local code=$1 file=$2
    shift 2
    expect "$code" "${train[@]}" --run-dir bad-data --set "data.train=[$file]"
    says "$(basename "$file")" "$@"
}
refuse_data 2 missing.txt
refuse_data 2 "missing-*.txt"
: >void.txt
refuse_data 3 void.txt empty
head -c 20 text.txt >short.txt
refuse_data 3 short.txt context
head -c 4000 /dev/urandom >binary.txt
refuse_data 3 binary.txt
{ head -c 3000 text.txt; printf 'caf\351 au lait\n'; cat text.txt; } >latin1.txt
python3 -c 'open("half.bin", "wb").write(bytes(4001))'
refuse_data 3 half.bin
printf '{"text": "good line"}\n{"text": "bad line\n' >torn.jsonl
refuse_data 3 torn.jsonl 2
printf '{"txt": "no such key"}\n' >key.jsonl
refuse_data 3 key.jsonl text
python3 - <<'PY'
import struct
ids = [i % 200 for i in range(4000)]
ids[1234] = 65000
open("beyond.bin", "wb").write(struct.pack("<4000H", *ids))
header = [20240520, 1, 4000] + [0] * 253
open("cut.bin", "wb").write(struct.pack("<256i", *header) + struct.pack("<3000H", *([1] * 3000)))
PY
refuse_data 3 beyond.bin 65000 1234
refuse_data 3 cut.bin truncated
mkdir folder.txt
refuse_data 2 folder.txt
expect 0 "${train[@]}" --run-dir bad-data
same "the folder of the refused runs" "$(hashes "$out")" "$reference"

# Broken UTF-8: the bytes tokenizer takes any text file, tokenizers of characters say where.
"$LOCKSTEP" tokenize train text.txt --vocab 300 -o small.json >"$out" 2>"$err" || fail "no tokenizer"
expect 3 "${train[@]}" --run-dir utf8 --set tokenizer.kind=train --set tokenizer.vocab=300 --set "data.train=[latin1.txt]"
says latin1.txt 3003
# A corrupt tokenizer.
head -c 500 small.json >cut.json
expect 3 "${train[@]}" --run-dir tok --set tokenizer.kind=file --set tokenizer.file=cut.json
says cut.json
expect 2 "${train[@]}" --run-dir tok --set tokenizer.kind=file --set tokenizer.file=absent.json
says absent.json

# ---- safetensors ----

golden=$LS_SOURCE_DIR/tests/golden/models/llama
python3 - "$golden" <<'PY'
import json, os, shutil, struct, sys
golden = sys.argv[1]
data = open(golden + "/model.safetensors", "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header, body = json.loads(data[8:8 + n]), data[8 + n:]

def pack(header, body, n=None):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if n is None else n) + text + body

def write(name, data):
    os.makedirs(name)
    shutil.copy(golden + "/config.json", name)
    open(name + "/model.safetensors", "wb").write(data)

names = [k for k in header if k != "__metadata__"]
first, second = sorted(names, key=lambda k: header[k]["data_offsets"])[:2]
def changed(change):
    copy = json.loads(json.dumps(header))
    change(copy)
    return copy
def overlap(h): h[second]["data_offsets"] = [o - 4 for o in h[second]["data_offsets"]]
def beyond(h): h[second]["data_offsets"][1] = 1 << 40
def shape(h): h[first]["shape"] = h[first]["shape"] + [3]
def dtype(h): h[first]["dtype"] = "F99"
write("st-cut", data[:len(data) // 2])
write("st-header", data[:5])
write("st-huge", struct.pack("<Q", 1 << 62) + data[8:])
write("st-noise", struct.pack("<Q", n) + os.urandom(n) + body)
write("st-overlap", pack(changed(overlap), body))
write("st-beyond", pack(changed(beyond), body))
write("st-shape", pack(changed(shape), body))
write("st-dtype", pack(changed(dtype), body))
write("st-missing", pack({k: v for k, v in header.items() if k != first}, body))
# Weights that can't be computed with.
at = header["model.layers.1.mlp.down_proj.weight"]["data_offsets"][0]
write("st-inf", data[:8 + n] + body[:at] + struct.pack("<f", float("inf")) + body[at + 4:])
PY
for bad in st-cut st-header st-huge st-noise st-overlap st-beyond st-shape st-dtype st-missing; do
    expect 3 "$LOCKSTEP" import $bad -o "imported-$bad"
    says $bad
    check "$bad left nothing behind" test ! -e "imported-$bad/0"
done
mkdir st-config && cp "$golden/model.safetensors" st-config && echo '{"model_type": "llama", "hidden_size": "wide"}' >st-config/config.json
expect 3 "$LOCKSTEP" import st-config -o imported-config
says config.json hidden_size
mkdir st-family && cp "$golden/model.safetensors" st-family && echo '{"model_type": "bert"}' >st-family/config.json
expect 2 "$LOCKSTEP" import st-family -o imported-family
says bert
expect 2 "$LOCKSTEP" import nowhere -o imported
says nowhere
expect 2 "$LOCKSTEP" import "$golden"
says "-o"

# ---- checkpoints ----

# A checkpoint of another model in the run directory.
expect 0 "${train[@]}" --run-dir narrow --set model.width=16 --set model.ffn=32 --steps 4
cp -r reference mixed
rm -r mixed/checkpoints/* && cp -r narrow/checkpoints/4 mixed/checkpoints/
expect 2 "${train[@]}" --run-dir mixed
says checkpoints/4 another
expect 2 "$LOCKSTEP" train tiny.yaml --run-dir from --set "model.from=$scratch/narrow/checkpoints/4"
says model.

# A flipped bit in the newest checkpoint: the older one is used, with a warning, and the end is the same.
expect 0 "${train[@]}" --run-dir flipped --steps 8
flip() { python3 - "$1" "$2" <<'PY'
import sys
with open(sys.argv[1], "r+b") as f:
    f.seek(int(sys.argv[2]))
    byte = f.read(1)[0]
    f.seek(-1, 1)
    f.write(bytes([byte ^ 4]))
PY
}
file=$(cd flipped/checkpoints/8 && ls *.safetensors | head -1)
flip "flipped/checkpoints/8/$file" 20000
expect 3 "$LOCKSTEP" checkpoint verify flipped/checkpoints/8
says "$file" block
expect 3 "$LOCKSTEP" checkpoint verify flipped
prints "4: good"
says "$file"
expect 3 "$LOCKSTEP" eval flipped/checkpoints/8 --data text.txt
expect 0 "${train[@]}" --run-dir flipped
says "step 8" "$file"
same "the end after a flipped bit" "$(hashes "$out")" "$reference"
expect 0 "$LOCKSTEP" checkpoint verify flipped
# A manifest that is cut, a file that is missing.
for damage in manifest file; do
    cp -r reference damaged-$damage
    if [ $damage = manifest ]; then
        truncate -s 500 damaged-$damage/checkpoints/12/MANIFEST.json
    else
        rm damaged-$damage/checkpoints/12/"$file"
    fi
    expect 3 "$LOCKSTEP" checkpoint verify damaged-$damage
    expect 0 "${train[@]}" --run-dir damaged-$damage
    same "the end after a damaged $damage" "$(hashes "$out")" "$reference"
done
# All of them damaged: said, not started over.
cp -r reference ruined
for manifest in ruined/checkpoints/*/MANIFEST.json; do echo "{" >"$manifest"; done
before=$(md5sum <ruined/metrics.jsonl)
expect 3 "${train[@]}" --run-dir ruined
says ruined/checkpoints
check "metrics stay" test "$(md5sum <ruined/metrics.jsonl)" = "$before"

# ---- memory, said before the first step ----

expect 4 "${train[@]}" --run-dir huge --set model.width=65536 --set model.layers=100 --set model.heads=64 --set model.kv_heads=64 --set model.ffn=262144
says needs available
check "no step was made" test ! -s huge/metrics.jsonl
expect 4 "${train[@]}" --dry-run --set model.width=65536 --set model.layers=100 --set model.heads=64 --set model.kv_heads=64 --set model.ffn=262144
if sanitized; then
    echo "a sanitizer needs the address space: no ulimit -v"
else
    limited() {
        (ulimit -v 400000 && exec "${train[@]}" --run-dir limited --set model.width=768 --set model.layers=12 --set model.heads=12 \
            --set model.kv_heads=12 --set model.ffn=3072)
    }
    expect 4 limited
    says needs available
    check "no step was made" test ! -s limited/metrics.jsonl
fi

# ---- disk ----

# Full: a limit on the size of files stops a checkpoint half-way, like a full disk.
expect 0 "${train[@]}" --run-dir full --steps 4
full() { (ulimit -f 64 && exec "${train[@]}" --run-dir full --set log.tensorboard=false); }
expect 4 full
says "step 8" full/checkpoints
check "the older checkpoint is there" test -f full/checkpoints/4/MANIFEST.json
check "no half of the newer one" test ! -e full/checkpoints/8
expect 0 "$LOCKSTEP" checkpoint verify full
expect 0 "${train[@]}" --run-dir full
same "the end after a full disk" "$(hashes "$out")" "$reference"
# Really full, where a small file system can be mounted.
mkdir small-disk
if mount -t tmpfs -o size=600k none small-disk 2>/dev/null; then
    expect 4 "${train[@]}" --run-dir small-disk/run --set checkpoint.every_steps=1 --set checkpoint.keep_last=100
    says small-disk/run
    expect 0 "$LOCKSTEP" checkpoint verify small-disk/run
    umount small-disk
else
    echo "can't mount a tmpfs: the limit on file sizes alone was tested"
fi
# Read-only. Root writes everywhere, so that this needs somebody else, or a read-only mount.
expect 0 "${train[@]}" --run-dir locked --steps 4
if [ "$(id -u)" -ne 0 ]; then
    chmod -R a-w locked
    expect 1 "${train[@]}" --run-dir locked
    says locked "ermission"
    chmod -R u+w locked
    expect 0 "${train[@]}" --run-dir locked
    same "the end after a read-only folder" "$(hashes "$out")" "$reference"
elif mount --bind locked locked 2>/dev/null && mount -o remount,bind,ro locked 2>/dev/null; then
    expect 4 "${train[@]}" --run-dir locked
    says locked "ead-only"
    umount locked
    expect 0 "${train[@]}" --run-dir locked
    same "the end after a read-only folder" "$(hashes "$out")" "$reference"
else
    echo "root without mounts: a read-only folder was not tested"
fi

# ---- a loss that is not finite: stop, save what led to it, name the layer ----

expect 1 "${train[@]}" --run-dir wild --set model.family=gpt2 --set model.kv_heads=4 --set model.init_std=10 --set train.optimizer.lr=10 \
    --set train.optimizer.weight_decay=10 --set train.clip_norm=0 --set train.schedule.warmup_steps=0 --set train.steps=40
says "loss" "layer" "wild/checkpoints"
steps=$(wc -l <wild/metrics.jsonl)
check "the state before the bad step was saved" test -f "wild/checkpoints/$steps/MANIFEST.json"
expect 0 "$LOCKSTEP" checkpoint verify wild
check "the event is in the log" grep -q not_finite wild/events.jsonl
expect 0 "$LOCKSTEP" import st-inf -o inf
python3 -c 'import struct; open("tokens.bin", "wb").write(struct.pack("<2000H", *(i * i % 70 for i in range(2000))))'
cat >inf.yaml <<'YAML'
model: {from: inf, context: 32}
data: {train: [tokens.bin]}
train: {steps: 3, global_batch: 4, leaves: 2}
YAML
expect 1 "$LOCKSTEP" train inf.yaml --json --run-dir inf-run
says model.layers.1.mlp.down_proj.weight "not finite"
# A model without a tokenizer takes token files, not text.
expect 2 "$LOCKSTEP" train inf.yaml --run-dir inf-text --set "data.train=[text.txt]"
says text.txt tokenizer
expect 2 "$LOCKSTEP" train inf.yaml --run-dir inf-text --set sample.every_steps=1
says sample.every_steps tokenizer
finish
