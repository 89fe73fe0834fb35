#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Several hosts, one of which is lost and comes back: its agent, started again, takes its old host number, the state is brought there, and the run
# continues with all its ranks. The same when only a rank was killed, which its agent starts again, even if it is the only one of its host. Runs last
# until the expected event has happened and are then told to end; the bits are those of one process that makes as many steps.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"
. "$LS_SOURCE_DIR/tests/lib/hosts.sh"

train=("$LOCKSTEP" train tiny.yaml --json --set train.global_batch=48 --set train.micro_batch=4 --set train.leaves=6 --set eval.every_steps=0
    --set eval.batches=1 --set train.schedule.steps=1000 --set job.node_lease=60 --threads 1)
export LOCKSTEP_TOKEN=$token

# until_true WHAT COMMAND...: within 200 seconds, while the trainer lives.
until_true() {
    local what=$1 i
    shift
    for i in $(seq 20000); do
        ! "$@" || return 0
        kill -0 "$trainer" 2>/dev/null || break
        sleep 0.01
    done
    fail "$name: waited in vain for $what"
    tail -n 3 "$name".*err
    return 1
}
told() { [ "$(grep -c "\"event\":\"$1\"" "$name/events.jsonl" 2>/dev/null)" -ge "$2" ]; }
# happened EVENT COUNT: waits until the run has reported COUNT of them.
happened() { until_true "$2 of $1" told "$@"; }
past() { [ "$(wc -l 2>/dev/null <"$name/metrics.jsonl" || echo 0)" -gt "$1" ]; }
# further: waits until ten more steps were made.
further() { until_true "ten more steps" past $(($(wc -l <"$name/metrics.jsonl") + 10)); }

# agent NAME HOST ARGUMENT...: in the background; its process is $pid.
agent() { background "$1" "$2" "$LOCKSTEP" agent --coordinator 10.77.0.1:29711 "${@:3}"; }
# ranks_of PROCESS: of an agent or a trainer.
ranks_of() { pgrep -P "$1"; }
has_ranks() { [ "$(ranks_of "$1" | wc -l)" -ge "$2" ]; }

# begin NAME RANKS ARGUMENT...: a trainer with RANKS ranks, and two hosts, of two ranks and of one, whose agents people start.
begin() {
    name=$1
    background "$name" 0 "${train[@]}" --set train.steps=100000 --run-dir "$name" --ranks $(($2 + 3)) --local-ranks "$2" --coordinator 10.77.0.1:29711 "${@:3}"
    trainer=$pid
    agent "$name.1" 1 --slots 2
    first=$pid
    until_true "ranks of the first host" has_ranks $first 2 # agents get their ranks in the order in which they connect
    agent "$name.2" 2 --slots 1
    second=$pid
    until_true "twenty steps" past 20
}

# lost_agents COUNT: whether the end of COUNT agents was noticed, of hosts that took part or were about to.
lost_agents() { [ "$(grep -c " warn .*the connection to its agent was closed" "$name.err")" -ge "$1" ]; } # an alert may repeat it
# has_parts COUNT: whether the newest cut has COUNT parts.
has_parts() { grep '"event":"team"' "$name/events.jsonl" | tail -n 1 | grep -q "\"parts\":$1,"; }

# over: after a few more steps the run is told to end, and does. Its bits are those of one process that makes as many steps.
over() {
    further
    kill -TERM $trainer
    ended "$name" $trainer 75
    nothing_left "$name"
    expect 0 "${train[@]}" --set train.steps="$(field "$name.out" step)" --run-dir "$name.one" --ranks 1
    same "$name: bits" "$(hashes "$name.out")" "$(hashes "$out")"
}
# finished AGENT: the agent ends, too.
finished() {
    over
    wait "$1"
    same "$name: how the agent ended" $? 0
}

# events: the ranks that were reported, and how many parts the cuts had, in order.
events() {
    python3 - "$name" <<'PY'
import json, sys
events = [json.loads(line) for line in open(sys.argv[1] + "/events.jsonl")]
of = lambda name: sorted(e["rank"] for e in events if e["event"] == name)
print("lost", *of("rank_lost"), "joined", *of("rank_joined"), "parts", *[e["parts"] for e in events if e["event"] == "team"])
PY
}

for zero in 0 1; do
    # A host is lost and comes back, but not at once.
    begin "host-$zero" 1 --set parallel.zero=$zero --set checkpoint.every_steps=0
    kill -9 $first $(ranks_of $first)
    happened recovered 1
    agent "host-$zero.3" 1 --slots 2
    until_true "a rank of the agent" has_ranks $pid 1
    kill -9 $pid $(ranks_of $pid)
    until_true "the second loss" lost_agents 2
    agent "host-$zero.4" 1 --slots 2
    until_true "all ranks" has_parts 4
    finished $pid
    holds "host-$zero/events.jsonl" '"event":"rank_joined","rank":1,' '"event":"rank_joined","rank":2,'

    # One rank of a host is lost: its agent starts it again. Checkpoints need the state of all hosts all the time.
    begin "rank-$zero" 1 --set parallel.zero=$zero --set checkpoint.every_steps=1 --set checkpoint.keep_last=1
    victim=$(ranks_of $first | tail -n 1)
    kill -9 $victim
    happened rank_joined 1
    finished $first
    same "rank-$zero: events" "$(events | sed 's/[12]/R/g')" "lost R joined R parts 3 4"

    # The only one of its host, which has nothing of the state until it is back.
    begin "only-$zero" 1 --set parallel.zero=$zero --set checkpoint.every_steps=10
    kill -9 "$(ranks_of $second)"
    happened rank_joined 1
    finished $second
    same "only-$zero: events" "$(events)" "lost 3 joined 3 parts 3 4"
done

# The same for a rank of the trainer's host.
begin own 2 --set parallel.zero=1 --set checkpoint.every_steps=10
kill -9 "$(ranks_of $trainer | head -n 1)"
happened rank_joined 1
finished $first
same "own: events" "$(events | sed 's/[01] /R /g')" "lost R joined R parts 4 5"

# The trainer starts agents again that it started over ssh (or the stand-in for it), repeatedly while the host is down.
cat >way <<SH
#!/bin/sh
[ ! -e $scratch/down ] || { echo "no way to it" >&2; exit 255; }
exec $scratch/ssh "\$@"
SH
chmod +x way
hosts_file two.hosts "host0 10.77.0.1" "host1 slots=2 10.77.0.2"
# over_ssh NAME ARGUMENT...: and waits until it has lost host1, agent and ranks.
over_ssh() {
    name=$1
    LOCKSTEP_SSH=$scratch/way background "$name" 0 "${train[@]}" --set train.steps=100000 --set parallel.zero=1 --set checkpoint.every_steps=10 \
        --run-dir "$name" --hosts two.hosts "${@:2}"
    trainer=$pid
    until_true "twenty steps" past 20
    touch down
    kill -9 $(of_host host1)
    happened recovered 1
}
# of_host HOST: agent and ranks of a host, as the run's events have them.
of_host() {
    python3 - "$name" "$1" <<'PY'
import json, sys
ranks = [e["pid"] for e in map(json.loads, open(sys.argv[1] + "/events.jsonl")) if e["event"] == "rank_started" and e["host"] == sys.argv[2]]
print(open(f"/proc/{ranks[0]}/stat").read().rsplit(")", 1)[1].split()[1], *ranks)
PY
}
says_in_log() { grep -qF -- "$1" "$name.err"; }
over_ssh again
until_true "a failed try" says_in_log "host host1 could not be brought back: its command ended with exit code 255 (ssh must get there without a password or a question): no way to it"
rm down
until_true "all ranks" has_parts 3
over
holds again.err "ranks 1 and 2 lost, the others continue after" "rank 1 joins after step" "rank 2 joins after step" "(host host1)"
over_ssh never --set job.max_replacements=1
until_true "the only try" says_in_log "host host1 could not be brought back"
rm down
sleep 3 # another try would come two seconds later; this waits for nothing to happen
over
check "no further try" eval '! grep -q rank_joined never/events.jsonl'

finish
