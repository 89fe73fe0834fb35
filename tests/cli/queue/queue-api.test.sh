#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The API by curl, over the socket and over TCP: what openapi.json promises is what comes; Prometheus' text; events as they happen; the page.
. "$LS_SOURCE_DIR/tests/cli/queue/queue.sh"
command -v curl >/dev/null || { echo "skipped: no curl"; exit 77; }

queue_up
address=$(cat "$LOCKSTEP_HOME/address") token=$(cat "$LOCKSTEP_HOME/token")
socket=(curl -sS --max-time 90 --unix-socket "$LOCKSTEP_HOME/socket")
tcp=(curl -sS --max-time 90 -H "Authorization: Bearer $token")
# code WANTED CURL...: the status code, with the answer in $out.
code() {
    local wanted=$1 got
    shift
    checks=$((checks + 1))
    got=$("$@" -o "$out" -w '%{http_code}' 2>"$err")
    [ "$got" = "$wanted" ] || { fail "code $got instead of $wanted: $*"; head -c 500 "$out"; }
}
post() { local path=$1 body=$2; shift 2; "${socket[@]}" "$@" -H 'Content-Type: application/json' -d "$body" "http://x$path"; }

# A run that trains, one that waits behind it, one that has ended.
code 201 "${socket[@]}" -H 'Content-Type: application/json' -d "$(python3 -c "
import json; print(json.dumps({'file': open('tiny.yaml').read(), 'directory': '$scratch', 'set': ['train.steps=60'], 'ranks': 2, 'account': 'research'}))")" http://x/v1/jobs
same "submitted" "$(json 'd["job"], d["run_dir"]')" "1 $scratch/runs/tiny"
expect 0 "$LOCKSTEP" submit waits.yaml --ranks 2
expect 0 "$LOCKSTEP" submit hello.yaml --hold --priority low
code 200 "${socket[@]}" "http://x/v1/jobs/1/wait?timeout_s=80"
same "it trained" "$(json 'd["state"], d["exit_code"]')" "SUCCEEDED 0"
wait_until "the next one runs" is_state 2 RUNNING

# Every answer has what the document says, over both doors.
code 200 "${socket[@]}" http://x/openapi.json
cp "$out" openapi.json
check "openapi.json is whole" python3 - <<'PY'
import json
d = json.load(open("openapi.json"))
assert d["openapi"].startswith("3.1") and len(d["paths"]) > 20
names = [o["operationId"] for p in d["paths"].values() for o in p.values()]
assert len(names) == len(set(names))
for path, operations in d["paths"].items():
    for operation in operations.values():
        places = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
        assert places == {w[1:-1] for w in path.split("/") if w.startswith("{")}, path
        assert {"200", "201", "202"} & set(operation["responses"]) and operation["summary"]
PY
check "answers are as promised" python3 - "$LOCKSTEP_HOME/socket" "$address" "$token" <<'PY'
import json, subprocess, sys
socket, address, token = sys.argv[1:]
d = json.load(open("openapi.json"))
doors = [["--unix-socket", socket, "http://x"], ["-H", "Authorization: Bearer " + token, address]]
kinds = {"integer": int, "number": (int, float), "string": str, "boolean": bool, "array": list, "object": dict, "null": type(None)}
wrong, seen = [], 0
def hold(where, value, schema):
    """Every member that is promised, of the kind that is promised, down to the last list."""
    kind = schema.get("type", [])
    kind = [kind] if isinstance(kind, str) else kind
    if kind and not any(isinstance(value, kinds[k]) and (k == "boolean" or not isinstance(value, bool)) for k in kind):
        wrong.append(f"{where} is {value!r:.200}, promised {kind}")
    if isinstance(value, list):
        for i, item in enumerate(value):
            hold(f"{where}[{i}]", item, schema.get("items", {}))
    if isinstance(value, dict):
        wrong.extend(f"{where}: no {name} in {value!r:.300}" for name in schema.get("required", []) if name not in value)
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                hold(f"{where}.{name}", value[name], inner)
def ask(door, path, body):
    *options, base = door
    post = ["-H", "Content-Type: application/json", "-d", json.dumps(body)] if body is not None else []
    run = subprocess.run(["curl", "-sS", "--max-time", "60", "-w", "\\n%{http_code}", *post, *options, base + path], capture_output=True, text=True)
    text, code = run.stdout.rsplit("\n", 1)
    return code, json.loads(text)
