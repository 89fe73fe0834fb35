#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of bench/allreduce_pairs.sh and bench/netns_pairs.sh. Usage: allreduce_table.py RUNS.jsonl [--link-bytes-ps N] [--json FILE]

RUNS.jsonl: one line per run, in the order they ran: {"round": R, "ranks": N, "who": NAME, "run": {"results": [{"bytes": B, "us": T}, ...]}};
Lockstep's own rows say median_us, and copy_limit_us for as many concurrent copies.
A figure is the median over rounds; a ratio is the median of the rounds' ratios (theirs / ours), with the least and the greatest.
--link-bytes-ps: also the share of the limit of a ring, 2(N-1)/N * B / link, that we reach.
"""
import argparse
import json
import statistics

parser = argparse.ArgumentParser()
parser.add_argument("runs")
parser.add_argument("--link-bytes-ps", type=float, default=0)
parser.add_argument("--json", default="")
options = parser.parse_args()

times = {}  # (ranks, bytes) -> who -> round -> us
for line in open(options.runs):
    row = json.loads(line)
    for result in row["run"]["results"]:
        by = times.setdefault((row["ranks"], result["bytes"]), {})
        by.setdefault(row["who"], {})[row["round"]] = result["us"] if "us" in result else result["median_us"]
        if "copy_limit_us" in result:
            by.setdefault("copies", {})[row["round"]] = result["copy_limit_us"]


def name(size):
    for unit, step in (("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= step and size % step == 0:
            return f"{size // step} {unit}"
    return f"{size} B"


def short(value):
    return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


rows = []
for (ranks, size), by in sorted(times.items()):
    ours = by.get("lockstep", {})
    row = {"ranks": ranks, "bytes": size, "rounds": len(ours)}
    if ours:
        row["lockstep_us"] = statistics.median(ours.values())
    for who, theirs in by.items():
        if who == "lockstep":
            continue
        row[who + "_us"] = statistics.median(theirs.values())
        ratios = [theirs[r] / ours[r] for r in theirs if r in ours]
        if ratios:
            row[who] = {"ratio": statistics.median(ratios), "min": min(ratios), "max": max(ratios), "pairs": len(ratios)}
    if options.link_bytes_ps and ours:
        limit = 2 * (ranks - 1) / ranks * size / options.link_bytes_ps * 1e6
        row["limit_us"], row["limit_share"] = limit, limit / row["lockstep_us"]
    rows.append(row)

peers = [who for who in ("openmpi", "gloo", "copies") if any(who + "_us" in row for row in rows)]
peers += sorted({who for by in times.values() for who in by} - set(peers) - {"lockstep"})
head = ["ranks", "size", "lockstep us"] + [p + " us" for p in peers]
head += [("share of copies" if p == "copies" else p + " / lockstep") + " (min to max, pairs)" for p in peers]
head += ["share of the link's limit"] if options.link_bytes_ps else []
print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
for row in rows:
    cells = [str(row["ranks"]), name(row["bytes"]), short(row["lockstep_us"]) if "lockstep_us" in row else "-"]
    cells += [short(row[p + "_us"]) if p + "_us" in row else "-" for p in peers]
    for p in peers:
        r = row.get(p)
        cells.append(f"**{r['ratio']:.2f}** ({r['min']:.2f} to {r['max']:.2f}, {r['pairs']})" if r else "-")
    if options.link_bytes_ps:
        cells.append(f"{row['limit_share']:.3f}" if "limit_share" in row else "-")
    print("| " + " | ".join(cells) + " |")
if options.json:
    with open(options.json, "w") as file:
        json.dump(rows, file, indent=1)
