#!/usr/bin/env bash
# A run that may shrink loses a node of its Slurm job, with all that ran there: Slurm leaves it the others (--no-kill), and it goes on in the same job.
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
expect 0 queue up --engine slurm
run=$(submit run.yaml --ranks 3)
steps() { cat "$work/runs/chaos/metrics.jsonl" 2>/dev/null | wc -l; }
goes_on() { [ "$(steps)" -gt "$1" ]; }
until_true "it trains" goes_on 20
slurm_lose n2
is_down() { [ "$(slurm_as squeue -h -t running -o %D)" = 2 ]; }
until_true "Slurm has taken the node from the job" is_down
before=$(steps)
until_true "it goes on" goes_on $((before + 20))
check "its rank was missed" grep -q rank_lost "$work/runs/chaos/events.jsonl"
same "still the first start" "$(of "$run" epoch) $(of "$run" state)" "1 RUNNING"
expect 0 queue cancel "$run"
until_true "cancelled" is "$run" CANCELLED
expect 0 queue down
finish
