#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The formats that data come in: the same documents in each give the same tokens; what is not text is refused by name. eval gives one
# loss for one text, a model keeps its tokenizer, and the default prompt is a line break.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# ---- one corpus in many formats ----

python3 - <<'PY'
import csv, gzip, json, os
text = open("text.txt", newline="").read()
documents = ['one, "quoted"', "two\nlines", "three\ttabs", "naïve 😀"] + text.split("\n\n")[:40]
documents = [d for d in documents if d]
with open("d.jsonl", "w") as out:
    out.writelines(json.dumps({"id": i, "text": d}) + "\n" for i, d in enumerate(documents))
json.dump([{"id": i, "text": d} for i, d in enumerate(documents)], open("d.json", "w"), indent=2, ensure_ascii=False)
json.dump([{"id": i, "body": d} for i, d in enumerate(documents)], open("body.json", "w"))
for name, dialect in (("d.csv", "excel"), ("d.tsv", "excel-tab")):
    with open(name, "w", newline="") as out:
        writer = csv.writer(out, dialect)
        writer.writerow(["id", "text"])
        writer.writerows(enumerate(documents))
for name in ("d.jsonl", "d.json", "d.csv", "text.txt"):
    with gzip.open(name + ".gz", "wb") as out:
        out.write(open(name, "rb").read())
