#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a killed rank, a killed save and a flipped bit do to PyTorch: torchrun, DistributedDataParallel over Gloo, torch.distributed.checkpoint.
Prints one JSON object. bench/resilience_pairs.sh runs it beside Lockstep.

Usage: PYTHON bench/resilience_torch.py fault  [--ranks N] [--after-ranks N] [--save sync|async|none] [--every K] [--steps N] [--kill-step N]
       PYTHON bench/resilience_torch.py speed  [--mib N] [--rounds N] [--dir DIR] [--threads N]
       PYTHON bench/resilience_torch.py crash  [--mib N] [--rounds N] [--dir DIR] [--where same|new]
       PYTHON bench/resilience_torch.py flip   [--mib N] [--rounds N] [--dir DIR]

fault   A run under `torchrun --max-restarts 100 --standalone` that saves every K steps with DCP (a folder per step; async_save has a group
        of its own, as its manual says) and loads the newest whole checkpoint when it is started again. With --kill-step one rank is killed
        with SIGKILL in the middle of that step. --save none: no fault, no checkpoint: the undisturbed run. --after-ranks: the run is
        ended after the kill and started again with so many ranks. torchrun 2.15 keeps one store over all restarts, where Gloo may find the
        addresses of processes that are gone ("connectFullMesh failed", again and again); so it is told to make a new one each time
        (TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1). --shared-store: its default. A run that is not back after two minutes: "resumed": false.
speed   Bytes per second of dcp.save (fsync on, its default) and dcp.load (page cache dropped) of a state of N MiB, one process.
crash   A process saves states of a known generation, one after the other, into the same folder (DCP's default lets it) or each into a
        new one, and is killed with SIGKILL at a random moment; then the newest folder that has metadata is loaded. How often is
        what was loaded one generation, a mixture, or an error?
flip    One random bit of a data file is turned round; then it is loaded. Is it noticed?
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

started = time.time()

parser = argparse.ArgumentParser()
parser.add_argument("what", choices=["fault", "speed", "crash", "flip", "worker", "saver"])
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--after-ranks", type=int, default=0)
parser.add_argument("--save", choices=["sync", "async", "none"], default="sync")
parser.add_argument("--every", type=int, default=10)
parser.add_argument("--steps", type=int, default=40)
parser.add_argument("--kill-step", type=int, default=0)
parser.add_argument("--kill-rank", type=int, default=1)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--context", type=int, default=64)
parser.add_argument("--model", default="small")
parser.add_argument("--shared-store", action="store_true")
parser.add_argument("--mib", type=int, default=256)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--threads", type=int, default=4)
parser.add_argument("--dir", default="")
parser.add_argument("--where", choices=["same", "new"], default="same")
parser.add_argument("--seed", type=int, default=1)
options = parser.parse_args()


# ---- the run under torchrun ----

def newest(folder):
    """The newest checkpoint that has its metadata, as (step, path), or (0, None)."""
    steps = [int(n) for n in os.listdir(folder) if n.isdigit()] if os.path.isdir(folder) else []
    for step in sorted(steps, reverse=True):
        if os.path.exists(f"{folder}/{step}/.metadata"):
            return step, f"{folder}/{step}"
    return 0, None


def worker():
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    sys.argv = ["train_peer", options.model, "--context", str(options.context), "--threads", "1"]
    here = os.path.dirname(os.path.abspath(__file__))
    source = open(f"{here}/train_peer.py").read().split("\nseconds = []")[0]  # the same model, optimizer and settings
    rank, attempt = int(os.environ["RANK"]), int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    log = open(f"{options.dir}/events-{rank}.jsonl", "a", buffering=1)

    def note(event, **fields):
        log.write(json.dumps({"time": time.time(), "event": event, "rank": rank, "attempt": attempt, **fields}) + "\n")

    note("started", pid=os.getpid(), at=started)
    spot = {}
    exec(source, spot)
    model, optimizer, vocab = spot["model"], spot["optimizer"], spot["shape"]["vocab"]
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    aside = dist.new_group(backend="gloo") if options.save == "async" else None
    run = torch.nn.parallel.DistributedDataParallel(model)
    note("joined", world=world)

    first, path = newest(f"{options.dir}/checkpoints")
    if path:
        for group in optimizer.param_groups:  # so that there is a state to load into
            for p in group["params"]:
                p.grad = torch.zeros_like(p)
        optimizer.step()
        weights, moments = get_state_dict(run, optimizer)
        dcp.load({"model": weights, "optim": moments}, checkpoint_id=path)
        set_state_dict(run, optimizer, model_state_dict=weights, optim_state_dict=moments)
        note("loaded", step=first)

    def save(step, pending):
        begin = time.time()
        weights, moments = get_state_dict(run, optimizer)
        state, where = {"model": weights, "optim": moments}, f"{options.dir}/checkpoints/{step}"
        if options.save == "async":
            if pending:
                pending.result()
            pending = dcp.async_save(state, checkpoint_id=where, process_group=aside)
        else:
            dcp.save(state, checkpoint_id=where)
        note("saved", step=step, stall_s=time.time() - begin)
        return pending

    pending, mine = None, options.batch // world
    try:
        for step in range(first + 1, options.steps + 1):
            note("step_begins", step=step)
            numbers = torch.Generator().manual_seed(1000 * options.seed + step)  # the batch depends on the step alone
            tokens = torch.randint(0, vocab, (options.batch, options.context + 1), generator=numbers)[rank * mine:(rank + 1) * mine]
            loss = run(tokens[:, :-1], tokens[:, 1:])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            note("step", step=step, loss=loss.item())
            if options.save != "none" and step % options.every == 0:
                pending = save(step, pending)
        if pending:
            pending.result()
    except Exception as problem:
        note("error", text=str(problem).split("\n")[0][:200])
        raise
    if rank == 0:
        digest = hashlib.sha256()
        for name, p in sorted(model.named_parameters()):
            moments = optimizer.state[p]
            for part in (p.detach(), moments["exp_avg"], moments["exp_avg_sq"]):
                digest.update(part.contiguous().numpy().tobytes())
        note("finished", state_hash=digest.hexdigest(), parameters=sum(p.numel() for p in model.parameters()))
    dist.barrier()
    dist.destroy_process_group()


# ---- fault: starts torchrun, kills a rank, reads what the ranks wrote ----

def events(folder):
    rows = []
    for name in os.listdir(folder):
        if name.startswith("events-"):
            for line in open(f"{folder}/{name}"):
                if line.endswith("\n"):
                    rows.append(json.loads(line))
    return sorted(rows, key=lambda row: row["time"])


def launch(folder, ranks, lines):
    torchrun = os.path.join(os.path.dirname(sys.executable), "torchrun")
    command = [torchrun, "--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "100", __file__, "worker", "--dir", folder,
               "--save", options.save, "--every", str(options.every), "--steps", str(options.steps), "--batch", str(options.batch),
               "--context", str(options.context), "--model", options.model, "--seed", str(options.seed)]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1",
                                  "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0" if options.shared_store else "1"})

    def read():
        for line in child.stderr:
            lines.append((time.time(), line.rstrip()))
    threading.Thread(target=read, daemon=True).start()
    return child


