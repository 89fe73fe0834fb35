#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A large file and many small ones to Ceph's radosgw and back, by lockstep and rclone in turn:
# wall and processor seconds, peak memory. Needs rclone, GNU time and what tests/lib/radosgw.sh
# needs; memory for three times BYTES.
# Usage: bench/blob_rclone.sh [LOCKSTEP [BYTES [OBJECTS [ROUNDS]]]]
set -euo pipefail
lockstep=$(realpath "${1:-build/release/lockstep}") bytes=${2:-1073741824} objects=${3:-10000} rounds=${4:-3}
. "$(dirname "$0")/../tests/lib/radosgw.sh"
radosgw_is_there || exit 1
scratch=$(mktemp -d)
trap 'radosgw_stop "$scratch/rgw"; rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM
port=$((21000 + $$ % 9000))
export RADOSGW_BYTES=$((3 * bytes + (1 << 30)))
radosgw_start "$scratch/rgw" $port
cd "$scratch"
unset http_proxy https_proxy all_proxy AWS_PROFILE AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE AWS_CA_BUNDLE # rclone 1.60 does not start with the last
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1 LOCKSTEP_HOME=$scratch/home
export RCLONE_CONFIG_R_TYPE=s3 RCLONE_CONFIG_R_PROVIDER=Ceph RCLONE_CONFIG_R_ENDPOINT=$AWS_ENDPOINT_URL RCLONE_CONFIG_R_ENV_AUTH=true
export RCLONE_CONFIG_R_FORCE_PATH_STYLE=true RCLONE_CONFIG=$scratch/none
rclone mkdir r:bucket
export RCLONE_S3_NO_CHECK_BUCKET=true
head -c "$bytes" /dev/urandom >large
mkdir small
for ((i = 0; i < objects; i++)); do head -c 1024 /dev/urandom >small/$i; done
timed() {
    local what=$1
    shift
    /usr/bin/time -f "%e %U %S %M" "$@" >/dev/null 2>time || { cat time; exit 1; }
    tail -1 time | awk -v what="$what" '{ printf "%-28s wall %7.1f s  processor %6.2f s  memory %4d MB\n", what, $1, $2 + $3, $4 / 1024 }'
}
put_lockstep() { timed "put large, lockstep" "$lockstep" blob put large s3://bucket/a/large --threads 8; }
put_rclone() { timed "put large, rclone" rclone --s3-chunk-size 16M --s3-upload-concurrency 8 copyto large r:bucket/b/large; }
get_lockstep() { timed "get large, lockstep" "$lockstep" blob get s3://bucket/a/large large.a --threads 8; }
get_rclone() { timed "get large, rclone" rclone --multi-thread-streams 8 --multi-thread-cutoff 32M copyto r:bucket/b/large large.b; }
put_small_lockstep() { timed "put small, lockstep" "$lockstep" blob put small s3://bucket/a/small --recursive --threads 32; }
put_small_rclone() { timed "put small, rclone" rclone --transfers 32 --checkers 32 copy small r:bucket/b/small; }
get_small_lockstep() { timed "get small, lockstep" "$lockstep" blob get s3://bucket/a/small small.a --recursive --threads 32; }
get_small_rclone() { timed "get small, rclone" rclone --transfers 32 --checkers 32 copy r:bucket/b/small small.b; }
for ((round = 1; round <= rounds; round++)); do
    echo "round $round, load $(cut -d ' ' -f 1 /proc/loadavg)"
    order="lockstep rclone"
    ((round % 2)) || order="rclone lockstep"
    for what in put get put_small get_small; do
        for who in $order; do ${what}_$who; done
    done
    cmp large large.a && cmp large large.b && diff -r small small.a && diff -r small small.b
    rm -r large.a large.b small.a small.b
    "$lockstep" blob rm s3://bucket/ --recursive --threads 32 >/dev/null
    timeout 120 radosgw-admin gc process --include-all >/dev/null 2>&1 || true # it frees removed objects after hours
done
