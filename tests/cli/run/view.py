# SPDX-License-Identifier: Apache-2.0
"""The client's side of view.test.sh: view.py LOCKSTEP FOLDER. The folder has a run `tiny`, its event files in `board`, and `text`."""
import json, os, re, signal, socket, subprocess, sys, threading, time, urllib.error, urllib.request

lockstep, folder = sys.argv[1:3]
failures = 0


def check(what, holds, seen=""):
    global failures
    if not holds:
        failures += 1
        print(f"FAIL: {what}: {seen}")


def start():
    process = subprocess.Popen([lockstep, "view", folder, "--log", "--logs", "*.log", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    return process, re.search(r"http://\S+", process.stdout.readline()).group()


def get(path, body=None, **headers):
    request = urllib.request.Request(address + path, json.dumps(body).encode() if body is not None else None, headers)
    if body is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def wait_for(what, look, seconds=20):
    end = time.monotonic() + seconds
    while not look():
        if time.monotonic() > end:
            check(what, False, "it did not happen")
            return
        time.sleep(0.05)


def column(run, key, name="mean", query="points=1000"):
    answer = get(f"/v1/runs/{run}/metrics?{query}")[1]
    return answer.get("keys", {}).get(key, {}).get(name, [])


def add_quiet_step(step):
    with open(f"{folder}/quiet/metrics.jsonl", "a") as file:  # nothing but the table reads it
        file.write(f'{{"step": {step}, "loss": 0.5}}\n')


os.mkdir(f"{folder}/quiet")
add_quiet_step(1)
with open(f"{folder}/text/other.log", "w") as log:
    log.writelines(f"12:00:01 INFO step {step} loss={1 / step:.4f} acc: {step}%\n" for step in range(1, 21))
process, address = start()

# ---- what is there ----
runs = {run["id"]: run for run in get("/v1/runs")[1]["runs"]}
check("runs are listed", sorted(runs) == ["board", "other.log", "quiet", "tiny"], sorted(runs))
check("a row", runs["tiny"]["status"] == "SUCCEEDED" and runs["tiny"]["step"] == 8 and runs["tiny"]["steps"] == 8, runs["tiny"])
lines = [json.loads(line) for line in open(f"{folder}/tiny/metrics.jsonl")]
check("the loss of every step", column("tiny", "loss") == [line["loss"] for line in lines], column("tiny", "loss"))
check("columns have the extremes of their steps", column("tiny", "loss", "high", "points=2&keys=loss") ==
      [max(line["loss"] for line in part) for part in (lines[:4], lines[4:])], column("tiny", "loss", "high", "points=2"))
check("event files hold the same", len(column("board", "loss")) == 8 and
      all(abs(a - b) < 1e-6 * b for a, b in zip(column("board", "loss"), column("tiny", "loss"))), column("board", "loss"))
check("a log of text", column("other.log", "acc")[-1:] == [20] and column("other.log", "loss", "step")[-1:] == [20], column("other.log", "acc"))
shown = get("/v1/runs/tiny")[1]
check("a run has its result, settings and events", shown["summary"]["step"] == 8 and "family" in shown["config"] and shown["events"], list(shown))
compared = get("/v1/compare?runs=tiny,board&keys=loss&points=4")[1]["runs"]
check("a comparison", [run["run"] for run in compared] == ["tiny", "board"] and all(len(run["keys"]["loss"]["mean"]) == 4 for run in compared), compared)
add_quiet_step(2)
wait_for("the table follows a run", lambda: any(run["id"] == "quiet" and run["step"] == 2 for run in get("/v1/runs")[1]["runs"]))

# ---- what is refused ----
port = address.rsplit(":", 1)[1]
for what, code, headers in (("another host", 403, {"Host": f"evil.example:{port}"}), ("another site", 403, {"Origin": "http://evil.example"}),
                            ("another site's script", 403, {"Sec-Fetch-Site": "cross-site"}), ("its own page", 200, {"Origin": address})):
    check(what, get("/v1/runs", **headers)[0] == code, get("/v1/runs", **headers))
for path, code in (("/v1/runs/nothing", 404), ("/v1/runs/..%2f..%2fetc/metrics", 404), ("/v1/runs/tiny/metrics?points=0", 400),
                   ("/v1/runs/tiny/metrics?points=10001", 400), ("/v1/compare?runs=tiny,nothing", 404), ("/v1/tokens", 404)):
    check(path, get(path)[0] == code, get(path))
check("a queue's request", get("/v1/jobs", {"file": "x", "directory": "/"})[0] == 404)
for points in ([{"step": -1}], [{"step": 1.5}], [{"loss": [1]}], [{"x" * 300: 1}], [], [1]):
    check(f"points {points}"[:60], get("/v1/runs/sent/log", {"points": points})[0] == 400, get("/v1/runs/sent/log", {"points": points}))
for name in ("..%2fx", ".hidden", "-x", "a" * 101):
    check(f"a run named {name}", get(f"/v1/runs/{name}/log", {"points": [{"step": 1, "x": 1}]})[0] == 400)

# ---- what is sent and grows, and who hears of it ----
events = urllib.request.urlopen(address + "/v1/events", timeout=60)
heard = []


def listen():
    try:
        for line in events:
            if line.startswith(b"data: "):
                heard.append(json.loads(line[6:]))
    except (OSError, ValueError):
        pass


threading.Thread(target=listen, daemon=True).start()
for step in range(1, 31):
    status, answer = get("/v1/runs/sent/log", {"points": [{"step": step, "<b>loss\u202e": 1 / step, "odd": "NaN" if step == 7 else step}]})
    check("points are kept", status == 200 and answer == {"run": "sent", "points": 1}, answer)
check("points that were sent", column("sent", "odd", "step") == list(range(1, 31)), column("sent", "odd", "step"))
answer = get("/v1/runs/sent/metrics?points=1000&keys=odd")[1]["keys"]["odd"]
check("what is not finite", answer["odd"] == [[6, "nan"]] and answer["mean"][6] is None, answer)
check("hostile names are made harmless", "<b>loss\\xe2\\x80\\xae" in get("/v1/runs/sent")[1]["metrics"], get("/v1/runs/sent")[1]["metrics"])
with open(f"{folder}/tiny/metrics.jsonl", "a") as file:
    file.write('{"step": 9, "loss": 0.5}\n{"step": 10, "lo')
wait_for("a step is told to listeners", lambda: any(event.get("run") == "tiny" and event.get("step") == 9 for event in heard), 30)
wait_for("a run that is new is told, too", lambda: any(event.get("run") == "sent" for event in heard), 30)
check("a torn line waits", column("tiny", "loss", "step")[-1] == 9, column("tiny", "loss", "step"))
with open(f"{folder}/tiny/metrics.jsonl", "r+") as file:
    file.truncate(sum(len(line) for line in open(f"{folder}/tiny/metrics.jsonl").readlines()[:4]))
check("a run that was restored", column("tiny", "loss", "step") == [1, 2, 3, 4], column("tiny", "loss", "step"))

# ---- a viewer that never reads, and a kill ----
silent = socket.create_connection(("127.0.0.1", int(port)))
silent.sendall(b"".join(f"GET /v1/runs/sent/metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode() for _ in range(2000)))
check("others are answered meanwhile", get("/v1/runs")[0] == 200)
process.send_signal(signal.SIGKILL)
process.wait()
with open(f"{folder}/sent/logged.jsonl", "a") as file:
    file.write('{"step": 31, "od')  # torn by the kill
process, address = start()
check("what was sent is there after a kill", column("sent", "odd", "step") == list(range(1, 31)), column("sent", "odd", "step"))
get("/v1/runs/sent/log", {"points": [{"step": 31, "odd": 31}]})
check("a torn line costs nothing else", column("sent", "odd", "step") == list(range(1, 32)), column("sent", "odd", "step"))
process.send_signal(signal.SIGINT)
check("Ctrl-C ends it", process.wait(20) == 0)
sys.exit(failures > 0)