def wait_for(child, condition, limit_s=120):
    end = time.time() + limit_s
    while time.time() < end:
        found = condition()
        if found or child.poll() is not None:
            return found
        time.sleep(0.002)
    raise TimeoutError(f"no end after {limit_s} s")


def last_line(folder, rank, event, least):
    def find():
        try:
            rows = [json.loads(line) for line in open(f"{folder}/events-{rank}.jsonl") if line.endswith("\n")]
        except OSError:
            return None
        return next((row for row in rows if row["event"] == event and row["step"] >= least), None)
    return find


def first_time(rows, killed, event, more=lambda row: True):
    return next((row["time"] - killed for row in rows if row["time"] > killed and row["event"] == event and more(row)), None)


def end(child, folder):
    """Ends torchrun and all its workers, which have sessions of their own."""
    child.terminate()
    try:
        child.wait(20)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    for pid in {row["pid"] for row in events(folder) if row["event"] == "started"}:
        try:
            if b"resilience_torch" in open(f"/proc/{pid}/cmdline", "rb").read():
                os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def fault():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    folder = tempfile.mkdtemp(dir=options.dir or None)
    lines, killed, result = [], 0, {"case": "torchrun", "peer": "torch", "ranks": options.ranks, "save": options.save, "every": options.every, "steps": options.steps}
    child = launch(folder, options.ranks, lines)
    try:
        if options.kill_step:
            begun = wait_for(child, last_line(folder, options.kill_rank, "step_begins", options.kill_step))
            pid = [row["pid"] for row in events(folder) if row["event"] == "started" and row["rank"] == options.kill_rank][-1]
            time.sleep(max(0.0, begun["time"] + 0.5 * statistics.median(pace_of(events(folder))) - time.time()))
            killed = time.time()
            os.kill(pid, signal.SIGKILL)
            before = max(row["step"] for row in events(folder) if row["event"] == "step" and row["rank"] == 0)
            if options.after_ranks:  # the job is ended, and started again on what is left
                time.sleep(1)
                end(child, folder)
                child = launch(folder, options.after_ranks, lines)
        try:
            code = wait_for(child, lambda: child.poll() is not None and [child.returncode])
        except TimeoutError:
            result.update(resumed=False, attempts=max(row["attempt"] for row in events(folder)),
                          words=next((line for _, line in reversed(lines) if "Error: " in line), "")[:160])
            return print(json.dumps(result))
        rows = events(folder)
        ends = [row for row in rows if row["event"] == "finished"]
        if code != [0] and not ends:
            sys.exit("torchrun failed:\n" + "\n".join(line for _, line in lines[-15:]))
        result.update(parameters=ends[-1]["parameters"], state_hash=ends[-1]["state_hash"])
        result["step_s"] = statistics.median(pace_of(rows))
        stalls = [row["stall_s"] for row in rows if row["event"] == "saved" and row["rank"] == 0]
        result["save_stall_s"] = statistics.median(stalls) if stalls else None
        if killed:
            loaded = [row["step"] for row in rows if row["event"] == "loaded" and row["time"] > killed]
            resumed = loaded[0] if loaded else 0
            result.update(
                resumed=True, killed_in_step=before + 1, resumed_from_step=resumed, steps_lost=before - resumed,
                survivor_notices_s=first_time(rows, killed, "error"),
                agent_notices_s=next((at - killed for at, line in lines if at > killed and "exitcode: -9" in line), None),
                restarted_s=next((row["at"] - killed for row in rows if row["event"] == "started" and row["at"] > killed), None),
                imported_s=first_time(rows, killed, "started"), joined_s=first_time(rows, killed, "joined", lambda row: row["rank"] == 0),
                loaded_s=first_time(rows, killed, "loaded"), next_step_s=first_time(rows, killed, "step", lambda row: row["attempt"] > 0 or options.after_ranks),
                caught_up_s=first_time(rows, killed, "step", lambda row: row["step"] > before))
    finally:
        end(child, folder)
        shutil.rmtree(folder)
    print(json.dumps({key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}))


