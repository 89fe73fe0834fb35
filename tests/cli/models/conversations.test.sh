#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Records of conversations: data show, what is refused before a run, and a run on them.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

for i in $(seq 40); do
    printf '{"question": "what is %d and %d?", "answer": "it is %d", "day": "2024-02-%02d"}\n' $i $i $((i + i)) $((i % 28 + 1))
done > qa.jsonl
expect 0 "$LOCKSTEP" tokenize train qa.jsonl --field question --vocab 300 -o tokenizer.json
cat > chat.jinja <<'T'
{% for m in messages %}[{{ m.role }}] {{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}
T
truncate -s -1 chat.jinja
show() { local code=$1; shift; expect "$code" "$LOCKSTEP" data show "$@" --set tokenizer.kind=file --set tokenizer.file=tokenizer.json; }

# data show: a file without a template, with one, as JSON, and of a run file.
show 0 qa.jsonl -n 2
prints 'qa.jsonl: question and answer' '⟦it is 2<|endoftext|>⟧' 'qa.jsonl:2: ' '2 records: '
show 0 qa.jsonl -n 2 --set data.template=chat.jinja
prints '[user] what is 1 and 1?<|endoftext|>[assistant] ⟦it is 2<|endoftext|>⟧'
show 0 qa.jsonl --json --set data.template=chat.jinja
same format prompt_completion "$(field "$out" format)"
same template chat.jinja "$(field "$out" template)"
check 'twenty records, masks as long as tokens, something trained' python3 - "$out" <<'PY'
import json, sys
d = json.load(open(sys.argv[1]))
assert len(d["records"]) == 20 and d["problems"] == [], d
for r in d["records"]:
    assert len(r["tokens"]) == len(r["mask"]) and 0 < sum(r["mask"]) < len(r["mask"]) and not r["truncated"], r
    assert r["text"].endswith("<|endoftext|>"), r
PY
printf '{"text": "plain"}\n' > text.jsonl
show 0 text.jsonl --json
same format text "$(field "$out" format)"

# Conversations: nothing without a template; every bad record by line.
cat > chats.jsonl <<'T'
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]}
{"messages": [{"role": "user", "content": "hi"}]}
{"messages": [{"role": "system", "content": "s"}]}
{"messages": [{"role": "user", "content": "hi"}, {"role": "asistant", "content": "ho"}]}
{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}]}
T
show 2 chats.jsonl
says 'need a chat template' 'data.template'
show 3 chats.jsonl --set data.template=chat.jinja
prints '[user] hi<|endoftext|>[assistant] ⟦ho<|endoftext|>⟧'
says 'chats.jsonl:2: the conversation has no answer' 'chats.jsonl:3: the conversation has only a system turn' \
    'chats.jsonl:4: message 2: the role is "asistant"' 'chats.jsonl:5: message 2: the answer calls the tool `look`'
show 3 chats.jsonl --json --set data.template=chat.jinja
check 'four problems' python3 -c 'import json, sys; assert len(json.load(open(sys.argv[1]))["problems"]) == 4' "$out"

# The form is that of the first record that can be read; where there is none, the reason is said.
{ echo '{"messages": ['; head -1 chats.jsonl; } > broken.jsonl
show 3 broken.jsonl --set data.template=chat.jinja
prints "broken.jsonl: OpenAI's messages" '⟦ho<|endoftext|>⟧'
says 'broken.jsonl:1: not valid JSON'
printf 'question,answer\nhi,h\366\n' > latin.csv
show 3 latin.csv
says 'latin.csv:2: broken UTF-8'
printf 'question;answer\nhi, you;ho\n' > semicolons.csv
show 0 semicolons.csv
prints 'hi, you' '⟦ho<|endoftext|>⟧'

# In a table, what a template gets besides the messages is JSON text.
cat > table.csv <<'T'
question,answer,documents,chat_template_kwargs
hi,ho,"[{""title"": ""book""}]","{""tone"": ""dry""}"
hi,ho,,
hi,ho,a book,
hi,ho,,tone
T
printf '%s' '{{ tone }}{% for d in documents or [] %}({{ d.title }}){% endfor %}' | cat - chat.jinja > table.jinja
show 3 table.csv --set data.template=table.jinja
prints 'dry(book)[user] hi'
says 'table.csv:4: `documents` must be a list' 'table.csv:5: `chat_template_kwargs` must be an object'