for i, d in enumerate(documents):
    os.makedirs("folder/%d" % (i // 10), exist_ok=True)
    open("folder/%d/%02d.txt" % (i // 10, i), "w").write(d)
PY
"$LOCKSTEP" tokenize train text.txt --vocab 300 -o t.json >/dev/null
# Tokens and documents of a corpus.
counts() {
    expect 0 "$LOCKSTEP" data prepare "$@" --tokenizer t.json --json && echo "$(field "$out" documents) $(field "$out" tokens)"
}
lines=$(counts d.jsonl)
for file in d.json d.csv d.tsv d.jsonl.gz d.json.gz d.csv.gz folder 'folder/*'; do
    same "the documents of $file" "$(counts "$file")" "$lines"
done
same "another field" "$(counts body.json --field body)" "$lines"
# The loss of a corpus depends on its ids alone.
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir run --steps 4 --set tokenizer.file=t.json --set tokenizer.kind=file
loss() { "$LOCKSTEP" eval run --data "$@" --json | grep -o '"loss": [^,]*'; }
wanted=$(loss d.jsonl)
for file in d.json d.csv d.tsv d.jsonl.gz d.csv.gz; do
    same "the loss of $file" "$(loss $file)" "$wanted"
done
# A packed file is the same data set, also for a run.
hash_of() { "$LOCKSTEP" data prepare "$1" --tokenizer t.json | tail -1; }
same "the hash of text.txt.gz" "$(hash_of text.txt.gz)" "$(hash_of text.txt)"
if command -v zstd >/dev/null; then
    zstd -q d.jsonl
    same "the hash of d.jsonl.zst" "$(hash_of d.jsonl.zst)" "$(hash_of d.jsonl)"
fi
# A byte order mark is no text.
{ printf '\xef\xbb\xbf'; cat text.txt; } >marked.txt
gzip -k marked.txt
for file in marked.txt marked.txt.gz; do
    same "the hash of $file" "$(hash_of $file)" "$(hash_of text.txt)"
    expect 0 "$LOCKSTEP" tokenize train $file --vocab 300 -o marked.json
    check "the tokenizer of $file" cmp marked.json t.json
done
printf '\xef\xbb\xbf' >only.txt
expect 3 "$LOCKSTEP" data prepare only.txt --tokenizer t.json
says "only.txt has no text in it"
# Between records a wave has many units.
python3 - <<'PY'
import csv, json
rows = ["row %d, \"%s\"\nend" % (i, "x" * (i % 97)) for i in range(90000)]
json.dump([{"text": r} for r in rows], open("big.json", "w"))
open("big.jsonl", "w").writelines(json.dumps({"text": r}) + "\n" for r in rows)
with open("big.csv", "w", newline="") as out:
    csv.writer(out).writerows([["text"]] + [[r] for r in rows])
PY
wanted=$(counts big.jsonl --threads 1)
for file in big.json big.csv; do
    for threads in 1 5; do
        same "$file by $threads threads" "$(counts $file --threads $threads --cache-dir "$scratch/cache-$threads")" "$wanted"
    done
done
# A run: mixed fields, ~, and the same bits from plain and packed files.
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir plain --steps 3 --set 'data.train=[text.txt, d.csv]'
plain=$(field "$out" state_hash)
HOME=$scratch expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir packed --steps 3 --set 'data.train=["~/text.txt.gz", d.csv.gz]'
same "the bits of a run on packed files" "$(field "$out" state_hash)" "$plain"
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir fields --steps 2 --set 'data.train=[{path: body.json, field: body}, {path: d.csv, weight: 2}]'
check "the field is in run.yaml" grep -q 'field: body' fields/run.yaml

# Validation data have fields of their own, and no weights.
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir judged --steps 2 --set data.validation_fraction=0 \
    --set 'data.validation=[{path: body.json, field: body}]'
val_loss=$(field "$out" val_loss)
expect 0 "$LOCKSTEP" train tiny.yaml --json --run-dir judged-2 --steps 2 --set data.validation_fraction=0 --set 'data.validation=d.jsonl'
same "the loss of the same documents under another key" "$(field "$out" val_loss)" "$val_loss"
expect 2 "$LOCKSTEP" train tiny.yaml --dry-run --set data.validation_fraction=0 --set 'data.validation=[{path: d.jsonl, weight: 2}]'
says "data.validation: d.jsonl has a weight of 2; only items of data.train have weights"

# ---- records that JSON or Unicode does not allow ----

for i in 1 2 3; do
    printf '{"text": "good %s", "score": NaN}\n{"text": null}\n{"text": "half \\ud83d"}\n' $i
done >odd.jsonl
seq -f '{"text": "good %g", "score": 1}' 3 >even.jsonl
same "the others are read" "$(counts odd.jsonl)" "$(counts even.jsonl)"
expect 0 "$LOCKSTEP" data prepare odd.jsonl
says "left out 6 records of odd.jsonl whose text is null" "the first is in line 2"

# ---- what is refused, by name ----

refuses() { # CODE TEXT FILE...
    local code=$1 text=$2
    shift 2
    expect "$code" "$LOCKSTEP" data prepare "$@"
    says "$text"
}
printf '%%PDF-1.4\nwords\n' >a.pdf
refuses 3 "a.pdf is not plain text: it looks like PDF" a.pdf
head -c 3000 d.jsonl.gz >cut.jsonl.gz
refuses 3 "cut.jsonl.gz is truncated" cut.jsonl.gz
echo '{"instruction": "do", "output": "done"}' >alpaca.jsonl
refuses 3 'has `instruction` but no `text`: it is not plain text' alpaca.jsonl
expect 0 "$LOCKSTEP" data prepare alpaca.jsonl --field output
printf 'id,body\n1,x\n' >columns.csv
refuses 3 'names no column `text`; its columns: id, body' columns.csv
refuses 2 "no file matches missing.txt in $scratch" missing.txt

# ---- one text, one loss ----

"$LOCKSTEP" tokenize encode text.txt --tokenizer t.json >ids
expect 0 "$LOCKSTEP" eval run --tokens ids --json
by_ids=$(field "$out" loss tokens)
expect 0 "$LOCKSTEP" eval run --data text.txt --json
same "eval --data and --tokens" "$(field "$out" loss tokens)" "$by_ids"

# ---- no setting without effect ----

expect 2 "$LOCKSTEP" eval run --data text.txt --context 1000000
says "--context is 1000000, allowed is 1 to "
refuses_to_train() { # TEXT SETTING...
    local text=$1
    shift
    expect 2 "$LOCKSTEP" train tiny.yaml --run-dir refused "${@/#/--set=}"
    says "$text"
}
refuses_to_train "model.sliding_window is 8, but only mistral, qwen2, qwen3, mixtral and qwen3-moe have" model.sliding_window=8
refuses_to_train "model.rope_scaling.factor has no effect" model.rope_scaling.factor=4
refuses_to_train "model.rope_scaling.kind is set, but model.family gpt2" model.family=gpt2 model.kv_heads=auto model.rope_scaling.kind=yarn
sed '/^model:/d; /^tokenizer:/d' tiny.yaml >window.yaml && echo 'model: {from: run, sliding_window: 8}' >>window.yaml
expect 2 "$LOCKSTEP" train window.yaml --run-dir refused
says "model.sliding_window is 8, but the model named in model.from has 0; remove the key"
# plan and submit refuse the same, without starting anything
latest=$(ls -d run/checkpoints/* | tail -1)
for wrong in 'sliding_window: 8' 'context: 4096' 'rope_scaling: {factor: 4}'; do
    sed '/^model:/d; /^tokenizer:/d' tiny.yaml >wrong.yaml && echo "model: {from: $latest, $wrong}" >>wrong.yaml
    expect 2 "$LOCKSTEP" train wrong.yaml --run-dir refused --steps 1
    refusal=$(grep -o 'model\.[a-z_.]* .*' "$err" | head -1)
    expect 2 "$LOCKSTEP" plan wrong.yaml --gpus h100:1
    says "$refusal"
done

# ---- the default prompt; a model and another tokenizer ----

# What a model writes does not steer a terminal; a file or a pipe gets every byte.
steering=$(printf 'a\033]52;c;eA==\007b')
expect 0 "$LOCKSTEP" sample run -n 1 -p "$steering"
holds "$out" "$steering"
if has_terminals; then
    on_terminal "$LOCKSTEP" sample run -n 1 -p "$steering" >shown
    holds shown 'a\x1b]52;c;eA==\x07b'
    check "no escape of its own" sh -c "! grep -q \$'\\033]52' shown"
else
    echo "skipped: no pseudo-terminals here"
fi
expect 0 "$LOCKSTEP" sample run -n 1
same "the default prompt" "$(head -c 1 "$out" | od -An -tx1 | tr -d ' ')" 0a
sed '/^model:/d; /^tokenizer:/d' tiny.yaml >from.yaml && echo 'model: {from: run}' >>from.yaml
for other in "tokenizer.kind=bytes" "tokenizer.kind=train"; do
    expect 2 "$LOCKSTEP" train from.yaml --run-dir other --steps 1 --set $other --set tokenizer.vocab=290
    says "is not that of run" "tokenizer.replace: true"
done
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir other --steps 1 --set tokenizer.kind=bytes --set tokenizer.replace=true
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir other --steps 2 --set tokenizer.kind=bytes
expect 0 "$LOCKSTEP" train from.yaml --json --run-dir kept --steps 1 --set tokenizer.file=t.json
finish
