#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The commands of the queue on a daemon with two slots: what they print, their JSON, their exit codes.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

# Without a daemon: said, with what to do.
expect 1 "$LOCKSTEP" ps
says "no daemon runs with $LOCKSTEP_HOME as its folder" "lockstep up"
LOCKSTEP_LOG=info queue_up

# One job from its submission to its end.
expect 0 "$LOCKSTEP" submit hello.yaml --ranks 2
same "the number alone" "$(cat "$out")" 1
expect 0 "$LOCKSTEP" wait 1
prints "job 1 SUCCEEDED, exit code 0"
expect 0 "$LOCKSTEP" logs 1
prints "rank 0 of 2" "rank 1 of 2"
expect 0 "$LOCKSTEP" logs 1 --rank 1
prints "rank 1 of 2"
check "only its own" test "$(grep -c rank "$out")" = 1
expect 0 "$LOCKSTEP" logs 1 --json
same "the log as JSON" "$(json 'd["job"], len(d["log"].splitlines())')" "1 2"
expect 0 "$LOCKSTEP" submit hello.yaml --json
same "submit --json" "$(json 'd["job"], d["state"], "run_dir" in d')" "2 QUEUED True"

# It ends as the job ended.
expect 0 "$LOCKSTEP" submit fails.yaml
expect 3 "$LOCKSTEP" wait 3
prints "job 3 FAILED, exit code 3"
expect 3 "$LOCKSTEP" wait 1 3 --json
same "wait --json" "$(json '[j["state"] for j in d["jobs"]]')" "['SUCCEEDED', 'FAILED']"

# Refused: what can never run, what is not there, what is no number, what has ended.
expect 2 "$LOCKSTEP" submit hello.yaml --ranks 0
says "1 to 1048576"
expect 2 "$LOCKSTEP" sweep hello.yaml --ranks 0 --set name=a,b
says "1 to 1048576"
expect 2 "$LOCKSTEP" submit hello.yaml --ranks 3
says "can never run" "3 devices"
expect 2 "$LOCKSTEP" submit missing.yaml
says missing.yaml
mkfifo pipe.yaml
expect 2 timeout 20 "$LOCKSTEP" submit pipe.yaml
says "pipe.yaml is not a regular file"
printf 'job: {command: []}\n' >empty.yaml
expect 2 "$LOCKSTEP" submit empty.yaml
says "job.command is an empty list"
printf 'job: {commnd: [sh]}\n' >bad.yaml
expect 2 "$LOCKSTEP" submit bad.yaml
says "bad.yaml:1" "job.command"
printf 'model: {layers: 2, heads: 2, width: 16}\ntokenizer: {kind: bytes}\ndata: {train: [hello.yaml]}\ntrain: {leaves: 1, tensor_cut: 2}\nparallel: {tensor: 2}\n' >crew.yaml
expect 2 "$LOCKSTEP" submit crew.yaml --ranks 1
says "1 ranks cannot divide a model" "a multiple of 2"
expect 2 "$LOCKSTEP" submit crew.yaml --ranks 4
says "4 ranks are too many" "at most 2 ranks"
expect 2 "$LOCKSTEP" submit hello.yaml --account ../../etc
says "account"
expect 2 "$LOCKSTEP" why 999
says "job 999 does not exist"
expect 2 "$LOCKSTEP" wait 1 one
says "'one' is not the number of a job"
check "before it waits" test ! -s "$out"
expect 2 "$LOCKSTEP" ps --state runs
says "'runs' is not a state of a job; allowed is one of QUEUED,"
expect 2 "$LOCKSTEP" submit hello.yaml --env LOCKSTEP_NO_SUCH
says "no variable of that name is set in this shell"
expect 2 "$LOCKSTEP" submit hello.yaml --env =x
says "NAME or NAME=VALUE"
for port in 65536 99999 0x50 -1; do
    expect 2 env LOCKSTEP_HOME="$scratch/other" "$LOCKSTEP" up --foreground --listen "127.0.0.1:$port"
    says "127.0.0.1:$port"
