#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# eval on records, tasks and side by side: numbers that a model trained here must reach, the same bits for any threads, and each wrong input named.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

python3 - <<'PY'
import json, random
random.seed(1)
things = {"apple": "red", "sky": "blue", "leaf": "green", "blood": "red", "sea": "blue", "grass": "green"}
colours = ["red", "blue", "green"]
def some(count):
    return [random.choice(list(things)) for _ in range(count)]
with open("text.txt", "w") as f:
    f.writelines(f"What colour is the {k}? {things[k]}\n" for k in some(3000))
with open("records.jsonl", "w") as f:
    f.writelines(json.dumps({"question": f"What colour is the {k}?", "answer": " " + things[k]}) + "\n" for k in some(40))
with open("tasks.jsonl", "w") as f:
    f.writelines(json.dumps({"ctx": f"What colour is the {k}?", "endings": colours, "label": str(colours.index(things[k]))}) + "\n" for k in some(30))
PY
write_run tiny.yaml
train() { "$LOCKSTEP" train tiny.yaml --json --set model.context=64 --set train.steps="$2" --set train.schedule.warmup_steps=0 --set eval.every_steps=0 --set checkpoint.every_steps=1000 --run-dir "$1" "${@:3}"; }
expect 0 train trained 300
expect 0 train fresh 1

# ---- records ----

expect 0 "$LOCKSTEP" eval trained --records records.jsonl --prompt-field question --label answer --choices auto --json
same "choices" "$(field "$out" scoring count accuracy accuracy_by_length)" "choices 40 1.0 1.0"
cp "$out" first.json
for threads in 1 3; do
    "$LOCKSTEP" eval trained --records records.jsonl --prompt-field question --label answer --choices auto --json --threads $threads >other.json
    check "the same bits with $threads threads" cmp first.json other.json
done
expect 0 "$LOCKSTEP" eval fresh trained --records records.jsonl --prompt-field question --label answer --choices " red, blue, green"
prints "accuracy" "precision" "expected \\ answered" "change: +" "answers became right"
expect 0 "$LOCKSTEP" eval trained --records records.jsonl --prompt-field question --label answer --max-tokens 8 --extract '(\w+)' --json
same "written answers" "$(field "$out" scoring accuracy exact found stopped)" "generated 1.0 1.0 1.0 0.0"
expect 0 "$LOCKSTEP" eval fresh trained --records records.jsonl --prompt-field question --label answer --max-tokens 8 --extract '(\w+)' --json --limit 10
same "before and after" "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); print(d["after"]["count"], d["change"]["gained"] - d["change"]["lost"], d["change"]["p_value"] < 0.05)' "$out")" "10 10 True"

# ---- tasks ----

expect 0 "$LOCKSTEP" eval trained --tasks hellaswag=tasks.jsonl,own=tasks.jsonl --shots 1 --json
same "tasks" "$(python3 -c 'import json, sys
for t in json.load(open(sys.argv[1]))["tasks"]: print(t["name"], t["form"], t["count"], t["shots"], t["acc"], t["acc_norm"], t["acc_stderr"])' "$out")" \
    "$(printf 'hellaswag hellaswag 29 1 1.0 1.0 0.0\nown hellaswag 29 1 1.0 1.0 0.0')"
expect 0 "$LOCKSTEP" eval fresh trained --tasks own=tasks.jsonl
prints "form hellaswag" "30 questions, 0 shots" "acc_norm" "change: +"

# ---- side by side ----

expect 0 "$LOCKSTEP" eval fresh trained --side-by-side --prompt "What colour is the sky?" --max-tokens 5 --json
same "the trained model's answer" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["answers"][0]["answers"][1])' "$out")" " blue"
expect 0 "$LOCKSTEP" eval fresh trained --side-by-side --records records.jsonl --prompt-field question --limit 2 --max-tokens 5
prints "records.jsonl:2" "fresh" "| trained" "(no end within --max-tokens)"

# ---- a chat template ----

python3 - <<'PY'
import json
with open("chat.jsonl", "w") as f:
    for line in open("records.jsonl"):
        record = json.loads(line)
        f.write(json.dumps({"messages": [{"role": "user", "content": record["question"]}, {"role": "assistant", "content": record["answer"]}]}) + "\n")
PY
echo "{{ messages[0]['content'] }}{% if not add_generation_prompt %}{{ messages[1]['content'] }}{% endif %}" >plain.jinja
expect 0 "$LOCKSTEP" eval trained --records chat.jsonl --template plain.jinja --choices auto --json
same "messages by a template" "$(field "$out" prompt_field accuracy log_probability)" "messages $(field first.json accuracy log_probability)"
expect 2 "$LOCKSTEP" eval trained --records chat.jsonl
says "chat.jsonl:1" "need a chat template" "--template FILE"
echo "{{ raise_exception('no such role') }}" >refuses.jinja
expect 3 "$LOCKSTEP" eval trained --records chat.jsonl --template refuses.jinja
says "chat.jsonl:1" "no such role"

# The other forms of training: asked as they are trained, with what they have.
cat >forms.jsonl <<'JSON'
{"instruction": "What colour is", "input": "the sky?", "output": "blue"}
JSON
expect 0 "$LOCKSTEP" eval fresh trained --side-by-side --records forms.jsonl --max-tokens 2 --json
same "an instruction with its input" "$(python3 -c 'import json, sys; a = json.load(open(sys.argv[1]))["answers"][0]; print(repr(a["prompt"]), a["expected"])' "$out")" "'What colour is\\nthe sky?\\n' blue"
printf '{"prompt": "What colour is the sea?", "completion": " blue"}\n' >forms.jsonl
expect 0 "$LOCKSTEP" eval trained --records forms.jsonl --max-tokens 5 --json
same "a prompt and its completion" "$(field "$out" accuracy exact)" "1.0 1.0"

