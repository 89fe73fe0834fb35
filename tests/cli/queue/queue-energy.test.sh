#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Energy in the queue, on a machine whose counter this test turns: of the run, its job, its account, and of no job.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

power=$scratch/power/intel-rapl:0
mkdir -p "$power"
echo 1000000000000 >"$power/max_energy_range_uj"
echo 0 >"$power/energy_uj"
export LOCKSTEP_POWERCAP=$scratch/power
printf 'idle: {look: 200ms}\n' >config.yaml
mkdir -p "$LOCKSTEP_HOME" && cp config.yaml "$LOCKSTEP_HOME/config.yaml"
write_text text.txt 400 7
write_run run.yaml
queue_up
# 100 mJ in each turn: a few watts.
(
    joules=0
    while :; do
        joules=$((joules + 100000))
        echo "$joules" >"$power/energy_uj.new" && mv "$power/energy_uj.new" "$power/energy_uj"
        sleep 0.02
    done
) &
expect 0 "$LOCKSTEP" submit run.yaml --env LOCKSTEP_POWERCAP --set train.steps=700 --set eval.every_steps=0 --set checkpoint.every_steps=0
expect 0 "$LOCKSTEP" wait 1
job_is_charged() { "$LOCKSTEP" ps 1 --json >"$out" && [ "$(json 'd["usage"]["energy_j"] is not None')" = True ]; }
wait_until "the job is charged" job_is_charged
own=$(json 'd["usage"]["energy_j"]')
same "a step and a million tokens" "$(json '[abs(d["rates"]["step_energy_j"] * d["step"] / d["usage"]["energy_j"] - 1) < 1e-6, d["rates"]["million_tokens_energy_j"] > 0]')" "[True, True]"
some_is_free() { "$LOCKSTEP" usage --json >"$out" && [ "$(json 'd["machine"] is not None and d["machine"]["free_energy_j"] > 0')" = True ]; }
wait_until "the rest is counted" some_is_free
same "the accounts and the rest are the machine's" \
    "$(json 'abs(sum(a["energy_j"] or 0 for a in d["accounts"]) + d["machine"]["free_energy_j"] - d["machine"]["energy_j"]) <= 1e-3 * d["machine"]["energy_j"]')" True
same "the account has what its job has" "$(json "abs(d['total']['energy_j'] - $own) < 1e-6")" True
# Up to 2 J of the machine's energy may not be reported yet: less than a joule, and that of one look.
same "half of the devices, at most half of the energy" "$(json "$own <= 0.5 * (d['machine']['energy_j'] + 2.0)")" True
expect 0 "$LOCKSTEP" usage --since 1d --csv
prints "lost_cost,energy_j"
# The run has measured itself: from after its start to its end, so a little less.
same "the run's own" "$(python3 -c "import json; e = json.load(open('runs/tiny/summary.json'))['energy_j']; print(0.2 * $own < e <= 1.1 * $own)")" True
expect 0 curl -sS --unix-socket "$LOCKSTEP_HOME/socket" http://x/metrics
prints "lockstep_account_energy_joules_total{" "lockstep_free_energy_joules_total "
finish