done
expect 2 env LOCKSTEP_HOME="$scratch/other" "$LOCKSTEP" up --foreground --listen 127.0.0.1:99999
says "the port in 127.0.0.1:99999 is 99999; it must be 0 (any free port) to 65535"
expect 2 env LOCKSTEP_HOME="$scratch/other" "$LOCKSTEP" down
says "no daemon runs with $scratch/other as its folder"
expect 2 "$LOCKSTEP" logs one
says "'one' is not the number of a job"
expect 2 "$LOCKSTEP" cancel 1
says "has already ended"
wait_until "job 2 has ended" is_state 2 SUCCEEDED
expect 0 "$LOCKSTEP" ps --json
same "nothing waits" "$(json 'len(d["jobs"])')" 0

# A job that has both slots, one that waits for them, one that is held.
expect 0 "$LOCKSTEP" submit waits.yaml --ranks 2 --account vision --priority high
wait_until "job 4 runs" is_state 4 RUNNING
expect 0 "$LOCKSTEP" submit hello.yaml --ranks 2 --account research
expect 0 "$LOCKSTEP" submit hello.yaml --hold
expect 0 "$LOCKSTEP" ps
prints "JOB" "waits" "RUNNING" "vision" "high" "QUEUED" "research" "HELD"
expect 0 "$LOCKSTEP" ps --json
same "the fields of the contract" "$(json '[[j[k] for k in ("job","name","state","account","priority","ranks")] for j in d["jobs"][:2]]')" \
    "[[4, 'waits', 'RUNNING', 'vision', 'high', 2], [5, 'hello', 'QUEUED', 'research', 'normal', 2]]"
check "why of each is a text or null" python3 -c "import json; [1 / (j['why'] is None or isinstance(j['why'], str)) for j in json.load(open('$out'))['jobs']]"
expect 0 "$LOCKSTEP" ps --account research --json
same "of one account" "$(json '[j["job"] for j in d["jobs"]]')" "[5]"
expect 0 "$LOCKSTEP" ps --state held --json
same "of one state" "$(json '[j["job"] for j in d["jobs"]]')" "[6]"
expect 0 "$LOCKSTEP" ps 4
prints "account      vision" "ranks        2"
expect 0 "$LOCKSTEP" why 5
prints "job 5 is QUEUED" "HELD BY"
expect 0 "$LOCKSTEP" why 5 --json
same "why --json" "$(json 'd["job"], d["stage"], d["needed"], d["available"], [b["job"] for b in d["blockers"]], d["eta_s"], type(d["counterfactuals"]).__name__')" \
    "5 gang 2 0 [4] None list"
expect 0 "$LOCKSTEP" why 6 --json
same "held" "$(json 'd["stage"]')" hold
expect 0 "$LOCKSTEP" why 5
prints "it needs 2 devices at once, and none is free"
expect 0 "$LOCKSTEP" logs 5
says "job 5 is QUEUED and has no output: it was never started"
expect 0 "$LOCKSTEP" nodes --json
same "the node" "$(json 'len(d["nodes"]), d["nodes"][0]["devices"], d["nodes"][0]["used"], d["nodes"][0]["jobs"][0]["job"]')" "1 2 2 4"
expect 0 "$LOCKSTEP" nodes
prints "4 (2)"
expect 0 "$LOCKSTEP" top
prints "2 of 2 devices in use, 1 running, 1 waiting, 1 held" "NODE" "JOB"
if command -v script >/dev/null; then # fewer rows than jobs: keys scroll to the others
    { type_when_shown "lines 1 to" j; type_when_shown "lines 2 to" jq; } | TERM=xterm timeout 60 script -qec "stty rows 8 cols 60; '$LOCKSTEP' top" /dev/null >screen.txt
    holds screen.txt "2 of 2 devices in use" "arrows scroll; lines 1 to" "RUNS"