def pace_of(rows):
    times = [row["time"] for row in rows if row["event"] == "step" and row["rank"] == 0]
    return [b - a for a, b in zip(times, times[1:])]


# ---- DCP alone ----

def make_state(torch, mib, generation=None):
    """Parameters and two moments in tensors of 6 MiB, as `lockstep bench checkpoint` has them."""
    floats, state = 3 << 19, {}
    for i in range(max(1, mib // 18)):
        for kind in ("value", "m", "v"):
            state[f"layer.{i:05d}.weight.{kind}"] = torch.randn(floats) if generation is None else torch.full((floats,), float(generation))
    return state


def writer(path):
    from torch.distributed.checkpoint import FileSystemWriter
    return FileSystemWriter(path, thread_count=options.threads)


def raw_pass(path, size, write):
    import mmap
    block = 8 << 20
    buffer = mmap.mmap(-1, block)
    buffer.write(os.urandom(block))
    begin = time.time()
    fd = os.open(path, (os.O_WRONLY | os.O_CREAT | os.O_TRUNC if write else os.O_RDONLY) | os.O_DIRECT, 0o644)
    count = (size + block - 1) // block
    if write:
        os.posix_fallocate(fd, 0, count * block)
    for i in range(count):
        if write:
            os.pwritev(fd, [buffer], i * block)
        else:
            os.preadv(fd, [buffer], i * block)
    if write:
        os.fsync(fd)
    os.close(fd)
    return time.time() - begin


def drop_cache(folder):
    for name in os.listdir(folder):
        fd = os.open(f"{folder}/{name}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def timed(work):
    begin = time.time()
    work()
    return time.time() - begin


def speed():
    import torch
    import torch.distributed.checkpoint as dcp
    folder = tempfile.mkdtemp(dir=options.dir or None)
    state = make_state(torch, options.mib)
    size = sum(t.numel() * 4 for t in state.values())
    seconds = {"raw_write": [], "save": [], "raw_read": [], "load": []}
    try:
        for i in range(options.rounds + 1):
            path = f"{folder}/{i}"
            row = {"raw_write": raw_pass(f"{folder}/raw", size, True), "save": timed(lambda: dcp.save(state, storage_writer=writer(path), no_dist=True))}
            drop_cache(path)
            row["raw_read"] = raw_pass(f"{folder}/raw", size, False)
            row["load"] = timed(lambda: dcp.load(state, checkpoint_id=path, no_dist=True))
            if i:  # the first one warms up
                for key, value in row.items():
                    seconds[key].append(value)
            shutil.rmtree(path)
    finally:
        shutil.rmtree(folder)
    rate = {key: size / statistics.median(values) for key, values in seconds.items()}
    ratio = lambda a, b: round(statistics.median(x / y for x, y in zip(seconds[a], seconds[b])), 3)
    print(json.dumps({"case": "dcp", "peer": f"torch {torch.__version__}", "bytes": size, "rounds": options.rounds, "threads": options.threads,
                      "write_bytes_ps": rate["save"], "raw_write_bytes_ps": rate["raw_write"],
                      "load_bytes_ps": rate["load"], "raw_read_bytes_ps": rate["raw_read"],
                      "write_ratio": ratio("raw_write", "save"), "load_ratio": ratio("raw_read", "load")}))


def saver():
    """Saves one generation after the other until it is killed; says which before and after each."""
    import torch
    import torch.distributed.checkpoint as dcp
    for generation in range(1, 10000):
        path = options.dir + ("/state" if options.where == "same" else f"/{generation}")
        print(f"begin {generation}", flush=True)
        dcp.save(make_state(torch, options.mib, generation), storage_writer=writer(path), no_dist=True)
        print(f"end {generation}", flush=True)


def crash():
    import warnings
    import torch
    import torch.distributed.checkpoint as dcp
    warnings.filterwarnings("ignore")
    random.seed(options.seed)
    counts = {"whole": 0, "older_lost": 0, "mixture": 0, "error": 0}
    problems = set()
    for _ in range(options.rounds):
        folder = tempfile.mkdtemp(dir=options.dir or None)
        child = subprocess.Popen([sys.executable, __file__, "saver", "--dir", folder, "--mib", str(options.mib), "--where", options.where,
                                  "--threads", str(options.threads)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        begun = took = done = 0
        for line in child.stdout:  # the second save's duration says when to strike in the third
            word, number = line.split()
            if word == "begin":
                begun = time.time()
                if int(number) == 3:
                    time.sleep(random.random() * took)
                    child.kill()
                    break
            else:
                took, done = time.time() - begun, int(number)
        for line in child.stdout:
            done = int(line.split()[1]) if line.startswith("end") else done
        child.wait()
        try:
            path = f"{folder}/state" if options.where == "same" else newest(folder)[1]
            state = make_state(torch, options.mib, -1)
            dcp.load(state, storage_reader=dcp.FileSystemReader(path), no_dist=True)
            seen = {float(v) for t in state.values() for v in (t.min(), t.max())}
            counts["mixture" if len(seen) > 1 else "whole" if seen.pop() >= done else "older_lost"] += 1
        except (Exception, dcp.CheckpointException) as problem:
            counts["error"] += 1
            problems.add(str(problem).strip().split("\n")[-1][:120])
        shutil.rmtree(folder)
    print(json.dumps({"case": "kill -9 in a save", "where": options.where, "peer": f"torch {torch.__version__}", "rounds": options.rounds, **counts,
                      "problems": sorted(problems)[:3]}))


def flip():
    import torch
    import torch.distributed.checkpoint as dcp
    random.seed(options.seed)
    folder = tempfile.mkdtemp(dir=options.dir or None)
    counts = {"noticed": 0, "wrong_numbers": 0, "harmless": 0}
    try:
        state = make_state(torch, options.mib)
        dcp.save(state, storage_writer=writer(f"{folder}/state"), no_dist=True)
        files = sorted(n for n in os.listdir(f"{folder}/state") if not n.startswith("."))
        for _ in range(options.rounds):
            name = f"{folder}/state/{random.choice(files)}"
            at, bit = random.randrange(os.path.getsize(name)), 1 << random.randrange(8)
            with open(name, "r+b") as file:
                file.seek(at)
                old = file.read(1)
                file.seek(at)
                file.write(bytes([old[0] ^ bit]))
            loaded = {key: torch.zeros_like(t) for key, t in state.items()}
            try:
                dcp.load(loaded, storage_reader=dcp.FileSystemReader(f"{folder}/state"), no_dist=True)
                equal = all(torch.equal(loaded[key].view(torch.int32), state[key].view(torch.int32)) for key in state)
                counts["harmless" if equal else "wrong_numbers"] += 1
            except (Exception, dcp.CheckpointException):
                counts["noticed"] += 1
            with open(name, "r+b") as file:
                file.seek(at)
                file.write(old)
    finally:
        shutil.rmtree(folder)
    print(json.dumps({"case": "a flipped bit", "peer": f"torch {torch.__version__}", "rounds": options.rounds, **counts}))


{"fault": fault, "speed": speed, "crash": crash, "flip": flip, "worker": worker, "saver": saver}[options.what]()