# Each conversation of a record is asked, up to its last answer, as the template and the record want it.
asked() { "$LOCKSTEP" eval fresh trained --side-by-side --records forms.jsonl --max-tokens 2 --json "$@" | python3 -c 'import json, sys
for a in json.load(sys.stdin)["answers"]: print(repr(a["prompt"]), a["expected"])'; }
printf '{"instruction": "Add", "instances": [{"input": "1 1", "output": "2"}, {"input": "2 2", "output": "4"}]}\n' >forms.jsonl
same "two instances" "$(asked)" "$(printf "'Add\\\\n1 1\\\\n' 2\n'Add\\\\n2 2\\\\n' 4")"
cat >forms.jsonl <<'JSON'
{"messages": [{"role": "user", "content": "sea?"}, {"role": "assistant", "content": "blue"}, {"role": "user", "content": "Ta"}], "mood": "kind", "chat_template_kwargs": {"mood": "calm"}}
JSON
echo "{{ mood }}{% for m in messages %}|{{ m.content }}{% endfor %}{{ tools is none }}" >all.jinja
same "no answer in the prompt" "$(asked --template all.jinja)" "'calm|sea?True' blue"
same "a label answers the whole conversation" "$(asked --template all.jinja --label mood)" "'calm|sea?|blue|TaTrue' kind"

# A model with a template that prompts of other records do not go through: said.
expect 0 "$LOCKSTEP" export trained -o templated
echo "{{ messages[0]['content'] }}" >templated/chat_template.jinja
expect 0 "$LOCKSTEP" eval templated --records records.jsonl --prompt-field question --label answer --limit 1 --max-tokens 2
says "asked as they are" "--template templated"

# Special tokens that a template writes are those tokens, also for a tokenizer.model.
expect 0 train marked 1 --set tokenizer.kind=file --set tokenizer.file="$LS_SOURCE_DIR/tests/golden/tokenizers/plain.model"
echo "<s>{{ messages[0]['content'] }}" >marked.jinja
expect 0 "$LOCKSTEP" eval marked --records records.jsonl --prompt-field question --label answer --choices auto --json --limit 3
plain=$(field "$out" log_probability)
expect 0 "$LOCKSTEP" eval marked --records records.jsonl --prompt-field question --label answer --choices auto --json --limit 3 --template marked.jinja
same "the first token by a template" "$(field "$out" log_probability)" "$plain"

# So are those that a prompt and its completion name, as in training: <s> before a prompt is the token that texts begin with.
pairs() { for colour in blue red; do printf '{"prompt": "%sThe sky is", "completion": " %s"}\n' "$1" $colour; done >pairs.jsonl; }
pairs ""
expect 0 "$LOCKSTEP" eval marked --records pairs.jsonl --choices auto --json
plain=$(field "$out" log_probability)
pairs "<s>"
expect 0 "$LOCKSTEP" eval marked --records pairs.jsonl --choices auto --json
same "a pair with the first token" "$(field "$out" log_probability)" "$plain"

# ---- wrong input ----

records() { "$LOCKSTEP" eval trained --records "$@"; }
printf '{"text": "a"}\n' >plain.jsonl
expect 2 records plain.jsonl
says "--label KEY"
expect 3 records records.jsonl --label team
says "records.jsonl:1" "no key \`team\`" "question, answer"
expect 3 records records.jsonl --label answer --prompt-field text
says "no key \`text\`" "--prompt-field"
expect 3 records records.jsonl --label answer --choices red,blue
says "records.jsonl:" "not one of the 2 choices"
expect 2 records records.jsonl --label answer --choices red
says "labels in --choices is 1, but at least 2"
expect 2 records records.jsonl --label answer --extract "("
says "no regular expression"
expect 0 "$LOCKSTEP" eval trained --records records.jsonl --prompt-field question --label answer --limit 2 --json
same "answers of half the context where no limit is given" "$(field "$out" max_tokens)" 32
expect 2 records records.jsonl --label answer --max-tokens 64
says "leaves no room for a prompt" "context of 64"
expect 2 records missing.jsonl --label answer
says "missing.jsonl"
printf '{"question": "a", "answer": "b"}\n{"question": "a" "answer": "b"}\n' >broken.jsonl
expect 3 records broken.jsonl --label answer
says "broken.jsonl:2"
expect 0 records broken.jsonl --label answer --limit 1 # what follows is not read
expect 2 records records.jsonl --label answer --template-date yesterday
says "--template-date" "yesterday" "2026-01-31"
printf '{"question": "a", "answer": ["b"]}\n' >broken.jsonl
expect 3 records broken.jsonl --label answer
says "broken.jsonl:1" "with a text or a number"
: >broken.jsonl
expect 3 records broken.jsonl --label answer
says "broken.jsonl is empty"
expect 2 "$LOCKSTEP" eval trained --tasks tasks.jsonl
says "NAME=FILE"
expect 2 "$LOCKSTEP" eval trained --tasks own=tasks.jsonl --shots 30
says "--shots is 30" "30 records"
expect 3 "$LOCKSTEP" eval trained --tasks own=records.jsonl
says "records.jsonl:1" "hellaswag, arc"
expect 2 "$LOCKSTEP" eval trained --side-by-side --prompt x
says "two models"
expect 2 "$LOCKSTEP" eval trained fresh --side-by-side
says "give one of"
expect 2 "$LOCKSTEP" eval trained fresh --tokens ids.txt
says "give one model"
expect 2 "$LOCKSTEP" eval trained --prompt x
says "only with --side-by-side"
finish
