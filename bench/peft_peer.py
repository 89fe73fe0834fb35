#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters beside PEFT and PyTorch: the same logits, the same loss curve, and tokens per second and memory in turn.

    python3 bench/peft_peer.py [--lockstep build/release/lockstep] [--rounds 2] [--speed LAYERSxWIDTH] [--context 512] [--batch 4]

Needs torch, transformers and peft (pip install); run by hand, no test needs it. Both sides use the same number of threads.
Tokens per second are those of the median step, the first step left out; processor time is that of the same steps.
"""
import argparse, json, os, resource, statistics, subprocess, sys, tempfile, time

parser = argparse.ArgumentParser()
parser.add_argument("--lockstep", default="build/release/lockstep")
parser.add_argument("--rounds", type=int, default=2)
parser.add_argument("--speed", default="12x768")
parser.add_argument("--vocab", type=int, default=32000)
parser.add_argument("--context", type=int, default=512)
parser.add_argument("--batch", type=int, default=4)
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--only", choices=["logits", "curve", "speed"])
parser.add_argument("--child", help=argparse.SUPPRESS)
args = parser.parse_args()
RANK, ALPHA, LR = 16, 32, 1e-3


def run(*words):
    done = subprocess.run([os.path.abspath(args.lockstep), *words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"lockstep {' '.join(words)}: {done.stderr}")
    return done.stdout


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def base_run(name, layers, width, vocab, context):
    heads = max(2, width // 64)
    write(f"{name}.yaml", f"""
