#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A model whose data, checkpoints and family tree live in a bucket, on one machine that is lost halfway:
#
#   1. starts an S3 server, Ceph's radosgw, as this user, on loopback, in memory
#   2. cleans a corpus in which duplicates, private data and test questions are planted
#   3. stores it in the bucket as a set of tokens, and takes its folder away from this machine
#   4. trains from the bucket on three ranks; checkpoints go to the bucket, too
#   5. kills the run and removes its directory and all that was cached
#   6. restores from the bucket on two ranks, and compares the end with a run that nobody disturbed
#   7. draws where the model came from
#
#   examples/elsewhere.sh [FOLDER]      results go to FOLDER, default ./elsewhere
#
# Takes about a minute. Needs radosgw, ceph-mon, ceph-osd, ceph-mgr, ceph-common and curl. The binary: LOCKSTEP, default lockstep.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/tests/lib/radosgw.sh"
radosgw_is_there || exit 77
lockstep=$(command -v "${LOCKSTEP:-lockstep}") || { echo "no lockstep in PATH: set LOCKSTEP to the program" >&2; exit 2; }
lockstep=$(realpath "$lockstep")
results=$(realpath -m "${1:-elsewhere}")
mkdir -p "$results"
work=$(mktemp -d) trainer=
end() {
    [ -z "$trainer" ] || kill -9 "$trainer" 2>/dev/null || true
    radosgw_stop "$work/rgw"
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
say() { printf '\n== %s\n' "$*"; }

say "an S3 server"
cd "$work"
port=$((23000 + $$ % 7000))
radosgw_start "$work/rgw" $port || { tail -3 "$work/rgw/log/start" >&2; exit 1; }
unset http_proxy https_proxy all_proxy AWS_PROFILE AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1
export LOCKSTEP_HOME=$work/home LOCKSTEP_REGISTRY=s3://bucket/registry
nothing=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
curl -sf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u AKIDTEST:secret/+test -H "x-amz-content-sha256: $nothing" "$AWS_ENDPOINT_URL/bucket"
echo "$AWS_ENDPOINT_URL/bucket"

say "a corpus with planted duplicates, private data and test questions"
python3 - <<'PY'
import json, random
random.seed(3)
words = ("the of and to in that it was his a he is with as for on had but at by from this have not be which their they all were or an so one would "
         "river mountain letter winter harbour garden machine window colour morning village soldier market silver journey bridge engine evening").split()
sentence = lambda: " ".join(random.choice(words) for _ in range(random.randint(8, 16))).capitalize() + "."
documents = [" ".join(sentence() for _ in range(random.randint(8, 20))) for _ in range(1200)]
questions = [" ".join(random.choice(words) for _ in range(30)) + "?" for _ in range(20)]
planted = {"duplicates": random.sample(documents, 150), "questions": [sentence() + " " + q.upper() + " " + sentence() for q in questions]}
for i in range(0, 60):
    documents[i] += f" Write to person{i}@example.org or call +1 202 555 01{i:02d}."
everything = documents + planted["duplicates"] + [text + " " + " ".join(sentence() for _ in range(8)) for text in planted["questions"]]
random.shuffle(everything)
for part in range(3):
    with open(f"raw-{part}.jsonl", "w") as file:
        for text in everything[part::3]:
            file.write(json.dumps({"text": text}) + "\n")
with open("questions.txt", "w") as file:
    file.write("\n".join(questions) + "\n")
print(f"{len(everything)} documents: 150 of them twice, 60 with an address and a number, 20 with a question of the test")
PY
cat >clean.yaml <<'YAML'
input: [raw-0.jsonl, raw-1.jsonl, raw-2.jsonl]
steps:
  - step: normalise
  - step: dedup_exact
  - step: pii
  - {step: decontaminate, against: [questions.txt]}
YAML
"$lockstep" data prepare clean.yaml --output clean
cp clean/report.* "$results/" 2>/dev/null || true

say "the data go to the bucket, as a set of tokens"
"$lockstep" data prepare clean/data --tokenizer bytes --to s3://bucket/tokens
"$lockstep" registry add clean/data --name corpus --kind data
cat >run.yaml <<'YAML'
name: elsewhere
model: {family: llama, layers: 2, heads: 4, kv_heads: 2, width: 64, ffn: 128, context: 128}
tokenizer: {kind: bytes}
data: {train: [s3://bucket/tokens], validation_fraction: 0.05}
train: {steps: 120, global_batch: 12, micro_batch: 2, leaves: 6, seed: 11, optimizer: {lr: 3.0e-3}, schedule: {warmup_steps: 10}}
checkpoint: {every_steps: 20, mirror: s3://bucket/run}
eval: {every_steps: 40, batches: 2}
sample: {every_steps: 0}
YAML
state_hash() { sed -n 's/.*"state_hash": "\([0-9a-f]*\)".*/\1/p' "$1"; }

say "the run that nobody disturbs, on the files of this machine"
"$lockstep" train run.yaml --run-dir undisturbed --set "data.train=[clean/data]" --set checkpoint.mirror= --set registry.add=false --json >undisturbed.json 2>undisturbed.log
rm -rf clean raw-*.jsonl home

say "three ranks train from the bucket"
"$lockstep" train run.yaml --run-dir machine --ranks 3 >machine.log 2>&1 &
trainer=$!
for _ in $(seq 1200); do
    "$lockstep" checkpoint ls s3://bucket/run --json 2>/dev/null | grep -q '"step": ' && break
    kill -0 $trainer 2>/dev/null || break
    sleep 0.05
done
kill -9 $trainer 2>/dev/null || true
wait $trainer 2>/dev/null || true
trainer=
grep "^step" machine.log | tail -1 || true

say "the machine is lost: its run directory and its cache are gone"
rm -rf machine home
"$lockstep" checkpoint ls s3://bucket/run

say "two ranks go on from the bucket"
"$lockstep" train run.yaml --run-dir restored --ranks 2 --json >restored.json 2>restored.log
grep "brought back\|continuing" restored.log || true
a=$(state_hash undisturbed.json) b=$(state_hash restored.json)
echo "undisturbed $a"
echo "restored    $b"
[ -n "$a" ] && [ "$a" = "$b" ] || { echo "the two ends differ" >&2; exit 1; }

say "where the model came from"
"$lockstep" registry add restored --name elsewhere --parent corpus@1
"$lockstep" registry lineage elsewhere --svg "$results/lineage.svg"
cp restored/report.html "$results/run.html"
echo
echo "the same bits after the loss of the machine; results in $results: $(ls "$results" | tr '\n' ' ')"
