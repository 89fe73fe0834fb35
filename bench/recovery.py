#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of one rank at a random moment, many times: how long until the run knows it, and until its next step is finished.

  recovery.py --lockstep PROGRAM --dir FOLDER --config RUN.yaml [--ranks 2,4] [--kills 20] [--seed S] [--json FILE]

Times of one clock, the wall's: kill is taken right before kill(2), here; detection is the time of the event rank_lost; the next step is finished
when its line is in metrics.jsonl, looked at every millisecond. That step is the one in which the rank died, or the next where it died between
two. Between kills the replacement is waited for, so that every kill meets a full team.
"""
import argparse, json, os, random, statistics, sys, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "lib"))
import chaos

PATIENCE_S = 60


class Failure(Exception):
    pass


def until(what, look, sleep_s=0.002):
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        found = look()
        if found is not None:
            return found
        time.sleep(sleep_s)
    raise Failure(f"{what}: not within {PATIENCE_S} s")


class Steps:
    """When which step was there, as far as it was looked at."""

    def __init__(self, run_dir):
        self.lines = chaos.Lines(os.path.join(run_dir, "metrics.jsonl"))
        self.last, self.step_s = 0, []

    def take(self):
        for line in self.lines.take():
            metrics = json.loads(line)
            self.last = metrics["step"]
            self.step_s.append(metrics["step_s"])
        return self.last


class Meter:
    def __init__(self, options, ranks):
        self.ranks = ranks
        self.run = chaos.Run(options, os.path.join(options.dir, f"recovery-{ranks}"),
                             ["--ranks", str(ranks), "--threads", "1", "--set", "job.max_replacements=1000000"])
        self.steps, self.events = Steps(self.run.dir), []

    def look(self):
        self.steps.take()
        self.events += self.run.new_events()
        if self.run.process.poll() is not None:
            raise Failure(f"the run ended with {self.run.process.returncode}: {' | '.join(self.run.complaint())}")

    def event(self, name, since_s, **fields):
        self.look()
        for event in self.events:
            if event["event"] == name and event["time"] >= since_s and all(event.get(key) == value for key, value in fields.items()):
                return event
        return None

    def past(self, step):
        self.look()
        return time.time() if self.steps.last > step else None

    def full(self):
        self.look()
        ranks = self.run.ranks()
        return ranks if len(ranks) == self.ranks else None

    def kill(self, rng):
        """One kill. The moment is spread over some steps."""
        ranks = until("all ranks are there", self.full, 0.01)
        rank = rng.choice(sorted(ranks))
        time.sleep(0.05 + rng.random() * 0.2)
        before = self.steps.take()
        killed_s = time.time()
        if not chaos.send(ranks[rank], 9):
            raise Failure(f"rank {rank} was gone before it was killed")
        lost = until(f"rank_lost {rank}", lambda: self.event("rank_lost", killed_s, rank=rank), 0.001)
        # Finished steps when it was lost: the next line is the first that needed the others.
        goal = max(lost["step"], before)
        done_s = until(f"a step behind {goal}", lambda: self.past(goal), 0.001)
        recovered = until("recovered", lambda: self.event("recovered", lost["time"]))
        until("the replacement", lambda: self.event("rank_joined", lost["time"], rank=rank))
        joined = self.event("rank_joined", lost["time"], rank=rank)
        return {"detected_s": lost["time"] - killed_s, "next_step_s": done_s - killed_s, "recovered_s": 1e-3 * recovered["ms"],
                "joined_s": joined["time"] - killed_s, "how": recovered.get("how"), "said_s": 1e-3 * lost["detected_ms"]}

    def measure(self, kills, rng):
        self.run.start()
        until("the first steps", lambda: self.past(20))
        found = [self.kill(rng) for _ in range(kills)]
        self.look()
        usual_s = statistics.median(self.steps.step_s)
        self.run.process.terminate()
        code = self.run.process.wait(PATIENCE_S)
        if code != 75:
            raise Failure(f"SIGTERM at the end: exit code {code}")
        return {"ranks": self.ranks, "kills": kills, "usual_step_ms": round(1e3 * usual_s, 2),
                **{name + "_ms": spread([one[name + "_s"] for one in found]) for name in ("detected", "next_step", "recovered", "joined", "said")},
                "how": {how: sum(one["how"] == how for one in found) for how in {one["how"] for one in found}}}

    def end(self):
        if self.run.process and self.run.process.poll() is None:
            self.run.process.kill()
            self.run.process.wait()
        for pid in self.run.ranks().values():
            chaos.send(pid, 9)


def spread(values):
    values = sorted(1e3 * value for value in values)
    return {"min": round(values[0], 2), "median": round(statistics.median(values), 2), "worst": round(values[-1], 2)}


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", default="")
    options = parser.parse_args()
    rng, rows = random.Random(options.seed), []
    for ranks in [int(word) for word in options.ranks.split(",")]:
        meter = Meter(options, ranks)
        try:
            rows.append(meter.measure(options.kills, rng))
        except Failure as failure:
            print(f"FAIL: {failure}")
            return 1
        finally:
            meter.end()
        row = rows[-1]
        print(f"{ranks} ranks, {options.kills} kills, a step usually takes {row['usual_step_ms']} ms")
        for name, words in (("detected", "kill(2) to rank_lost"), ("next_step", "kill(2) to the next finished step"),
                            ("joined", "kill(2) to the replacement's first step")):
            print(f"  {words:40}  min {row[name + '_ms']['min']:8.2f}  median {row[name + '_ms']['median']:8.2f}  worst {row[name + '_ms']['worst']:8.2f} ms")
    document = {"name": "recovery", "cpus": os.cpu_count(), "load": os.getloadavg()[0], "seed": options.seed, "results": rows}
    if options.json:
        with open(options.json, "w") as file:
            json.dump(document, file, indent=2)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
