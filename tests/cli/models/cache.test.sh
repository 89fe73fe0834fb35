#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The cache of prepared data: once for all who want it at once, pinned while it is used, and the commands that look after it.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"
export LOCKSTEP_LOG=info # who makes something says so
folder=$LOCKSTEP_HOME/cache/tokens

# corpus FILE LINES SEED
corpus() {
    python3 - "$@" <<'PY'
import random, sys
random.seed(int(sys.argv[3]))
words = ["".join(random.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(random.randint(2, 9))) for _ in range(5000)]
with open(sys.argv[1], "w") as out:
    for _ in range(int(sys.argv[2])):
        out.write('{"text": "%s"}\n' % " ".join(random.choice(words) for _ in range(60)))
PY
}
mkdir -p "$folder"
"$LOCKSTEP" cache limit --keep-free 0 >/dev/null # whatever the disk of this machine is like
corpus small.jsonl 2000 1
"$LOCKSTEP" tokenize train small.jsonl -o tokenizer.json --vocab 700 >/dev/null 2>&1
made() { cat "$@" | grep -c "made the tokens of"; }

# ---- started together: made once ----

pids=()
for i in 1 2 3; do
    "$LOCKSTEP" data prepare small.jsonl --tokenizer tokenizer.json --json >"prepared.$i" 2>"prepare.$i" &
    pids+=($!)
done
for pid in "${pids[@]}"; do check "data prepare" wait "$pid"; done
same "made once" "$(made prepare.*)" 1
same "the same for all" "$(field prepared.1 hash tokens)" "$(field prepared.3 hash tokens)"

# ---- a maker that is killed, one who waits for it and one who gives up waiting ----

