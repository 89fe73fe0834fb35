#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Local steps (train.local): one result for any ranks and threads, through losses of ranks and of the run in the middle of a round.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
write_text text.txt 400 5
write_run tiny.yaml
local_steps=(--set train.leaves=12 --set train.local.steps=4 --set train.local.workers=3 --set train.threads=1)
run() { local dir=$1; shift; expect 0 timeout 60 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --run-dir "$dir" --json "$@"; }

# ---- one result ----
run one
alone=$(hashes "$out")
for ranks in 2 3 4; do
    run "ranks-$ranks" --ranks "$ranks" --threads $((ranks % 3 + 1))
    same "$ranks ranks" "$alone" "$(hashes "$out")"
done
expect 0 "$LOCKSTEP" state-hash one
same "the hash of the checkpoint" "${alone%% *}" "$(tr -d '\n' <"$out")"
expect 0 "$LOCKSTEP" checkpoint verify one
expect 0 "$LOCKSTEP" export one -o hf
check "the model alone is exported" [ ! -e hf/state.safetensors ]
expect 0 grep -c outer_step one/events.jsonl
same "outer steps" 3 "$(cat "$out")"

# ---- in the middle of a round: stopped, a rank lost in turns of workers and in the outer step, the run killed ----
run parts --ranks 3 --steps 5
run parts --ranks 2 --steps 7
run parts
same "stopped after steps 5 and 7" "$alone" "$(hashes "$out")"
for fault in step=6,at=leaf step=9,at=block step=13,at=sum step=13,at=block step=14,at=block step=15,at=end; do
    LS_TEST_FAULT=do=die,rank=1,$fault run "fault-$fault" --ranks 3
    same "rank lost at $fault" "$alone" "$(hashes "$out")"
    same "recoveries at $fault" 1 "$(python3 -c 'import json, sys; print(len(json.load(open(sys.argv[1]))["recoveries"]))' "$out")"
done
LS_TEST_FAULT=do=delay,rank=0,ms=50,step=1 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --set checkpoint.every_steps=1 --run-dir killed --ranks 2 >/dev/null 2>&1 &
victim=$!
for try in $(seq 400); do [ -e killed/checkpoints/6 ] && break; sleep 0.02; done
kill -9 "$victim"
wait "$victim" 2>/dev/null
check "the run was killed in its second round" [ ! -e killed/checkpoints/8 ]
run killed --set checkpoint.every_steps=1 --ranks 4
same "killed and continued" "$alone" "$(hashes "$out")"

# ---- what it means: with one worker, lr 1 and no momentum, steps are those of a run without local steps ----
dense=(--set train.local.workers=1 --set train.local.outer_lr=1 --set train.local.outer_momentum=0)
expect 0 "$LOCKSTEP" train tiny.yaml --set train.leaves=12 --run-dir dense --json
loss=$(field "$out" loss)
run single "${dense[@]}" --set train.local.steps=1
check "one worker is a run without local steps: $loss" python3 -c 'import sys; a, b = map(float, sys.argv[1:]); sys.exit(abs(a - b) > 1e-5)' "$loss" "$(field "$out" loss)"
run reset --set train.local.moments=reset
differs "moments: reset" "$alone" "$(hashes "$out")"
run bits --set train.local.bits=4
differs "bits: 4" "$alone" "$(hashes "$out")"
packed=$(hashes "$out")
run bits-3 --set train.local.bits=4 --ranks 3
same "4 bits on three ranks" "$packed" "$(hashes "$out")"

# ---- a delay: the outer gradient is state from when it is made to when it is applied, here after steps 2 and 4, 6 and 8, 10 and 12 ----
late=(--set train.local.delay=2)
run late "${late[@]}"
differs "delay: 2" "$alone" "$(hashes "$out")"
delayed=$(hashes "$out")
run late-parts --ranks 3 "${late[@]}" --steps 7
run late-parts "${late[@]}"
same "stopped between making and applying" "$delayed" "$(hashes "$out")"
for fault in step=6,at=block step=13,at=block step=14,at=block; do
    LS_TEST_FAULT=do=die,rank=1,$fault run "late-$fault" --ranks 3 "${late[@]}"
    same "delayed, rank lost at $fault" "$delayed" "$(hashes "$out")"
done
expect 0 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --dry-run
prints "workers"