for path, operations in d["paths"].items():
    content = operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
    if "application/json" not in content or path in ("/openapi.json", "/v1/jobs/{job}/sweep"):
        continue
    for door in doors:
        for job in ("1", "2", "3") if "{job}" in path else ("",):
            query = {"/v1/jobs/{job}/wait": "?timeout_s=0", "/v1/jobs": "?all=true", "/v1/compare": "?runs=1"}.get(path, "")
            code, answer = ask(door, path.replace("{job}", job).replace("{run}", "1") + query, None)
            seen += 1
            hold(path, answer, content["application/json"]["schema"])
assert seen >= 30, seen
file = "name: held\njob: {command: [sh, -c, 'exit 0']}\n"
for path, job, body in (("/v1/jobs", 0, {"file": file, "directory": "/tmp", "hold": True}),
                        ("/v1/sweeps", 0, {"file": file, "directory": "/tmp", "set": {"job.grace": ["1s", "2s"]}}),
                        ("/v1/jobs/{job}/hold", 3, {}), ("/v1/jobs/{job}/priority", 3, {"priority": "low"}), ("/v1/jobs/{job}/resize", 3, {"ranks": 1}),
                        ("/v1/accounts", 0, {"account": "made"})):
    code, answer = ask(doors[0], path.replace("{job}", str(job)), body)
    responses = d["paths"][path]["post"]["responses"]
    if code not in responses:
        wrong.append(f"POST {path}: {code} {answer}, promised {sorted(responses)}")
    else:
        hold("POST " + path, answer, responses[code]["content"]["application/json"]["schema"])
    if path == "/v1/sweeps":
        got, sweep = ask(doors[0], f"/v1/jobs/{answer['jobs'][0]}/sweep", None)
        hold("a sweep", sweep, d["paths"]["/v1/jobs/{job}/sweep"]["get"]["responses"]["200"]["content"]["application/json"]["schema"])
error = d["components"]["responses"]["error"]["content"]["application/json"]["schema"]
for door, path, body, code, word in ((doors[0], "/v1/jobs/77", None, "404", "not found"), (doors[0], "/v1/jobs?x=1", None, "400", "invalid"),
                                     (["-H", "Authorization: Bearer 00", address], "/v1/jobs", None, "401", "unauthorized"),
                                     (["-H", "Host: elsewhere", address], "/v1/jobs", None, "403", "forbidden"),
                                     (doors[0], "/v1/jobs/1/cancel", {}, "409", "conflict")):
    got, answer = ask(door, path, body)
    hold("an error", answer, error)
    if (got, answer.get("status")) != (code, word):
        wrong.append(f"{path}: {got} {answer}, wanted {code} {word}")
sys.exit("\n".join(wrong) or 0)
PY

# What a later live page needs: metrics, thinned out and from a step on; events of queue and run; the log.
code 200 "${socket[@]}" "http://x/v1/jobs/1/metrics"
same "every step" "$(json '[p[0] for p in d["points"]] == list(range(1, 61)), d["columns"][:2], d["last"]["step"]')" "True ['step', 'loss'] 60"
code 200 "${socket[@]}" "http://x/v1/jobs/1/metrics?points=10&from_step=20"
same "thinned out" "$(json 'len(d["points"]), d["points"][-1][0], all(p[2] <= p[1] <= p[3] for p in d["points"])')" "10 60 True"
code 200 "${socket[@]}" "http://x/v1/jobs/1/events"
check "states and what the run told" python3 -c "
import json; e = json.load(open('$out'))['events']
assert [x['to'] for x in e if 'to' in x] == ['QUEUED', 'STARTING', 'RUNNING', 'SUCCEEDED'], e
assert any(x.get('event') == 'checkpoint' for x in e) and [x['time'] for x in e] == sorted(x['time'] for x in e)"
code 200 "${socket[@]}" "http://x/v1/jobs/2/log?from=3&bytes=2"
same "a piece of a log" "$(wc -c <"$out")" 2
code 200 "${socket[@]}" "http://x/v1/jobs?all=true&account=research"
same "asked with a filter" "$(json '[j["job"] for j in d["jobs"]]')" "[1]"
code 404 "${socket[@]}" http://x/v1/jobs/77/metrics
code 400 "${socket[@]}" "http://x/v1/jobs?acount=a"
same "errors say what to do" "$(json "d['status'], \"did you mean 'account'\" in d['error']")" "invalid True"

