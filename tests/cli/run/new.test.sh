#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# new: run files for text and for records, which load, plan and train; and each input that is refused leaves nothing behind.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
records=$LS_SOURCE_DIR/examples/assistant/records.jsonl

write_run tiny.yaml
"$LS_SOURCE_DIR/examples/assistant/make.sh" text | head -2000 >text.txt
expect 0 "$LOCKSTEP" train tiny.yaml --json --steps 2 --run-dir base --set tokenizer.kind=train --set tokenizer.vocab=300 --set model.context=128
check "the example's records are those of its script" eval '"$LS_SOURCE_DIR/examples/assistant/make.sh" records | cmp - "$records"'
check "the example's held-out records too" eval '"$LS_SOURCE_DIR/examples/assistant/make.sh" heldout | cmp - "$LS_SOURCE_DIR/examples/assistant/heldout.jsonl"'

# ---- a chat ----

expect 0 "$LOCKSTEP" new chat asst --data "$records" --model base
prints "wrote    asst/train.yaml" "500 samples" "lockstep chat runs/asst" "lockstep train asst/train.yaml" "memory" "time"
expect 0 "$LOCKSTEP" new chat again --data "$records" --model base --json
same "what was chosen" "$(field "$out" kind way base context epochs)" "chat full fp32 128 10.0"
same "what was seen" "$(python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))["records"]; print(r["records"], r["samples"], r["too_long"], r["trained"] < r["tokens"] < 100000)' "$out")" "500 500 0 True"
planned=$(field "$out" memory_bytes) steps=$(field "$out" steps)
expect 0 "$LOCKSTEP" train asst/train.yaml --dry-run --json
expect 0 "$LOCKSTEP" train asst/train.yaml --dry-run
check "no warning about what 'new' chose" eval '! grep ^warning "$out"'
expect 0 "$LOCKSTEP" train asst/train.yaml --dry-run --json
same "steps of the run" "$(field "$out" steps)" "$steps"
same "memory of the run" "$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["memory_bytes"]["total"])' "$out")" "$planned"
expect 0 "$LOCKSTEP" data show asst/train.yaml -n 1
prints "Question:" "<|endoftext|>"
expect 0 "$LOCKSTEP" train asst/train.yaml --steps 1 --json
same "a step" "$(field "$out" step)" 1
expect 2 "$LOCKSTEP" train asst/train.yaml --dry-run --set train.steps=3
says "to replace that of the file, add  --set train.epochs=0"
expect 0 "$LOCKSTEP" eval base runs/asst --records "$LS_SOURCE_DIR/examples/assistant/heldout.jsonl" --limit 3 --max-tokens 8
prints "runs/asst on" "3 records"

expect 0 "$LOCKSTEP" eval runs/asst --records "$LS_SOURCE_DIR/examples/assistant/heldout.jsonl" --limit 3 --max-tokens 8 --template runs/asst

printf 'one\ntwo\n' >lines.txt
expect 0 bash -c '"$LOCKSTEP" chat runs/asst --temperature 0 --max-tokens 4 <lines.txt'

# ---- other kinds ----

expect 0 "$LOCKSTEP" new scratch stories --data text.txt --json
same "from nothing" "$(field "$out" kind context trained_parameters)" "scratch 128 978560"
expect 0 "$LOCKSTEP" train stories/train.yaml --dry-run
expect 0 "$LOCKSTEP" new finetune more --data text.txt --model base
prints "text, " "lockstep sample runs/more"
printf '{"prompt": "2 + 2 = ", "completion": "4"}\n{"prompt": "3 + 2 = ", "completion": "5"}\n' >sums.jsonl
for _ in 1 2 3 4 5 6 7; do cat sums.jsonl sums.jsonl >more.jsonl && mv more.jsonl sums.jsonl; done
expect 0 "$LOCKSTEP" new finetune sums --data sums.jsonl --model base --json
same "prompts and completions" "$(field "$out" way template)" "full None"
expect 0 "$LOCKSTEP" train sums/train.yaml --dry-run
expect 0 "$LOCKSTEP" new finetune joined --data sums.jsonl --model runs/asst --json
same "a template that is not used is not named" "$(field "$out" template)" None

