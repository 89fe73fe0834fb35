#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A sweep that stops losers on a real Slurm cluster: each part of a trial is a job of Slurm's, and the winner has the bits of a run that never paused.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 2 --gpus 0 --cpus 2
export LOCKSTEP_HOME=$slurm/home
work=$slurm/work
slurm_as mkdir "$work"
queue() { (cd "$work" && slurm_as env LOCKSTEP_HOME="$LOCKSTEP_HOME" "$slurm/lockstep" "$@"); }
seq -f 'the king said to his people that day %g of light and water will come.' 400 | slurm_as tee "$work/text.txt" >/dev/null
slurm_as tee "$work/run.yaml" >/dev/null <<'YAML'
name: small
model: {family: llama, layers: 1, heads: 2, width: 16, ffn: 32, context: 16}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0.1}
train: {steps: 45, global_batch: 4, micro_batch: 4, leaves: 1, schedule: {warmup_steps: 2}}
eval: {every_steps: 0, batches: 2}
sample: {every_steps: 0}
log: {tensorboard: false}
asha: {first: 5, eta: 3}
YAML
expect 0 queue up --engine slurm
expect 0 queue sweep run.yaml --set train.optimizer.lr=1e-2,1e-4 --set train.seed=1,2
json() { python3 -c "import json; d = json.load(open('$out')); print($1)"; }
wait_for_end() {
    local tries
    for ((tries = 0; tries < 900; tries++)); do
        queue sweep show --json >sweep.json && grep -q '"ended": *true' sweep.json && return 0
        sleep 0.2
    done
    tail -n 5 "$LOCKSTEP_HOME/daemon.log"
    return 1
}
check "the sweep ends" wait_for_end
expect 0 cat sweep.json
outcome=$(json '(d["states"]["finished"], sum("place" in (t["why"] or "") for t in d["trials"] if t["trial"] == "stopped"), d["best"]["step"])')
same "one has trained to its end, the others were compared and stopped" "$outcome" "(1, 3, 45)"
winner=$(json 'd["best"]["job"]')
values=$(json '" ".join("--set " + s for t in d["trials"] if t["job"] == d["best"]["job"] for s in t["set"])')
# shellcheck disable=SC2086
expect 0 queue train run.yaml --run-dir alone --threads 1 $values
hash_of() { python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["state_hash"])' "$1/summary.json"; }
same "the bits of a run that never paused" "$(hash_of "$(queue ps "$winner" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["run_dir"])')")" "$(hash_of "$work/alone")"
expect 0 queue usage
prints "Stored: "
expect 0 queue down
finish
