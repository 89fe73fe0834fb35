#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sending less costs in quality: loss curves of compressed gradients (train.compression) and local steps (train.local)
beside those of dense training, with the same tokens, schedule and initial weights.

  bench/quality.py [--steps 400] [--seeds 3] [--warm 0] [--jobs 2] [--csv FILE] [--svg FILE] [VARIANT ...]

A byte model of 0.9 million parameters is trained on the C sources of this repository. VARIANT is dense, bf16, int8, topk-1,
topk-10 (percent) or local-H-W[-OUTER_LR-OUTER_MOMENTUM[-BITS[-DELAY]]], with other settings of the run file after commas, as
in topk-1,train.optimizer.beta2=0.99; without VARIANT, all of the table in docs/slow-links.md.
The losses are those of the held-out text, of the shared model. With --warm N each seed first makes N dense steps, and all
variants continue from that model: results of local steps are usually published so. Finished runs are kept in --dir and not
repeated. The binary: LOCKSTEP, default build/release/lockstep. Needs no quiet machine.

A night: bench/quality.py --steps 4000 --warm 2000"""
import argparse, concurrent.futures, csv, json, os, pathlib, statistics, subprocess, sys

VARIANTS = ("dense int8 topk-10 topk-1 local-10-2 local-10-4 local-50-2 local-50-4 local-200-4 local-10-4-1-0 local-50-4-1-0 "
            "local-50-8-1-0").split()


def settings(variant):
    scheme, *more = variant.split(",")
    words = scheme.split("-")
    if words[0] == "local":
        keys = "steps workers outer_lr outer_momentum bits delay".split()
        return [f"train.local.{key}={value}" for key, value in zip(keys, words[1:])] + more
    if words[0] == "topk":
        return ["train.compression.kind=topk", f"train.compression.ratio={float(words[1]) / 100}"] + more
    return more if scheme == "dense" else [f"train.compression.kind={scheme}"] + more


def train(options, variant, seed, steps, start):
    """One run; answers its validation losses as [(step, loss)], without step 0. start: settings of the model."""
    run = options.dir / f"{variant}-{seed}-{steps}-{options.warm}"
    if not (run / "report.html").exists():
        sets = [f"train.seed={seed}", f"train.steps={steps}", f"train.schedule.warmup_steps={steps // 10}",
                f"eval.every_steps={max(steps // 8, 1)}", *start, *settings(variant.removeprefix("warm-"))]
        command = [options.program, "train", str(options.dir / "run.yaml"), "--run-dir", str(run), "--json"]
        command += [word for item in sets for word in ("--set", item)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{variant}, seed {seed}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["step"], line["val_loss"]) for line in lines if line.get("val_loss") is not None and line["step"]]


def draw(curves, path):
    """curves: {variant: [(step, mean loss)]}; a picture for docs/, dark and light."""
    left, top, width, height, right = 44, 34, 420, 260, 130
    last = max(step for points in curves.values() for step, _ in points)
    low = min(loss for points in curves.values() for _, loss in points) * 0.98
    high = max(points[1][1] for points in curves.values()) * 1.02
    x = lambda step: left + width * step / last
    y = lambda loss: top + height * (high - min(loss, high)) / (high - low)
    colours = "#0969da #d1570a #1a7f37 #8250df #bf3989 #0b7a7a #9a6700 #6e7781".split()
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {left + width + right} {top + height + 40}" '
           f'width="{left + width + right}" height="{top + height + 40}">', "<title>Validation loss of each scheme by step</title>",
           "<style>text{font:12px system-ui,sans-serif;fill:#59636e}.b{fill:#fff}path{fill:none;stroke-width:2}.g{stroke:#d1d9e0;stroke-width:1}"
           "@media(prefers-color-scheme:dark){text{fill:#9198a1}.b{fill:#0d1117}.g{stroke:#2a313a}}</style>",
           f'<rect class="b" width="{left + width + right}" height="{top + height + 40}"/>',
           f'<text x="{left}" y="18">validation loss (nats per byte), mean of the seeds</text>']
    for i in range(5):
        loss = low + (high - low) * i / 4
        out.append(f'<path class="g" d="M{left} {y(loss):.1f}H{left + width}"/><text x="{left - 6}" y="{y(loss) + 4:.1f}" '
                   f'text-anchor="end">{loss:.2f}</text>')
    for i in range(5):
        out.append(f'<text x="{x(last * i / 4):.0f}" y="{top + height + 18}" text-anchor="middle">{last * i // 4}</text>')
    out.append(f'<text x="{left + width / 2}" y="{top + height + 34}" text-anchor="middle">step</text>')
    place = top + height
    for i, (variant, points) in enumerate(sorted(curves.items(), key=lambda item: item[1][-1][1])):
        colour, dash = colours[i % 8], ' stroke-dasharray="5 4"' if i >= 8 else ""
        out.append(f'<path stroke="{colour}"{dash} d="M' + "L".join(f"{x(s):.1f} {y(v):.1f}" for s, v in points) + '"/>')
        place = min(place - 15, y(points[-1][1]) + 4) if i else y(points[-1][1]) + 4
        out.append(f'<text x="{left + width + 8}" y="{place:.1f}" style="fill:{colour}">{variant}</text>')
    pathlib.Path(path).write_text("\n".join(out) + "\n</svg>\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dir", type=pathlib.Path, default=pathlib.Path("runs/quality"))
    parser.add_argument("--csv")
    parser.add_argument("--svg")
    parser.add_argument("variants", nargs="*")
    options = parser.parse_args()
    os.chdir(pathlib.Path(__file__).resolve().parent.parent)
    options.program = os.path.abspath(os.environ.get("LOCKSTEP", "build/release/lockstep"))
    options.dir = options.dir.resolve()
    options.dir.mkdir(parents=True, exist_ok=True)
    os.environ.update(LOCKSTEP_HOME=str(options.dir / "home"), LOCKSTEP_REGISTRY="off")
    text = options.dir / "sources.txt"
    text.write_bytes(b"".join(path.read_bytes() for path in sorted(pathlib.Path("src").rglob("*.c"))))
    (options.dir / "run.yaml").write_text(f"""name: quality