fi
expect 0 "$LOCKSTEP" top --json
same "top --json" "$(json 'sorted(d)')" "['jobs', 'nodes', 'status']"

# Words to jobs.
expect 0 "$LOCKSTEP" priority 5 high
expect 0 "$LOCKSTEP" ps 5 --json
same "priority" "$(json 'd["priority"]')" high
expect 2 "$LOCKSTEP" priority 5 urgent
says "one of low, normal, high"
expect 0 "$LOCKSTEP" resize 5 --ranks 1
prints "job 5 is QUEUED: it will start with up to 1 rank"
expect 0 "$LOCKSTEP" resize 5 --json
same "resize" "$(json 'd["ranks"]')" 1
expect 2 "$LOCKSTEP" resize 5 --ranks 0
says "1 to 1048576"
expect 2 "$LOCKSTEP" resize 5 --ranks 64
says "devices"
expect 0 "$LOCKSTEP" hold 5
prints "job 5: HELD"
expect 0 "$LOCKSTEP" release 5 6
prints "job 5: QUEUED" "job 6: QUEUED"
expect 0 "$LOCKSTEP" cancel 6 --json
same "cancel --json" "$(json 'd["job"], d["state"]')" "6 CANCELLED"
expect 2 "$LOCKSTEP" cancel 6
says "job 6 has already ended: CANCELLED"
expect 1 "$LOCKSTEP" wait 6
expect 1 "$LOCKSTEP" wait 4 --timeout 1
says "has not ended" "it is RUNNING"

# A log that is followed while it is written, and ends with its job.
"$LOCKSTEP" logs -f 4 >follow.txt 2>&1 &
follow=$!
wait_until "the first line is followed" grep -q begun follow.txt

# Who waits goes on when the daemon dies and comes back; the job goes on anyway.
"$LOCKSTEP" wait 4 >waited.txt 2>&1 &
waiting=$!
kill -9 "$daemon"
wait "$daemon" 2>/dev/null
expect 1 "$LOCKSTEP" ps
LOCKSTEP_LOG=info queue_up
wait_until "job 4 runs still" is_state 4 RUNNING
touch go
wait "$waiting"
same "what wait ended with" "$? $(cat waited.txt)" "0 job 4 SUCCEEDED, exit code 0"
wait "$follow"
same "what logs -f ended with, and saw" "$? $(sort follow.txt | uniq -c | xargs)" "0 1 [0] begun 1 [0] done 1 [1] begun 1 [1] done"
expect 0 "$LOCKSTEP" logs -f 4
prints begun done
same "once each" "$(grep -c begun "$out")" 2 # of two ranks
expect 0 "$LOCKSTEP" logs 4 -n 1
same "the last line" "$(wc -l <"$out")" 1

# Accounts and what they used.
expect 0 "$LOCKSTEP" accounts vision --weight 3 --quota 1 --borrow any
expect 0 "$LOCKSTEP" accounts --json
same "accounts" "$(json '[(a["weight"], a["quota"], a["borrow"]) for a in d["accounts"] if a["account"] == "vision"]')" "[(3, 1, None)]"
expect 2 "$LOCKSTEP" accounts vision
says "--quota"
expect 2 "$LOCKSTEP" accounts vision --weight 0
says "1 to 1000000"
expect 2 "$LOCKSTEP" accounts vision --users ''
expect 2 "$LOCKSTEP" accounts ../x --weight 3
says "account"
expect 2 "$LOCKSTEP" accounts vision --quota many
says "a number of devices or 'any'"
expect 0 "$LOCKSTEP" usage --json
check "vision used something" python3 -c "import json; d = json.load(open('$out')); assert [a for a in d['accounts'] if a['account'] == 'vision'][0]['allocated_h'] > 0; assert d['total']['allocated_h'] > 0"
expect 0 "$LOCKSTEP" usage
prints vision DEVICE-H