# Prometheus reads it: every sample belongs to a kind, no sample is there twice.
code 200 "${tcp[@]}" "$address/metrics"
cp "$out" first.txt
code 200 "${tcp[@]}" "$address/metrics"
check "Prometheus' text" python3 - first.txt "$out" <<'PY'
import re, sys
def read(path):
    kinds, samples, helped = {}, {}, set()
    for line in open(path):
        if line.startswith("# HELP "):
            name, text = line[7:-1].split(" ", 1)
            assert name not in helped and text.endswith("."), line
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert kind in ("gauge", "counter", "histogram") and name not in kinds and name in helped
            assert (kind == "counter") == name.endswith("_total"), name  # promtool's rules
            assert not re.search(r"_(ms|minutes|hours|gauge|counter)(_|$)", name), name
            kinds[name] = kind
        elif not line.startswith("#"):
            m = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\[\\n"])*",?)*\})? (-?[0-9.e+-]+)\n', line)
            assert m, line
            family = m[1] if m[1] in kinds else re.sub("_(bucket|sum|count)$", "", m[1])
            assert family in kinds and (m[1] == family) == (kinds[family] != "histogram"), line
            assert (m[1], m[2]) not in samples, line
            samples[m[1], m[2]] = float(m[3])
    assert helped == set(kinds)
    return kinds, samples
kinds, samples = read(sys.argv[1])
assert samples['lockstep_jobs', '{state="RUNNING"}'] == 1 and samples['lockstep_jobs', '{state="HELD"}'] == 2
assert samples['lockstep_devices_used', None] == 2
assert samples['lockstep_account_device_seconds_total', '{account="research",kind="allocated"}'] > 0
assert samples['lockstep_jobs_ended_total', '{outcome="succeeded"}'] == 1 and samples['lockstep_job_starts_total', None] >= 2
assert samples['lockstep_job_wait_seconds_count', None] >= 2 and samples['lockstep_turn_seconds_count', None] >= 5
assert samples['lockstep_queue_jobs', '{priority="normal"}'] == 2 and samples['lockstep_queue_devices', None] == 2
assert 1e6 < samples['process_resident_memory_bytes', None] < 4e9
for name in (n for n, k in kinds.items() if k == "histogram"):
    counts = [v for (n, _), v in samples.items() if n == name + "_bucket"]
    assert counts == sorted(counts) and counts[-1] == samples[name + "_count", None], name
later = read(sys.argv[2])[1]
for key, value in samples.items():
    family = re.sub("_(bucket|sum|count)$", "", key[0])
    if kinds.get(key[0]) == "counter" or kinds.get(family) == "histogram":
        assert later[key] >= value, (key, value, later[key])
PY

# Events as they happen: states of jobs, steps of a run; and again behind the last one that was seen.
"${socket[@]}" -N http://x/v1/events >events.txt 2>&1 &
listening=$!
wait_until "somebody listens" grep -q retry events.txt
touch go
expect 0 "$LOCKSTEP" wait 2
expect 0 "$LOCKSTEP" submit tiny.yaml --set train.steps=2000 --name again --ranks 1
wait_until "a step is told" grep -q '^event: step' events.txt
expect 0 "$LOCKSTEP" cancel 7
"$LOCKSTEP" wait 7 >/dev/null
wait_until "the end is told" grep -q '"job":7,"state":"CANCELLED"' events.txt
kill "$listening" 2>/dev/null
wait "$listening" 2>/dev/null
check "events are events" python3 - <<'PY'
import json
blocks = [b for b in open("events.txt").read().split("\n\n") if "data:" in b]
steps = jobs = 0
for block in blocks[:-1]:
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    data = json.loads(fields["data"])
    jobs += fields["event"] == "job"
    steps += fields["event"] == "step"
    assert fields["event"] != "job" or ("id" in fields and {"job", "state", "from", "time"} <= set(data))
    assert fields["event"] != "step" or (data["job"] == 7 and data["step"] >= 1 and data["loss"] > 0)
assert jobs >= 5 and steps >= 1
open("id.txt", "w").write([l for l in open("events.txt") if l.startswith("id: ")][1][4:].strip())
PY
timeout 5 "${socket[@]}" -N -H "Last-Event-ID: $(cat id.txt)" "http://x/v1/events?metrics=false" >more.txt 2>&1
check "what was missed comes again" grep -q '"job":7,"state":"CANCELLED"' more.txt
check "and what was seen does not" test "$(grep -c "^id: $(cat id.txt)\$" more.txt)" = 0

