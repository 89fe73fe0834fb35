#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# blob against a server on loopback that checks signatures: files of all kinds, faults that pass and that stay, credentials from every place.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/s3.sh"
s3_start
blob() { "$LOCKSTEP" blob "$@"; }
same_file() { check "$3" cmp "$1" "$2"; }
head -c 17000000 /dev/urandom >big
printf hello >small

# ---- the plain way ----

expect 0 blob put small s3://bucket/a/small
expect 0 blob put small "s3://bucket/a/ödd +=&?#%41 name"
expect 0 blob put big s3://bucket/a/
expect 0 blob get s3://bucket/a/big back
same_file big back "17 MB in parts come back"
same "parts were used" "$(grep -c 'PUT /bucket/a/big?partNumber' s3/asked)" 3
expect 0 blob get "s3://bucket/a/ödd +=&?#%41 name" odd
same_file small odd "a name with everything in it"
expect 0 blob get s3://bucket/a/small -
same "to the standard output" "$(cat "$out")" hello
expect 0 blob ls s3://bucket/ --json
same "a folder" "$(python3 -c 'import json, sys; b = json.load(open(sys.argv[1]))["blobs"][0]; print(b["key"], b["folder"])' "$out")" "a/ True"
for i in 1 2 3 4 5; do expect 0 blob put small s3://bucket/many/$i/x; done
expect 0 blob ls s3://bucket/many --recursive --json
same "a list in several answers" "$(grep -c '"key"' "$out")" 5
expect 0 blob ls s3://bucket/nothing
prints "there is nothing at s3://bucket/nothing"
expect 0 blob cp s3://bucket/a/small s3://bucket/b/copy
expect 0 blob get s3://bucket/b/copy copy
same_file small copy "a copy made by the server"
expect 0 blob get s3://bucket/many/ tree --recursive
same "a tree" "$(find tree -type f | wc -l)" 5
expect 0 blob cp tree s3://bucket/tree --recursive
expect 0 blob ls s3://bucket/tree/ -r --json
same "a tree put" "$(grep -c '"key"' "$out")" 5
expect 2 blob put small s3://bucket/a/small --if-absent
says "s3://bucket/a/small is there already"
expect 0 blob put small s3://bucket/new --if-absent
expect 0 blob rm s3://bucket/many/ --recursive
expect 2 blob rm s3://bucket/many/1/x
says "there is no s3://bucket/many/1/x"
expect 2 blob get s3://bucket/a/../../x
says "part . or .."
expect 2 blob ls s3://other
says "no bucket other"
mkdir place && expect 0 blob cp s3://bucket/a/small place/
same_file small place/small "to a folder"
expect 0 blob ls place --json
prints '"key": "small"'

expect 0 blob bench s3://bucket/x --bytes 9MB --objects 20 --json
check "rates" test "$(field "$out" put_bytes_ps get_bytes_ps small_put_ps small_get_ps sign_ps | tr ' ' '\n' | grep -c '^[1-9]')" -eq 5
expect 0 blob ls s3://bucket/x/ -r
prints "there is nothing at s3://bucket/x/"
faults "GET small/000007 code 403"
expect 1 blob bench s3://bucket/x --bytes 1kB --objects 20
says "small/000007" "403"
expect 0 blob bench measured --bytes 1MB --objects 3
check "nothing is left" test -z "$(find measured -type f)"
faults
expect 0 blob ls s3://bucket/x/ -r
prints "there is nothing at s3://bucket/x/"

# ---- faults that pass ----

faults "PUT f1 code 503 2" "PUT f1 code 500"
expect 0 blob put small s3://bucket/f1
faults "GET a/big cut 1000 2" "GET a/big code 503" "HEAD a/big code 500"
expect 0 blob get s3://bucket/a/big back2
same_file big back2 "cut answers"
faults "POST f2 late200" "PUT f2 lost"
expect 0 blob put big s3://bucket/f2
expect 0 blob get s3://bucket/f2 back3
same_file big back3 "an error that comes late, and a lost answer"
# The first try stored it, its answer was lost: the second finds the file there, and it is its own.
faults "PUT f3 lost"
expect 0 blob put small s3://bucket/f3 --if-absent
# An upload that ends early goes on where it stopped.
faults "PUT partNumber=3 code 403 1"
expect 1 blob put big s3://bucket/f4 --threads 1
says "access is refused (HTTP 403"
expect 2 blob get s3://bucket/f4 none
check "nothing appears of it" test ! -e none
faults
: >s3/asked
expect 0 blob put big s3://bucket/f4 --threads 1
same "only the missing part is sent" "$(grep -c 'PUT /bucket/f4?partNumber' s3/asked)" 1
expect 0 blob get s3://bucket/f4 back4
same_file big back4 "the upload that went on"
# Killed in the middle.
"$LOCKSTEP" blob put big s3://bucket/f5 --threads 1 >/dev/null 2>&1 &
victim=$!
echo "3 $victim" >s3/kill
wait $victim 2>/dev/null
rm -f s3/kill
expect 0 blob put big s3://bucket/f5 --threads 1
expect 0 blob get s3://bucket/f5 back5
same_file big back5 "after a kill"

