#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A campaign of capped jobs: each is stopped by its cap at a random moment, as often as it takes, and continues when the
# cap is raised. Prints how often the result had the hash of a run that was never stopped, and the most that was spent
# beyond a cap. Usage: bench/caps.sh [LOCKSTEP [RUNS]]
set -euo pipefail
lockstep=$(realpath "${1:-build/release/lockstep}") runs=${2:-20}
scratch=$(mktemp -d)
export LOCKSTEP_HOME=$scratch/home
end() {
    "$lockstep" down --cancel >/dev/null 2>&1 || true
    rm -rf "$scratch"
}
trap end EXIT
cd "$scratch"
mkdir home
echo 'money: {price: 3600}' >home/config.yaml # a device costs 1 USD a second
python3 -c 'import random; random.seed(3); print(" ".join(random.choice(["one", "two", "three"]) for _ in range(20000)))' >text.txt
cat >run.yaml <<'EOF'
name: capped
model: {layers: 2, heads: 2, width: 64, context: 64}
data: {train: [text.txt]}
train: {steps: 400, global_batch: 8, micro_batch: 2, leaves: 4, threads: 1}
eval: {every_steps: 100}
EOF
hash_of() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d["state_hash"], d["curve_hash"])' "$1/summary.json"; }
field() { "$lockstep" ps "$1" --json | python3 -c "import json, sys; print(json.load(sys.stdin)['$2'])"; }

"$lockstep" train run.yaml --run-dir unstopped >/dev/null
want=$(hash_of unstopped)
"$lockstep" up --slots 2 --listen 127.0.0.1:0 >/dev/null
equal=0 stops=0 most=0
for ((i = 1; i <= runs; i++)); do
    cap=$(python3 -c "import random; random.seed($i); print(round(random.uniform(0.3, 1.5), 2))")
    job=$("$lockstep" submit run.yaml --ranks $((1 + i % 2)) --set "name=capped$i" --set "job.max_cost=$cap")
    while :; do
        for ((wait = 0; wait < 1200; wait++)); do
            state=$(field "$job" state)
            case $state in HELD | SUCCEEDED | FAILED | CANCELLED) break ;; esac
            sleep 0.05
        done
        [ "$state" = HELD ] || break
        stops=$((stops + 1))
        most=$(python3 -c "print(max($most, round($(field "$job" cost) - $cap, 3)))")
        cap=$(python3 -c "import random; random.seed(100 * $i + $stops); print(round($cap + random.uniform(0.8, 2.0), 2))")
        "$lockstep" change "$job" --max-cost "$cap" >/dev/null
    done
    [ "$(hash_of "runs/capped$i")" = "$want" ] && equal=$((equal + 1))
    echo "job $i: $state after $stops stops so far"
done
echo "$equal of $runs results equal that of the run that was never stopped; $stops stops; most spent beyond a cap: $most USD (seconds of a device)"
[ "$equal" = "$runs" ]
