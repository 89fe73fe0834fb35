#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What checkpoint.mirror costs, and how fast it brings a run back: a run with a checkpoint every
# few steps, without and with a mirror on radosgw on this machine, in turn; then the newest
# checkpoint is fetched into an empty directory.
# Usage: bench/mirror.sh [LOCKSTEP [ROUNDS [STEPS]]]     build/release/lockstep, 5 rounds, 60 steps
# Prints, for each round, the mean time of a step with the mirror over that without, and the share
# of all steps' time in which they waited for checkpoints; at the end the time of the whole
# restoring command, and of rclone's copy of the same bytes.
set -eu
cd "$(dirname "$0")/.."
. tests/lib/radosgw.sh
radosgw_is_there || exit 77
lockstep=$(realpath "${1:-build/release/lockstep}") rounds=${2:-5} steps=${3:-60}
work=$(mktemp -d)
trap 'radosgw_stop "$work/rgw"; rm -rf "$work"' EXIT
port=$((23000 + $$ % 7000))
radosgw_start "$work/rgw" $port || { tail -3 "$work/rgw/log/start" >&2; exit 1; }
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=AKIDTEST AWS_SECRET_ACCESS_KEY=secret/+test AWS_REGION=us-east-1
export LOCKSTEP_HOME=$work/home LOCKSTEP_REGISTRY=off
cd "$work"
nothing=e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
curl -sf -X PUT --aws-sigv4 aws:amz:us-east-1:s3 -u AKIDTEST:secret/+test -H "x-amz-content-sha256: $nothing" "$AWS_ENDPOINT_URL/bucket"
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
    "$lockstep" train run.yaml --run-dir "$1" --json "${@:2}" >"$1.json" 2>"$1.err" || { tail -3 "$1.err" >&2; exit 1; }
}
echo "load $(cut -d' ' -f1-3 /proc/loadavg), $(nproc) cores"
for round in $(seq "$rounds"); do
    train "plain$round"
    train "with$round" --set checkpoint.mirror=s3://bucket/run$round
    paste -d' ' <(means "plain$round") <(means "with$round") |
        awk -v r="$round" '{ printf "round %s: step %.4f s, with the mirror %.4f s: %.3f; waiting for checkpoints %.2f %%, with it %.2f %%\n", r, $1, $3, $3 / $1, $2, $4 }'
done
begin=$(date +%s.%N)
train restored --set checkpoint.mirror=s3://bucket/run1
end=$(date +%s.%N)
bytes=$(du -sb "restored/checkpoints/$steps" | cut -f1)
awk -v s="$(echo "$end $begin" | awk '{ print $1 - $2 }')" -v b="$bytes" 'BEGIN { printf "restored %.1f MB in %.2f s, the whole command\n", b / 1e6, s }'
if command -v rclone >/dev/null; then
    begin=$(date +%s.%N)
    rclone copy --s3-provider Ceph --s3-endpoint "$AWS_ENDPOINT_URL" --s3-env-auth ":s3:bucket/run1/$steps" copied
    awk -v s="$(echo "$(date +%s.%N) $begin" | awk '{ print $1 - $2 }')" 'BEGIN { printf "rclone copies the same in %.2f s\n", s }'
fi