# ---- faults that stay ----

faults "GET a/small code 503 99"
expect 1 blob get s3://bucket/a/small none --patience 1s
says "HTTP 503"
faults "GET a/small range 99"
expect 3 blob get s3://bucket/a/small none
says "has a different range than requested"
faults "GET a/big short 10 99"
expect 3 blob get s3://bucket/a/big none
says "the answer for a/big has" "bytes instead of"
faults "GET a/big twice 99"
expect 3 blob get s3://bucket/a/big none
says "the answer for a/big is longer than"
faults "GET a/big gone 99"
expect 2 blob get s3://bucket/a/big none
says "no bucket bucket"
check "nothing appears of them" test ! -e none
for i in 1 2 3 4; do expect 0 blob put small s3://bucket/list/$i; done
faults "GET prefix=list again 99"
expect 3 blob ls s3://bucket/list/
says "is truncated and repeats itself"
faults "HEAD a/small code 403" "GET a/small code 403"
expect 1 blob get s3://bucket/a/small none
says "lack the right to read it"
faults "PUT x1 skew"
expect 2 blob put small s3://bucket/x1
says "the clock of this machine differs" "set the clock"
faults "PUT x1 region"
expect 2 blob put small s3://bucket/x1
says "region eu-west-3" "AWS_REGION"
faults
expect 2 env AWS_REGION=eu-west-1 "$LOCKSTEP" blob ls s3://bucket
says "the bucket is in region us-east-1, and the request was for eu-west-1"
expect 2 env AWS_SECRET_ACCESS_KEY=wrong-secret-77 "$LOCKSTEP" blob ls s3://bucket
says "refuses the signature (SignatureDoesNotMatch)" "the environment"
check "the secret is not told" test -z "$(grep -l wrong-secret-77 "$err")"
expect 1 env AWS_ENDPOINT_URL=http://127.0.0.1:1 "$LOCKSTEP" blob ls s3://bucket --patience 500ms
check "nothing half is left" test ! -e none -a -z "$(ls | grep none)"

# ---- credentials ----

unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION
export HOME=$scratch AWS_EC2_METADATA_DISABLED=true
expect 2 blob ls s3://bucket
says "no credentials for S3"
mkdir -p .aws
printf '[default]\naws_access_key_id = nobody\naws_secret_access_key = x\n[team]\naws_access_key_id=AKIDTEST\naws_secret_access_key = secret/+test\n' >.aws/credentials
expect 0 env AWS_PROFILE=team "$LOCKSTEP" blob ls s3://bucket
expect 2 blob ls s3://bucket
says "refuses the signature (InvalidAccessKeyId)" "~/.aws/credentials"
printf web-token >token
expect 0 env AWS_WEB_IDENTITY_TOKEN_FILE=token AWS_ROLE_ARN=arn:role AWS_ENDPOINT_URL_STS=$AWS_ENDPOINT_URL "$LOCKSTEP" blob ls s3://bucket
printf wrong-token-88 >token
expect 1 env AWS_WEB_IDENTITY_TOKEN_FILE=token AWS_ROLE_ARN=arn:role AWS_ENDPOINT_URL_STS=$AWS_ENDPOINT_URL "$LOCKSTEP" blob ls s3://bucket
says "does not accept the web identity (HTTP 400 InvalidIdentityToken)"
check "the token is not told" test -z "$(grep -l wrong-token-88 "$err")"
expect 2 env AWS_WEB_IDENTITY_TOKEN_FILE=missing AWS_ROLE_ARN=arn:role "$LOCKSTEP" blob ls s3://bucket
says "AWS_WEB_IDENTITY_TOKEN_FILE"
rm .aws/credentials
expect 0 env AWS_EC2_METADATA_DISABLED=false AWS_EC2_METADATA_SERVICE_ENDPOINT=$AWS_ENDPOINT_URL "$LOCKSTEP" blob ls s3://bucket
finish
