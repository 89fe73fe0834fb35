#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time to the picture of a run of 100 metrics: `lockstep view` beside other programs with a page.

    python3 -m venv VENV && VENV/bin/pip install tensorboard trackio
    VENV/bin/python bench/page_peer.py [LOCKSTEP] [--steps 10000] [--loads 3] [--limit 900] [--only tensorboard]

Writes the same random numbers for each, opens the page of the run in the headless Chromium of tests/browser, each program in turn, and prints
the milliseconds from the request until the first chart is there, middle of the loads, and the bytes that came. A page counts as drawn when
a selector finds the parts of a chart, looked for every 20 ms: that favours the others, some of which draw its line later. A program that is not
installed is left out; one that takes longer than the limit to write the run, or to draw it, is given up with a line that says so.
"""
import argparse
import importlib.util
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "browser"))
import browser  # noqa: E402

NAMES = [f"layer_{i}.norm" for i in range(100)]
POOL = [random.Random(1).random() for _ in range(997)]


class TooSlow(Exception):
    """The time of --limit is over."""


def give_up(*_):
    raise TooSlow


def value(step, i):
    return POOL[(step * 7 + i * 13) % 997]


def write_lockstep(folder, steps):
    os.makedirs(f"{folder}/run")
    with open(f"{folder}/run/metrics.jsonl", "w") as out:
        for step in range(1, steps + 1):
            out.write(f'{{"step": {step}, ' + ", ".join(f'"{n}": {value(step, i)}' for i, n in enumerate(NAMES)) + "}\n")


def write_tensorboard(folder, steps):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    writer = EventFileWriter(f"{folder}/run")
    for step in range(1, steps + 1):
        values = [Summary.Value(tag=n, simple_value=value(step, i)) for i, n in enumerate(NAMES)]
        writer.add_event(Event(wall_time=1.7e9 + step, step=step, summary=Summary(value=values)))
    writer.close()


def write_trackio(folder, steps):
    os.environ["TRACKIO_DIR"] = folder
    import trackio
    trackio.init(project="p", name="run")
    for step in range(1, steps + 1):
        trackio.log({n: value(step, i) for i, n in enumerate(NAMES)}, step=step)
    trackio.finish()


# name: what writes the run, what serves a folder, the page of the run, and what of it is there
# with the first chart
PEERS = {
    "lockstep": (write_lockstep, ["{lockstep}", "view", "{folder}", "--listen", "127.0.0.1:0"], "/runs/run",
                 "performance.getEntriesByName('charts-drawn').length > 0"),
    "tensorboard": (write_tensorboard, [sys.executable, "-m", "tensorboard.main", "--logdir", "{folder}", "--port", "0"], "/#timeseries",
                    "document.querySelector('scalar-card tb-data-table-content-row')"),
    "trackio": (write_trackio, [sys.executable, "-m", "trackio.cli", "show", "--project", "p"], "/?project=p",
                "document.querySelector('svg polyline, canvas, svg path.mark, svg g.mark-line path')"),
}


def serve(command, log):
    """Starts a server and waits for the address that it prints."""
    with open(log, "w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    for _ in range(1200):
        address = re.search(r"http://(?:localhost|127\.0\.0\.1):\d+", open(log).read())
        if address:
            return process, address.group()
        time.sleep(0.1)
    process.kill()
    sys.exit(f"{command[0]} prints no address: {open(log).read()}")


def measure(chromium, name, arguments, scratch):
    write, command, path, drawn = PEERS[name]
    folder = f"{scratch}/{name}"
    os.makedirs(folder)
    begun = time.monotonic()
    signal.alarm(arguments.limit)
    write(folder, arguments.steps)
    written = time.monotonic() - begun
    signal.alarm(arguments.limit)
    process, address = serve([word.format(lockstep=os.path.abspath(arguments.lockstep), folder=folder) for word in command], f"{scratch}/log")
    times, sizes = [], []
    try:
        for _ in range(arguments.loads + 1):  # the first one warms up
            page = chromium.open("about:blank")
            begun = time.monotonic()
            page.call("Page.navigate", url=address + path)
            page.wait(drawn)
            times.append(1000 * (time.monotonic() - begun))
            sizes.append(page.bytes / 1000)
            page.close()
    finally:
        signal.alarm(0)
        process.kill()
        process.wait()
    print(f"{name:12}  written in {written:5.0f} s  first {times[0]:7.0f} ms  then {statistics.median(times[1:]):7.0f} ms  {statistics.median(sizes[1:]):8.0f} kB", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("lockstep", nargs="?", default="build/release/lockstep")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=3)
    parser.add_argument("--limit", type=int, default=900, help="seconds for writing, and again for all loads")
    parser.add_argument("--only", action="append", help="only this program, and others given likewise")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["LOCKSTEP_HOME"] = f"{scratch}/home"
        signal.signal(signal.SIGALRM, give_up)
        browser.DEADLINE_S = arguments.limit
        for name in arguments.only or PEERS:
            if name == "lockstep" or importlib.util.find_spec(name):
                try:
                    with browser.Browser() as chromium:
                        measure(chromium, name, arguments, scratch)
                except TooSlow:
                    print(f"{name:12}  given up after {arguments.limit} s", flush=True)


if __name__ == "__main__":
    main()