# Stopped by a signal, or ended.
is_stopped() { ! grep -q '^State:.[^TZX]' "/proc/$1/status" 2>/dev/null; }
# freeze_maker FILE: starts making and stops the process in the middle; its number is in $maker.
freeze_maker() {
    local size lines=40000
    for size in 1 2 4 8; do
        corpus "$1" $((lines * size)) 2
        "$LOCKSTEP" data prepare "$1" --tokenizer tokenizer.json >frozen.out 2>&1 &
        maker=$!
        until ls "$folder"/*.part >/dev/null 2>&1 || ! kill -0 $maker 2>/dev/null; do sleep 0.01; done
        kill -STOP $maker 2>/dev/null && wait_until "the maker is stopped" is_stopped $maker &&
            ls "$folder"/*.part >/dev/null 2>&1 && return 0
        kill -KILL $maker 2>/dev/null # it was too fast: make a larger file
        wait $maker 2>/dev/null
    done
    fail "no maker could be stopped"
}
freeze_maker large.jsonl
"$LOCKSTEP" cache ls --json >"$out"
same "being made" "$(json '[(e["making"], [u["pid"] for u in e["users"]]) for e in d["entries"] if e["making"]]')" "[(True, [$maker])]"
sed "s|text.txt|large.jsonl|; s|kind: bytes|file: $scratch/tokenizer.json|" tiny.yaml >large.yaml
"$LOCKSTEP" train large.yaml --run-dir gives-up >stopped.out 2>stopped.err </dev/null &
stopped=$!
"$LOCKSTEP" data prepare large.jsonl --tokenizer tokenizer.json --json >waited.out 2>waited.err &
waits=$!
wait_until "the run waits" grep -q "another process (pid $maker) is making the tokens of $scratch/large.jsonl" stopped.out stopped.err
wait_until "the command waits" grep -q "another process" waited.err
kill -TERM $stopped
wait $stopped
same "a run that waits obeys SIGTERM" $? 75
check "and says so" grep -q "stopped while the data were being prepared" stopped.err
kill -KILL $maker
wait $maker 2>/dev/null
check "the one who waited makes it" wait $waits
same "by itself" "$(made waited.err)" 1
check "nothing is left of the killed one" test -z "$(ls "$folder"/*.part 2>/dev/null)"
expect 0 "$LOCKSTEP" cache verify
prints good

# Who makes it obeys, too. (Should it be done before the signal comes, it trains, and is stopped there.)
sed "s|steps: 12|steps: 1000000|; s|warmup_steps: 2|warmup_steps: 2, steps: 1000000|" large.yaml >larger.yaml
"$LOCKSTEP" cache clear >/dev/null
check "nothing is left" test -z "$(ls "$folder"/*.part "$folder"/*.tokens 2>/dev/null)"
"$LOCKSTEP" train larger.yaml --run-dir stops >stopped.out 2>stopped.err </dev/null &
stopped=$!
is_made() { [ -n "$(ls "$folder"/*.part "$folder"/*.tokens 2>/dev/null)" ]; }
wait_until "it makes" is_made
kill -TERM $stopped
wait $stopped
same "a run that makes it obeys SIGTERM" $? 75
"$LOCKSTEP" cache clear >/dev/null
check "nothing is left of it" test -z "$(ls "$folder"/*.part "$folder"/*.tokens 2>/dev/null)"

# ---- a sweep on a new corpus: tokenised once ----

queue_up --slots 4
corpus fresh.jsonl 4000 3
sed "s|text.txt|fresh.jsonl|; s|kind: bytes|file: $scratch/tokenizer.json|" tiny.yaml >sweep.yaml
expect 0 "$LOCKSTEP" sweep sweep.yaml --set train.seed=1,2,3,4
expect 0 "$LOCKSTEP" wait 1 2 3 4
for job in 1 2 3 4; do "$LOCKSTEP" logs $job >"log.$job" 2>&1; done
same "four jobs, made once" "$(made log.*)" 1
expect 0 "$LOCKSTEP" cache ls --json
same "one entry, of this home" "$(json '[(e["what"], e["pinned"], e["believed"]) for e in d["entries"]]')" "[('tokens of $scratch/fresh.jsonl', False, True)]"

# ---- in use by a job: stays ----

sed "s|name: tiny|name: long|; s|text.txt|fresh.jsonl|; s|kind: bytes|file: $scratch/tokenizer.json|; s|steps: 12|steps: 1000000|; s|warmup_steps: 2|warmup_steps: 2, steps: 1000000|" tiny.yaml >long.yaml
expect 0 "$LOCKSTEP" submit long.yaml --ranks 2
used_by_job() { "$LOCKSTEP" cache ls --json >"$out" && [ "$(json '{u["job"] for e in d["entries"] for u in e["users"]}')" = "{5}" ]; }
wait_until "job 5 uses it" used_by_job
expect 0 "$LOCKSTEP" cache ls
prints "job 5" "tokens of $scratch/fresh.jsonl" "1 entry"
expect 0 "$LOCKSTEP" cache clear --json
same "what is used is not removed" "$(json 'd["removed"], d["in_use"]')" "0 1"
key=$(basename "$folder"/*.tokens .tokens)
expect 1 "$LOCKSTEP" cache clear "${key:0:8}"
says "in use"
expect 0 "$LOCKSTEP" cache limit --quota 1000
expect 0 "$LOCKSTEP" cache ls --json
same "not for the quota either" "$(json 'len(d["entries"]), d["quota_bytes"]')" "1 1000"
expect 0 "$LOCKSTEP" cache limit --quota auto
expect 0 "$LOCKSTEP" cancel 5
wait_until "it has ended" is_state 5 CANCELLED
not_used() { "$LOCKSTEP" cache ls --json >"$out" && [ "$(json '[e["pinned"] for e in d["entries"]]')" = "[False]" ]; }
wait_until "nobody uses it" not_used

# ---- the commands ----

expect 0 "$LOCKSTEP" cache clear --older 7d
prints "removed 0 entries"
expect 2 "$LOCKSTEP" cache clear nokey
says "no cached dataset has a key that begins with 'nokey'"
expect 2 "$LOCKSTEP" cache clear --older 7
expect 2 "$LOCKSTEP" cache limit --quota much
says "quota"
printf 'X' | dd of="$folder/$key.tokens" bs=1 seek=300 conv=notrunc 2>/dev/null
expect 3 "$LOCKSTEP" cache verify
prints "${key:0:12}" checksum
expect 3 "$LOCKSTEP" cache verify --remove --json
same "removed" "$(json '[(e["key"], e["removed"]) for e in d["entries"]]')" "[('$key', True)]"
expect 0 "$LOCKSTEP" cache ls
prints "0 entries"
expect 0 "$LOCKSTEP" cache ls --dir "$scratch/none" --json
same "no folder is an empty one" "$(json 'd["entries"]')" "[]"
expect 0 "$LOCKSTEP" data prepare small.jsonl --cache-dir "$scratch/other"
expect 0 "$LOCKSTEP" cache clear --dir "$scratch/other"
prints "removed 1 entry"
finish