expect 0 "$LOCKSTEP" usage --since 1h
prints USER "$(id -un)"
expect 0 "$LOCKSTEP" usage --since 1h --user "$(id -un)" --json
same "as the accounts have it" "$(json 'round(d["total"]["allocated_h"], 4), {a["user"] for a in d["accounts"]}, sum(a["jobs"] for a in d["accounts"])')" \
    "$("$LOCKSTEP" usage --json | python3 -c 'import getpass, json, sys; d = json.load(sys.stdin); print(round(d["total"]["allocated_h"], 4), {sys.argv[1]}, sum(a["jobs"] for a in d["accounts"]))' "$(id -un)")"
expect 0 "$LOCKSTEP" usage --user nobody --json
same "nothing" "$(json 'd["accounts"], d["total"]["allocated_h"]')" "[] 0.0"
expect 0 "$LOCKSTEP" usage --since 30d --csv
prints "account,user,jobs,allocated_h" "vision,$(id -un),"
printf 'policy: {ordr: fair}\n' >"$LOCKSTEP_HOME/config.yaml"
expect 2 "$LOCKSTEP" up --check
says "config.yaml:1" "policy.order"
printf 'accounts: {list: ["a b"]}\n' >"$LOCKSTEP_HOME/config.yaml"
expect 2 "$LOCKSTEP" up --check
says "accounts.list has an invalid entry"
printf 'accounts: {list: ["a:weight=1", "b", "a:weight=2"]}\n' >"$LOCKSTEP_HOME/config.yaml"
expect 2 "$LOCKSTEP" up --check
says "two entries for account a"
for setting in 'listen: 127.0.0.1:99999' 'listen: nonsense' 'listen: 0.0.0.0:7700' 'listen: 192.0.2.1:0
tls: {certificate: home/none.pem, key: home/none.pem}' 'tls: {certificate: home/config.yaml}' 'tls: {certificate: home/config.yaml, key: home/config.yaml}'; do
    printf '%s\n' "$setting" >"$LOCKSTEP_HOME/config.yaml"
    check "refused: $setting" sh -c "'$LOCKSTEP' up --check 2>check.txt; test \$? != 0"
    mkdir -p "$scratch/checked" && cp "$LOCKSTEP_HOME/config.yaml" "$scratch/checked"
    LOCKSTEP_HOME=$scratch/checked timeout 20 "$LOCKSTEP" up --foreground >/dev/null 2>refused.txt </dev/null
    same "as up does: $setting" "$(sed "s,$scratch/checked,HOME," refused.txt | grep '^lockstep: ')" "$(sed "s,$LOCKSTEP_HOME,HOME," check.txt | grep '^lockstep: ')"
done
printf 'listen: %s\n' "$(sed 's,.*//,,' "$LOCKSTEP_HOME/address")" >"$LOCKSTEP_HOME/config.yaml"
expect 0 "$LOCKSTEP" up --check # the port of the daemon that runs
rm "$LOCKSTEP_HOME/config.yaml"
expect 0 "$LOCKSTEP" up --check
prints "all settings have their defaults"

