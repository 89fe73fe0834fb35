#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The registry: runs, data and evaluations with versions, stages and lineage; in a folder and in S3; several writers, kill -9, damage.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/s3.sh"
registry() { "$LOCKSTEP" registry "$@"; }
entry_of() { registry show "$1" --json >shown 2>/dev/null && field shown entry; }

# ---- a run, its data, an evaluation ----

mkdir corpus && write_text corpus/text.txt 300 1
write_run run.yaml
sed -i "s#$scratch/text.txt#corpus/text.txt#" run.yaml
expect 0 registry ls
prints "is empty"
expect 0 registry add corpus --name corpus
prints "corpus@1 added: data, 1 file"
expect 0 "$LOCKSTEP" train run.yaml --json
says "in the registry as tiny@1"
expect 0 registry show tiny@1
prints "refers to $scratch/runs/tiny/checkpoints/12" "run tiny, step 12"
check "the report shows it" grep -q "made from data <b>corpus@1</b>" runs/tiny/report.html
expect 0 "$LOCKSTEP" train run.yaml --json
expect 2 registry show tiny@2
# What the registry lacks does not make a finished run fail.
expect 0 "$LOCKSTEP" train run.yaml --run-dir other --set train.steps=2 --set registry.address=/dev/null/registry
says "was not added to the registry" "/dev/null/registry"
check "an event tells" grep -q register_failed other/events.jsonl
expect 0 "$LOCKSTEP" train run.yaml --run-dir third --set train.steps=2 --set registry.add=false
expect 2 registry show tiny@2
expect 0 registry add runs/tiny --name assistant --store --note "the first"
prints "assistant@1 added: model" "data $(entry_of corpus | cut -c1-16)"
expect 0 registry add runs/tiny --name assistant --store
prints "assistant@1 has this content already"
expect 0 registry get assistant -o got
same "what comes back is the checkpoint" "$("$LOCKSTEP" state-hash got)" "$("$LOCKSTEP" state-hash runs/tiny)"
expect 2 registry get assistant -o got
says "got is there already"
expect 0 "$LOCKSTEP" eval got --data corpus/text.txt --json
cp "$out" scores.json
expect 0 registry add scores.json --name scores --parent assistant@1
prints "scores@1 added: evaluation"
# What is trained from a fetched model knows its parent.
sed -e 's/^name: .*/name: second/' -e 's/^model: .*/model: {from: got, context: 32}/' -e '/^tokenizer/d' run.yaml >second.yaml
expect 0 "$LOCKSTEP" train second.yaml --set train.steps=2 --json
expect 0 registry add runs/second --name assistant
expect 0 registry lineage assistant@2
prints "base assistant@1" "data corpus@1" "run second, step 2" "run file" "val_loss"
expect 0 registry lineage assistant@1 --svg lineage.svg --json
check "the picture is XML" python3 -c 'import xml.dom.minidom, sys; xml.dom.minidom.parse("lineage.svg")'
same "both directions" "$(python3 -c '
import json, sys
l = json.load(open(sys.argv[1]))
print(sorted((n["name"], n["version"], n["generation"]) for n in l["nodes"]), len(l["edges"]))' "$out")" \
    "[('assistant', 1, 0), ('assistant', 2, 1), ('corpus', 1, -1), ('got-eval', 1, 1), ('scores', 1, 1), ('second', 1, 1)] 8"
expect 0 registry show scores
prints "perplexity" "lockstep "

# Prepared data: the lineage tells from what, and how.
mkdir -p raw/in prepared/data && cp corpus/text.txt raw/in/ && cp corpus/text.txt prepared/data/
cat >prepared/report.json <<JSON
{"version": 1, "identity": "abc", "documents": 200, "kept": 180, "steps": [{"step": "normalise"}, {"step": "quality"}],
 "files": [{"input": {"path": "raw/in/text.txt"}, "output": {"name": "text.txt"}}]}
JSON
expect 0 registry add raw --name raw
expect 0 registry add prepared --name clean
expect 0 "$LOCKSTEP" train run.yaml --run-dir cleaned --set "data.train=[prepared/data/*.txt]" --set train.steps=2 --set name=cleaned
expect 0 registry lineage cleaned
prints "data clean@1" "180 of 200 documents kept, by normalise, quality" "data raw@1"
expect 0 registry add prepared/data --name only-data
expect 0 registry show only-data
prints "180 of 200 documents kept"

# ---- stages ----

expect 2 registry show assistant@approved
says "assistant has 2 versions, and none is approved"
expect 0 registry promote assistant@1 approved --note "good enough"
expect 0 registry promote assistant@2 retired
same "the approved one" "$(entry_of assistant@approved)" "$(entry_of assistant@1)"
same "the newest that is not retired" "$(entry_of assistant)" "$(entry_of assistant@1)"
expect 0 registry show assistant@2
says "assistant@2 is retired"
expect 0 registry show assistant@1
prints "approved by" "good enough"
expect 0 registry export assistant@approved --mlflow mlruns
check "MLflow's files" grep -q "^current_stage: Production" mlruns/models/assistant/version-1/meta.yaml
check "the artifacts" test -s mlruns/artifacts/assistant/1/MLmodel -a -s mlruns/artifacts/assistant/1/model.safetensors
expect 2 registry export assistant@approved --mlflow mlruns
says "has version 1 of assistant already"
expect 0 registry verify
prints "0 damaged"
expect 0 registry gc --retired
prints "removed 0 entries"

