#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# job.metrics: event files of TensorBoard, lines of JSON and printed text of a foreign program are shown while they grow.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

# A program that knows nothing of this one. It writes steps 1 to 5, and the next as soon as a file allows them; of the last record, first a half.
cat >program.py <<'PY'
import json, os, struct, sys, time

table = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    table.append(byte)


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF)


def record(step, tag, value):
    scalar = b"\x0a" + bytes([len(tag)]) + tag + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    event = b"\x09" + struct.pack("<d", 1.7e9 + step) + b"\x10" + bytes([step]) + b"\x2a" + bytes([len(summary)]) + summary
    length = struct.pack("<Q", len(event))
    return length + masked(length) + event + masked(event)


def wait_for(name):
    while not os.path.exists(name):
        time.sleep(0.02)


os.makedirs("tb", exist_ok=True)
os.makedirs("logs", exist_ok=True)
with open("tb/events.out.tfevents.1.host", "wb", 0) as board, open("logs/eval.jsonl", "w", 1) as log:
    for step in range(1, 11):
        if step == 6:
            wait_for("go")
        data = record(step, b"board/loss", 1 / step)
        board.write(data[:10])
        if step == 10:
            wait_for("rest")
        board.write(data[10:])
        log.write(json.dumps({"step": step, "eval.acc": step / 10}) + "\n")
        print(f"step {step} printed={step * 2} by <b>me</b>", flush=True)
PY
cat >foreign.yaml <<'EOF'
name: foreign
job:
  command: [python3, program.py]
  metrics: ["tb/*.tfevents.*", logs/eval.jsonl, stdout]
EOF

queue_up
curl_of() { curl -sf --unix-socket "$LOCKSTEP_HOME/socket" "http://x$1"; }
# last KEY: how many points there are, the newest step and its mean.
last() {
    curl_of /v1/runs/1/metrics | python3 -c "
import json, sys
c = json.load(sys.stdin)['keys'].get('$1')
print(c and f\"{len(c['step'])} {c['step'][-1]} {c['mean'][-1]:.4g}\")"
}
is_last() { [ "$(last "$1")" = "$2" ]; }

expect 2 "$LOCKSTEP" submit hello.yaml --set 'job.metrics=[a*/b]'
says "job.metrics has 'a*/b'" "only the part after the last /"
expect 2 "$LOCKSTEP" submit hello.yaml --set 'job.metrics=[logs/]'
says "job.metrics has 'logs/'"
write_text text.txt 10 1
write_run trains.yaml
expect 2 "$LOCKSTEP" submit trains.yaml --set 'job.metrics=[x]'
says "job.metrics names the files of the program of job.command" "remove job.metrics"

expect 0 "$LOCKSTEP" submit foreign.yaml
wait_until "printed text is read" is_last printed "5 5 10"
wait_until "lines of JSON are read" is_last eval.acc "5 5 0.5"
wait_until "event files are read" is_last board/loss "5 5 0.2"
curl -sN --unix-socket "$LOCKSTEP_HOME/socket" http://x/v1/events >events.txt &
wait_until "a listener is told of the run" grep -q '"run":"1"' events.txt
: >go
wait_until "it is told what grows" sh -c 'test $(grep -c \"run\":\"1\" events.txt) -ge 2'
wait_until "all but the half record is read" is_last board/loss "9 9 0.1111"
: >rest
wait_until "the whole record is read" is_last board/loss "10 10 0.1"
expect 0 "$LOCKSTEP" wait 1
same "the rest of the text" "$(last printed)" "10 10 20"
same "a run among the others" "$(curl_of /v1/runs | python3 -c 'import json, sys; r = json.load(sys.stdin)["runs"]; print(r[0]["id"], r[0]["step"], len(r))')" "1 10 1"
curl_of /jobs/1 >job.html
check "the page of the job links to the run" grep -q /runs/1 job.html
curl_of /runs/1 >run.html
check "the page of the run has a chart" grep -q 'data-key="board/loss"' run.html

expect 0 "$LOCKSTEP" submit hello.yaml --set 'job.metrics=[nowhere/*.log, missing.jsonl]'
expect 0 "$LOCKSTEP" wait 2
same "files that are not there" "$(curl_of /v1/runs/2/metrics | python3 -c 'import json, sys; print(json.load(sys.stdin)["keys"])')" "{}"

# Another user's files are read with that user's rights: his own are shown, and those that he could not read are not, not even their names.
other=65534
as_other() { setpriv --reuid "$other" --regid "$other" --clear-groups env HOME=/nonexistent LOCKSTEP_HOME="$LOCKSTEP_HOME" "$@"; }
chmod 711 "$scratch"
if [ "$(id -u)" = 0 ] && as_other "$LOCKSTEP" version >/dev/null 2>&1; then
    mkdir -m 700 closed
    echo 'secret=1' >closed/a.log
    mkdir his && chown "$other" his
    ln -s "$scratch/closed/a.log" his/link.log
    printf 'name: his\njob: {command: [sh, -c, "echo step 3 own=4 >mine.log"], metrics: ["*.log"]}\n' >his/his.yaml
    printf 'name: spy\njob: {command: ["true"], metrics: ["%s/closed/*.log", "%s/closed/a.log"]}\n' "$scratch" "$scratch" >his/spy.yaml
    expect 0 sh -c "cd his && setpriv --reuid $other --regid $other --clear-groups '$LOCKSTEP' submit his.yaml"
    expect 0 sh -c "cd his && setpriv --reuid $other --regid $other --clear-groups '$LOCKSTEP' submit spy.yaml"
    wait_until "his jobs end" sh -c "'$LOCKSTEP' wait 3 4"
    wait_until "his own file is read" sh -c "curl -s --unix-socket '$LOCKSTEP_HOME/socket' http://x/v1/runs/3/metrics | tee his.json | grep -q own"
    check "and not what a link of his leads to" sh -c '! grep -q secret his.json'
    curl -s --unix-socket "$LOCKSTEP_HOME/socket" http://x/v1/runs/4/metrics >spy.json
    check "what he cannot read is refused" grep -q 'can.t be read' spy.json
    check "and not shown" sh -c '! grep -q secret spy.json'
fi

# A program that logs by HTTP has its newest numbers in the list of runs, also when nobody has looked at its curves.
job=$("$LOCKSTEP" submit hello.yaml)
expect 0 "$LOCKSTEP" wait "$job"
expect 0 curl -sf --unix-socket "$LOCKSTEP_HOME/socket" -H 'Content-Type: application/json' -d '{"points": [{"step": 6, "loss": 2}, {"step": 7, "loss": 1.5}]}' "http://x/v1/runs/$job/log"
same "its newest numbers" "$(curl_of /v1/runs | python3 -c 'import json, sys; print(*((r["step"], r["loss"]) for r in json.load(sys.stdin)["runs"] if r["id"] == sys.argv[1]))' "$job")" "(7, 1.5)"
finish
