#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A sweep of 64 small trainings with asha.first, eta 4, and the same sweep with all trained to their end: whether the best of all is among the first three, and
# for how many of the steps. Usage: LOCKSTEP=build/release/lockstep bench/asha.sh TEXT [STEPS [SEED...]]; STEPS (256) is 16 times the first rung, and each SEED (1)
# is one pair of sweeps.
set -eu
: "${LOCKSTEP:?set LOCKSTEP to the program}"
LOCKSTEP=$(realpath "$LOCKSTEP")
text=$(realpath "${1:?give a text file to train on}")
steps=${2:-256}
shift $(($# < 2 ? $# : 2))
folder=$(mktemp -d)
export LOCKSTEP_HOME=$folder/home
trap '"$LOCKSTEP" down --cancel --timeout 60 >/dev/null 2>&1 || true; rm -rf "$folder"' EXIT
cd "$folder"
cat >run.yaml <<EOF
name: asha
model: {family: llama, layers: 1, heads: 2, width: 32, ffn: 64, context: 32}
tokenizer: {kind: bytes}
data: {train: [$text], validation_fraction: 0.05}
train: {steps: $steps, global_batch: 8, micro_batch: 8, leaves: 1}
eval: {every_steps: 0, batches: 16}
sample: {every_steps: 0}
log: {tensorboard: false}
EOF
"$LOCKSTEP" up >/dev/null
# sweep NAME SEED OPTION...: to its end; its answer is NAME.json.
sweep() {
    local name=$1 seed=$2
    shift 2
    "$LOCKSTEP" sweep run.yaml --set train.optimizer.lr=3e-2,1e-2,3e-3,1e-3,3e-4,1e-4,3e-5,1e-5 --set train.clip_norm=0.3,1 \
        --set train.schedule.warmup_steps=0,4 --set train.optimizer.weight_decay=0,0.3 --set "train.seed=$seed" "$@" --json >"$name.sweep"
    job=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["jobs"][0])' "$name.sweep")
    until "$LOCKSTEP" sweep show "$job" --json >"$name.json" && grep -q '"ended": *true' "$name.json"; do sleep 1; done
}
for seed in "${@:-1}"; do
    sweep all "$seed"
    sweep some "$seed" --set "asha.first=$((steps / 16))"
    python3 - "$seed" <<'PY'
import json, sys
every, some = (json.load(open(name + ".json")) for name in ("all", "some"))
setting = lambda trial: tuple(s for s in trial["set"] if not s.startswith("asha."))
far = lambda trial: (-len(trial["results"]), trial["result"] if trial["result"] is not None else 9e9)
ranked = [setting(t) for t in sorted(some["trials"], key=far)]
best = min((t for t in every["trials"] if t["result"] is not None), key=lambda t: t["result"])
order = sorted(t["result"] for t in every["trials"] if t["result"] is not None)
won = next(t for t in every["trials"] if setting(t) == ranked[0])
print(f"seed {sys.argv[1]}: the best of all {every['jobs']} (val_loss {best['result']:.4f}) is place {ranked.index(setting(best)) + 1} of the sweep that stops losers, "
      f"whose winner is place {order.index(won['result']) + 1} of all ({won['result']:.4f}); {100 * some['steps'] / some['full_steps']:.1f} % of the steps; {some['states']}")
PY
done
