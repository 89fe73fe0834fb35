#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What checkpoint.mirror costs, and how fast it brings a run back: a run with a checkpoint every
# few steps, without and with a mirror on radosgw on this machine, in turn; then a checkpoint of
# 0.5 GB is fetched into an empty directory over a link of RATE, between two network namespaces.
# Usage: bench/mirror.sh [LOCKSTEP [ROUNDS [STEPS [RATE]]]]     build/release/lockstep, 5 rounds (0:
# only the second part), 60 steps, 400 Mbit/s. Needs root, or user namespaces.
# Prints, for each round, the mean time of a step with the mirror over that without, and the share
# of all steps' time in which they waited for checkpoints; at the end the time until the checkpoint
# is there and checked, of the whole restoring command, and of rclone's copy of the same bytes, as
# shares of what the link can carry (95.7 % of it: the rest are headers).
set -eu
cd "$(dirname "$0")/.."
. tests/lib/radosgw.sh
. tests/lib/netns.sh
radosgw_is_there || exit 77
netns_as_root "$0" "$@"
lockstep=$(realpath "${1:-build/release/lockstep}") rounds=${2:-5} steps=${3:-60} rate=${4:-400}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
netns_begin 2
port=$((23000 + $$ % 7000))
export RADOSGW_ADDRESS=10.77.0.1 RADOSGW_BYTES=3221225472
netns_run 0 bash -c '. "$0" && radosgw_start "$1" "$2"' "$PWD/tests/lib/radosgw.sh" "$work/rgw" $port || { tail -3 "$work/rgw/log/start" >&2; exit 1; }
export AWS_ENDPOINT_URL=http://$RADOSGW_ADDRESS:$port AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1
export LOCKSTEP_HOME=$work/home LOCKSTEP_REGISTRY=off
unset http_proxy https_proxy all_proxy AWS_CA_BUNDLE # rclone 1.60 does not start with the last
cd "$work"
nothing=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
netns_run 1 curl -sf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u AKIDTEST:secret/+test -H "x-amz-content-sha256: $nothing" "$AWS_ENDPOINT_URL/bucket"
python3 -c '
import random
random.seed(1)
open("text.txt", "w").write(" ".join(random.choice("the cat sat on a mat and ran".split()) for _ in range(200000)))'
cat >run.yaml <<YAML
name: mirror
model: {layers: 4, heads: 4, width: 256, context: 256}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0}
train: {steps: $steps, global_batch: 16, micro_batch: 4}
checkpoint: {every_steps: 10}
eval: {every_steps: 0}
sample: {every_steps: 0}
YAML
means() { # means RUN: seconds of a step after the first, and the share of all time between steps
    python3 - "$1" <<'PY'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
summary = json.load(open(sys.argv[1] + ".json"))
steps = [row["step_s"] for row in rows[1:]]
print(sum(steps) / len(steps), 100 * summary["checkpoint_stall_s"] / sum(row["step_s"] for row in rows))
PY
}
train() { # train RUN OPTION...
    netns_run 1 "$lockstep" train run.yaml --run-dir "$1" --json "${@:2}" >"$1.json" 2>"$1.err" || { tail -3 "$1.err" >&2; exit 1; }
}
echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores"
for round in $(seq "$rounds"); do
    train "plain$round"
    train "with$round" --set checkpoint.mirror=s3://bucket/run$round
    paste -d' ' <(means "plain$round") <(means "with$round") |
        awk -v r="$round" '{ printf "round %s: step %.4f s, with the mirror %.4f s: %.3f; waiting for checkpoints %.2f %%, with it %.2f %%\n", r, $1, $3, $3 / $1, $2, $4 }'
done
big="model.layers=6 model.width=768 model.heads=12 model.context=64 train.steps=2 train.global_batch=1 train.micro_batch=1 checkpoint.mirror=s3://bucket/big"
train big $(printf -- '--set %s ' $big)
bytes=$(du -sb big/checkpoints/2 | cut -f1)
told() { # told WHAT BEGIN: the time since then, and the share of the link that it used
    awk -v what="$1" -v s="$(echo "$(date +%s.%N) $2" | awk '{ print $1 - $2 }')" -v b="$bytes" -v rate="$rate" \
        'BEGIN { printf "%s: %.1f MB in %.2f s, %.1f %% of %s Mbit/s\n", what, b / 1e6, s, 100 * b / s / (rate * 1e6 / 8 * 0.957), rate }'
}
netns_rate 0 "${rate}mbit"
begin=$(date +%s.%N)
train restored $(printf -- '--set %s ' $big) &
until [ -d restored/checkpoints/2 ] || ! kill -0 $! 2>/dev/null; do sleep 0.05; done
told "fetched and checked" "$begin"
wait $!
told "the whole command" "$begin"
if command -v rclone >/dev/null; then
    begin=$(date +%s.%N)
    netns_run 1 rclone copy --s3-provider Ceph --s3-endpoint "$AWS_ENDPOINT_URL" --s3-env-auth ":s3:bucket/big/2" copied
    told "rclone copies the same" "$begin"
fi