cat > run.yaml <<'T'
name: tune
model: {layers: 1, heads: 2, width: 32, context: 96}
tokenizer: {kind: file, file: tokenizer.json}
data: {train: [qa.jsonl], template: chat.jinja, validation_fraction: 0.1}
train: {steps: 6, global_batch: 4, leaves: 4}
sample: {every_steps: 0}
T
train() { local code=$1; shift; expect "$code" "$LOCKSTEP" train run.yaml "$@"; }
train 3 --dry-run --set 'data.train=[chats.jsonl]'
says '4 of 5 records cannot be used' 'chats.jsonl:2: ' 'data.bad_records: skip'
train 0 --dry-run --set 'data.train=[chats.jsonl]' --set data.bad_records=skip --set data.validation_fraction=0
prints 'left out 4 records that cannot be used'
(head -2 qa.jsonl; head -1 chats.jsonl) > mixed.jsonl
train 3 --dry-run --set 'data.train=[mixed.jsonl]'
says "mixed.jsonl:3: the record is OpenAI's messages, while that of line 1 is question and answer"
train 3 --dry-run --set model.context=8
says 'records are longer than the context of 8 tokens' 'line 1 of qa.jsonl' 'raise model.context'
head -9 qa.jsonl | sed 's/it is/it is, as one finds out with some patience and ten fingers,/' > long.jsonl
for bad in stop skip; do
    train 3 --set 'data.train=[long.jsonl]' --set model.context=32 --set data.validation_fraction=0 --set data.bad_records=$bad
    says '9 of 9 training samples are longer than the context of 32 tokens' 'would never learn to stop' \
        'the first is line 1 of long.jsonl, with ' 'raise model.context'
    check 'nothing was begun' test ! -e runs/tune/metrics.jsonl
done
train 0 --dry-run --set 'data.train=[long.jsonl, qa.jsonl]' --set model.context=32 --set data.validation_fraction=0
prints 'cut off 9 samples longer than the context of 32 tokens'
train 2 --dry-run --set data.template=none --set 'data.train=[chats.jsonl]'
says 'need a chat template'
train 2 --dry-run --set data.template=missing.jinja
says 'data.template' 'missing.jinja'
train 3 --dry-run --set tokenizer.kind=bytes --set tokenizer.file= --set data.template=none
says 'has no end-of-text token'
printf '%s' '{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}{% if add_generation_prompt %}assistant: {% endif %}' > endless.jinja
train 3 --dry-run --set data.template=endless.jinja
says '40 of 40 records cannot be used' 'the model would never learn to stop'
printf '%s' "{% for m in messages %}{{ raise_exception('no roles today') }}{% endfor %}" > refusing.jinja
train 3 --dry-run --set data.template=refusing.jinja
says 'no roles today'
train 2 --dry-run --set data.prompt_field=q
says 'data.completion_field is not: set both'

# A tokenizer is learned from what the records say.
train 0 --dry-run --set tokenizer.kind=train --set tokenizer.vocab=300 --set tokenizer.file=
head -1 chats.jsonl >said.jsonl
expect 0 "$LOCKSTEP" tokenize train said.jsonl qa.jsonl --vocab 300 -o said.json
expect 3 "$LOCKSTEP" tokenize train chats.jsonl --vocab 300 -o said.json
says "chats.jsonl:2" "no answer of the assistant"

# A run: the same bits for any ranks and threads and after a resume; the checkpoint has the template.
train 0 --json
hash=$(field "$out" state_hash)
says 'training: 36 samples in ' 'validation: 4 samples in '
check 'the checkpoint carries the template' cmp -s chat.jinja runs/tune/checkpoints/*6/chat_template.jinja
train 0 --json --run-dir two --ranks 2 --threads 1
same 'two ranks' "$hash" "$(field "$out" state_hash)"
train 0 --json --run-dir parts --steps 3
train 0 --json --run-dir parts
same 'after a resume' "$hash" "$(field "$out" state_hash)"
train 0 --json --run-dir unpacked --set data.packing=false
says '36 samples in 36 sequences'
differs 'unpacked' "$hash" "$(field "$out" state_hash)"

# The date that a template prints is fixed when the run begins.
printf '%s' "{{ strftime_now('%Y-%m-%d') }} " | cat - chat.jinja > dated.jinja
train 0 --run-dir dated --set data.template=dated.jinja --set train.steps=1 --json
check 'the date is in run.yaml' grep -q "template_date: .*$(date +%Y)-" dated/run.yaml
train 0 --dry-run --set data.template=dated.jinja --set data.template_date=2020-02-02
show 0 qa.jsonl -n 1 --set data.template=dated.jinja --set data.template_date=2020-02-02
prints '2020-02-02 [user]'
train 2 --dry-run --set data.template_date=today
says 'data.template_date is "today"'
finish