# ---- words that mean nothing here ----

expect 2 registry promote assistant@1 great
says "no stage 'great'" "candidate, approved or retired"
expect 2 registry show assistent
says "did you mean assistant"
expect 2 registry show assistant@7
says "none is 7"
expect 2 registry show assistant@best
says "candidate, approved, retired"
expect 2 registry show ../assistant
says "is not a name"
expect 2 registry show "$(printf 'a\377')"
says "is not a name"
expect 2 registry add corpus --name ../../x
says "is not a name"
expect 2 registry add corpus
says "--name is missing"
expect 2 registry add scores.json --name x --note "$(printf '\377')"
says "not valid UTF-8"
expect 2 registry add nowhere --name x
says "nowhere"
expect 2 registry add corpus --name x --parent nobody@1
says "parent nobody@1"
mkdir odd && : >"$(printf 'odd/a\377')"
expect 2 registry add odd --name odd
says "not UTF-8"
mkdir pipes && mkfifo pipes/fifo
expect 2 registry add pipes --name pipes
says "not a regular file"
prefix=$(entry_of corpus)
touch "home/registry/entries/${prefix:0:8}$(printf '%056d' 0).json"
expect 2 registry show "${prefix:0:8}"
says "2 entries begin with ${prefix:0:8}" "more digits"
expect 0 registry show "${prefix:0:20}"
rm "home/registry/entries/${prefix:0:8}$(printf '%056d' 0).json"

# ---- damage ----

file=$(find home/registry/chunks -type f -size +20k | head -1)
cp "$file" good
python3 -c 'import sys; d = bytearray(open(sys.argv[1], "rb").read()); d[1000] ^= 4; open(sys.argv[1], "wb").write(d)' "$file"
expect 3 registry verify
says ".safetensors" "${file##*/}" "damaged"
expect 3 registry get assistant@1 -o damaged
check "nothing half is left" test ! -e damaged
rm "$file"
expect 3 registry verify assistant@1
says "${file##*/}" "missing"
expect 0 registry add runs/tiny --name assistant --store
check "the chunk is back" cmp -s "$file" good
echo x >>corpus/text.txt
expect 3 registry verify corpus
says "is not what was registered"
rm corpus/text.txt
expect 0 registry verify corpus
prints "1 gone"
rm -r raw prepared
expect 2 registry get corpus -o gone
says "only a reference"

# ---- several writers; kill -9 ----

for i in 1 2 3 4 5 6; do echo "$i" >many$i; done
for i in 1 2 3 4 5 6; do registry add many$i --name many --store >/dev/null 2>many$i.err & done
wait
expect 0 registry ls many --json
same "all are kept, each with its number" \
    "$(python3 -c 'import json, sys; print([v["version"] for v in json.load(open(sys.argv[1]))["versions"]])' "$out")" "[1, 2, 3, 4, 5, 6]"
head -c 30000000 /dev/urandom >large
for i in 1 2 3 4 5 6 7 8; do # wherever it is then
    "$LOCKSTEP" registry add large --name large --store >/dev/null 2>&1 & # not the function: its shell would be killed
    sleep 0.0$i
    kill -9 $!
    wait $!
done
expect 0 registry verify
prints "0 damaged"
mkdir -p home/registry/writers && touch "home/registry/writers/0-1-elsewhere"
expect 1 registry gc
says "a writer has been adding" "nothing was removed"
rm home/registry/writers/0-1-elsewhere
expect 0 registry gc # the marks of processes that were killed here do not count
check "no mark is left" test ! -e home/registry/writers
expect 0 registry verify
# gc beside an add: it waits or refuses, and never takes what the add has just stored.
rm -r home/registry/chunks home/registry/files
"$LOCKSTEP" registry add large --name beside --store >beside 2>&1 &
adder=$!
while kill -0 $adder 2>/dev/null; do registry gc >/dev/null 2>&1; done
wait $adder
check "the add beside gc succeeded" grep -q "beside@1 added" beside
expect 0 registry verify beside
expect 0 registry add large --name large --store
expect 0 registry get large -o large.back
check "after all that, the same bytes" cmp large large.back/large

# ---- a folder without rights; S3 ----

if [ "$(id -u)" != 0 ]; then
    mkdir locked && chmod 555 locked
    expect 1 registry add run.yaml --name x --registry locked
    says "locked"
fi
s3_start
export LOCKSTEP_REGISTRY=s3://bucket/registry
expect 0 registry add runs/tiny --name assistant --store
expect 0 registry add scores.json --name scores --parent assistant
expect 0 registry promote assistant@1 approved
expect 0 registry get assistant@approved -o from-s3
same "the checkpoint from S3" "$("$LOCKSTEP" state-hash from-s3)" "$("$LOCKSTEP" state-hash runs/tiny)"
expect 0 registry lineage scores
prints "parent assistant@1"
writers=
for i in 1 2 3; do
    registry add many$i --name many >/dev/null 2>&1 &
    writers="$writers $!"
done
wait $writers
expect 0 registry ls many --json
same "writers in S3" "$(grep -c '"version"' "$out")" 3
expect 0 registry verify
prints "5 good, 0 damaged, 0 gone"
check "no secret in what was said" bash -c "! grep -rqF \"\$AWS_SECRET_ACCESS_KEY\" '$out' '$err' from-s3/registry.json"
expect 0 registry gc
finish
