#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the pages of `lockstep view` in headless Chromium: bench/page.py [LOCKSTEP]

Makes runs of random numbers in a scratch folder: one of 100 metrics x 100,000 steps, one of 5 metrics x 400,000 steps, 50 of
5 metrics x 100,000 steps, 10,000 of 2 steps, and one that grows. Each page is loaded 7 times, and the middle is printed in milliseconds since the
request: first picture (first contentful paint), and when everything on the screen was drawn; with the bytes that came. `cold` is the first load,
which includes reading the run's file.

Live: a line is appended to the run that grows; from that until the line is drawn. Idle: bytes in 5 s without news.
Viewers (alone: bench/page.py LOCKSTEP viewers): the processor time of the server in 30 s, of a run with ten steps of 20 metrics a second, without a
viewer and with 20. A viewer is a thread that asks for what the script of a page asks for, at the same intervals.
Training (alone: bench/page.py LOCKSTEP training): steps per second of a training with one thread, in turn for 8 s with 20 viewers and 8 s without.
"""
import atexit
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "browser"))
from browser import Browser  # noqa: E402

LOADS = 7


def write_run(folder, metrics, steps):
    os.makedirs(folder)
    names = ["loss", "lr", "grad_norm", "tokens_per_s", "step_s"][:metrics] + [f"layer_{i}.norm" for i in range(metrics - 5)]
    generator = random.Random(len(folder) + steps)
    pool = [f"{generator.random():.6f}" for _ in range(997)]
    with open(f"{folder}/metrics.jsonl", "w") as out:
        for step in range(1, steps + 1):
            pairs = ", ".join(f'"{name}": {pool[(step * 7 + i * 13) % 997]}' for i, name in enumerate(names))
            out.write(f'{{"step": {step}, {pairs}}}\n')


def serve(program, folder):
    process = subprocess.Popen([program, "view", folder, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    atexit.register(process.kill)  # also when a measurement fails
    return process, next(word for word in line.split() if word.startswith("http://"))


def load(page, url, mark):
    page.bytes = 0
    page.go(url)
    page.wait(f"performance.getEntriesByName('{mark}').length > 0 && performance.getEntriesByName('first-contentful-paint').length > 0")
    paint, drawn = page.value(
        "[performance.getEntriesByName('first-contentful-paint')[0].startTime,"
        f" performance.getEntriesByName('{mark}')[0].startTime]")
    assert not page.errors, page.errors
    return paint, drawn, page.bytes


def measure(browser, name, url, mark="charts-drawn"):
    page = browser.open("/".join(url.split("/")[:3]) + "/compare")
    cold = load(page, url, mark)
    loads = [load(page, url, mark) for _ in range(LOADS)]
    page.close()
    paint, drawn, size = (statistics.median(column) for column in zip(*loads))
    print(f"{name:44}  first picture {paint:6.0f}  all drawn {drawn:6.0f}  cold {cold[1]:6.0f}  {size / 1000:7.0f} kB", flush=True)


def live(browser, address, folder):
    """Appends 20 steps, and asks the page when it drew each."""
    page = browser.open(f"{address}/runs/growing")
    page.wait("performance.getEntriesByName('charts-drawn').length > 0 && document.querySelector('#live').textContent == 'live'")
    delays, step = [], 1000
    for _ in range(20):
        time.sleep(random.uniform(0.6, 1.1))
        step += 1
        with open(f"{folder}/growing/metrics.jsonl", "a") as out:
            out.write(json.dumps({"step": step, "loss": 1.0}) + "\n")
        begun = time.time()
        page.wait(f"performance.getEntriesByName('step-drawn').some(e => e.detail === {step})")
        drawn = page.value("performance.timeOrigin + performance.getEntriesByName('step-drawn').pop().startTime") / 1000
        delays.append(1000 * (drawn - begun))
    print(f"{'a step, from its line in the file to the pixel':44}  middle {statistics.median(delays):.0f}  longest {max(delays):.0f}")
    time.sleep(6)
    page.value("1")
    before = page.bytes
    time.sleep(5)
    page.value("1")
    print(f"{'idle for 5 s':44}  {page.bytes - before} bytes")


def view_like_a_page(address, until):
    """Listens to events; the newest columns of six charts every 2 s, the page every 8 s: startRun of web/page.js."""
    def get(path):
        return urllib.request.urlopen(f"{address}{path}", timeout=10).read()
    listener = urllib.request.urlopen(f"{address}/v1/events", timeout=60)
    threading.Thread(target=lambda: [None for _ in iter(lambda: listener.readline(), b"")], daemon=True).start()
    get("/runs/growing")
    names, since, page_s = "loss,lr,grad_norm,tokens_per_s,step_s,layer_0.norm", 0, time.time()
    while time.time() < until:
        time.sleep(2)
        keys = json.loads(get(f"/v1/runs/growing/metrics?points=200&keys={names}&from={since + 1}&to=9007199254740991"))["keys"]
        since = max([since, *(columns["step"][-1] for columns in keys.values() if columns["step"])])
        if time.time() > page_s + 8:
            page_s = time.time()
            get("/runs/growing")


def viewers(program, scratch):
    write_run(f"{scratch}/d/growing", 20, 10_000)
    process, address = serve(program, f"{scratch}/d")
    ended = threading.Event()

    def grow():
        with open(f"{scratch}/d/growing/metrics.jsonl", "a", buffering=1) as out:
            for step in range(10_001, 20_000):
                out.write(json.dumps({"step": step, "loss": 1 / step, **{f"layer_{i}.norm": i for i in range(19)}}) + "\n")
                if ended.wait(0.1):
                    return
    threading.Thread(target=grow, daemon=True).start()
    for count in (0, 20):
        until = time.time() + 36
        threads = [threading.Thread(target=view_like_a_page, args=(address, until)) for _ in range(count)]
        for thread in threads:
            thread.start()
        time.sleep(4)
        before, begun = cpu_s(process.pid), time.time()
        time.sleep(30)
        print(f"{f'{count} viewers':44}  {100 * (cpu_s(process.pid) - before) / (time.time() - begun):.2f} % of a core", flush=True)
        for thread in threads:
            thread.join()
    ended.set()
    process.terminate()
    process.wait()


def training(program, scratch):
    folder = f"{scratch}/e"
    os.makedirs(folder)
    with open(f"{scratch}/text.txt", "w") as out:
        out.write(" ".join(str(random.random()) for _ in range(20_000)))
    with open(f"{scratch}/run.yaml", "w") as out:
        out.write(f"data: {{train: [{scratch}/text.txt]}}\nmodel: {{layers: 4, width: 128, heads: 4, context: 64}}\n"
                  "train: {steps: 1000000, global_batch: 4}\neval: {every_steps: 0}\nsample: {every_steps: 0}\n")
    run = subprocess.Popen([program, "train", f"{scratch}/run.yaml", "--run-dir", f"{folder}/growing", "--threads", "1"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process, address = serve(program, folder)

    def rate(seconds):
        begun = time.time(), sum(1 for _ in open(f"{folder}/growing/metrics.jsonl"))
        time.sleep(seconds)
        return (sum(1 for _ in open(f"{folder}/growing/metrics.jsonl")) - begun[1]) / (time.time() - begun[0])
    time.sleep(5)
    pairs = []
    for _ in range(5):
        alone, until = rate(8), time.time() + 8.5
        threads = [threading.Thread(target=view_like_a_page, args=(address, until)) for _ in range(20)]
        for thread in threads:
            thread.start()
        pairs.append(rate(8) / alone)
        for thread in threads:
            thread.join()
    print(f"{'steps per second, 20 viewers / none':44}  middle {statistics.median(pairs):.3f}  {min(pairs):.3f} to {max(pairs):.3f}", flush=True)
    for ended in (run, process):
        ended.terminate()
        ended.wait()


def cpu_s(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    program = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release/lockstep")
    with tempfile.TemporaryDirectory() as scratch:
        for part in (viewers, training):
            if sys.argv[2:] in ([], [part.__name__]):
                part(program, scratch)
        if sys.argv[2:]:
            return
        write_run(f"{scratch}/a/wide", 100, 100_000)
        write_run(f"{scratch}/a/long", 5, 400_000)
        for i in range(50):
            write_run(f"{scratch}/a/run-{i}", 5, 100_000)
        for i in range(10_000):
            write_run(f"{scratch}/b/sweep-{i}", 2, 2)
        write_run(f"{scratch}/c/growing", 2, 1000)
        with Browser() as browser:
            process, address = serve(program, f"{scratch}/a")
            measure(browser, "a run of 100 metrics x 100,000 steps", f"{address}/runs/wide")
            measure(browser, "a run of 5 metrics x 400,000 steps", f"{address}/runs/long")
            runs = ",".join(f"run-{i}" for i in range(50))
            measure(browser, "50 runs x 100,000 steps compared", f"{address}/compare?runs={runs}")
            process.terminate()
            process.wait()
            process, address = serve(program, f"{scratch}/b")
            measure(browser, "a table of 10,000 runs", f"{address}/compare", "runs-drawn")
            process.terminate()
            process.wait()
            process, address = serve(program, f"{scratch}/c")
            live(browser, address, f"{scratch}/c")
            process.terminate()
            process.wait()


if __name__ == "__main__":
    main()