# A sweep: all combinations or none, one group, side by side.
expect 2 "$LOCKSTEP" sweep hello.yaml
says "--set"
printf 'job: {command: [sh, -c, "echo $LOCKSTEP_ARRAY_INDEX of $LOCKSTEP_ARRAY_COUNT: $LOCKSTEP_SWEEP_TRAIN_SEED"]}\n' >reads.yaml
expect 0 "$LOCKSTEP" sweep reads.yaml --set train.seed=11,12 --json
says "train.seed has no effect on the program in job.command" "LOCKSTEP_SWEEP_TRAIN_SEED"
members=$(json '" ".join(map(str, d["jobs"]))')
expect 0 "$LOCKSTEP" wait $members
expect 0 "$LOCKSTEP" logs "${members#* }"
prints "1 of 2: 12"
expect 2 "$LOCKSTEP" sweep hello.yaml --set parallel.ranks=1,9
expect 2 "$LOCKSTEP" sweep hello.yaml --set job.grace=1s,2s,1s
says "a value is given twice"
expect 2 "$LOCKSTEP" sweep hello.yaml --set train.seed="$(seq -s, 1 2000)"
says "2000 combinations" "--random"
expect 0 "$LOCKSTEP" ps --json
same "all or none" "$(json '[j["job"] for j in d["jobs"] if j["state"] != "SUCCEEDED"]')" "[]"
expect 0 "$LOCKSTEP" sweep hello.yaml --set job.restarts_max=1,2 --set job.grace=1s,2s,3s --running_max 1 --json
group=$(json 'd["group"]')
members=$(json '" ".join(map(str, d["jobs"]))')
same "six jobs" "$(json 'len(d["jobs"])')" 6
expect 0 "$LOCKSTEP" wait $members
expect 0 "$LOCKSTEP" ps --group "$group"
prints "$group: 6 jobs, 6 SUCCEEDED" "job.restarts_max=2  job.grace=3s"
expect 0 "$LOCKSTEP" ps --all --json
same "one group" "$(json "[j['group'] for j in d['jobs']].count('$group')")" 6
expect 0 "$LOCKSTEP" sweep hello.yaml --set job.restarts_max=1,2,3,4 --random 2 --json
same "some of them" "$(json 'len(d["jobs"])')" 2
expect 2 "$LOCKSTEP" ps --group nothing
says "belongs to a sweep or group"

# Variables of one's own; a job that would steer the terminal is shown as text there, and as it is elsewhere.
printf 'name: %s\njob: {command: [sh, -c, "printf \\"$MINE $OTHER \\\\033]52;c;aGk=\\\\007 \\\\033[31mred\\\\n\\""]}\n' "$(printf 'n%.0s' $(seq 120))" >steers.yaml
expect 0 env MINE=yes "$LOCKSTEP" submit steers.yaml --env MINE --env OTHER=it=is --json
steers=$(json 'd["job"]')
expect 0 "$LOCKSTEP" wait "$steers"
expect 0 "$LOCKSTEP" logs "$steers"
prints "yes it=is" $'\033]52;c;aGk=\a' $'\033[31mred'

# What a job says at its end: its own error, its time limit however it takes the signal, who cancelled it.
printf 'job: {command: [sh, -c, "echo Error: no luck >&2; echo bye; exit 3"]}\n' >unlucky.yaml
expect 0 "$LOCKSTEP" submit unlucky.yaml --json
last=$(json 'd["job"]')
expect 3 "$LOCKSTEP" wait "$last"
prints "exit code 3: Error: no luck"
printf 'job: {time_limit: 0.5, command: [sleep, 100]}\n' >short.yaml
expect 0 "$LOCKSTEP" submit short.yaml --json
last=$(json 'd["job"]')
"$LOCKSTEP" wait "$last" >waited.txt
check "half a second is not 0 s" grep -q "its time limit of 0.5 s" waited.txt
printf 'job: {time_limit: 1s, command: [bash, -c, "trap \\"exit 0\\" TERM; sleep 100 & wait"]}\n' >slow.yaml
expect 0 "$LOCKSTEP" submit slow.yaml --json
last=$(json 'd["job"]')
expect 1 "$LOCKSTEP" wait "$last"
prints "FAILED, exit code 0: it reached its time limit of 1 s"
printf 'job: {command: [bash, -c, "trap \\"exit 7\\" TERM; echo error: of before; echo ready; sleep 100 & wait"]}\n' >stubborn.yaml
expect 0 "$LOCKSTEP" submit stubborn.yaml --json
last=$(json 'd["job"]')
wait_until "it has set its trap" sh -c "'$LOCKSTEP' logs $last | grep -q ready"
expect 0 "$LOCKSTEP" cancel "$last"
expect 7 "$LOCKSTEP" wait "$last"
prints "CANCELLED, exit code 7: cancelled by $(id -un); ended with exit code 7"
check "what it printed before is no cause" sh -c "! grep -q 'of before' '$out'"