# Labels beside a text are not trained on, and the command says so.
for i in $(seq 40); do echo "{\"text\": \"invoice $i\", \"label\": \"billing\", \"id\": $i}"; done >labels.jsonl
expect 0 "$LOCKSTEP" new finetune labels --data labels.jsonl --model base
prints "only the text is trained on, not: label, id" "--set data.completion_field=KEY"
expect 0 "$LOCKSTEP" new chat labelled --data labels.jsonl --model base --set data.prompt_field=text --set data.completion_field=label --json
same "labels as answers" "$(python3 -c 'import json, sys; r = json.load(open(sys.argv[1]))["records"]; print(r["form"], r["unread"], r["samples"])' "$out")" "question and answer None 40"

# ---- too little memory for all weights ----

expect 0 "$LOCKSTEP" train tiny.yaml --json --steps 1 --run-dir large --set tokenizer.kind=train --set tokenizer.vocab=300 --set model.context=128 --set model.width=384 \
    --set model.ffn=1024 --set model.layers=8
if sanitized; then
    echo "a sanitizer needs the address space: no ulimit -v"
else
    (ulimit -v $((320 * 1024)) && "$LOCKSTEP" new chat small --data "$records" --model large --json) >"$out"
    same "adapters where memory is short" "$(field "$out" way base)" "lora fp32"
    check "the run file says so" grep -q "adapter:" small/train.yaml
fi

# ---- refused ----

refused() {
    local code=$1
    shift
    expect "$code" "$LOCKSTEP" new "$@"
    check "nothing is left of: $*" test ! -e gone
}
refused 2 talk gone --data "$records" --model base
says "finetune, chat or scratch"
refused 2 chat gone --model base
says "--data FILE is missing"
refused 2 chat gone --data "$records"
says "--model DIR is missing"
refused 2 scratch gone --data text.txt --model base
says "from nothing"
refused 3 scratch gone --data "$records"
says "holds OpenAI's messages" "new chat"
refused 2 chat gone --data text.txt --model base
says "not conversations" "new finetune"
refused 2 chat gone --data labels.jsonl --model base
says "data.prompt_field and data.completion_field" "have label, id" "--set"
refused 2 chat gone --data missing.jsonl --model base
says "missing.jsonl"
refused 2 chat gone --data "$records" --model missing
says "missing does not exist" "lockstep pull ORG/NAME"
echo '{"messages": [{"role": "user", "content": "a"}]}' >unanswered.jsonl
refused 3 chat gone --data unanswered.jsonl --model base
says "unanswered.jsonl:1" "--set data.bad_records=skip"
{ head -20 "$records"; cat unanswered.jsonl; python3 -c 'import json; print(json.dumps({"messages": [{"role": "user", "content": "a" * 900}, {"role": "assistant", "content": "b"}]}))'; } >mixed.jsonl
sed 's/"messages"/"text": "a", "messages"/' "$records" >both.jsonl
refused 3 chat gone --data both.jsonl --model base
says "both text and OpenAI's messages" "data.format" "--set"
expect 0 "$LOCKSTEP" new chat both --data both.jsonl --model base --set data.format=messages --set data.validation_fraction=0.2
check "the run file has what was set" grep -q 'validation_fraction: 0.2' both/train.yaml
refused 2 chat gone --data "$records" --model base --set train.epochs=1
says "keys that begin with data."
refused 3 chat gone --data mixed.jsonl --model base
says "1 of 22 records cannot be used" "mixed.jsonl:21" "--set data.bad_records=skip"
expect 0 "$LOCKSTEP" new chat mixed --data mixed.jsonl --model base --set data.bad_records=skip
prints "left out: 2 that cannot be used" "in 20 samples"
expect 0 "$LOCKSTEP" train mixed/train.yaml --dry-run
expect 0 "$LOCKSTEP" train tiny.yaml --json --steps 2 --run-dir bytes
refused 2 chat gone --data "$records" --model bytes
says "no token that ends a text"
expect 2 "$LOCKSTEP" new chat asst --data "$records" --model base
says "asst is not empty"
finish
