#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The same bits for any number of ranks, with uneven leaves too, in pieces of other rank counts, with evaluations, samples and
# checkpoints in between. Impossible rank counts are refused, with the possible ones. What a rank count costs is printed.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

# 5 leaves: uneven for 2, 3 and 4 ranks.
train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=10 --set train.leaves=5 --set train.steps=12)

# run NAME ARGUMENT...: trains in a new folder and leaves state and curve hash in $got.
run() {
    local name=$1
    shift
    got=
    expect 0 "${train[@]}" --run-dir "$name" "$@" && got=$(hashes "$out")
}

run one --ranks 1 --threads 1
reference=$got
for ranks in 2 3 4 5; do
    run "ranks-$ranks" --ranks "$ranks"
    same "$ranks ranks" "$got" "$reference"
    same "$ranks ranks: status and step" "$(field "$out" status step)" "finished 12"
    check "$ranks ranks: a start of each" python3 - "ranks-$ranks" "$ranks" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
started = [e for e in events if e["event"] == "rank_started"]
if sorted(e["rank"] for e in started) != list(range(int(sys.argv[2]))) or len({e["pid"] for e in started}) != len(started):
    sys.exit(f"rank_started events: {started}")
steps = [json.loads(line)["step"] for line in open(sys.argv[1] + "/metrics.jsonl")]
if steps != list(range(1, 13)):
    sys.exit(f"steps in the metrics: {steps}")
PY
done
same "curve" "$(cut -d, -f1-4 ranks-3/metrics.jsonl | md5sum)" "$(cut -d, -f1-4 one/metrics.jsonl | md5sum)"

run threads --ranks 2 --threads 3
same "2 ranks of 3 threads" "$got" "$reference"
run between --ranks 3 --set eval.every_steps=1 --set checkpoint.every_steps=3 --set sample.every_steps=2 --set sample.max_tokens=8
same "3 ranks, evaluations, checkpoints and samples in between" "$got" "$reference"
run seed --ranks 2 --set train.seed=8
differs "another seed" "$got" "$reference"
run file --set parallel.ranks=2
same "parallel.ranks" "$got" "$reference"
same "parallel.ranks: ranks" "$(grep -c rank_started file/events.jsonl)" 2
run data --set parallel.data=3
same "parallel.data" "$got" "$reference"
same "parallel.data: ranks" "$(grep -c rank_started data/events.jsonl)" 3

# A run continues with any other rank count, and a finished one starts no rank.
expect 0 "${train[@]}" --run-dir pieces --ranks 2 --steps 1
expect 0 "${train[@]}" --run-dir pieces --ranks 5 --steps 4
same "step" "$(field "$out" step)" 4
expect 0 "${train[@]}" --run-dir pieces --ranks 1 --steps 7
expect 0 "${train[@]}" --run-dir pieces --ranks 3
same "in pieces of 2, 5, 1 and 3 ranks" "$(hashes "$out")" "$reference"
expect 0 "${train[@]}" --run-dir pieces --ranks 4
same "a finished run" "$(hashes "$out")" "$reference"
same "a finished run starts nobody" "$(grep -c rank_started pieces/events.jsonl)" 11
expect 0 "${train[@]}" --run-dir pieces --ranks 2 --fresh --steps 2
check "the old run was moved aside" test -f pieces.old-1/checkpoints/12/MANIFEST.json

# A tokenizer that is trained, and a model that starts from another run.
trained=(--set tokenizer.kind=train --set tokenizer.vocab=300 --set train.steps=3)
run trained-1 "${trained[@]}" --ranks 1
one=$got
run trained-3 "${trained[@]}" --ranks 3
same "a trained tokenizer" "$got" "$one"
from=(--set model.from=one/checkpoints/12 --set train.steps=3)
for key in family layers heads kv_heads width ffn context; do from+=(--set "model.$key=auto"); done
run from-1 "${from[@]}" --set model.context=32 --ranks 1
one=$got
run from-3 "${from[@]}" --set model.context=32 --ranks 3
same "model.from" "$got" "$one"

# Impossible numbers.
expect 2 "${train[@]}" --run-dir none --ranks 6
says "is 6" "5 shares" "at most 5 ranks"
expect 2 "${train[@]}" --run-dir none --ranks 0
says ranks "is 0"
expect 2 "${train[@]}" --run-dir none --ranks two
says ranks two
expect 2 "${train[@]}" --run-dir none --set parallel.data=6
says parallel.data "is 6" "use at most 5"
expect 2 "${train[@]}" --run-dir none --ranks 2 --set parallel.data=3
says parallel.data "is 3" "is 2"
check "nothing was created" test ! -e none
expect 2 "${train[@]}" --run-dir none --ranks 2 --set parallel.tensor=2
says parallel.tensor "is 2"

# What leaves cost at a rank count.
expect 0 "${train[@]}" --dry-run --ranks 3
check "the cost of 3 ranks" python3 - "$out" <<'PY'
import json, sys
cost = json.load(open(sys.argv[1]))["leaves_cost"]
if (cost["ranks"], cost["leaves_min"], cost["leaves_max"]) != (3, 1, 2) or abs(cost["imbalance"] - 2 * 3 / 5) > 1e-9:
    sys.exit(f"{cost}")
if not 0 < cost["gradient_bytes"] < cost["host_bytes"]:
    sys.exit(f"{cost}")
PY
expect 0 "$LOCKSTEP" train tiny.yaml --dry-run --ranks 2
prints "imbalance" "memory/rank" "in each of 2 ranks"

# `rank` is not a command for people.
expect 2 "$LOCKSTEP" rank
says "train CONFIG --ranks"
expect 0 "$LOCKSTEP" help --all
checks=$((checks + 1))
! grep -q '^  rank ' "$out" || fail "the list of commands has rank"
finish