# A run that trains: refused for what is not there, goes on in its folder, and never in another run's.
expect 2 "$LOCKSTEP" submit tiny.yaml --set 'data.train=[missing.txt]' --hold
says "data.train" "missing.txt"
expect 2 "$LOCKSTEP" submit tiny.yaml --set model.rope_scaling.factor=4 --hold
says "model.rope_scaling.factor has no effect without model.rope_scaling.kind"
expect 0 "$LOCKSTEP" train tiny.yaml --run-dir imported --steps 1
sed '/^model:/d; /^tokenizer:/d' tiny.yaml >tuned.yaml && echo 'model: {from: imported, context: 4096}' >>tuned.yaml
expect 2 "$LOCKSTEP" submit tuned.yaml --hold
says "model.context is 4096, but the context of the model named in model.from is 32"
expect 2 "$LOCKSTEP" submit tiny.yaml --set tokenizer.kind=file --set tokenizer.file=nothing.json --hold
says "nothing.json"
mkdir -p runs/kept
cp tiny.yaml runs/kept/run.yaml
expect 0 "$LOCKSTEP" submit tiny.yaml --name kept --hold --json
same "goes on" "$(json 'd["run_dir"]')" "$scratch/runs/kept"
says "continues the run in runs/kept"
last=$(json 'd["job"]')
expect 0 "$LOCKSTEP" cancel "$last"
mkdir "runs/kept-$((last + 1))"
expect 0 "$LOCKSTEP" submit tiny.yaml --name kept --set train.seed=99 --hold --json
same "a folder of its own" "$(json 'd["run_dir"]')" "$scratch/runs/kept-$((last + 1))-2"
says "train.seed: 7 in the run, 99 now"
expect 0 "$LOCKSTEP" cancel "$(json 'd["job"]')"
expect 0 "$LOCKSTEP" sweep tiny.yaml --name kept --set train.seed=7,8 --set job.hold=true --json
check "not one in the folder of the run" sh -c "! '$LOCKSTEP' ps --json | grep -q 'runs/kept\"'"
expect 0 "$LOCKSTEP" cancel $(json '" ".join(map(str, d["jobs"]))')
expect 2 "$LOCKSTEP" submit hello.yaml --name ''
expect 2 "$LOCKSTEP" submit hello.yaml --after 99999
says "there is no job 99999"
expect 2 "$LOCKSTEP" submit hello.yaml --env 'A B=3'
says "A B=3: write NAME or NAME=VALUE"
printf 'job: {command: sleep 5}\n' >one-word.yaml
expect 2 "$LOCKSTEP" submit one-word.yaml
says "one word 'sleep 5'; write a list of words, as [sleep, 5]"
expect 0 "$LOCKSTEP" help submit
prints "Usage: lockstep submit"
expect 0 "$LOCKSTEP" submit hello.yaml --hold --json
last=$(json 'd["job"]')
expect 0 "$LOCKSTEP" release "$last"
expect 0 "$LOCKSTEP" wait "$last"
expect 2 "$LOCKSTEP" release "$last"

# A hold of the run file is a hold.
printf 'job: {command: ["true"], hold: true}\n' >held.yaml
expect 0 "$LOCKSTEP" submit held.yaml --json
same "held by its file" "$(json 'd["state"]')" HELD
expect 0 "$LOCKSTEP" cancel "$(json 'd["job"]')"

