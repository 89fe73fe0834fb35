#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ten jobs of three accounts with different priorities, a sweep of four and a preemption: submitted,
# run to their ends, and accounted for.
#
#   examples/queue/run.sh
#       on a daemon of its own with four slots, in a temporary folder
#   LOCKSTEP_HOME=... examples/queue/run.sh --here
#       on the daemon that runs there, with any engine (also Slurm)
#
# LOCKSTEP names the program if it is not in the PATH. Exits with 0 if everything ended as it
# should.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
lockstep=${LOCKSTEP:-lockstep}
work=$(mktemp -d)
own=yes
[ "${1:-}" != --here ] || own=
clean_up() {
    [ -z "$own" ] || "$lockstep" down --cancel >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap clean_up EXIT
say() { printf '\n== %s\n' "$*"; }

if [ -n "$own" ]; then
    export LOCKSTEP_HOME=$work/home
    mkdir -p "$LOCKSTEP_HOME"
    # By default a job runs for at least a minute before it may be stopped for another: too long for
    # an example.
    printf 'policy: {min_run: 100ms}\nmoney: {price: 2.5, currency: USD}\n' >"$LOCKSTEP_HOME/config.yaml"
    "$lockstep" up --slots 4
    "$lockstep" accounts research --weight 3 >/dev/null
    "$lockstep" accounts vision --weight 2 >/dev/null
    "$lockstep" accounts speech --weight 1 >/dev/null
fi

mkdir "$work/run" && cd "$work/run"
seq -f 'the king said to his people that day %g of light and water will come over every land.' 300 >text.txt
cp "$here"/*.yaml .

say "a long run of low priority takes all four devices"
long=$("$lockstep" submit train.yaml --name long --account speech --priority low --ranks 4 --set train.steps=600)
# Until it has begun: on a fast machine it may have ended again by the time that anyone looks.
until "$lockstep" ps "$long" --json | grep -qE '"state": *"(RUNNING|SUCCEEDED|FAILED|CANCELLED)"'; do sleep 0.1; done
"$lockstep" ps

say "ten jobs of three accounts"
jobs=()
jobs+=("$("$lockstep" submit train.yaml --name urgent --account research --priority high --ranks 2)")
jobs+=("$("$lockstep" submit gang.yaml --name check --account vision --priority high --ranks 2)")
for i in 1 2 3; do
    jobs+=("$("$lockstep" submit train.yaml --name "research-$i" --account research --set "train.seed=$i")")
    jobs+=("$("$lockstep" submit gang.yaml --name "vision-$i" --account vision --ranks 2)")
done
jobs+=("$("$lockstep" submit gang.yaml --name speech-1 --account speech --priority low)")
jobs+=("$("$lockstep" submit gang.yaml --name speech-2 --account speech --after "${jobs[0]}")")
"$lockstep" ps
say "why does the last one wait?"
"$lockstep" why "${jobs[9]}"

say "a sweep of four, two at once"
"$lockstep" sweep train.yaml --account research --running_max 2 \
    --set train.optimizer.lr=1e-2,3e-3 --set train.seed=1,2 --json >sweep.json
group=$(sed -n 's/.*"group": *"\([^"]*\)".*/\1/p' sweep.json)
members=$(tr -d ' \n' <sweep.json | sed 's/.*"jobs":\[\([0-9,]*\)\].*/\1/; s/,/ /g')

say "waiting until all jobs have ended"
# shellcheck disable=SC2086
"$lockstep" wait "$long" "${jobs[@]}" $members

say "how they ended"
"$lockstep" ps --all
say "the sweep"
"$lockstep" ps --group "$group"
say "who used what"
"$lockstep" usage

# The long run was stopped for more urgent jobs, saved, and resumed where it was: all its steps are
# there, each once. A run that was faster than the jobs that were to stop it has ended before.
preempted=$("$lockstep" ps "$long" --json | sed -n 's/.*"preemptions": *\([0-9]*\).*/\1/p')
if [ "$preempted" -ge 1 ]; then
    say "job $long was preempted for more urgent jobs, and continued"
else
    say "job $long ended before a more urgent job needed its devices"
fi