name: {name}
model: {{family: llama, layers: {layers}, heads: {heads}, kv_heads: {heads // 2}, width: {width}, ffn: {width * 8 // 3 // 32 * 32}, context: {context}, vocab: {vocab}}}
tokenizer: {{kind: bytes}}
data: {{train: [text.txt], validation_fraction: 0}}
train: {{steps: 2, global_batch: 1, micro_batch: 1, leaves: 1}}
eval: {{every_steps: 0}}
""")
    run("train", f"{name}.yaml", "--fresh")
    run("export", f"runs/{name}", "-o", f"{name}-hf")


def lora_run(name, base, steps, batch, context, extra=""):
    write(f"{name}.yaml", f"""
name: {name}
model: {{from: {base}, context: {context}}}
tokenizer: {{kind: bytes}}
adapter: {{kind: lora, rank: {RANK}, alpha: {ALPHA}}}
data: {{train: [text.txt], validation_fraction: 0}}
train:
  {{steps: {steps}, global_batch: {batch}, micro_batch: {batch}, leaves: 1, clip_norm: 0, audit_every_steps: 0, threads: {args.threads},
   optimizer: {{lr: {LR}, beta2: 0.999, weight_decay: 0}}, schedule: {{kind: constant, warmup_steps: 0}}}}
eval: {{every_steps: 0}}
{extra}
""")


def load_peft(base, adapter, trainable=False):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM
    import torch
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return PeftModel.from_pretrained(model, adapter, is_trainable=trainable)


def windows(batch, context):
    data = open("text.txt", "rb").read()
    return [list(data[i * context:(i + 1) * context + 1]) for i in range(batch)]


def losses_of(model, rows):
    import torch
    ids = torch.tensor(rows)
    logits = model(ids[:, :-1]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1)), logits


# ---- logits, both ways ----

def compare_logits():
    import torch
    write("text.txt", "".join(chr(97 + (i * i + i // 7) % 26) for i in range(4 * 64 + 1)))
    base_run("small", 3, 128, 256, 64)
    lora_run("trained", "small-hf", 12, 4, 64)
    run("train", "trained.yaml", "--fresh")
    run("export", "runs/trained", "--adapter", "-o", "ours")
    run("export", "runs/trained", "-o", "merged")
    from transformers import AutoModelForCausalLM
    rows = windows(4, 64)
    with torch.no_grad():
        ours, logits = losses_of(load_peft("small-hf", "ours"), rows)
        merged_logits = losses_of(AutoModelForCausalLM.from_pretrained("merged", dtype=torch.float32), rows)[1]
    found = json.loads(run("eval", "runs/trained", "--data", "text.txt", "--context", "64", "--json"))["loss"]
    print(f"we write, peft loads: loss {ours.item():.6f}, ours {found:.6f}; "
          f"logits of the merged model differ by {(logits - merged_logits).abs().max().item():.1e}")

    from peft import LoraConfig, get_peft_model
    torch.manual_seed(1)
    for rslora in (False, True):
        model = get_peft_model(AutoModelForCausalLM.from_pretrained("small-hf", dtype=torch.float32),
                               LoraConfig(r=8, lora_alpha=16, use_rslora=rslora, target_modules=["q_proj", "v_proj", "up_proj"]))
        for name, p in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(p, std=0.1)
        name = f"theirs-{rslora}"
        model.save_pretrained(name)
        with torch.no_grad():
            theirs = losses_of(model, rows)[0].item()
        found = json.loads(run("eval", "small-hf", "--adapter", name, "--data", "text.txt", "--context", "64", "--json"))["loss"]
        print(f"peft writes (rslora {rslora}), we load: loss {theirs:.6f}, ours {found:.6f}, difference {abs(theirs - found):.1e}")


# ---- the loss curve ----

def compare_curves():
    import torch
    write("text.txt", "".join(chr(97 + (i * i + i // 7) % 26) for i in range(4 * 64 + 1)))
    base_run("small", 3, 128, 256, 64)
    lora_run("start", "small-hf", 1, 4, 64)
    run("train", "start.yaml", "--fresh", "--set", "train.optimizer.lr=0")
    run("export", "runs/start", "--adapter", "-o", "start")
    lora_run("curve", "small-hf", 20, 4, 64, "")
    run("train", "curve.yaml", "--fresh", "--set", "adapter.from=start")
    ours = [json.loads(line)["loss"] for line in open("runs/curve/metrics.jsonl")]
    model = load_peft("small-hf", "start", True)
    rows = windows(4, 64)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    theirs = []
    for _ in range(20):
        loss = losses_of(model, rows)[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    worst = max(abs(a - b) for a, b in zip(ours, theirs))
    print(f"loss curve, 20 steps: {theirs[0]:.5f} to {theirs[-1]:.5f}; largest difference {worst:.1e}")


# ---- speed and memory ----

def peft_speed():
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM
    torch.set_num_threads(args.threads)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("large-hf", dtype=torch.float32),
                           LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules="all-linear"))
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LR)
    rows = torch.tensor(windows(args.batch, args.context))
    seconds = []
    for step in range(args.steps + 1):
        if step == 1:
            cpu = time.process_time()
        start = time.monotonic()
        logits = model(rows[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.monotonic() - start)
    tokens = args.steps * args.batch * args.context
    print(json.dumps({"tokens_s": args.batch * args.context / statistics.median(seconds[1:]), "cpu_tokens_s": tokens / (time.process_time() - cpu),
                      "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def our_speed(config):
    """Tokens per second of the median step, the first left out; processor time of all steps but the first: that of the run
    less that of a run with one step."""
    cpu, memory = [], 0
    for steps in (1, args.steps + 1):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = json.loads(run("train", config, "--fresh", "--json", "--set", f"train.steps={steps}"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        memory = result["peak_rss_bytes"]
    seconds = [json.loads(line)["step_s"] for line in open(f"runs/{config.removesuffix('.yaml')}/metrics.jsonl")][1:]
    tokens = args.batch * args.context
    return {"tokens_s": tokens / statistics.median(seconds), "cpu_tokens_s": args.steps * tokens / (cpu[1] - cpu[0]), "memory": memory}


def compare_speed():
    layers, width = (int(x) for x in args.speed.split("x"))
    write("text.txt", "".join(chr(97 + (i * i + i // 7) % 26) for i in range(args.batch * args.context + 1)))
    base_run("large", layers, width, args.vocab, args.context)
    for name in ("lora", "full", "lora-nf4"):
        lora_run(name, "large-hf", args.steps, args.batch, args.context)
    text = open("full.yaml").read()
    write("full.yaml", "".join(line + "\n" for line in text.splitlines() if not line.startswith("adapter")))
    write("lora-nf4.yaml", open("lora-nf4.yaml").read().replace(f"alpha: {ALPHA}", f"alpha: {ALPHA}, base: nf4"))
    for _ in range(args.rounds):
        child = subprocess.run([sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--child", os.getcwd()], capture_output=True, text=True)
        if child.returncode != 0:
            sys.exit(child.stderr)
        results = {"peft": json.loads(child.stdout.splitlines()[-1])}
        for name in ("lora", "lora-nf4", "full"):
            results[name] = our_speed(f"{name}.yaml")
        for name, r in results.items():
            print(f"{name:9} {r['tokens_s']:8.1f} tokens/s  {r['cpu_tokens_s']:8.1f} tokens/processor second  {r['memory'] / 2**20:8.0f} MiB", flush=True)


if args.child:
    os.chdir(args.child)
    peft_speed()
    sys.exit()
script, args.lockstep = os.path.abspath(__file__), os.path.abspath(args.lockstep)
with tempfile.TemporaryDirectory() as folder:
    __file__ = script
    os.chdir(folder)
    os.environ["LOCKSTEP_HOME"] = folder + "/home"
    for name, compare in (("logits", compare_logits), ("curve", compare_curves), ("speed", compare_speed)):
        if args.only in (None, name):
            compare()
            subprocess.run("rm -rf ./*", shell=True)
