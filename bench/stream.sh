#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What streaming a token set costs a run: the share of a step that waits for data, with tokens on this machine and from radosgw through a relay that
# limits the rate, delays requests and lets some fail; and how soon the first batch is there, for a small set and a large one, with an empty cache.
#
#   bench/stream.sh [--rounds 3] [--steps 40] [--context 2048] [--rate-times 2] [--millions 100]
#
# The rate is --rate-times what the run consumes: 2 bytes per token of a step, over the step's time with local tokens. Blocks, checks and headers
# of HTTP come on top of that. The first ten steps of each run are left out. The set has --millions of tokens. Cases are run in turn.
# The binary: LOCKSTEP, default build/release/lockstep. Needs radosgw (tests/lib/radosgw.sh) and Python.
set -u
cd "$(dirname "$0")/.."
. tests/lib/radosgw.sh
radosgw_is_there || exit 1
rounds=3 steps=40 context=2048 times=2 millions=100
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2; shift 2 ;;
    --steps) steps=$2; shift 2 ;;
    --context) context=$2; shift 2 ;;
    --rate-times) times=$2; shift 2 ;;
    --millions) millions=$2; shift 2 ;;
    *) sed -n '3,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
program=$(realpath "${LOCKSTEP:-build/release/lockstep}")
relay_program=$(realpath bench/stream_relay.py)
work=$(mktemp -d) relay=
end() {
    [ -z "$relay" ] || kill "$relay" 2>/dev/null
    radosgw_stop "$work/rgw"
    rm -rf "$work"
}
trap end EXIT
trap 'exit 1' INT TERM
port=$((21000 + $$ % 9000))
radosgw_start "$work/rgw" $port || { tail -3 "$work/rgw/log/start" >&2; exit 1; }
cd "$work"
unset http_proxy https_proxy all_proxy AWS_PROFILE AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1 LOCKSTEP_HOME=$work/home
empty=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
curl -sf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u AKIDTEST:secret/+test -H "x-amz-content-sha256: $empty" "$AWS_ENDPOINT_URL/bucket"
python3 - "$millions" <<'PY'
import random, sys
random.seed(7)
block = bytes(b for _ in range(1 << 20) for b in (random.randrange(256), 0))
with open("large.bin", "wb") as file:
    left = int(float(sys.argv[1]) * 1e6)
    while left > 0:
        at = 2 * random.randrange(1 << 19)
        part = block[at : at + 2 * min(left, 1 << 19)]
        file.write(part)
        left -= len(part) // 2
open("small.bin", "wb").write(block)
PY
for size in small large; do
    "$program" data prepare $size.bin --tokenizer bytes --to s3://bucket/$size >/dev/null 2>prepare.log || { cat prepare.log >&2; exit 1; }
done
echo "0 0 0" >control
python3 "$relay_program" $port relay.port control >relay.out &
relay=$!
while [ ! -e relay.port ]; do sleep 0.05; done
export AWS_ENDPOINT_URL=http://127.0.0.1:$(cat relay.port)
# run NAME DATA: one run with an empty cache; its metrics in NAME.jsonl
run() {
    rm -rf home dir
    cat >run.yaml <<YAML
name: stream
model: {family: llama, layers: 1, heads: 2, kv_heads: 2, width: 64, ffn: 128, context: $context}
tokenizer: {kind: bytes}
data: {train: [$2], validation_fraction: 0}
train: {steps: $steps, global_batch: 8, micro_batch: 1, leaves: 4, optimizer: {lr: 1.0e-3}}
eval: {every_steps: 0}
sample: {every_steps: 0}
checkpoint: {every_steps: 0}
YAML
    "$program" train run.yaml --run-dir dir --json >"$1.out" 2>"$1.err" || { tail -3 "$1.err" >&2; exit 1; }
    cp dir/metrics.jsonl "$1.jsonl"
}
# figures NAME RATE CONTEXT: median step in ms, share of the steps that waited for data in %, data of the first step in ms, how many times what the
# steps consumed the rate was, curve hash
figures() {
    python3 - "$@" <<'PY'
import json, statistics, sys
name, rate, context = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
steps = [m for m in map(json.loads, open(name + ".jsonl")) if "data_s" in m]
rest = steps[10:]
seconds = sum(m["step_s"] for m in rest)
needed = 2 * 8 * (context + 1) * len(rest) / seconds
print("%.1f %.2f %.0f %s %s" % (1e3 * statistics.median(m["step_s"] for m in rest), 100 * sum(m["data_s"] for m in rest) / seconds,
                            1e3 * steps[0]["data_s"], "%.2f" % (rate / needed) if rate else "-", json.load(open(name + ".out"))["curve_hash"][:12]))
PY
}
table='%-28s %8s %14s %16s %13s   %s\n'
printf "$table" case "step ms" "input wait %" "first batch ms" "rate/needed" curve
for round in $(seq "$rounds"); do
    echo "0 0 0" >control
    run local "$work/large.bin"
    read -r ms wait first got curve < <(figures local 0 "$context")
    printf "$table" local "$ms" "$wait" "$first" "$got" "$curve"
    rate=$(awk "BEGIN { printf \"%d\", $times * 2 * 8 * ($context + 1) / ($ms / 1000) }")
    for case in "any rate:0 0 0" "${times}x rate:$rate 0 0" "${times}x rate, 50 ms, 1 % fail:$rate 0.05 0.01" "any rate, small set:0 0 0"; do
        data=s3://bucket/large
        [ "${case%%:*}" = "any rate, small set" ] && data=s3://bucket/small
        echo "${case#*:}" >control
        run streamed $data
        limit=${case#*:}
        read -r ms wait first got curve < <(figures streamed "${limit%% *}" "$context")
        printf "$table" "${case%%:*}" "$ms" "$wait" "$first" "$got" "$curve"
    done
done
