#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# serve and chat with a tiny model: answers, streams, stops, log-probabilities, limits, hostile requests, clients that leave, the end.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

write_text text.txt 300 1
cat >run.yaml <<'EOF'
name: tiny
model: {family: llama, layers: 2, heads: 2, kv_heads: 1, width: 32, ffn: 64, context: 192}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0.05}
train: {steps: 12, global_batch: 4, micro_batch: 4, seed: 3, optimizer: {kind: adamw, lr: 1.0e-2}}
EOF
expect 0 "$LOCKSTEP" train run.yaml --run-dir tiny --threads 1 || finish
printf '%s' "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\\n' }}{% endfor %}{% if tools is not none %}{{ tools | tojson }}{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}" >chat.jinja

# ---- chat ----
expect 2 "$LOCKSTEP" chat tiny
says "has no chat template" "--template FILE" "lockstep sample"
check "chat takes lines" sh -c "printf 'hello\n\n/reset\nhello\n/quit\nnever\n' | \"\$1\" chat tiny --template chat.jinja -t 0 -n 9 >chat.out 2>&1" - "$LOCKSTEP"
same "the answer after /reset" "$(sed -n 1p chat.out)" "$(sed -n 2p chat.out)"
same "lines of answers" "$(wc -l <chat.out)" 2
printf 'hello\nhello\n/reset\nhello\n' >lines
check "a full context does not end a pipe" sh -c "\"\$1\" chat tiny --template chat.jinja -t 0 --context 40 <lines >full.out 2>full.err" - "$LOCKSTEP"
same "what is said of it" "$(grep -c 'the answer is cut: the context of 40 tokens is full' full.err) $(grep -c 'leaves too few for an answer' full.err)" "2 1"
same "the answer after a full context" "$(wc -c <full.out)" "$((2 * $(printf 'hello\n' | "$LOCKSTEP" chat tiny --template chat.jinja -t 0 --context 40 2>/dev/null | wc -c)))"
printf '/nonsense\n' >lines
check "an unknown command is named" sh -c "! \"\$1\" chat tiny --template chat.jinja <lines 2>err" - "$LOCKSTEP"
check "and help is offered" grep -q "/nonsense is not a command: /help" err
printf '<user>hello\n<assistant>' >prompt
same "a chat answers as sample does" "$(cat prompt; sed -n 1p chat.out)" "$("$LOCKSTEP" sample tiny -p "$(cat prompt)" -t 0 -n 9)"

# ---- serve ----
expect 2 "$LOCKSTEP" serve tiny --listen 0.0.0.0:0
says "needs TLS" "--tls-certificate"
expect 2 "$LOCKSTEP" serve tiny --tls-certificate c.pem --tls-key k.pem
says "--token-file"
expect 2 "$LOCKSTEP" serve tiny --context 193
says "--context is 193" "192"
expect 2 "$LOCKSTEP" serve tiny --listen here
says "can't listen at 'here'"
expect 0 python3 "$LS_SOURCE_DIR/tests/cli/models/serve.py" "$LOCKSTEP" tiny chat.jinja || cat "$out"
grep '^skipped' "$out"
finish
