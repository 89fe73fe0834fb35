#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Caps, budgets and alerts on a real daemon: a capped run stops and continues to the same bits; what is told reaches a webhook, signed, and a mail.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"

# A webhook that fails at first; /never takes requests and does not answer.
cat >hook.py <<'PY'
import http.server, sys, time
class Hook(http.server.BaseHTTPRequestHandler):
    seen = 0
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/never":
            time.sleep(60)
        Hook.seen += 1
        open("hook.log", "a").write(f"{self.headers.get('X-Lockstep-Signature')}\t{body}\n")
        self.send_response(500 if Hook.seen == 1 else 204)
        self.end_headers()
    def log_message(self, *words):
        pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook)
open("port.new", "w").write(str(server.server_port))
import os; os.rename("port.new", "port")
server.serve_forever()
PY
python3 hook.py &
python3 -c 'import random; random.seed(3); print(" ".join(random.choice(["one", "two", "three"]) for _ in range(9000)))' >text.txt
cat >run.yaml <<'EOF'
name: capped
model: {layers: 1, heads: 2, width: 32, context: 32}
data: {train: [text.txt]}
train: {steps: 1200, global_batch: 8, micro_batch: 4, leaves: 2, threads: 1}
eval: {every_steps: 0}
EOF
hashes() { python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); print(d["state_hash"], d["curve_hash"])' "$1/summary.json"; }

# In the foreground: without a price the cap can't be kept; at the cap it ends with 75, and refuses to go on until the cap is raised.
expect 0 "$LOCKSTEP" train run.yaml --run-dir unstopped
want=$(hashes unstopped)
expect 2 "$LOCKSTEP" train run.yaml --set job.max_cost=0.5
says "the price of a device is not known" "job.price"
for cap in 0 -1 '5 EUR'; do
    expect 2 "$LOCKSTEP" train run.yaml --set "job.max_cost=$cap"
    says "job.max_cost is" "allowed is auto or a number"
done
expect 75 "$LOCKSTEP" train run.yaml --run-dir here --set job.price=3600 --set job.max_cost=0.5
prints "alert: the run has cost" "its cap is 0.50 USD (job.max_cost)"
check "the alert is in events.jsonl" grep -q '"event":"alert","kind":"cap"' here/events.jsonl
expect 2 "$LOCKSTEP" train run.yaml --run-dir here --set job.price=3600 --set job.max_cost=0.5
says "raise the cap"
expect 0 "$LOCKSTEP" train run.yaml --run-dir here --set job.price=3600 --set job.max_cost=90000
same "the bits of the run that was never stopped" "$(hashes here)" "$want"

# In the queue. A queue without a price refuses caps and budgets.
queue_up
expect 2 "$LOCKSTEP" submit run.yaml --set job.max_cost=5
says "money.price"
expect 2 "$LOCKSTEP" accounts lab --budget 5
says "money.price"
wait_until "the webhook listens" test -s port
echo "a secret" >secret
printf '#!/bin/sh\necho "$@" >>%s/mail; cat >>%s/mail\n' "$scratch" "$scratch" >sendmail
chmod +x sendmail
cat >"$LOCKSTEP_HOME/config.yaml" <<EOF
money: {price: 3600}
alerts: {webhook: "http://127.0.0.1:$(cat port)/secret-path", webhook_secret: $scratch/secret, mail: [ann@example.com], sendmail: $scratch/sendmail}
EOF
expect 0 "$LOCKSTEP" reload
job=$("$LOCKSTEP" submit run.yaml --set job.max_cost=0.5)
wait_until "the run is held" is_state "$job" HELD
expect 0 "$LOCKSTEP" why "$job"
prints "stopped by its cap:" "of 0.50 USD; raise it with 'lockstep change $job --max-cost 1.00'"
expect 2 "$LOCKSTEP" release "$job"
says "stopped by its cap"
for cap in 0 -5 '5 EUR'; do
    expect 2 "$LOCKSTEP" change "$job" --max-cost "$cap"
done
expect 0 "$LOCKSTEP" change "$job" --max-cost 90000
expect 0 "$LOCKSTEP" wait "$job"
same "the same bits in the queue" "$(hashes runs/capped)" "$want"

# The alert reached the webhook at the second try, signed, and the mail; no log has the path.
heard_twice() { [ "$(wc -l <hook.log)" -ge 2 ]; }
wait_until "the webhook has heard twice" heard_twice
check "it is signed" python3 - <<'PY'
import hashlib, hmac, json
tries = [line.rstrip("\n").split("\t") for line in open("hook.log")]
for signature, body in tries[:2]:
    moment, digest = [part.split("=")[1] for part in signature.split(",")]
    assert hmac.new(b"a secret", f"{moment}.{body}".encode(), hashlib.sha256).hexdigest() == digest
alert = json.loads(tries[1][1])
assert tries[0][1] == tries[1][1] and alert["kind"] == "cap" and "its cap" in alert["text"], alert
PY
check "a mail was sent" grep -q "Subject: lockstep: cap, job $job" mail
check "no log has the path" sh -c "! grep -rq secret-path daemon.log"
expect 0 curl -s --unix-socket "$LOCKSTEP_HOME/socket" http://localhost/v1/alerts
prints '"kind":"cap"'

# Text of a program is told as text. A webhook that never answers holds nobody up.
sed -i 's|secret-path|never|' "$LOCKSTEP_HOME/config.yaml"
expect 0 "$LOCKSTEP" reload
cat >tells.sh <<'EOF'
printf '{"kind": "other", "text": "<b>\\u001b[31mred\\u0007"}\n' >"$LOCKSTEP_JOB_DIR/new"
mv "$LOCKSTEP_JOB_DIR/new" "$LOCKSTEP_JOB_DIR/alerts.jsonl"
sleep 30
EOF
job=$("$LOCKSTEP" submit -- sh tells.sh)
wait_until "the alert is on ps" sh -c "'$LOCKSTEP' ps | grep -q 'alert: <b>.*red'"
expect 0 timeout 5 "$LOCKSTEP" ps --json
check "no control characters" python3 -c "import json; assert not any(ord(c) < 32 for j in json.load(open('$out'))['jobs'] for c in j['why'] or '')"
expect 0 "$LOCKSTEP" cancel "$job"

# The budget of an account: its jobs are held, and continue when it is raised.
expect 0 "$LOCKSTEP" accounts lab --budget 0.5
expect 2 "$LOCKSTEP" accounts lab --budget 5EUR
says "5EUR" "other currencies"
job=$("$LOCKSTEP" submit run.yaml --account lab --set name=lab)
wait_until "the budget stops it" is_state "$job" HELD
expect 0 "$LOCKSTEP" ps "$job"
prints "stopped by the budget of account lab" "of 0.50 USD this month"
expect 0 "$LOCKSTEP" accounts lab --budget 90000
expect 0 "$LOCKSTEP" wait "$job"
same "the same bits under a budget" "$(hashes runs/lab)" "$want"
expect 0 "$LOCKSTEP" usage
prints "This month: lab" "of 90000.00 USD so far"
finish
