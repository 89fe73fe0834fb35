#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# blob, checkpoint.mirror, streamed data and the registry against Ceph's radosgw, a server of others that checks signatures. Skipped where it is not installed.
. "$LS_SOURCE_DIR/tests/lib/radosgw.sh"
radosgw_is_there || exit 77
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
trap 'radosgw_stop "$scratch/rgw"; clean_up' EXIT
port=$((20000 + $$ % 10000))
radosgw_start "$scratch/rgw" $port || { tail -3 "$scratch/rgw/log/start"; echo "skipped: radosgw does not start here"; exit 77; }
unset http_proxy https_proxy all_proxy AWS_PROFILE AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1
empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
check "a bucket" curl -sf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u AKIDTEST:secret/+test -H "x-amz-content-sha256: $empty" "$AWS_ENDPOINT_URL/bucket"
blob() { "$LOCKSTEP" blob "$@"; }
head -c 17000000 /dev/urandom >big
printf hello >small
expect 0 blob put big s3://bucket/a/
expect 0 blob get s3://bucket/a/big back
check "17 MB in parts come back" cmp big back
expect 0 blob put small "s3://bucket/ödd +=&?#%41 name"
expect 0 blob get "s3://bucket/ödd +=&?#%41 name" odd
check "a name with everything in it" cmp small odd
expect 0 blob put small s3://bucket/new --if-absent
expect 2 blob put small s3://bucket/new --if-absent
expect 0 blob cp s3://bucket/new s3://bucket/b/copy
expect 0 blob ls s3://bucket -r --json
same "all are listed" "$(grep -c '"key"' "$out")" 4
expect 0 blob rm s3://bucket/b/ -r
expect 2 blob get s3://bucket/b/copy none
expect 2 blob ls s3://nobody
says "no bucket nobody"
expect 2 env AWS_SECRET_ACCESS_KEY=wrong "$LOCKSTEP" blob ls s3://bucket
says "refuses the signature (SignatureDoesNotMatch)"
# Killed in the middle: the parts that arrived are kept and used.
head -c 100000000 /dev/urandom >large
"$LOCKSTEP" blob put large s3://bucket/large --threads 1 >/dev/null 2>&1 &
sleep 0.3
kill -9 $! 2>/dev/null
wait $! 2>/dev/null
expect 0 blob put large s3://bucket/large
expect 0 blob get s3://bucket/large large.back
check "an upload that was killed and repeated" cmp large large.back
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir plain --json
reference=$(field "$out" state_hash)
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run --json --steps 8 --set checkpoint.mirror=s3://bucket/run
rm -rf run
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run --json --ranks 2 --set checkpoint.mirror=s3://bucket/run
same "a run brought back" "$(field "$out" state_hash)" "$reference"
expect 0 "$LOCKSTEP" checkpoint verify s3://bucket/run
# Training data: a file that is fetched, and a set of tokens that is streamed.
expect 0 blob put text.txt s3://bucket/data/text.txt
expect 0 "$LOCKSTEP" data prepare text.txt --tokenizer bytes --to s3://bucket/set
for data in 's3://bucket/data/*.txt' s3://bucket/set; do
    rm -rf home
    expect 0 "$LOCKSTEP" train tiny.yaml --run-dir run --fresh --json --ranks 3 --set "data.train=[$data]"
    same "trained from $data" "$(field "$out" state_hash)" "$reference"
done
# The registry.
export LOCKSTEP_REGISTRY=s3://bucket/registry
expect 0 "$LOCKSTEP" registry add run --name tiny --store
writers=
for i in 1 2 3; do
    echo $i >note$i
    "$LOCKSTEP" registry add note$i --name notes --parent tiny --store >/dev/null 2>&1 &
    writers="$writers $!"
done
wait $writers
expect 0 "$LOCKSTEP" registry promote notes@3 approved
expect 0 "$LOCKSTEP" registry lineage notes@approved
prints "parent tiny@1"
expect 0 "$LOCKSTEP" blob put small s3://bucket/registry/chunks/ab/$empty
expect 0 "$LOCKSTEP" registry gc
prints "removed 0 entries, 0 files and 1 chunks"
expect 0 "$LOCKSTEP" registry verify
prints "4 good, 0 damaged"
expect 0 "$LOCKSTEP" registry get tiny -o fetched
same "the model from the registry" "$("$LOCKSTEP" state-hash fetched)" "$reference"
finish
