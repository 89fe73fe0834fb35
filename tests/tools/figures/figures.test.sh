#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pictures of the guide are what the commands in the guide make, and wrong numbers are refused with 2.
set -eu
figures=$LS_BUILD_DIR/lockstep-figures
guide=$LS_SOURCE_DIR/docs/guide
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

same() { # same FILE ARGUMENTS...
    local file=$1
    shift
    "$figures" "$@" > "$out/$file"
    cmp "$out/$file" "$guide/$file" || { echo "docs/guide/$file: make it again with: lockstep-figures $*"; exit 1; }
}
same step.svg step --leaves 12 --sequences 4
same step-three-ranks.svg step --leaves 12 --sequences 4 --ranks 3
same schedules.svg schedules
same audit.svg audit --leaves 6
line=$(sed -n '/^```progress$/{n;p}' "$guide/02-the-progress-line.md")
same progress.svg progress --line "$line"
same ranks.svg ranks --leaves 12 --ranks 4
same ranks-two-hosts.svg ranks --leaves 12 --ranks 4 --hosts 2
same ring.svg ring --ranks 4
same report.svg report --ranks 4
same split.svg split
same bubble.svg bubble
same takeover.svg takeover "$guide/takeover.jsonl"
same stages.svg stages "$guide/stages.json"
same links.svg links
same queue.svg queue "$guide/queue.jsonl"

# -o writes the same bytes.
"$figures" step --leaves 12 --sequences 4 -o "$out/file.svg"
cmp "$out/file.svg" "$guide/step.svg"

# The chapters name every picture, and every picture has a chapter.
for picture in "$guide"/*.svg; do
    grep -q "src=\"$(basename "$picture")\"" "$guide"/*.md || { echo "no chapter shows $(basename "$picture")"; exit 1; }
done

refused() { # refused TEXT ARGUMENTS...
    local want=$1 code=0
    shift
    "$figures" "$@" > "$out/stdout" 2> "$out/stderr" || code=$?
    [ "$code" = 2 ] && [ ! -s "$out/stdout" ] && grep -q -- "$want" "$out/stderr" ||
        { echo "$*: exit code $code, $(cat "$out/stderr")"; exit 1; }
}
refused "is not a figure" staircase
echo '{"time":1,"event":"ended"}' > "$out/quiet.jsonl"
refused "needs a run directory" takeover
refused "neither a run directory nor" takeover nowhere
refused "no rank was lost" takeover "$out/quiet.jsonl"
refused "needs a trace" stages
echo '{"traceEvents": []}' > "$out/empty.json"
refused "the trace has no leaf of a run with 2 to 6 stages" stages "$out/empty.json"
refused "needs a file of events" queue
refused "not a file of events" queue nowhere
refused "no job started" queue "$out/quiet.jsonl"
refused "takes no file" ring somewhere
refused "2 ranks to the number of leaves" audit --leaves 2 --ranks 3
refused "1 to the number of leaves, 2" step --leaves 2 --ranks 3
refused "does not divide" step --sequences 4 --micro-batch 3
refused "allowed is" step --leaves 17
refused "ranks in a ring can't be drawn, allowed is 2 to 4" ring
refused "shared by 2 hosts" ranks --ranks 3 --hosts 2
refused "1 to the number of leaves, 2" ranks --leaves 2 --ranks 4
refused "allowed is 3 to 6" report --ranks 7
refused "split over can't be drawn, allowed is 2 to 4" split --ranks 5
refused "stages of a pipeline can't be drawn, allowed is 2 to 6" bubble --ranks 7
refused "micro-batches can't be drawn, allowed is 2 to 12" bubble --micro-batches 13
refused "needs a line" progress
refused "not a progress line" progress --line "hello"

# Extremes are still whole figures.
for arguments in "step --leaves 1 --sequences 1" "step --leaves 16 --ranks 16 --sequences 8 --micro-batch 1" \
                 "schedules --steps 2 --warmup-steps 0" "schedules --steps 1000000 --warmup-steps 1000000" \
                 "ranks --ranks 1 --leaves 1" "ranks --ranks 6 --hosts 3" "ring --ranks 2" "split --ranks 2" "bubble --ranks 2 --micro-batches 2" "bubble --ranks 6 --micro-batches 12" "report --ranks 3" "report --ranks 6"; do
    "$figures" $arguments > "$out/extreme.svg"
    tail -1 "$out/extreme.svg" | grep -q '^</svg>$'
    ! grep -qi 'nan\|inf' "$out/extreme.svg"
done
