#!/usr/bin/env bash
# A node is lost, with everything that ran there. A run that can shrink keeps its other nodes (--no-kill) and continues in the same Slurm job; a job that was only on
# that node is requeued by Slurm and runs on another.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/slurm.sh"
slurm_need
slurm_up 3 --gpus 0 --cpus 2 --node-timeout 5s
. "$LS_SOURCE_DIR/tests/lib/slurm_queue.sh"
write_text text.txt 400 1
cp text.txt "$slurm/text.txt"
chmod 644 "$slurm/text.txt"
write_chaos_run run.yaml
sed -i "s#$scratch/text.txt#$slurm/text.txt#" run.yaml
printf 'job: {elastic: true, min_ranks: 1, ranks_per_node: 1}\n' >>run.yaml
slurm_as tee "$work/run.yaml" <run.yaml >/dev/null
slurm_as tee "$work/fill.yaml" >/dev/null <<'YAML'
name: fill
parallel: {ranks: 2}
job: {ranks_per_node: 1, command: [sleep, "1000"], grace: 1s}
YAML
slurm_as tee "$work/lost.yaml" >/dev/null <<'YAML'
name: lost
job: {restartable: true, command: [sh, -c, 'echo "begun on $SLURMD_NODENAME"; [ "$LOCKSTEP_EPOCH" -gt 1 ] || exec sleep 1000']}
YAML
expect 0 queue up --engine slurm
run=$(submit run.yaml --ranks 3)
steps() { cat "$work/runs/chaos/metrics.jsonl" 2>/dev/null | wc -l; }
goes_on() { [ "$(steps)" -gt "$1" ]; }
until_true "it trains" goes_on 20
# Two cores on each node: with one more rank on two of them there is room for the last job on the third alone.
fill=$(submit fill.yaml)
until_true "two nodes are full" is "$fill" RUNNING
lost=$(submit lost.yaml)
begun() { grep -c "begun on $1" "$LOCKSTEP_HOME/jobs/$lost/log" 2>/dev/null; }
has_begun() { [ "$(begun n)" = 1 ]; }
until_true "the last one runs" has_begun
node=$(sed -n 's/^begun on //p' "$LOCKSTEP_HOME/jobs/$lost/log")
slurm_lose "$node"
is_down() { [ "$(slurm_as squeue -h -j "$(ref_of "$run")" -t running -o %D)" = 2 ]; }
until_true "Slurm has taken the node from the job" is_down
before=$(steps)
until_true "it goes on" goes_on $((before + 20))
check "its rank was missed" grep -q rank_lost "$work/runs/chaos/events.jsonl"
same "still the first start" "$(of "$run" epoch) $(of "$run" state)" "1 RUNNING"
expect 0 queue cancel "$fill"
until_true "the other is queued again, and runs elsewhere" is "$lost" SUCCEEDED
same "its epoch" "$(of "$lost" epoch)" 2
same "where it was begun" "$(begun "$node") $(begun n)" "1 2"
expect 0 queue cancel "$run"
until_true "cancelled" is "$run" CANCELLED
expect 0 queue down
finish
