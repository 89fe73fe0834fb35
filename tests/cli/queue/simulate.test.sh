#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# simulate: small traces of every format, clusters, the files it writes, and bad input.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

cat >own.csv <<'CSV'
job,submit_s,duration_s,gpus,min_gpus,max_gpus,account,priority
big,0,4000,8,,,vision,
"a, ""quoted"" one",100,600,4,,,speech,high
elastic,200,3000,2,1,8,speech,
late,300,60,1,,,vision,low
CSV
cat >philly.csv <<'CSV'
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,a
2017-10-09 06:13:03,2951.0,8,23608.0,b
2017-10-09 06:13:03,0.0,8,0.0,b
CSV
cat >cluster.yaml <<'YAML'
nodes:
  - {names: "h[0-1]", gpus: 4, kind: h100, nodes_per_leaf: 1}
  - {names: s0, gpus: 4, kind: a100, spot: true}
YAML

# numbers FILE EXPRESSION: a python expression over the JSON `d` is true.
numbers() {
    checks=$((checks + 1))
    python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(0 if eval("(" + sys.argv[2] + ")") else 1)' "$1" "$2" ||
        { fail "$2 is not so in:"; cat "$1"; }
}

for policy in fair las fifo fifo-skip easy sjf-oracle; do
    expect 0 "$LOCKSTEP" simulate own.csv --cluster 2x4 --policy $policy --json
    numbers "$out" "d['jobs'] == 4 and d['policy'] == '$policy' and d['avg_jct_h'] > 0 and d['makespan_h'] > 0 and 0 < d['utilization'] <= 1
        and {'avg_wait_h', 'p99_wait_h', 'preemptions', 'wall_s', 'allocated_when_short', 'lost_gpu_h', 'by_size', 'by_account'} <= set(d)"
done
for policy in fifo fifo-skip easy sjf-oracle small-first; do
    expect 0 "$LOCKSTEP" simulate own.csv --cluster 2x4 --policy $policy --pooled --json
    numbers "$out" "d['pooled'] and d['preemptions'] == 0 and d['jobs'] == 4"
done
expect 0 "$LOCKSTEP" simulate philly.csv --cluster cluster.yaml --json
# Jobs do not use spot nodes unless they allow it: the small one waits 19 s for the 8 other GPUs.
numbers "$out" "d['format'] == 'philly' and d['gpus'] == 12 and d['jobs'] == 2 and d['left_out'] == 1 and abs(d['makespan_h'] - 3017 / 3600) < 1e-9"
expect 0 "$LOCKSTEP" simulate own.csv --cluster 2x4 --restart-cost 0s --tune.min-run 0s --tune.las-hours 0.5
prints "average JCT" "fairness" "vision" "simulated in"

expect 0 "$LOCKSTEP" simulate own.csv --cluster 2x4 --jobs jobs.csv --html page.html
checks=$((checks + 1))
python3 - <<'PY' || fail "jobs.csv or page.html is not as it should be"
import csv, re, sys
import xml.etree.ElementTree as tree
rows = {row["job"]: row for row in csv.DictReader(open("jobs.csv"))}
assert len(rows) == 4 and 'a, "quoted" one' in rows, rows.keys()
for row in rows.values():
    assert row["state"] == "ended"
    assert abs(float(row["end_s"]) - float(row["submit_s"]) - float(row["jct_s"])) < 1e-6
    assert float(row["wait_s"]) >= 0 and float(row["start_s"]) >= float(row["submit_s"])
page = open("page.html", encoding="utf-8").read()
pictures = re.findall(r"<svg.*?</svg>", page, re.S)
assert len(pictures) == 10, len(pictures)
for picture in pictures:
    root = tree.fromstring(picture)
    wide = float(root.get("viewBox").split()[2])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        assert not re.search(r"\b(nan|inf)\b", "".join(text.itertext()), re.I)
        assert -1 <= float(text.get("x")) <= wide + 1, "".join(text.itertext())
assert not re.search(r'(src|href)="(?!data:)|url\(|@import|<script', page)
assert "prefers-color-scheme" in page and 'name="viewport"' in page
PY

# The same trace twice: the same answer, except for the time it took.
"$LOCKSTEP" simulate own.csv --cluster 2x4 --jobs one.csv >/dev/null
"$LOCKSTEP" simulate own.csv --cluster 2x4 --jobs two.csv >/dev/null
same "two runs" "$(cat one.csv)" "$(cat two.csv)"

expect 2 "$LOCKSTEP" simulate own.csv
says "missing --cluster"
expect 2 "$LOCKSTEP" simulate own.csv --cluster 8x
expect 2 "$LOCKSTEP" simulate own.csv --cluster 8x65
says "1 to 64 GPUs"
expect 2 "$LOCKSTEP" simulate missing.csv --cluster 2x4
expect 2 "$LOCKSTEP" simulate own.csv --cluster 2x4 --policy best
says "fair" "las"
expect 2 "$LOCKSTEP" simulate own.csv --cluster 2x4 --policy fair --pooled
says "small-first"
expect 2 "$LOCKSTEP" simulate own.csv --cluster 2x4 --tune.las-hours 5 --tune.las-hours 4
says "greater than the one before"
expect 3 "$LOCKSTEP" simulate own.csv --cluster 2x4 --format philly
says "must have a column 'timestamp'"
# Jobs that can never run are refused by name; it is an error when all are.
printf 'submit_s,duration_s,gpus\n0,10,9\n5,10,16\n' >large.csv
expect 2 "$LOCKSTEP" simulate large.csv --cluster 1x8
says "cannot run any of the 2 jobs of large.csv" "job 1: this job can never run here: it needs 9 devices, and there are only 8 that it may use"
expect 2 "$LOCKSTEP" simulate large.csv --cluster 1x8 --policy fifo --pooled
says "cannot run any of the 2 jobs of large.csv" "job 1: it needs 9"
expect 0 "$LOCKSTEP" simulate large.csv --cluster 1x12
prints "1 job on 12 GPUs" "1 job was refused; the first: job 2: this job can never run here: it needs 16 devices" "never asked for more than was free"
expect 0 "$LOCKSTEP" simulate large.csv --cluster 1x12 --json
numbers "$out" "d['refused'] == 1 and 'needs 16' in d['refused_why']"
printf 'submit_s,duration_s,gpus,kind\n0,10,9,b200\n' >large.csv
expect 2 "$LOCKSTEP" simulate large.csv --cluster cluster.yaml
says "this cluster has no devices of kind 'b200'"
printf 'submit_s,duration_s,gpus\n' >bad.csv
expect 3 "$LOCKSTEP" simulate bad.csv --cluster 2x4
says "bad.csv has no job"
printf 'submit_s,duration_s,gpus\n0,1e300,1\n' >bad.csv
expect 3 "$LOCKSTEP" simulate bad.csv --cluster 2x4
says "bad.csv:2: duration_s"
printf 'submit_s,duration_s,gpus\n0,10,1\n5,x,1\n' >bad.csv
expect 3 "$LOCKSTEP" simulate bad.csv --cluster 2x4
says "bad.csv:3: duration_s"
printf 'a,b\n1,2\n' >bad.csv
expect 3 "$LOCKSTEP" simulate bad.csv --cluster 2x4
says "do not match any known format"
printf 'nodes:\n  - {names: "n[0-1]", gpus: 99}\n' >bad.yaml
expect 2 "$LOCKSTEP" simulate own.csv --cluster bad.yaml
says "bad.yaml:2"
finish
