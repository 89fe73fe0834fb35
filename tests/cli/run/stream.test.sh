#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training data in a bucket: the same bits as from the same files on this machine, for any number of ranks and resumes; fetched once;
# faults of the network, of the bucket and of the cache, each named.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/s3.sh"
s3_start
train() { "$LOCKSTEP" train tiny.yaml --json "$@"; }
mkdir corpus
for i in 1 2 3; do
    write_text part 300 $i
    awk '{ printf "{\"text\": \"%s\"}\n", $0 }' part >corpus/shard-$i.jsonl
done
gzip -k corpus/shard-2.jsonl && rm corpus/shard-2.jsonl
zstd -q --rm corpus/shard-3.jsonl
write_text other.txt 300 9
python3 -c 'import sys, struct; sys.stdout.buffer.write(struct.pack("<6000H", *(i * 7919 % 256 for i in range(6000))))' >ids.bin
expect 0 "$LOCKSTEP" blob put --recursive corpus s3://bucket/corpus
expect 0 "$LOCKSTEP" blob put other.txt s3://bucket/other.txt
expect 0 "$LOCKSTEP" blob put ids.bin s3://bucket/ids.bin
# mixture FOLDER: the run's data, from this machine or from the bucket.
mixture() {
    sed "s|^data:.*|data: {train: [{path: '$1/corpus/*.jsonl*', weight: 2}, {path: $1/other.txt, weight: 1}, {path: $1/ids.bin, weight: 1}], validation_fraction: 0.1}|; s|leaves: 3|leaves: 6|" all.yaml >tiny.yaml
}
cp tiny.yaml all.yaml

# ---- the same bits ----

mixture "$scratch"
expect 0 train --run-dir local
reference=$(hashes "$out")
mixture s3://bucket
rm -rf home
: >s3/asked
expect 0 train --run-dir plain
same "from the bucket" "$(hashes "$out")" "$reference"
same "each shard is fetched once" "$(grep -c 'GET /bucket/corpus/shard' s3/asked)" 3
rm -rf home
expect 0 train --run-dir cut --ranks 3 --steps 5
for ranks in 1 5 2; do
    rm -rf home
    expect 0 train --run-dir cut --ranks $ranks --resume --steps $((5 + ranks))
done
expect 0 train --run-dir cut --resume --ranks 2
same "resumed in mid-epoch with 1, 5 and 2 ranks" "$(field "$out" state_hash)" "${reference% *}"
# What is in the cache is not asked for again.
: >s3/asked
expect 0 train --run-dir again
check "nothing is fetched again" test "$(grep -c 'GET /bucket/corpus/shard' s3/asked)" = 0
expect 0 "$LOCKSTEP" cache verify
expect 0 "$LOCKSTEP" cache ls
prints "s3://bucket/corpus/shard-2.jsonl.gz"
expect 0 "$LOCKSTEP" data prepare s3://bucket/corpus --tokenizer bytes
prints "3 files, 900 documents"
check "no secret is anywhere" test -z "$(grep -rl 'secret/+test' plain home)"

# ---- Parquet ----

mkdir tables
for name in plain snappy gzip_2 zstd_groups; do cp "$LS_SOURCE_DIR/tests/fuzz/corpus/parquet/$name" tables/$name.parquet; done
expect 0 "$LOCKSTEP" blob put --recursive tables s3://bucket/tables
# table FOLDER: the rows as texts.
table() { sed "s|^data:.*|data: {train: ['$1/tables/*.parquet'], format: text, validation_fraction: 0}|; s|leaves: 3|leaves: 6|" all.yaml >tiny.yaml; }
table "$scratch"
expect 0 train --run-dir table
tables=$(hashes "$out")
table s3://bucket
rm -rf home
expect 0 train --run-dir table2 --ranks 2
same "Parquet from the bucket" "$(hashes "$out")" "$tables"
expect 0 "$LOCKSTEP" data prepare tables --tokenizer bytes --json
tables=$(field "$out" documents hash)
expect 0 "$LOCKSTEP" data prepare s3://bucket/tables --tokenizer bytes --to s3://bucket/table-set --json
same "Parquet in the bucket prepared" "$(field "$out" documents hash)" "$tables"
for folder in "$scratch" s3://bucket; do
    printf "input: ['$folder/tables/*.parquet']\nsteps: [{step: dedup_exact}]\n" >clean.yaml
    expect 0 "$LOCKSTEP" data prepare clean.yaml --output "clean-${folder##*/}"
done
check "a pipeline reads Parquet in the bucket" diff -r "clean-${scratch##*/}/data" clean-bucket/data
mixture s3://bucket

# ---- faults that pass ----

rm -rf home
faults "GET shard-1 code 503 2" "GET shard-2 cut 20 1" "GET shard-3 flip 1" "HEAD shard-1 code 500 1"
expect 0 train --run-dir faults
same "after faults that pass" "$(hashes "$out")" "$reference"
says "arrived damaged, it is fetched again"

# ---- faults that stay ----

rm -rf home
faults "GET shard-1 flip 99"
expect 3 train --run-dir none1
says "s3://bucket/corpus/shard-1.jsonl arrives damaged"
faults "GET shard-1 code 403 99" "HEAD shard-1 code 403 99"
expect 1 train --run-dir none2
says "shard-1" "403"
faults
expect 2 train --run-dir none3 --set 'data.train=s3://bucket/nothing-*.jsonl'
says "no object matches s3://bucket/nothing-*.jsonl"
expect 2 train --run-dir none4 --set 'data.train=s3://vanished/a.jsonl'
says "vanished"
printf x >empty && "$LOCKSTEP" blob put empty s3://bucket/plain.jsonl.gz >/dev/null 2>&1
expect 3 train --run-dir none5 --set 'data.train=s3://bucket/plain.jsonl.gz'
says "does not hold gzip data"

# ---- a shard that changes ----

expect 0 train --run-dir changed --steps 5
write_text part 300 77
awk '{ printf "{\"text\": \"%s\"}\n", $0 }' part >changed.jsonl
expect 0 "$LOCKSTEP" blob put changed.jsonl s3://bucket/corpus/shard-1.jsonl
changed() { # the new content is named with both digests and etags
    expect 3 train --run-dir changed --resume
    says "s3://bucket/corpus/shard-1.jsonl has changed since the run in" "SHA-256 $(sha256sum <corpus/shard-1.jsonl | head -c 16)" \
        "$(sha256sum <changed.jsonl | head -c 16) now" "etag \"$(md5sum <changed.jsonl | head -c 32)" "Put the old version there again"
}
changed
rm -rf home
changed
expect 2 train --run-dir changed --resume --set "data.train=[s3://bucket/other.txt]"
says "holds a run on other data"

# ---- a damaged cache, a small one, none ----

expect 0 "$LOCKSTEP" blob put corpus/shard-1.jsonl s3://bucket/corpus/shard-1.jsonl
rm -rf home
expect 0 train --run-dir first
for file in $(grep -l LSFETCH1 home/cache/tokens/*.tokens); do
    printf X | dd of="$file" bs=1 seek=2000 conv=notrunc status=none
done
expect 0 train --run-dir mended
same "with a damaged cache" "$(hashes "$out")" "$reference"
expect 0 "$LOCKSTEP" cache clear
expect 0 "$LOCKSTEP" cache limit --quota 64KiB
expect 0 train --run-dir small
same "with a quota below one shard" "$(hashes "$out")" "$reference"
expect 0 train --run-dir uncached --set 'data.cache_dir=/proc/nothing'
same "with no cache" "$(hashes "$out")" "$reference"
finish