data: {{train: [{text}], validation_fraction: 0.02}}
train: {{global_batch: 32, micro_batch: 4, leaves: 8, threads: 1, optimizer: {{lr: 3.0e-3}}}}
parallel: {{ranks: 1}}
checkpoint: {{every_steps: 0}}
eval: {{batches: 16}}
sample: {{every_steps: 0}}
""")
    variants = options.variants or VARIANTS
    new = ["model.family=llama", "model.layers=4", "model.heads=4", "model.width=128", "model.context=64", "tokenizer.kind=bytes"]
    start = dict.fromkeys(range(1, options.seeds + 1), new)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        if options.warm:
            for done in [pool.submit(train, options, "warm-dense", seed, options.warm, new) for seed in start]:
                done.result()
            start = {s: [f"model.from={options.dir}/warm-dense-{s}-{options.warm}-{options.warm}", "model.context=64"] for s in start}
        futures = {(v, s): pool.submit(train, options, v, s, options.steps, start[s]) for s in start for v in variants}
        curves = {key: future.result() for key, future in futures.items()}
    ends = {v: [curves[v, s][-1][1] for s in range(1, options.seeds + 1)] for v in variants}
    print(f"{'scheme':<20} {'mean':>8} {'lowest':>8} {'highest':>8} {'against dense':>14}")
    for variant in variants:
        mean = statistics.mean(ends[variant])
        beside = f"{100 * (mean / statistics.mean(ends['dense']) - 1):+.2f} %" if "dense" in ends else ""
        print(f"{variant:<20} {mean:8.4f} {min(ends[variant]):8.4f} {max(ends[variant]):8.4f} {beside:>14}")
    if options.csv:
        with open(options.csv, "w", newline="") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["scheme", "seed", "step", "val_loss"])
            rows.writerows((v, s, step, f"{loss:.5f}") for (v, s), points in curves.items() for step, loss in points)
    if options.svg:
        seeds = range(1, options.seeds + 1)
        draw({v: [(point[0], statistics.mean(curves[v, s][i][1] for s in seeds)) for i, point in enumerate(curves[v, 1])]
              for v in variants}, options.svg)


main()
