#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Faults at random moments in a real run of `lockstep train`, and what they cost.

  chaos.py --lockstep PROGRAM --dir FOLDER [--faults N] [--seed S] [--minutes M] [--ranks N] [--json FILE] ...

Starts a run of several ranks and does to it, again and again, what machines do to runs: kill -9 of a rank, of two within milliseconds, of one while
another is taken over, of a replacement while it comes; SIGSTOP with a SIGCONT soon after, or never; another number of ranks; SIGTERM, or
kill -9 of the trainer, and the same command again. On several hosts (--nodes: the namespaces of tests/lib/netns.sh): all processes of a host die at
once, or its link is cut, for less or more than the lease. Then the run goes on to a last step undisturbed, and a run of one process that nothing
happened to must have the same state_hash and curve_hash.

The loop is level-triggered: every few milliseconds it looks at what is (is the trainer there, which ranks, which step, what do the events say)
and acts on that. It is bounded: a run that makes no step for --stall seconds, or ends in a way that nobody asked for, is a failure, and whatever
happens everything that was started is ended. The seed decides what happens and when; how far the run is by then is up to the machine.

Exit code: 0 all is as it should be, 1 not, 77 this program can't do what was asked for.
"""
import argparse, json, os, random, re, shutil, signal, statistics, subprocess, sys, time

TICK_S = 0.004


def pid_state(pid):
    """The letter the kernel has for it; '' when there is none."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return ""


def command_line(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Lines:
    """Lines that are appended to a file; since: how to know an old line where a file is cut back and goes on."""

    def __init__(self, path):
        self.path, self.offset, self.rest = path, 0, b""

    def take(self):
        try:
            with open(self.path, "rb") as file:
                if os.fstat(file.fileno()).st_size < self.offset:
                    self.offset, self.rest = 0, b""
                file.seek(self.offset)
                data = file.read()
        except OSError:
            return []
        self.offset += len(data)
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        return lines


def last_step(run_dir):
    """The step of the last whole line of the metrics; 0: none."""
    try:
        with open(os.path.join(run_dir, "metrics.jsonl"), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - 4096))
            lines = file.read().split(b"\n")
    except OSError:
        return 0
    for line in reversed(lines[:-1]):
        found = re.match(rb'\{"step": ?(\d+)', line)
        if found:
            return int(found.group(1))
    return 0


class Run:
    """A run directory and the trainer that works in it, if one does."""

    def __init__(self, options, run_dir, arguments):
        self.options, self.dir, self.arguments = options, run_dir, arguments
        self.process, self.starts, self.begun_s = None, 0, 0.0
        self.events = None

    def start(self, *more):
        self.starts += 1
        self.begun_s = time.time()
        self.events = Lines(os.path.join(self.dir, "events.jsonl"))
        self.out, self.err = f"{self.dir}.{self.starts}.out", f"{self.dir}.{self.starts}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([*getattr(self.options, "inside", []), self.options.lockstep, "train", self.options.config, "--json", "--run-dir", self.dir, *self.arguments,
                                             *more], stdin=subprocess.DEVNULL, stdout=out, stderr=err)

    def new_events(self):
        """Of this start. A resume cuts the file back: what was read before is passed over by its time."""
        found = []
        for line in self.events.take():
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("time", 0) >= self.begun_s:
                found.append(event)
        return found

    def ranks(self):
        """{rank: pid} of the rank processes of this run that live, whoever their parent is."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            words = command_line(int(name))
            if b"rank" in words[:3] and self.dir.encode() in words and b"--rank" in words and pid_state(int(name)) not in "ZX":
                found[int(words[words.index(b"--rank") + 1])] = int(name)
        return found

    def complaint(self):
        with open(self.err, errors="replace") as file:
            return [line.strip() for line in file.read().split("\n") if line.strip()][-3:]


class Failure(Exception):
    pass


def network_of(pid):
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


class Nodes:
    """Hosts made of namespaces: their holders' process numbers, the trainer's first, and the switch's."""

    def __init__(self, holders, switch):
        self.holders, self.switch = holders, switch

    def processes(self, node):
        space = network_of(self.holders[node])
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != self.holders[node] and network_of(name) == space]

    def link(self, node, on):
        subprocess.run(["nsenter", "--target", str(self.switch), "--net", "bridge", "link", "set", "dev", f"port{node}.0", "state", "3" if on else "0"],
                       check=True)