# A request that is repeated with its key makes no second job.
request=$(python3 -c "import json; print(json.dumps({'file': open('hello.yaml').read(), 'directory': '$scratch', 'hold': True}))")
code 201 "${socket[@]}" -H 'Content-Type: application/json' -H 'Idempotency-Key: once' -d "$request" http://x/v1/jobs
first=$(json 'd["job"]')
code 200 "${socket[@]}" -H 'Content-Type: application/json' -H 'Idempotency-Key: once' -d "$request" http://x/v1/jobs
same "the same job" "$(json 'd["job"]')" "$first"
expect 0 "$LOCKSTEP" cancel "$first"
code 400 "${socket[@]}" -H 'Content-Type: application/json' -H $'Idempotency-Key: \xe9' -d "$request" http://x/v1/jobs
prints "Idempotency-Key is not valid UTF-8"

# The pages: whole, and what they load comes from the same server; the token goes into a cookie and out of the address.
code 303 curl -sS -c cookies.txt "$address/?token=$token"
check "the cookie is for this server alone" grep -q '#HttpOnly_127.0.0.1.*lockstep_token' cookies.txt
code 200 curl -sS -b cookies.txt "$address/"
for name in "" jobs/1 jobs/3 ended "ended?before=1" compare "compare?runs=1" runs/1; do
    code 200 "${tcp[@]}" "$address/$name"
    check "the page /$name" python3 - "$out" <<'PY'
import html.parser, re, sys
page = open(sys.argv[1], encoding="utf-8").read()
void = {"meta", "br", "hr", "img", "input", "link"}
class Reader(html.parser.HTMLParser):
    stack = []
    def handle_starttag(self, tag, attributes):
        if tag not in void:
            self.stack.append(tag)
        for name, value in attributes:
            assert not name.startswith("on") and name != "style", name
            assert name not in ("src", "href") or value.startswith(("/", "#")) or (tag, value) == ("link", "data:,"), value
    def handle_startendtag(self, tag, attributes):
        assert not any(name.startswith("on") or name in ("src", "href") for name, _ in attributes)
    def handle_endtag(self, tag):
        assert self.stack and self.stack.pop() == tag, tag
reader = Reader()
reader.feed(page)
assert not reader.stack, reader.stack
assert "<script>" not in page and "url(" not in page and "@import" not in page
assert 'name="viewport"' in page
assert not re.search(r"\b(nan|inf)\b|\(null\)", re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.S))
PY
done
code 404 "${tcp[@]}" "$address/ended?before=3" # it has not ended
code 200 "${tcp[@]}" "$address/jobs/1"
holds "$out" "/runs/1/chart.svg?key=loss" "checkpoint" "SUCCEEDED" "research"
code 200 "${tcp[@]}" "$address/jobs/3"
holds "$out" "Why it waits" "held"
if command -v chromium >/dev/null; then
    timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$scratch/chromium" --dump-dom "$address/?token=$token" >dom.txt 2>/dev/null
    holds dom.txt "The queue" "hello" "HELD"
fi

# An address that others can reach: not without TLS; with it, the token is asked for, of the owner too.
expect 2 env LOCKSTEP_HOME="$scratch/open" "$LOCKSTEP" up --foreground --listen 0.0.0.0:0
says "needs TLS"
if command -v openssl >/dev/null; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost 2>/dev/null
    mkdir -p "$scratch/tls"
    printf 'tls: {certificate: "%s", key: "%s"}\n' "$scratch/cert.pem" "$scratch/key.pem" >"$scratch/tls/config.yaml"
    LOCKSTEP_HOME=$scratch/tls "$LOCKSTEP" up --foreground --slots 1 --listen 0.0.0.0:0 >tls.log 2>&1 </dev/null &
    wait_until "the other daemon answers" env LOCKSTEP_HOME="$scratch/tls" "$LOCKSTEP" ps
    port=$(sed 's/.*://' "$scratch/tls/address") token=$(cat "$scratch/tls/token")
    check "its address says so" grep -q '^https://' "$scratch/tls/address"
    own=(-k --max-time 60 -s)
    code 401 curl "${own[@]}" "https://127.0.0.1:$port/v1/jobs"
    code 200 curl "${own[@]}" -H "Authorization: Bearer $token" "https://127.0.0.1:$port/v1/jobs"
    check "no answer without TLS" sh -c "! curl -sf --max-time 60 -H 'Authorization: Bearer $token' 'http://127.0.0.1:$port/v1/jobs'"
    expect 0 env LOCKSTEP_HOME="$scratch/tls" "$LOCKSTEP" down
fi
finish
