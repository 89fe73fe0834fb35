#!/usr/bin/env bash
# bench allreduce: the fields others rely on, checked sums, and what it refuses. No time is judged.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
mkdir -p here
export TMPDIR=$scratch/here
expect 0 "$LOCKSTEP" bench allreduce --ranks 3 --bytes 4,1KiB,300004 --rounds 1 --json
checks=$((checks + 1))
python3 - "$out" <<'P' || fail "the rows lack a promised field: $(head -c 1000 "$out")"
import json, sys
document = json.load(open(sys.argv[1]))
assert document["name"] == "allreduce" and document["machine"]
rows = document["results"]
assert [row["bytes"] for row in rows] == [4, 1024, 300004]
for row in rows:
    assert row["ranks"] == 3 and row["transport"] == "shm" and row["order"] == "tree"
    assert 0 < row["best_us"] <= row["median_us"] and row["copy_limit_us"] > 0 and row["limit_fraction"] > 0
P
# One size is a table like many, and its bytes are a whole number; one rank has nothing to compare with copies.
expect 0 "$LOCKSTEP" bench allreduce --ranks 1 --bytes 1MiB --rounds 1
prints "copy_limit_us" " 1048576 "
check "one rank has no limit_fraction" eval '! grep -q limit_fraction "$out"'
expect 0 "$LOCKSTEP" bench allreduce --ranks 3 --bytes 4,300004 --rounds 1 --transport tcp --order any
for wrong in "--ranks 0" "--ranks 65" "--bytes 10" "--bytes 0" "--bytes 1KiB,x" "--transport carrier-pigeon" "--order alphabetical" "--bytes ,"; do
    expect 2 "$LOCKSTEP" bench allreduce $wrong
done
checks=$((checks + 1))
[ -z "$(ls here)" ] || fail "left behind: $(ls here)"
finish
