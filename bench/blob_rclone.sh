#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A large file and many small ones to an S3 server and back, by lockstep and rclone in turn: wall and processor seconds, peak memory.
# Needs rclone, GNU time and a bucket: AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY must be set, for a radosgw of this
# machine after tests/lib/radosgw.sh. Usage: bench/blob_rclone.sh BUCKET [LOCKSTEP [BYTES [OBJECTS [ROUNDS]]]]
set -euo pipefail
bucket=$1 lockstep=$(realpath "${2:-build/release/lockstep}") bytes=${3:-1073741824} objects=${4:-10000} rounds=${5:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
unset AWS_CA_BUNDLE # rclone 1.60 does not start with it
export RCLONE_CONFIG_R_TYPE=s3 RCLONE_CONFIG_R_PROVIDER=Ceph RCLONE_CONFIG_R_ENDPOINT=$AWS_ENDPOINT_URL RCLONE_CONFIG_R_ENV_AUTH=true
export RCLONE_CONFIG_R_FORCE_PATH_STYLE=true
head -c "$bytes" /dev/urandom >large
mkdir small
for ((i = 0; i < objects; i++)); do head -c 1024 /dev/urandom >small/$i; done
timed() {
    local what=$1
    shift
    /usr/bin/time -f "$what: %e s, processor %U + %S s, %M KB" "$@" >/dev/null 2>time || tail -5 time
    tail -1 time
}
for ((round = 1; round <= rounds; round++)); do
    echo "round $round"
    timed "put, lockstep" "$lockstep" blob put large "s3://$bucket/bench/large" --threads 8
    timed "put, rclone" rclone --s3-chunk-size 16M --s3-upload-concurrency 8 copyto large "r:$bucket/bench/large.rclone"
    timed "get, lockstep" "$lockstep" blob get "s3://$bucket/bench/large" large.lockstep --threads 8
    timed "get, rclone" rclone --multi-thread-streams 8 --multi-thread-cutoff 32M copyto "r:$bucket/bench/large.rclone" large.rclone
    cmp large large.lockstep && cmp large large.rclone && rm large.lockstep large.rclone
    timed "small, lockstep" "$lockstep" blob put small "s3://$bucket/bench/small" --recursive --threads 32
    timed "small, rclone" rclone --transfers 32 --checkers 32 copy small "r:$bucket/bench/small.rclone"
    "$lockstep" blob rm "s3://$bucket/bench/" --recursive --threads 32
done
