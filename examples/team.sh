#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A team of three accounts on one queue, to be watched on its page: research runs a sweep that
# stops losers, speech a training that reaches its cap, is stopped, and goes on when the cap is
# raised, and vision a program of its own that logs by HTTP and tells an alert.
#
#   examples/team.sh [STEPS]
#       on a daemon of its own with three slots, in a temporary folder. STEPS (default 3000) is the
#       length of the trainings: about two minutes on two cores. On a terminal the page stays open
#       until Ctrl-C.
#
# LOCKSTEP names the program if it is not in the PATH. Exits with 0 if everything ended as it
# should.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lockstep=${LOCKSTEP:-lockstep}
steps=${1:-3000}
work=$(mktemp -d)
clean_up() {
    "$lockstep" down --cancel >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean_up EXIT
say() { printf '\n== %s\n' "$*"; }
state_of() { "$lockstep" ps "$1" --json | sed -n 's/.*"state": *"\([A-Z]*\)".*/\1/p' | head -1; }

export LOCKSTEP_HOME=$work/home
mkdir -p "$LOCKSTEP_HOME" "$work/run"
# A device-hour for 90 USD makes a second worth seeing: 2.5 cents.
printf 'money: {price: 90}\npolicy: {min_run: 100ms}\n' >"$LOCKSTEP_HOME/config.yaml"
"$lockstep" up --slots 3
"$lockstep" accounts research --weight 3 --budget 100 >/dev/null
"$lockstep" accounts speech --weight 1 >/dev/null
"$lockstep" accounts vision --weight 2 >/dev/null
page=$(cat "$LOCKSTEP_HOME/address")
say "the page of the queue: $page/?token=$(cat "$LOCKSTEP_HOME/token")"

cd "$work/run"
cat "$here"/../docs/*.md "$here"/../docs/guide/*.md >text.txt
cat >train.yaml <<YAML
name: tiny
model: {layers: 2, heads: 2, width: 48, ffn: 96, context: 48}
tokenizer: {kind: bytes}
data: {train: [text.txt], validation_fraction: 0.1}
train: {steps: $steps, global_batch: 8, micro_batch: 8, leaves: 1, threads: 1, optimizer: {lr: 3.0e-3}}
eval: {every_steps: $((steps / 10)), batches: 4}
sample: {every_steps: $((steps / 3)), prompt: "the "}
asha: {first: $(((steps + 15) / 16))}
YAML

# Not of lockstep: any program that can send a line over HTTP. It knows the number of its job.
cat >foreign.py <<'PY'
import json, math, os, random, time, urllib.request

home, job = os.environ["LOCKSTEP_HOME"], os.environ["LOCKSTEP_JOB"]
address, token = (open(f"{home}/{name}").read().strip() for name in ("address", "token"))


def log(step, **values):
    body = json.dumps({"points": [{"step": step, **values}]}).encode()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    urllib.request.urlopen(urllib.request.Request(f"{address}/v1/runs/{job}/log", body, headers), timeout=5).close()


for step in range(1, int(os.environ["STEPS"]) + 1):
    log(step, loss=2 * math.exp(-step / 40) + random.uniform(0, 0.1), accuracy=1 - math.exp(-step / 30))
    if step == 20:  # the queue reads this file when it appears
        with open(os.environ["LOCKSTEP_JOB_DIR"] + "/new", "w") as out:
            out.write(json.dumps({"kind": "other", "text": "class 7 has no image in the last 20 batches"}) + "\n")
        os.rename(out.name, os.environ["LOCKSTEP_JOB_DIR"] + "/alerts.jsonl")
    time.sleep(0.1)
PY

say "three accounts submit"
capped=$("$lockstep" submit train.yaml --name speech-large --account speech --set train.seed=5 --set train.steps=$((4 * steps)) \
    --set job.max_cost=0.05)
foreign=$("$lockstep" submit --name resnet --account vision --env LOCKSTEP_HOME --env STEPS=$((steps / 20 + 20)) -- python3 foreign.py)
"$lockstep" sweep train.yaml --account research --set train.optimizer.lr=1e-2,3e-3,3e-4,3e-5 --set train.seed=1,2 --json >sweep.json
members=$(tr -d ' \n' <sweep.json | sed 's/.*"jobs":\[\([0-9,]*\)\].*/\1/; s/,/ /g')
"$lockstep" ps

say "job $capped runs until it has cost 5 cents"
until [ "$(state_of "$capped")" = HELD ]; do sleep 0.2; done
"$lockstep" why "$capped"
say "its cap is raised, and it goes on where it was"
"$lockstep" change "$capped" --max-cost 100
# Jobs that their sweep stops end as CANCELLED, so wait says 1.
# shellcheck disable=SC2086
"$lockstep" wait "$capped" "$foreign" $members || true

say "the sweep"
"$lockstep" sweep show
say "what people were told"
python3 - "$page/v1/alerts" "$(cat "$LOCKSTEP_HOME/token")" <<'PY'
import json, sys, urllib.request

request = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {sys.argv[2]}"})
for alert in json.load(urllib.request.urlopen(request, timeout=10))["alerts"]:
    print(f"{alert['kind']}, job {alert['job']}: {alert['text']}")
PY
say "who used what"
"$lockstep" usage
for job in "$capped" "$foreign"; do
    [ "$(state_of "$job")" = SUCCEEDED ] || { echo "job $job is $(state_of "$job")" >&2; exit 1; }
done
"$lockstep" sweep show --json | grep -q '"finished": *[1-9]' || { echo "no job of the sweep trained to its end" >&2; exit 1; }
if [ -t 1 ]; then
    say "the page stays open until you press Ctrl-C: $page"
    trap 'exit 0' INT
    sleep infinity &
    wait $!
fi
