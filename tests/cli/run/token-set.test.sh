#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Token sets, which training streams from a bucket or folder: the same bits as from the files they were made from, for any number of
# ranks and resumes; faults of the network, the bucket and the cache.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/s3.sh"
s3_start
train() { "$LOCKSTEP" train tiny.yaml --json "$@"; }
write_text other.txt 1500 9
for i in 1 2; do
    write_text part 500 $i
    awk '{ printf "{\"text\": \"%s\"}\n", $0 }' part >shard-$i.jsonl
done
sed 's/leaves: 3/leaves: 6/' tiny.yaml >all.yaml
# data TRAIN MASKS: the run file.
data() { sed "s|^data:.*|data: {train: $1, validation_fraction: 0.1, document_masks: $2}|" all.yaml >tiny.yaml; }
local="[{path: '$scratch/shard-*.jsonl', weight: 2}, {path: $scratch/other.txt, weight: 1}]"
streamed="[{path: 's3://bucket/set', weight: 2}, {path: $scratch/set2/token-index.json, weight: 1}]"

# ---- making a set ----

expect 0 "$LOCKSTEP" data prepare shard-1.jsonl shard-2.jsonl --tokenizer bytes --to s3://bucket/set
says "shard-2.jsonl: 23" "tokens stored"
expect 0 "$LOCKSTEP" data prepare other.txt --tokenizer bytes --to set2
: >s3/asked
expect 0 "$LOCKSTEP" data prepare shard-1.jsonl shard-2.jsonl --tokenizer bytes --to s3://bucket/set
same "what is stored is not sent again" "$(grep -c 'PUT /bucket/set/0' s3/asked)" 0
expect 0 "$LOCKSTEP" data prepare s3://bucket/set --tokenizer bytes
prints "2 files, 1000 documents"

# ---- the same bits ----

data "$local" true
expect 0 train --run-dir masked
masked=$(hashes "$out")
data "$streamed" true
rm -rf home
expect 0 train --run-dir masked2
same "with document masks" "$(hashes "$out")" "$masked"
data "$local" false
expect 0 train --run-dir local
reference=$(hashes "$out")
data "$streamed" false
rm -rf home
expect 0 train --run-dir plain
same "streamed" "$(hashes "$out")" "$reference"
rm -rf home
expect 0 train --run-dir cut --ranks 3 --steps 5
for ranks in 1 5 2; do
    expect 0 train --run-dir cut --ranks $ranks --resume --steps $((5 + ranks))
done
expect 0 train --run-dir cut --resume --ranks 2
same "resumed in mid-epoch with 1, 5 and 2 ranks" "$(field "$out" state_hash)" "${reference% *}"
data "$local" false
expect 0 train --run-dir local --resume --steps 14
local14=$(field "$out" state_hash)
data "$streamed" false
expect 0 train --run-dir cut --resume --steps 14
same "begun with streamed data" "$(field "$out" state_hash)" "$local14"
check "a bucket's secret is nowhere" test -z "$(grep -rl 'secret/+test' plain cut home)"

# ---- faults ----

rm -rf home
faults "GET set/0 code 503 3" "GET set/0 cut 100 2" "GET set/0 flip 2" "GET set/0 slow 0.1 5" "GET token-index code 500 1"
expect 0 train --run-dir faults
same "after faults that pass" "$(hashes "$out")" "$reference"
rm -rf home
faults "GET set/0 flip 99999"
expect 3 train --run-dir none1
says "s3://bucket/set/0000" "arrives damaged"
faults "GET set/0 code 403 99999"
expect 1 train --run-dir none2
says "streaming tokens" "403"
rm -rf home
faults "GET set/0 gone 99999"
expect 2 train --run-dir none7
says "streaming tokens" "has no bucket bucket"
faults "GET set/0 short 10 99999"
expect 3 train --run-dir none8
says "streaming tokens" "bytes instead of"
faults
# The cache is damaged, too small, or not writable.
expect 0 train --run-dir first
printf '%5000s' x | dd of="$(ls home/cache/tokens/blocks-*)" bs=1 seek=4096 conv=notrunc status=none
expect 0 train --run-dir again
same "with a damaged cache" "$(hashes "$out")" "$reference"
expect 0 "$LOCKSTEP" cache limit --quota 64KiB
expect 0 train --run-dir small
same "with a quota that is too small" "$(hashes "$out")" "$reference"
expect 0 train --run-dir uncached --set 'data.cache_dir=/proc/nothing'
same "with no cache" "$(hashes "$out")" "$reference"
# A disk that is full, or becomes so: what does not fit is kept in memory.
mkdir tiny
for size in 64k 300k; do
    unshare -r -m mount -t tmpfs -o size=$size tiny tiny 2>/dev/null || continue # not permitted here
    expect 0 unshare -r -m sh -c "mount -t tmpfs -o size=$size tiny tiny && export LOCKSTEP_HOME=$scratch/tiny &&
        '$LOCKSTEP' cache limit --quota 1GiB --keep-free 0 >/dev/null && exec '$LOCKSTEP' train tiny.yaml --json --run-dir full-$size"
    same "with a cache on a disk of $size" "$(hashes "$out")" "$reference"
    same "one warning tells it" "$(grep -c 'cache of token blocks can.t be written' "$err")" 1
done

# ---- sets that cannot be used ----

"$LOCKSTEP" blob put part s3://bucket/set/"$("$LOCKSTEP" blob ls s3://bucket/set/ --json | grep -o '00001[^"]*')" >/dev/null
rm -rf home
expect 3 train --run-dir none3
says "s3://bucket/set"
sed 's/"tokens": [0-9]*/"tokens": 7/' set2/token-index.json >set2/new && mv set2/new set2/token-index.json
expect 3 train --run-dir none4
says "set2/token-index.json: the counts of" "do not fit together"
echo '{"format": "other"}' >set2/token-index.json
expect 3 train --run-dir none5
says "is not the index of a token set"
"$LOCKSTEP" blob rm s3://bucket/set --recursive >/dev/null
expect 2 train --run-dir none6
says "no object matches s3://bucket/set"
expect 2 "$LOCKSTEP" data prepare shard-1.jsonl --tokenizer bytes --to ftp://x
says "blobs are kept in s3:// or in a folder"
finish
