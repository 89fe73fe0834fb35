# SPDX-License-Identifier: Apache-2.0
# Sourced by tests that need an S3 server: s3_start [HOST ADDRESS] begins one in ./s3 (tests/lib/s3_server.py), in a host of
# tests/lib/netns.sh if one is named, and points the environment at it.

s3_start() {
    mkdir s3
    if [ $# -eq 2 ]; then
        netns_exec "$1" python3 "$LS_SOURCE_DIR/tests/lib/s3_server.py" s3 "$2" 2>s3/log &
    else
        python3 "$LS_SOURCE_DIR/tests/lib/s3_server.py" s3 2>s3/log &
    fi
    for _ in $(seq 200); do
        [ -e s3/port ] && break
        sleep 0.05
    done
    check "the server answers" test -e s3/port
    unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY AWS_PROFILE AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE AWS_DEFAULT_REGION
    export AWS_ENDPOINT_URL=http://${2:-127.0.0.1}:$(cat s3/port) AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1
}
# faults LINE...: what the server does wrong from now on.
faults() { printf '%s\n' "$@" >s3/faults; }