# A job without a run file, a run file from a pipe, and the same request twice.
expect 0 "$LOCKSTEP" submit --ranks 2 --name plain -- sh -c 'echo "rank $RANK: $0"' 'it"s'
last=$(cat "$out")
expect 0 "$LOCKSTEP" wait "$last"
expect 0 "$LOCKSTEP" logs "$last"
prints 'rank 0: it"s' 'rank 1: it"s'
expect 2 "$LOCKSTEP" submit hello.yaml hello.yaml
says "a program after '--'"
expect 2 "$LOCKSTEP" submit hello.yaml -- sh
says "not both"
"$LOCKSTEP" submit - --hold <hello.yaml >"$out"
last=$(cat "$out")
expect 0 "$LOCKSTEP" ps "$last"
prints "hello" "HELD" "stdin"
expect 0 "$LOCKSTEP" submit hello.yaml --hold --key "of $last"
first=$(cat "$out")
expect 0 "$LOCKSTEP" submit hello.yaml --hold --key "of $last"
same "one job for one key" "$(cat "$out")" "$first"

# Many jobs at once.
expect 2 "$LOCKSTEP" cancel
says "which jobs?"
expect 2 "$LOCKSTEP" cancel 1 --state held
says "not both"
expect 0 "$LOCKSTEP" cancel --user "$(id -un)" --state held --json
same "all that were held" "$(json 'sorted(j["job"] for j in d["jobs"]), {j["state"] for j in d["jobs"]}')" "[$last, $first] {'CANCELLED'}"
expect 0 "$LOCKSTEP" cancel --state held
says "no such jobs wait or run"
printf 'job: {command: [bash, -c, "trap : TERM; echo set; while :; do sleep 0.1; done"], grace: 60s}\n' >saves.yaml
expect 0 "$LOCKSTEP" submit saves.yaml --json
last=$(json 'd["job"]')
wait_until "it has set its trap" sh -c "'$LOCKSTEP' logs $last | grep -q set"
expect 0 "$LOCKSTEP" cancel --user "$(id -un)"
expect 0 "$LOCKSTEP" cancel --user "$(id -un)"
says "no such jobs wait or run"
expect 0 "$LOCKSTEP" cancel --user somebody
says "no jobs of somebody that you may change wait or run"
check "its grace time was not ended" is_state "$last" STOPPING
expect 0 "$LOCKSTEP" cancel "$last"
expect 137 "$LOCKSTEP" wait "$last"

# Pauses, drained machines, maintenance, other terms.
expect 0 "$LOCKSTEP" pause --reason "new disks"
expect 0 "$LOCKSTEP" ps --user nobody
prints "no such jobs are waiting or running" "the queue is paused (by $(id -un): new disks): no job starts until 'lockstep resume'"
prints "the queue is paused" "new disks"
expect 0 "$LOCKSTEP" submit hello.yaml --account vision
last=$(cat "$out")
expect 0 "$LOCKSTEP" why "$last"
prints "the queue is paused (by $(id -un): new disks)"
expect 0 "$LOCKSTEP" change "$last" --time-limit 90m --account research --priority low
expect 0 "$LOCKSTEP" ps "$last" --json
same "other terms" "$(json 'd["time_limit_s"], d["account"], d["priority"]')" "5400.0 research low"
expect 2 "$LOCKSTEP" change "$last" --after "$first"
says "did not succeed"
expect 0 "$LOCKSTEP" change "$last" --time-limit 0 --after none
expect 0 "$LOCKSTEP" drain
prints "is drained"
expect 0 "$LOCKSTEP" resume
prints "no job starts: every machine is drained or down" "is drained"
expect 0 "$LOCKSTEP" nodes
prints "drained"
expect 0 "$LOCKSTEP" undrain
prints "the queue starts jobs"
expect 0 "$LOCKSTEP" wait "$last"
expect 0 "$LOCKSTEP" maintenance --in 1h --for 1h
expect 0 "$LOCKSTEP" submit hello.yaml --json
last=$(json 'd["job"]')
expect 0 "$LOCKSTEP" why "$last"
prints "maintenance begins in" "would start now with a time limit of"
expect 0 "$LOCKSTEP" change "$last" --time-limit 30m
expect 0 "$LOCKSTEP" wait "$last"
expect 2 "$LOCKSTEP" maintenance --in 1h
says "maintenance with --for"
expect 2 "$LOCKSTEP" maintenance --begin tomorrow --for 1h
says "write a local time as"
expect 0 "$LOCKSTEP" maintenance --json
same "one is announced" "$(json '[m["window"] for m in d["maintenance"]], d["paused"], d["drained"]')" "[1] None {}"
expect 0 "$LOCKSTEP" maintenance --cancel 1
expect 0 "$LOCKSTEP" maintenance --in 0s --for 1h --reason disks
prints "no job starts: there is maintenance until" "disks"
expect 0 "$LOCKSTEP" maintenance --cancel 1
prints "the queue starts jobs"