class Chaos:
    def __init__(self, options):
        self.options = options
        self.random = random.Random(options.seed)
        self.run = Run(options, os.path.join(options.dir, "chaos"), self.arguments())
        self.nodes = Nodes([int(pid) for pid in options.nodes.split(",")], options.switch) if options.nodes else None
        self.faults, self.waiting, self.conts, self.chain, self.cuts = [], [], [], [], []
        self.counts, self.ended = {}, {}
        self.detections, self.recoveries, self.lost, self.hung = {}, {}, [], []
        self.losses, self.joined, self.recovered = 0, 0, 0
        self.step, self.step_s = 0, time.monotonic()
        self.expected = None  # exit code that a fault asked for; "any" where the trainer was killed
        self.end_kind, self.before_end = None, 0  # how the last start ended, and at which step; until the next one is there
        self.team = options.ranks

    def arguments(self):
        o = self.options
        settings = {"job.hang_timeout": f"{o.hang_s}s", **dict(pair.split("=", 1) for pair in o.set)}
        if o.takeover:
            settings["job.max_replacements"] = "1000000"
            settings["job.min_ranks"] = "1"
        if o.lease > 0:
            settings["job.lease"] = f"{o.lease}s"
        words = ["--ranks", str(o.ranks), "--threads", "1", *(["--hosts", o.hosts_file] if o.nodes else [])]
        for key, value in settings.items():
            words += ["--set", f"{key}={value}"]
        return words

    # ---- what can be done to it ----

    def kinds(self):
        o = self.options
        weights = {"kill": 8, "stop": 5, "term": 2, "trainer": 2}
        if o.takeover:
            weights.update({"kill_two": 4, "kill_again": 5, "kill_newcomer": 4, "hang": 3})
        if o.resize and not o.nodes:
            weights["resize"] = 5
        if o.nodes:
            weights.update({"node": 4, "cut": 4})
        if o.only:
            weights = {kind: 1 for kind in o.only.split(",")}
        return weights

    def victim(self, ranks):
        rank = self.random.choice(sorted(ranks))
        return rank, ranks[rank]

    def note(self, kind, rank=None, pid=None, **more):
        fault = {"kind": kind, "rank": rank, "pid": pid, "time": time.time(), "start": self.run.starts, "step": last_step(self.run.dir), **more}
        self.faults.append(fault)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        return fault

    def kill_rank(self, kind, rank, pid):
        fault = self.note(kind, rank, pid)
        fault["time"] = time.time()
        if send(pid, signal.SIGKILL):
            self.waiting.append(fault)

    def inject(self):
        """Does one fault. False: what it needs is not there, nothing was done."""
        kind = self.random.choices(list(self.kinds()), list(self.kinds().values()))[0]
        ranks = {rank: pid for rank, pid in self.run.ranks().items() if pid_state(pid) not in "T"}
        if kind in ("term", "trainer"):
            if last_step(self.run.dir) == 0:
                return False
            self.note(kind)
            self.expected = 75 if kind == "term" else "any"
            self.run.process.send_signal(signal.SIGTERM if kind == "term" else signal.SIGKILL)
            return True
        if kind == "resize":
            return self.resize()
        if kind in ("node", "cut"):
            return self.hit_node(kind)
        if not ranks or (kind == "kill_two" and len(ranks) < 2):
            return False
        rank, pid = self.victim(ranks)
        if kind in ("kill", "kill_two", "kill_again", "kill_newcomer"):
            self.kill_rank(kind, rank, pid)
        if kind == "kill_two":
            del ranks[rank]
            time.sleep(self.random.random() * 0.004)
            rank, pid = self.victim(ranks)
            self.kill_rank(kind, rank, pid)
        elif kind == "kill_again":  # another one while this one is taken over
            self.chain.append({"kind": kind, "at": time.monotonic() + self.random.random() * 0.05, "not": rank})
        elif kind == "kill_newcomer":
            self.chain.append({"kind": kind, "at": time.monotonic(), "rank": rank, "pid": pid, "delay": self.random.random() * 0.2,
                               "until": time.monotonic() + 10})
        elif kind == "stop":
            fault = self.note(kind, rank, pid)
            if send(pid, signal.SIGSTOP):
                self.conts.append((time.monotonic() + 0.01 + self.random.random() * 0.4, pid))
        elif kind == "hang":
            fault = self.note(kind, rank, pid)
            if send(pid, signal.SIGSTOP):
                self.waiting.append(fault)
        return True

    def resize(self):
        wanted = self.random.choice([n for n in range(2, self.options.ranks + 2) if n != self.team])
        done = subprocess.run([self.options.lockstep, "resize", self.run.dir, "--ranks", str(wanted)], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        if done.returncode != 0:
            self.ended["resize refused"] = self.ended.get("resize refused", 0) + 1
            return False
        self.note("resize", wanted=wanted)
        self.team = wanted
        return True

    def hit_node(self, kind):
        """Not the trainer's: that is what `trainer` is."""
        node = self.random.randrange(1, len(self.nodes.holders))
        there = self.nodes.processes(node)
        ranks = [rank for rank, pid in self.run.ranks().items() if pid in there]
        if not ranks or any(node == cut for _, cut in self.cuts):
            return False
        if kind == "node":
            fault = self.note(kind, min(ranks), node=node)
            fault["time"] = time.time()
            for pid in there:
                send(pid, signal.SIGKILL)
            self.waiting.append(fault)
            return True
        seconds = self.random.choice((0.05 + 0.3 * self.random.random(), 2 + 2 * self.random.random()))
        self.note(kind, node=node, seconds=round(seconds, 2))
        self.nodes.link(node, False)
        self.cuts.append((time.monotonic() + seconds, node))
        return True

    def follow_cuts(self, all_of_them=False):
        now = time.monotonic()
        for at, node in self.cuts:
            if now >= at or all_of_them:
                self.nodes.link(node, True)
        self.cuts = [(at, node) for at, node in self.cuts if now < at and not all_of_them]

    def follow_chain(self):
        """Second faults, which follow from the first."""
        now, left = time.monotonic(), []
        for link in self.chain:
            if now < link["at"]:
                left.append(link)
                continue
            ranks = self.run.ranks()
            if link["kind"] == "kill_again":
                others = {rank: pid for rank, pid in ranks.items() if rank != link["not"]}
                if others:
                    self.kill_rank("kill_again", *self.victim(others))
            elif "new" in link:
                self.kill_rank("kill_newcomer", link["rank"], link["new"])
            elif link["rank"] in ranks and ranks[link["rank"]] != link["pid"]:
                link.update({"new": ranks[link["rank"]], "at": now + link["delay"]})
                left.append(link)
            elif now < link["until"]:
                link["at"] = now + 0.01
                left.append(link)
        self.chain = left

    def follow_conts(self):
        now = time.monotonic()
        for at, pid in self.conts:
            if now >= at:
                send(pid, signal.SIGCONT)
        self.conts = [(at, pid) for at, pid in self.conts if now < at]

    # ---- what is ----

    def see_events(self):
        for event in self.run.new_events():
            name = event["event"]
            if name == "rank_lost":
                self.losses += 1
                for fault in self.waiting:
                    if fault["rank"] == event["rank"] and "lost" not in fault and event["time"] >= fault["time"] and fault["start"] == self.run.starts:
                        fault["lost"], fault["lost_step"] = event["time"], event.get("step", 0)
                        self.detections.setdefault(fault["kind"], []).append(event["time"] - fault["time"])
            elif name == "recovered":
                self.recovered += 1
            elif name == "rank_joined":
                self.joined += 1
            elif name == "hung":
                self.hung.append(event)
            elif name == "rank_started" and self.end_kind:  # the first of this start
                self.lost.append({"kind": self.end_kind, "steps": max(0, self.before_end - event["step"])})
                self.end_kind = None

    def see_steps(self):
        step = last_step(self.run.dir)
        if step != self.step:
            self.step_s = time.monotonic()
            now = time.time()
            for fault in self.waiting:
                if "lost" in fault and "back" not in fault and step > fault["lost_step"] and now > fault["lost"]:
                    fault["back"] = now
                    self.recoveries.setdefault(fault["kind"], []).append(now - fault["time"])
        self.step = step
        if time.monotonic() - self.step_s > self.options.stall:
            raise Failure(f"no step for {self.options.stall} s behind step {step}")

    def see_waiting(self):
        """Each fault is noticed by the run, unless it ended meanwhile."""
        left = []
        for fault in self.waiting:
            age = time.time() - fault["time"]
            allowed = self.options.hang_s + 15 if fault["kind"] == "hang" else 15
            if fault["start"] != self.run.starts or ("back" in fault):
                continue
            if fault["kind"] == "hang" and "lost" not in fault and pid_state(fault["pid"]) == "":
                continue  # another fault ended it
            if age > allowed + self.options.stall:
                raise Failure(f"{fault['kind']} of rank {fault['rank']} (pid {fault['pid']}) was not {'made good' if 'lost' in fault else 'noticed'} "
                              f"in {age:.0f} s")
            left.append(fault)
        self.waiting = left

    def see_end(self):
        """The trainer has ended: as it was asked to, or by a rule of its own, or this is a failure. Then it is started again."""
        code = self.run.process.poll()
        if code is None:
            return
        self.see_events()
        complaint = self.run.complaint()
        reason = None
        if self.expected == "any" and code == -signal.SIGKILL:
            reason = "trainer killed"
        elif code == self.expected:
            reason = f"exit code {code}"
        elif code == 5 and (not self.options.takeover or any("crashes every rank that computes it" in line for line in complaint)):
            reason = "exit code 5"  # a rule of its own: the same piece of work has killed too many
        elif code == 0 and self.run.process.poll() == 0:
            raise Failure("the run was through before all faults were")
        if reason is None:
            raise Failure(f"the trainer ended with {code}: {' | '.join(complaint)}")
        if code == 5:
            print(f"  ended by its own rule: {complaint[-1] if complaint else ''}", flush=True)
        self.before_end = last_step(self.run.dir)
        self.ended[reason] = self.ended.get(reason, 0) + 1
        self.end_kind = reason
        self.expected, self.waiting, self.chain = None, [], []
        if not (self.options.lease > 0 and reason == "trainer killed"):
            self.gone()
        self.step_s = time.monotonic()
        self.run.start()

    def gone(self):
        """No rank of the run is left, within three seconds, or a lease where hosts find out by themselves."""
        self.follow_cuts(all_of_them=True)
        for at, pid in self.conts:
            send(pid, signal.SIGCONT)
        self.conts = []
        until = time.monotonic() + (15 if self.nodes else 3)
        while self.run.ranks():
            if time.monotonic() > until:
                raise Failure(f"ranks are left behind: {self.run.ranks()}")
            time.sleep(0.01)

    def look(self):
        self.see_end()
        self.see_events()
        self.see_steps()
        self.see_waiting()
        self.follow_conts()
        self.follow_cuts()
        self.follow_chain()

    # ---- the whole ----

    def disturb(self):
        o = self.options
        end_s = time.monotonic() + 60 * o.minutes
        next_s, tries = time.monotonic(), 0
        self.run.start()
        while len(self.faults) < o.faults or self.chain or self.conts or self.cuts:
            if time.monotonic() > end_s:
                break
            self.look()
            if len(self.faults) < o.faults and time.monotonic() >= next_s and self.expected is None and self.step > 0:
                tries += 1
                if self.inject():
                    next_s = time.monotonic() + self.random.random() * 2 * o.pace
            time.sleep(TICK_S)
        self.calm_down(10)

    def calm_down(self, steps):
        """Until it is past all faults and has made some steps."""
        goal = None
        while True:
            self.look()
            quiet = not self.waiting and not self.chain and not self.conts and not self.cuts and self.expected is None
            goal = self.step + steps if quiet and goal is None else goal if quiet else None
            if goal is not None and self.step >= goal:
                return
            time.sleep(TICK_S)

    def finish(self):
        """Stops it in order, and lets it go on to a last step; the document of that."""
        self.expected = 75
        self.run.process.send_signal(signal.SIGTERM)
        self.wait_end(60)
        if self.run.process.returncode != 75:
            raise Failure(f"SIGTERM at the end: exit code {self.run.process.returncode}: {' | '.join(self.run.complaint())}")
        self.gone()
        last = last_step(self.run.dir) + 5
        self.run.start("--steps", str(last))
        self.wait_end(120)
        if self.run.process.returncode != 0:
            raise Failure(f"the last start ended with {self.run.process.returncode}: {' | '.join(self.run.complaint())}")
        self.gone()
        return last, json.load(open(self.run.out))

    def wait_end(self, seconds):
        try:
            self.run.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failure(f"it did not end in {seconds} s") from None

    def reference(self, last):
        """Undisturbed, by one process."""
        other = Run(self.options, os.path.join(self.options.dir, "whole"), ["--ranks", "1", "--threads", str(os.cpu_count() or 1)])
        for pair in self.options.set:
            other.arguments += ["--set", pair]
        other.start("--steps", str(last))
        self.run_too = other
        if other.process.wait() != 0:
            raise Failure(f"the undisturbed run ended with {other.process.returncode}: {' | '.join(other.complaint())}")
        return json.load(open(other.out))

    def end_all(self):
        self.follow_cuts(all_of_them=True)
        for pid in [p for _, p in self.conts]:
            send(pid, signal.SIGCONT)
        for run in (self.run, getattr(self, "run_too", None)):
            if run and run.process and run.process.poll() is None:
                run.process.kill()
                run.process.wait()
            for pid in run.ranks().values() if run else []:
                send(pid, signal.SIGKILL)


def spread(values):
    """In milliseconds."""
    values = sorted(1e3 * value for value in values)
    return {"count": len(values), "median": round(statistics.median(values), 1), "p90": round(values[-(-9 * len(values) // 10) - 1], 1),
            "worst": round(values[-1], 1)}


def report(chaos, document, reference, began_s):
    same = all(document[key] == reference[key] for key in ("state_hash", "curve_hash"))
    lost = {}
    for entry in chaos.lost:
        lost.setdefault(entry["kind"], []).append(entry["steps"])
    return {"seed": chaos.options.seed, "ranks": chaos.options.ranks, "hosts": len(chaos.nodes.holders) if chaos.nodes else 1, "faults": len(chaos.faults), "by_kind": chaos.counts, "ended": chaos.ended,
            "starts": chaos.run.starts, "ranks_lost": chaos.losses, "recovered": chaos.recovered, "joined": chaos.joined, "hung": len(chaos.hung),
            "steps": document["step"], "detection_ms": {kind: spread(values) for kind, values in chaos.detections.items()},
            "next_step_ms": {kind: spread(values) for kind, values in chaos.recoveries.items()},
            "steps_lost": {kind: {"times": len(values), "median": statistics.median(values), "worst": max(values)} for kind, values in lost.items()},
            "disturbed_s": round(time.monotonic() - began_s, 1), "state_hash": document["state_hash"], "curve_hash": document["curve_hash"],
            "same_bits": same, "cpus": os.cpu_count(), "load": os.getloadavg()[0]}


def can(lockstep, *words):
    return subprocess.run([lockstep, *words], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def has_key(lockstep, key):
    keys = subprocess.run([lockstep, "train", "--keys"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return key.encode() in keys.stdout


def main():
    parser = argparse.ArgumentParser(description="faults at random moments in a real run", allow_abbrev=False)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--dir", required=True, help="a folder for run directories; what is in them goes")
    parser.add_argument("--config", required=True, help="the run file")
    parser.add_argument("--faults", type=int, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--minutes", type=float, default=1.0, help="no more faults behind that")
    parser.add_argument("--pace", type=float, default=0.7, help="seconds between faults, on average")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hang-s", type=float, default=2.0, help="job.hang_timeout")
    parser.add_argument("--lease", type=float, default=0.0, help="job.lease; 0: ranks end with their trainer")
    parser.add_argument("--stall", type=float, default=30.0, help="seconds without a step that are a failure")
    parser.add_argument("--nodes", default="", help="process numbers of the namespaces' holders, with commas, the trainer's first")
    parser.add_argument("--switch", type=int, default=0, help="that of the switch's holder")
    parser.add_argument("--hosts-file", default="")
    parser.add_argument("--only", default="", help="kinds of faults, with commas")
    parser.add_argument("--set", action="append", default=[], help="KEY=VALUE for the run file")
    parser.add_argument("--json", default="", help="a file for the table")
    options = parser.parse_args()
    options.inside = []
    if options.nodes:
        options.inside = ["nsenter", "--target", options.nodes.split(",")[0], "--net", "--mount", "--uts", f"--wdns={os.getcwd()}", "--"]
    options.takeover = has_key(options.lockstep, "job.max_replacements")
    options.resize = can(options.lockstep, "resize", "--help")
    if options.lease > 0 and not has_key(options.lockstep, "job.lease"):
        print("this program has no job.lease")
        return 77
    for name in ("chaos", "whole"):
        shutil.rmtree(os.path.join(options.dir, name), ignore_errors=True)
    hosts = len(options.nodes.split(",")) if options.nodes else 1
    print(f"chaos: seed {options.seed}, {options.faults} faults, {options.ranks} ranks on {hosts} hosts, takeover {'yes' if options.takeover else 'NO'}, "
          f"resize {'yes' if options.resize else 'NO'}, lease {options.lease:g} s", flush=True)
    chaos = Chaos(options)
    began_s = time.monotonic()
    try:
        chaos.disturb()
        last, document = chaos.finish()
        result = report(chaos, document, chaos.reference(last), began_s)
    except Failure as failure:
        print(f"FAIL: {failure} (seed {options.seed}, fault {len(chaos.faults)}, start {chaos.run.starts})")
        for fault in chaos.faults[-5:]:
            print("  ", fault)
        said = subprocess.run([options.lockstep, "diagnose", chaos.run.dir], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(said.stdout.decode(errors="replace")[-2000:])
        print("\n".join(chaos.run.complaint()))
        return 1
    finally:
        chaos.end_all()
    print(json.dumps(result, indent=2))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    return 0 if result["same_bits"] else 1


if __name__ == "__main__":
    sys.exit(main())
