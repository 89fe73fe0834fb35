#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# view: runs of this and other programs over HTTP, while they grow; metrics that are sent; a kill; hostile callers.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

write_text text.txt 300 1
cat >run.yaml <<'EOF'
name: tiny
model: {family: llama, layers: 1, heads: 2, kv_heads: 1, width: 16, ffn: 32, context: 32}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0.1}
train: {steps: 8, global_batch: 4, micro_batch: 4, seed: 3, optimizer: {kind: adamw, lr: 1.0e-2}}
EOF
expect 0 "$LOCKSTEP" train run.yaml --run-dir all/tiny --threads 1 || finish
mkdir -p all/board all/text && cp all/tiny/tb/* all/board/
# Pipes in place of a run's files, to which nothing ever writes: neither the page nor a report waits for them.
mkdir -p pipes/run && cp all/tiny/metrics.jsonl pipes/run/
mkfifo pipes/run/{summary.json,run.yaml,events.jsonl}
expect 0 timeout 20 "$LOCKSTEP" report pipes/run --html pipes.html
# The last evaluation is far before the newest step.
mkdir pipes/old
seq -f '{"step": %g, "loss": 2, "tokens_per_s": 1000}' 500 >pipes/old/metrics.jsonl
echo '{"time": 1.7e9, "event": "evaluation", "step": 5, "val_loss": 0.25}' >pipes/old/events.jsonl
"$LOCKSTEP" view pipes --listen 127.0.0.1:0 >shown &
viewer=$!
for ((i = 0; i < 200; i++)); do
    grep -q ' at http' shown && break
    sleep 0.1
done
check "a page beside pipes" grep -q '^2 runs at' shown
expect 0 curl -s "$(grep -o 'http://[^ ]*' shown)/v1/runs"
prints '"step":500' '"val_loss":0.25'
kill "$viewer"
wait "$viewer"

expect 2 "$LOCKSTEP" view nowhere
says "there is no folder nowhere"
expect 2 "$LOCKSTEP" view run.yaml
says "run.yaml is a file" "name run directories"
expect 2 "$LOCKSTEP" view all --listen 0.0.0.0:0
says "needs TLS"
expect 0 python3 "$LS_SOURCE_DIR/tests/cli/run/view.py" "$LOCKSTEP" all || cat "$out"
finish
