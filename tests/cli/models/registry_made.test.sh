#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What commands make is in the registry without being asked for: tokenizers, prepared data, imports, exports, merges, evaluations;
# where a model serves; the page of all; LOCKSTEP_REGISTRY=off; a registry that cannot be written to.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
registry() { "$LOCKSTEP" registry "$@"; }

# ---- each command ----

mkdir corpus && write_text corpus/text.txt 300 1 && write_text held.txt 40 2
registry add corpus --name corpus >/dev/null
expect 0 "$LOCKSTEP" tokenize train corpus/text.txt --vocab 300 -o tokenizer.json
says "in the registry as tokenizer.json@1"
expect 0 "$LOCKSTEP" tokenize train corpus/text.txt --vocab 300 -o tokenizer.json
says "in the registry as tokenizer.json@1"
cat >clean.yaml <<YAML
input: [corpus/text.txt]
steps: [{step: normalise}]
YAML
expect 0 "$LOCKSTEP" data prepare clean.yaml --output clean
says "in the registry as clean@1"
write_run run.yaml
sed -i -e "s#$scratch/text.txt#clean/data/*#" -e 's#^tokenizer:.*#tokenizer: {file: tokenizer.json}#' run.yaml
expect 0 "$LOCKSTEP" train run.yaml --json
expect 0 "$LOCKSTEP" train run.yaml --run-dir runs/other --set name=other --set train.seed=8 --json
expect 0 "$LOCKSTEP" merge runs/tiny runs/other -o merged
says "in the registry as merged@1"
expect 0 "$LOCKSTEP" eval merged runs/tiny --data held.txt --data corpus/text.txt
says "in the registry as merged-eval@1" "in the registry as tiny-eval@1"
expect 0 "$LOCKSTEP" eval merged --data held.txt --json
says "in the registry as merged-eval@2"
loss=$(field "$out" loss)
expect 0 "$LOCKSTEP" eval merged --data held.txt --json
says "in the registry as merged-eval@2" # the same numbers are the same entry
printf '{"prompt": "the king said to his", "completion": "%s"}\n' people land >asked.jsonl
expect 0 "$LOCKSTEP" eval merged --records asked.jsonl --choices auto
says "in the registry as merged-eval@3"
expect 0 "$LOCKSTEP" export merged -o merged-hf
says "in the registry as merged-hf@1"
expect 0 "$LOCKSTEP" export merged --gguf merged.gguf
says "in the registry as merged.gguf@1"
expect 0 "$LOCKSTEP" import merged-hf -o again
says "in the registry as again@1"
expect 0 "$LOCKSTEP" branch merged --data corpus/text.txt -o branches --steps 2 --train
expect 0 registry ls --json

# ---- one lineage of all ----

expect 0 registry lineage merged --svg lineage.svg
prints "merged@1: model, candidate" "by merge, method average" "parent tiny@1" "parent other@1" "run file" "data clean@1" "by data prepare" \
    "documents kept" "data corpus@1" "made: merged-eval@1" "loss " "held.txt.loss" "accuracy 0.5" "tokenizer tokenizer.json@1" "made: merged-hf@1" "form Hugging Face" "made: again@1" \
    "by import" "form GGUF" "made: text@1"
expect 0 registry lineage merged --json
same "the numbers of the evaluation" "$loss" "$(python3 -c '
import json, sys
for n in json.load(open(sys.argv[1]))["nodes"]:
    if (n["name"], n["version"]) == ("merged-eval", 2): print(n["facts"]["metrics"]["loss"])' "$out")"
check "the picture is XML" python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("lineage.svg")'
expect 0 registry verify
prints "0 damaged"

# ---- where a model serves ----

# serving WHAT: waits until the lineage of merged has, or lacks, an address.
serving() {
    local i
    for i in $(seq 50); do
        registry lineage merged --json >nodes.json 2>/dev/null
        [ "$(grep -c '"address": "http' nodes.json)" = "$1" ] && return
        sleep 0.1
    done
    return 1
}
"$LOCKSTEP" serve merged --listen 127.0.0.1:0 --slots 1 --context 32 >served 2>&1 &
server=$!
check "the lineage tells where it serves" serving 1
expect 0 registry lineage merged --svg lineage.svg
prints "serves at http://127.0.0.1:"
check "so does the picture" grep -q "serves at 127" lineage.svg
expect 0 registry gc
check "gc leaves the note of one that serves" serving 1
"$LOCKSTEP" view runs --listen 127.0.0.1:0 >viewed 2>&1 &
viewer=$!
for i in $(seq 100); do grep -q http: viewed && break; sleep 0.1; done
page=$(grep -o 'http://[0-9.:]*' viewed)
curl -sS "$page/models" >models.html
holds "$scratch/models.html" ">merged@1</a>" "serves at http://127.0.0.1:" "<b>merged-eval@2</b> loss " "by merge, method average" ">clean@1</a>"
entry=$(registry show merged --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["entry"])')
check "the link to the lineage" grep -q "lineage.svg?entry=$entry" models.html
curl -sS "$page/models/lineage.svg?entry=$entry" >page.svg
check "the lineage of the page" cmp page.svg lineage.svg
for case in "404 $(printf %064d 0)" "400 $(printf %064s x)" "400 ../../etc"; do
    same "an entry that is none" "$(curl -sS -G -o /dev/null -w '%{http_code}' --data-urlencode "entry=${case#* }" "$page/models/lineage.svg")" "${case%% *}"
done
kill $viewer
kill -TERM $server && wait $server
check "it has ended" serving 0
"$LOCKSTEP" serve merged --listen 127.0.0.1:0 --slots 1 --context 32 >served 2>&1 &
server=$!
check "it serves again" serving 1
kill -9 $server
wait $server 2>/dev/null
check "one that was killed does not serve" serving 0
expect 0 registry gc
check "gc removes its note" test ! -e home/registry/serving

# ---- not asked for, and not possible ----

export LOCKSTEP_REGISTRY=off
expect 0 "$LOCKSTEP" eval merged --data corpus/text.txt
check "nothing is said" test ! -s "$err"
expect 0 "$LOCKSTEP" train run.yaml --run-dir off --set train.steps=2
expect 2 registry ls
says "LOCKSTEP_REGISTRY is off"
: >file
export LOCKSTEP_REGISTRY=$scratch/file/registry
expect 0 "$LOCKSTEP" import merged-hf -o once-more
says "was not added to the registry" "lockstep registry add once-more --name NAME"
finish
