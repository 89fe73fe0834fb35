#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Branches of one model on three corpora, this repository's own English, C and shell, and what they are together: an average, and a mixture of experts whose
# routers are trained. Ends with the losses of all on texts that none was trained on. Two minutes on two free cores.
# usage: examples/branches.sh [LOCKSTEP] [FOLDER]
set -eu
source_dir=$(cd "$(dirname "$0")/.." && pwd)
lockstep=$(realpath "${1:-$source_dir/build/release/lockstep}")
folder=${2:-$(mktemp -d)}
mkdir -p "$folder/held" && cd "$folder"
export LOCKSTEP_HOME=${LOCKSTEP_HOME:-$folder/home}

# NAME FILE...: the beginning to train on, the end to be judged by.
corpus() {
    cat "${@:2}" >all.txt
    head -c 350000 all.txt >"$1.txt"
    tail -c 40000 all.txt >"held/$1.txt"
}
corpus english "$source_dir"/docs/*.md "$source_dir"/docs/guide/*.md
corpus c "$source_dir"/src/*/*.c
corpus shell "$source_dir"/tests/cli/*/*.sh

cat >base.yaml <<'YAML'
name: base
model: {family: llama, layers: 4, heads: 4, width: 96, ffn: 256, context: 128}
tokenizer: {kind: bytes}
data: {train: [english.txt, c.txt, shell.txt]}
train: {steps: 300, global_batch: 16, optimizer: {lr: 3e-3}}
checkpoint: {every_steps: 300}
eval: {every_steps: 0}
YAML
"$lockstep" train base.yaml
"$lockstep" branch runs/base --data english.txt --data c.txt --data shell.txt --steps 300 --set train.optimizer.lr=1e-3 \
    --set train.global_batch=16 --set eval.every_steps=0 --train
branches=(branches/english branches/c branches/shell)
"$lockstep" merge "${branches[@]}" -o average
"$lockstep" merge "${branches[@]}" -o mixture --method experts
"$lockstep" train mixture/router.yaml --set train.global_batch=16 --set eval.every_steps=0
"$lockstep" eval runs/base "${branches[@]}" average mixture runs/mixture-router --data held/english.txt --data held/c.txt --data held/shell.txt
echo "all of it is in $folder"