# New settings without a restart: some take effect now, others are named, errors change nothing.
config=$LOCKSTEP_HOME/config.yaml
cp "$config" config.before 2>/dev/null || : >config.before
{ grep -vE '^(money|policy|user_jobs_max):' config.before; echo "user_jobs_max: 4000"; } >"$config"
expect 0 "$LOCKSTEP" reload
prints "changed: user_jobs_max"
printf 'spot: true\n' >>"$config"
expect 0 "$LOCKSTEP" reload --json
same "needs a restart" "$(json 'd["changed"], d["restart"]')" "[] ['spot']"
printf 'accounts: {list: ["leaver:quota=1"]}\n' >>"$config"
expect 0 "$LOCKSTEP" reload
sed -i '$d' "$config"
expect 0 "$LOCKSTEP" reload
prints "changed: accounts.list" "keeps its limits"
same "they are kept" "$("$LOCKSTEP" accounts --json | python3 -c 'import json, sys; print([a["quota"] for a in json.load(sys.stdin)["accounts"] if a["account"] == "leaver"])')" "[1]"
expect 0 "$LOCKSTEP" accounts leaver --delete
printf 'user_jobs_max: many\n' >"$config"
expect 2 "$LOCKSTEP" reload
says "user_jobs_max" "The settings are as they were"
if [ -s config.before ]; then cp config.before "$config"; else rm "$config"; fi
expect 0 "$LOCKSTEP" reload

# In a terminal: drawn on the other screen, which is left again.
if command -v script >/dev/null; then
    TERM=xterm timeout 60 script -qec "stty rows 24 cols 80; '$LOCKSTEP' logs $steers; '$LOCKSTEP' ps --all" /dev/null >shown.txt </dev/null
    holds shown.txt 'yes it=is \x1b]52;c;aGk=\x07' $'\033[31mred'
    check "no other escape" sh -c "! tr -d '\r' <shown.txt | sed 's/\x1b\[[0-9]*m//g' | grep -q \$'\033'"
    check "no line is wider than the terminal" python3 -c "
lines = [l.rstrip('\r\n') for l in open('shown.txt', encoding='utf-8') if 'x1b' not in l and '--group' not in l and '[0m' not in l]
assert any('nnn…' in l for l in lines) and max(map(len, lines)) <= 80, lines"
    rm -f screen.txt
    type_when_shown "devices in use" q | TERM=xterm timeout 60 script -qec "stty rows 24 cols 60; '$LOCKSTEP' top" /dev/null >screen.txt
    check "top leaves the screen as it was" grep -q $'\033\[?1049h' screen.txt
    check "and the cursor" grep -q $'\033\[?25h\033\[?1049l' screen.txt
fi

# What the daemon writes about jobs can be read by people.
holds "$scratch/daemon.log" "job 1 submitted by $(id -un)" "job 1 STARTING, start 1" "job 3 FAILED, start 1, cause program"
finish