# ---- fragments: two runs of layers, each with rounds of four steps of its own; those of the first end after steps 2, 6 and 10. A span of two
# steps has seven turns, with a delay eight: the outer turns are 3 and 7, 11 and 15, ... ----
pieces=(--set train.local.fragments=2)
run pieces "${pieces[@]}"
differs "fragments: 2" "$alone" "$(hashes "$out")"
cut=$(hashes "$out")
run pieces-4 "${pieces[@]}" --ranks 4 --threads 2
same "fragments on four ranks" "$cut" "$(hashes "$out")"
run pieces-parts "${pieces[@]}" --ranks 3 --steps 6
run pieces-parts "${pieces[@]}"
same "stopped between two fragments" "$cut" "$(hashes "$out")"
same "fragments of outer steps" "0 1 0 1 0 1" "$(python3 -c 'import json, sys; print(*(e["fragment"] for e in map(json.loads, sys.stdin) if e["event"] == "outer_step"))' <pieces/events.jsonl)"
pieces+=(--set train.local.delay=1 --set train.local.bits=8 --set train.local.moments=reset)
run flight "${pieces[@]}"
cut=$(hashes "$out")
run flight-parts "${pieces[@]}" --ranks 2 --steps 5
run flight-parts "${pieces[@]}" --ranks 3 --steps 7
run flight-parts "${pieces[@]}"
same "stopped while each fragment was on its way" "$cut" "$(hashes "$out")"
for fault in step=11,at=block step=15,at=block step=16,at=block step=24,at=sum; do
    LS_TEST_FAULT=do=die,rank=1,$fault run "flight-$fault" --ranks 3 "${pieces[@]}"
    same "fragments, rank lost at $fault" "$cut" "$(hashes "$out")"
done

# ---- an outer gradient that is not finite: its round is made once more, and then refused; nothing of it is kept. Bit 30 makes a weight of a norm infinite ----
export LS_TEST_FAULT=flip=parameter,rank=0,at=8192,bit=30,step=19
expect 1 timeout 60 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --run-dir wild --ranks 2
says "the outer gradient of round 2 is not finite" "The round is made once more" "the training diverges"
unset LS_TEST_FAULT
expect 0 grep -c '"event":"resumed"' wild/events.jsonl
same "starts" 1 "$(cat "$out")"
run wild --ranks 2
same "after a round that was not finite" "$alone" "$(hashes "$out")"

# ---- refused ----
refused() { expect 2 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --run-dir refused "$@"; }
refused --set train.local.steps=5
says "train.local.steps is 5, which does not divide train.steps 12" "train.steps 10 or 15"
refused --set train.local.workers=5
says "train.local.workers is 5, which does not divide train.leaves 12"
refused --set train.local.workers=24
says "train.local.workers is 24"
refused --set train.local.outer_lr=0
says "train.local.outer_lr is 0, but must be above 0"
refused --set train.local.delay=4
says "train.local.delay is 4, allowed is 0 to 3"
refused --set train.local.fragments=3
says "train.local.fragments is 3, which does not divide train.local.steps 4" "use train.local.fragments 2, or train.local.steps 6"
refused --set train.local.fragments=4
says "train.local.fragments is 4, but model.layers is 2" "use at most 2"
refused --set train.local.fragments=0
says "train.local.fragments is 0, allowed is a whole number, 1 to 1024"
refused --set train.local.fragments=2 --set train.local.delay=2
says "train.local.delay is 2, allowed is 0 to 1, below train.local.steps / train.local.fragments"
refused --set train.local.steps=0 --set train.local.workers=1 --set train.local.fragments=2
says "train.local.fragments is 2, but has an effect only with train.local.steps"
refused --set train.local.bits=16
says "train.local.bits is 16, allowed is 32, 8 or 4"
refused --set train.compression.kind=int8
says "set train.local.bits to 8 or 4"
refused --set train.local.steps=0
says "has an effect only with train.local.steps"
refused --ranks 5
says "share the leaves of one worker" "use at most 4"
refused --set 'train.freeze=[lm_head*]'
says "train.freeze"
refused --set parallel.tensor=2 --ranks 2
says "parallel.tensor"
expect 2 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --set train.local.outer_momentum=0.5 --run-dir one
says "train.local.outer_momentum: 0.9 in the run, 0.5 now"
expect 2 "$LOCKSTEP" train tiny.yaml "${local_steps[@]}" --set train.local.fragments=2 --run-dir one
says "train.local.fragments"
expect 2 "$LOCKSTEP" replay one --step 3
says "local steps"
finish
