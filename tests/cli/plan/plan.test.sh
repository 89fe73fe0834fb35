#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plan: the contract of its JSON for every preset, strategies given and searched, explanations, CSV, and bad input.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

plan=("$LOCKSTEP" plan)

# holds_contract: $out is one JSON document with the keys of the contract, and its numbers agree with each other.
holds_contract() {
    check "the contract: $*" python3 - "$out" <<'PY'
import json, math, sys
root = json.load(open(sys.argv[1]))
number = (int, float)
kinds = {
    "verdict": str, "parameters": int, "strategy": dict, "step_time_s": number, "step_time_band_s": list, "breakdown_s": dict,
    "tflops_per_gpu": number, "flop_convention": str, "mfu": number, "hfu": number, "memory_gib": dict, "fits": bool, "days": number,
    "goodput": number, "checkpoint": dict, "power_kw": number, "cooling": str, "cost_usd": dict, "alternatives": list, "assumptions": list,
}
nullable = {"power_kw", "cooling"}
wrong = [f"{key} is {root.get(key, 'missing')!r}" for key, kind in kinds.items()
         if not (isinstance(root.get(key), kind) or (key in nullable and key in root and root[key] is None))]
if "break_even_months" not in root:
    wrong.append("break_even_months is missing")
def near(what, a, b, tolerance=1e-6):
    if not math.isclose(a, b, rel_tol=tolerance):
        wrong.append(f"{what}: {a} and {b}")
def walk(path, value):
    if isinstance(value, float) and not math.isfinite(value):
        wrong.append(f"{path} is {value}")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        walk(f"{path}.{key}", item)
if not wrong:
    walk("", root)
    near("the terms add up to the step", sum(root["breakdown_s"].values()), root["step_time_s"])
    if any(value < -1e-12 for value in root["breakdown_s"].values()):
        wrong.append(f"a negative term: {root['breakdown_s']}")
    memory = root["memory_gib"]
    near("the parts add up to the memory", sum(memory[k] for k in ("weights", "gradients", "optimizer", "activations", "buffers")), memory["total"])
    if root["fits"] != (memory["total"] <= 0.95 * memory["capacity"]):
        wrong.append(f"fits is {root['fits']}, {memory['total']} of {memory['capacity']}")
    s = root["strategy"]
    for key in ("tp", "pp", "dp", "cp", "ep", "vpp", "mb", "zero"):
        if not isinstance(s.get(key), int):
            wrong.append(f"strategy.{key} is {s.get(key)!r}")
    if s["tp"] * s["pp"] * s["dp"] * s["cp"] != root["gpus"]:
        wrong.append(f"the strategy {s} is not for {root['gpus']} GPUs")
    if s["recompute"] not in ("none", "selective", "full"):
        wrong.append(f"recompute is {s['recompute']}")
    low, high = root["step_time_band_s"]
    if not 0 < low < high or not 0.7 * root["step_time_s"] < root["step_time_median_s"] < 1.3 * root["step_time_s"]:
        wrong.append(f"the band {low}..{high} is not around {root['step_time_s']}")
    if not 0 < root["mfu"] <= root["hfu"] < 1:
        wrong.append(f"mfu {root['mfu']}, hfu {root['hfu']}")
    if not 0 < root["goodput"] <= 1:
        wrong.append(f"goodput {root['goodput']}")
    if root["verdict"] not in ("LOCAL", "RENT", "OWN", "FRONTIER", "DON'T"):
        wrong.append(f"verdict {root['verdict']}")
    parts = ("compute", "storage", "egress", "energy", "staff", "depreciation", "other", "api")
    for where, cost in [("the answer", root["cost_usd"])] + [(p["name"], p["cost_usd"]) for p in root["paths"]]:
        if cost and cost["total"] is not None and abs(sum(cost[k] for k in parts) - cost["total"]) > 1e-6 * cost["total"]:
            wrong.append(f"the parts of {where} do not add up: {cost}")
    told = [p for p in root["paths"] if p["chosen"] and p["path"] != "api"]
    for p in told:  # the verdict, the table and the numbers are about one path
        if (p["gpus"], p["accelerator"], p["cost_usd"]) != (root["gpus"], root["accelerator"], root["cost_usd"]) or not p["possible"]:
            wrong.append(f"{p['name']} is chosen, the numbers are about {root['gpus']} x {root['accelerator']}")
        if f"{p['gpus_paid']} x " not in root["reason"]:
            wrong.append(f"{p['name']} with {p['gpus_paid']} GPUs is chosen, the reason is {root['reason']}")
    times = [a["step_time_s"] for a in root["alternatives"]]
    for a in root["alternatives"]:
        if not a["why_not"] or not isinstance(a["strategy"], dict):
            wrong.append(f"an alternative without a reason: {a}")
sys.exit("\n".join(wrong) if wrong else 0)
PY
}

# ---- every preset, on machines of a fitting size; the parameters are exact ----
while read -r preset parameters gpus; do
    expect 0 "${plan[@]}" "$preset" --gpus "$gpus" --json
    holds_contract "$preset"
    same "parameters of $preset" "$(field "$out" parameters)" "$parameters"
done <<'EOT'
gpt2 124439808 h100:8
gpt2-xl 1557611200 h100:8
gpt3-175b 174604259328 a100-sxm4-80gb:1024
llama2-7b 6738415616 h100:16
llama2-70b 68976648192 h100:64
llama3-8b 8030261248 h200:16
llama3-70b 70553706496 h100:256
llama3-405b 405853388800 h100:1024
mixtral-8x7b 46702792704 h100:64
EOT

# ---- and every other name there is ----
expect 0 "${plan[@]}" --list models
presets=$(cut -d' ' -f1 "$out")
check "many presets" test "$(echo "$presets" | wc -l)" -ge 60
while read -r preset; do
    expect 0 "${plan[@]}" "$preset" --gpus b200:512 --top 1 --json
    holds_contract "$preset"
done <<<"$presets"
for list in gpus nodes stacks sites; do
    expect 0 "${plan[@]}" --list $list
    check "$list have names" test "$(wc -l <"$out")" -ge 4
done

# ---- a full strategy is evaluated, not searched; the same again gives the same ----
full=("${plan[@]}" llama3-70b --gpus h100:256 --global-batch 512 --seq 8192 --tokens 1.4T)
one=tp=8,pp=4,dp=8,cp=1,ep=1,vpp=5,mb=1,zero=1,recompute=selective,sp=1,schedule=1f1b
expect 0 "${full[@]}" --strategy $one --json
holds_contract "full strategy"
cp "$out" first.json
same "alternatives to a full strategy" "$(field "$out" alternatives)" "[]"
expect 0 "${full[@]}" --strategy $one --json
check "the same again" cmp -s first.json "$out"
expect 0 "${full[@]}" --strategy tp=8,mb=1 --json
holds_contract "strategy in part"
check "what is given stays" python3 -c "
import json, sys
s = json.load(open('$out'))['strategy']
sys.exit(0 if (s['tp'], s['mb']) == (8, 1) else str(s))"
expect 0 "${full[@]}" --json --top 3
check "three that lost, none faster" python3 -c "
import json, sys
r = json.load(open('$out'))
a = r['alternatives']
sys.exit(0 if len(a) == 3 and all(x['step_time_s'] >= 0.97 * r['step_time_s'] for x in a) and all('%' in x['why_not'] for x in a) else str(a))"
best=$(field "$out" step_time_s)
check "the search is no slower than a strategy by hand" python3 -c "
import json, sys
sys.exit(0 if $best <= json.load(open('first.json'))['step_time_s'] else 'slower')"

# A batch that can be shared out in few ways only, and a great many GPUs: an answer all the same, and soon.
expect 0 timeout 60 "${plan[@]}" llama3-8b --gpus h100:64 --global-batch 999999937 --tokens 100T --json
holds_contract "a prime batch"
expect 0 timeout 60 "${plan[@]}" llama3-8b --gpus h100:65536 --json
holds_contract "65,536 GPUs"
# Without a price the question of time and memory is answered; the verdict says what is missing. And what has no bf16 is planned in fp16.
expect 0 "${plan[@]}" gpt2 --gpus v100:8 --json
holds_contract "no price"
same "no price" "$(field "$out" verdict fits break_even_months)" "DON'T True None"
expect 0 "${plan[@]}" gpt2 --gpus v100:8 --all
prints "DON'T  no path is possible: no price" "precision fp16"

# ---- shapes by hand, and as Hugging Face has them ----
expect 0 "${plan[@]}" layers=96,hidden=12288,heads=96,kv_heads=96,ffn=49152,vocab=51200,mlp=gelu --gpus a100-sxm4-80gb:1024 --seq 2048 \
    --global-batch 1536 --strategy tp=8,pp=8,mb=1,recompute=full --json
holds_contract "a shape by hand"
cat >config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
 "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": false}
JSON
expect 0 "${plan[@]}" config.json --gpus h100:16 --json
same "parameters of config.json" "$(field "$out" parameters)" 8030261248
expect 0 "${plan[@]}" tiny.yaml --gpus h100:1 --json
holds_contract "a run file"

# ---- for people ----
expect 0 "${full[@]}" --all
prints "memory/GPU" "step" "plan" "why not" "assumed" "MFU"
expect 0 "${full[@]}" --strategy $one --explain bubble
prints "="
expect 0 "${full[@]}" --strategy $one --explain activations
prints "="
for term in step days cost batch tokens mfu goodput power break-even constants memory matmul; do
    expect 0 "${full[@]}" --strategy $one --explain $term
    check "an explanation of $term" test -s "$out"
done
expect 2 "${full[@]}" --explain bubbles
says bubbles bubble
expect 0 "${full[@]}" --csv
check "CSV that reads" python3 -c "
import csv, sys
rows = list(csv.DictReader(open('$out')))
sys.exit(0 if len(rows) == 6 and rows[0]['tp'] and rows[1]['why_not'] else str(rows[:2]))"
expect 0 "$LOCKSTEP" plan --help
prints --gpus --strategy --explain

# ---- the first screen: at most 20 lines of 80 columns, whatever is asked; --why and --assumptions have the rest ----
while read -r question; do
    # shellcheck disable=SC2086
    expect 0 "${plan[@]}" $question
    check "20 lines of 80 columns: $question" awk 'length($0) > 80 || NR > 20 { bad = 1 } END { exit bad }' "$out"
    prints "run  " "memory  " "step  " "strategy  " "assumed  " "--why, --assumptions, --all"
done <<EOT
llama3-70b --gpus h100:64 --tokens 1.4T
gpt2
gpt2 --gpus v100:8
llama3-405b
llama3-70b --gpus h100:64 --tokens 1T --deadline 10d --budget 100k
--portfolio $LS_SOURCE_DIR/examples/plan/portfolio.yaml
EOT
expect 0 "${full[@]}"
prints "instead  " "cost  " "H100, rented"
expect 0 "${full[@]}" --why
prints "why not" "TFLOP/s" "band"
expect 0 "${full[@]}" --assumptions
prints "(--precision)"
check "one line each" test "$(wc -l <"$out")" -ge 15

# ---- what a newcomer asks: how long and why, how much, does buying pay and why ----
expect 0 "${full[@]}" --all
prints "x 10^21 operations" "TFLOP/s" "buying is advised when it pays back within 24 months" "TP: GPUs that share each layer" "more "
expect 2 "${plan[@]}" 70B --gpus h100:64
says llama2-70b llama3-70b

# ---- money: nothing but the model; the ladder, the memo, a portfolio ----
expect 0 "${plan[@]}" llama3-8b --tokens 160B --json
holds_contract "no machine named"
check "paths side by side" python3 -c "
import json, sys
r = json.load(open('$out'))
kinds = {p['path'] for p in r['paths']}
sys.exit(0 if {'local', 'rented', 'cloud', 'owned'} <= kinds and all('max_loss_usd' in p for p in r['paths']) and r['flips'] else str(kinds))"
expect 0 "${plan[@]}" llama3-8b --tokens 160B --api-price 2 --api-tokens 1B --json
check "an API too" python3 -c "
import json, sys
r = json.load(open('$out'))
levers = {f['lever'] for f in r['flips']}
sys.exit(0 if 'api' in {p['path'] for p in r['paths']} and levers & {'api_price', 'api_tokens'} else str(levers))"
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --ladder --memo memo.md
prints "one node" "a tenth"
check "a memo" grep -q "Decision (yes or no)" memo.md
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --tokens 1T --deadline 300d --budget 900k --memo memo.md
check "the memo asks what was asked" grep -q "on 1T tokens, on 64 x H100-SXM5-80GB, within 300 days, for at most .900k?" memo.md
check "of one page" test "$(wc -l < memo.md)" -le 60
check "nothing is free that can't be had" python3 -c "
import sys
sys.exit(any('\$0 |' in line and 'does not fit' in line for line in open('memo.md')))"
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --tokens 1T --deadline 10d --budget 100k --memo memo.md
check "a memo that says no" grep -q "no spending is requested" memo.md
expect 0 "${plan[@]}" --portfolio "$LS_SOURCE_DIR/examples/plan/portfolio.yaml" --memo memo.md
check "a memo of a portfolio" grep -q "Train 3 models, 14.5 runs a month" memo.md
check "money by the month" grep -q "Money, up to .* a month: __" memo.md
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --ladder --json
check "a tenth that fits" python3 -c "
import json, sys
stages = {s['stage']: s for s in json.load(open('$out'))['ladder']}
tenth = stages['a tenth']
sys.exit(0 if 16 < tenth['gpus'] < 64 and 'hold the model' in tenth['note'] and all(s['criteria'] and s['usd'] > 0 for s in stages.values()) else str(tenth))"
tenth=$(python3 -c "import json; print([s['gpus'] for s in json.load(open('$out'))['ladder'] if s['stage'] == 'a tenth'][0])")
expect 0 "${plan[@]}" llama3-70b --gpus "h100:$tenth"
expect 2 "${plan[@]}" llama3-70b --gpus h100:16
says "does not fit"
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --scaling --json
check "a scaling curve" python3 -c "
import json, sys
s = json.load(open('$out'))['scaling']
fits = [p for p in s['points'] if p['fits']]
sys.exit(0 if len(fits) > 8 and s['takes_over'] and any(p['pareto'] for p in fits) else str(s)[:500])"
expect 0 "${plan[@]}" --portfolio "$LS_SOURCE_DIR/examples/plan/portfolio.yaml" --json
check "a portfolio has a verdict" test "$(field "$out" verdict)" != None
cat > work.yaml <<'END'
runs:
  - {model: llama3-8b, name: assistant, tokens: 200B, runs_per_month: 2, sequence: 4096, global_batch: 1k}
  - {model: gpt2-xl, tokens: "30B", runs_per_month: 10}
END
runs() { # CODE: true of the portfolio p of the answer r
    check "$1" python3 -c "
import json, sys
r = json.load(open('$out'))
p = r['portfolio']
sys.exit(0 if $1 else str(p))"
}
expect 0 "${plan[@]}" --portfolio work.yaml --gpus h100:64 --json
holds_contract "a portfolio"
runs "r['tokens'] == 200e9 and r['sequence'] == 4096 and r['global_batch'] == 1000 and p['examined'] == 'assistant'"
runs "abs(sum(x['month_usd'] for x in p['runs']) / p['month_usd'] - 1) < 1e-9 and p['month_usd'] > 0"
runs "abs(r['days'] / p['runs'][0]['days'] - 1) < 1e-9 and p['longest'] == 'assistant' and p['longest_days'] == p['runs'][0]['days']"
expect 0 "${plan[@]}" gpt2-xl --portfolio work.yaml --gpus h100:64 --tokens 60B --json
runs "p['examined'] == 'gpt2-xl' and r['tokens'] == 60e9 and p['runs'][1]['tokens'] == 60e9 and p['runs'][0]['tokens'] == 200e9"
expect 0 "${plan[@]}" assistant --portfolio work.yaml --json
runs "p['examined'] == 'assistant' and r['model'] == 'llama3-8b'"
expect 0 "${plan[@]}" llama3-405b --portfolio work.yaml --json
runs "p['examined'] is None and r['model'] == 'llama3-405b' and r['fits'] and len(p['runs']) == 2"
cat > of-files.yaml <<END
runs:
  - {model: gpt2-xl, tokens: 1B, runs_per_month: 1}
  - {model: $LS_SOURCE_DIR/examples/demo.yaml, tokens: 1B, runs_per_month: 1}
END
expect 0 "${plan[@]}" --portfolio of-files.yaml --gpus h100:8 --json
runs "p['runs'][1]['sequence'] == 128 and p['runs'][1]['global_batch'] == 16"
expect 0 "${plan[@]}" --portfolio work.yaml --gpus h100:64 --all
prints "a month for 12 runs of 2 models, the longest takes" "> assistant" "share"
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --quote "$LS_SOURCE_DIR/examples/plan/quote.yaml" --site "$LS_SOURCE_DIR/examples/plan/site.yaml" \
    --runs-per-month 4 --utilization 0.7 --staff 200000 --lead-time 30d --data-control contract --deadline 60d --budget 20M --json
holds_contract "money in every way"
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --data-control own --json
same "machines of one's own" "$(field "$out" verdict)" OWN

# No machine named: the kinds that are compared are named, and the others with the reason; an own offer for another card is one of them.
expect 0 "${plan[@]}" llama3-8b --all
prints "compared: H100" "not compared because their peak costs more" "not compared because no price to rent them is known" "B200, rented"
cat >offers.yaml <<'YAML'
offers:
  - {name: bargain, accelerator: l40s, usd: 0.2}
  - {name: hall, accelerator: h100, usd: 1.5, gpus_min: 4096}
YAML
expect 0 "${plan[@]}" llama3-8b --quote offers.yaml --json
holds_contract "an offer for another card"
check "it is chosen; the other has a row with the reason, beside the catalogue's price" python3 -c "
import json, sys
r = json.load(open('$out'))
paths = {p['name']: p for p in r['paths']}
ok = paths['L40S, bargain']['chosen'] and '4096' in paths['H100, hall']['why_not'] and paths['H100, rented']['possible']
sys.exit(0 if ok else str([(n, p['why_not']) for n, p in paths.items()]))"
expect 0 "${plan[@]}" llama3-8b --gpus h100:8 --quote offers.yaml --all
prints 'the offer "bargain" is not compared: it is for l40s' "(a cloud's list price, 2026), egress" "the offer starts at 4096"
# However many offers there are, each kind has its rows, and what is left out is said.
{
    echo "offers:"
    for i in $(seq 1 60); do
        for kind in h100 h200 a100 b200; do
            echo "  - {name: $kind-$i, accelerator: $kind, usd: $((i % 7 + 1)), gpus_min: $i}"
        done
    done
} >many.yaml
expect 0 "${plan[@]}" llama3-8b --quote many.yaml --json
holds_contract "240 offers"
check "each kind has rows, and the catalogue's price" python3 -c "
import json, sys
r = json.load(open('$out'))
names = [p['name'] for p in r['paths']]
said = sum('of 60 own offers' in a for a in r['assumptions'])
missing = [k for k in ('H100', 'H200', 'B200', 'A100', 'GB200') for kind in ('rented', 'cloud') if f'{k}, {kind}' not in names]
sys.exit(0 if said == 4 and not missing and len(names) <= 96 else str((said, missing, len(names))))"
# Cards for a desk can be rented too.
expect 0 "${plan[@]}" gpt2 --gpus 4090:2 --json
holds_contract "a desk"
same "a few hours are rented" "$(field "$out" verdict)" RENT

# One source of truth, whatever is asked: the verdict, the run and the table are about one path.
while read -r question; do
    # shellcheck disable=SC2086
    expect 0 "${plan[@]}" $question --json
    holds_contract "$question"
done <<EOT
gpt2
gpt2 --data-control own
gpt2 --runs-per-month 200
gpt2-xl --data-control own
llama3-70b --deadline 60d --budget 1M
llama3-70b --gpus h100:64 --deadline 265d
llama3-405b
llama3-8b --site office-230v --runs-per-month 3
llama3-8b --site hyperscale --runs-per-month 20 --staff 100000
llama3-8b --utilization 0.9 --lead-time 10d --deadline 60d
llama3-8b --gpus h100:12 --utilization 0.8
llama3-8b --api-price 2 --api-tokens 1B
llama3-8b --quote $LS_SOURCE_DIR/examples/plan/quote.yaml --runs-per-month 4 --data-control contract
EOT

# A deadline is held at the slow end of the band too; an API is possible where no way to train is.
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --tokens 1.4T --deadline 265d --all
prints "DON'T" "are expected, but one run in ten takes more than" "a deadline counts as met when the 90 % end"
# What would hold is said: how many GPUs, and what the budget pays for.
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --deadline 30d --budget 500k --all
prints "DON'T" "the deadline is in 30 days" "768 of them meet the deadline" '$500k pays for about'
expect 0 "${plan[@]}" gpt3-175b --gpus a100:64 --all
prints "DON'T" "longer than the life of the machines (4 years)" "at least 192 of them are needed"
# One rule for a budget too, and one number for what is lost at most.
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --tokens 1.4T --budget 1.2M --all
prints "DON'T" "are expected, but one run in ten costs more than" "a budget counts as met when"
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --tokens 1.4T --memo risk.md --all
check "one number for what is lost at most" python3 -c "
import re, sys
table = re.search(r'^\* .*?(\S+) *\$', open('$out').read(), re.M).group(1)
sys.exit(0 if '| most that can be lost | ' + table + ' |' in open('risk.md').read() else table)"
# An offer that is called what it is is not said twice.
printf 'offers:\n  - {name: spot, kind: spot, accelerator: h100, usd: 1.2}\n' >spot.yaml
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --tokens 100B --quote spot.yaml --all
prints "(spot, 1.20 USD per GPU and hour)"
# Own machines are paid by the runs that there are.
expect 0 "${plan[@]}" llama2-7b --tokens 50B --runs-per-month 20 --gpus h100:64 --utilization 0.9 --all
prints "at 50 % use" "90 % (--utilization) would need other work" "the same work rented (H100, rented, with storage and egress)"
expect 0 "${plan[@]}" llama2-7b --tokens 50B --runs-per-month 20 --gpus h100:64 --utilization 0.2 --all
prints "192 GPUs, for 3 runs at a time on 64 each"
expect 0 "${plan[@]}" --portfolio "$LS_SOURCE_DIR/examples/plan/portfolio.yaml" --json
check "no use beyond what is said to be possible" python3 -c "
import json, sys
sys.exit(any(f['lever'] == 'utilization' and f['to'] > 0.9 for f in json.load(open('$out'))['flips']))"
expect 0 "${plan[@]}" gpt3-175b --gpus h100:8192 --staff 1M --all
prints FRONTIER 'about $1.00M of staff'
expect 0 "${plan[@]}" llama3-8b --api-price 2 --api-tokens 100M --deadline 1h --all
prints "DON'T  training is not possible" 'an outside API costs $200 a month' "API: a model is used for 24 months"
expect 0 "${plan[@]}" llama3-8b --gpus h100:8 --api-price 2 --all
prints "the number of tokens per month is not given" "give --api-tokens"
# ---- numbers with units, blanks and capitals, as people write them; what is beyond the model is said ----
expect 0 "${plan[@]}" llama3-8b --gpus 'h100 : 16' --seq 16k --staff 250k --global-batch 0.5k --strategy 'TP=8, pp = 2 ,recompute=Full' --precision FP8 --optimizer AdamW --deadline 0 --json
check "they are read" python3 -c "
import json
r = json.load(open('$out'))
s = r['strategy']
assert (r['sequence'], r['global_batch'], s['tp'], s['pp'], s['recompute']) == (16000, 500, 8, 2, 'full'), (r['sequence'], r['global_batch'], s)
assert any('16000 tokens are more than the 8192' in a for a in r['assumptions']), r['assumptions']"
expect 0 "${plan[@]}" "$LS_SOURCE_DIR/examples/demo.yaml" --gpus h100:1 --seq 64 --json
check "a run file: what it says, and what was said instead" python3 -c "
import json
r = json.load(open('$out'))
said = [a for a in r['assumptions'] if a.endswith('demo.yaml')]
assert r['strategy']['mb'] == 16 and r['sequence'] == 64, r
assert len(said) == 1 and 'batch' in said[0] and 'micro-batches of 16' in said[0] and 'sequences' not in said[0], said"
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --scaling --csv
check "the curve as CSV" python3 -c "
import csv
rows = list(csv.DictReader(open('$out')))
assert len(rows) > 5 and [r for r in rows if r['gpus'] == '64' and float(r['days']) > 0 and 'tp=' in r['strategy']], rows"
# A reader that goes away is no error.
"${plan[@]}" --accuracy --json 2>"$err" | head -1 >"$out"
same "status and what it says when the reader has left" "${PIPESTATUS[0]}$(cat "$err")" 0

# ---- the error table ----
expect 0 "${plan[@]}" --accuracy
prints median held fsdp
expect 0 "${plan[@]}" --accuracy --json
check "the keys of the contract" python3 -c "
import json, sys
r = json.load(open('$out'))
ok = r['rows'] > 100 and 0 <= r['median_error'] < 0.15 and 0 <= r['mean_error'] < 0.2 and r['by_stack']
sys.exit(0 if ok and all(s['rows'] > 0 and s['mean_error'] >= 0 for s in r['by_stack'].values()) else str(r)[:500])"
all=$(field "$out" rows)
head -40 "$LS_SOURCE_DIR/data/published_runs.csv" >some.csv
expect 0 "${plan[@]}" --accuracy --json --data some.csv
check "fewer rows of a table of one's own" test "$(field "$out" rows)" -lt "$all"
expect 0 "${plan[@]}" --accuracy some.csv
prints some.csv median
mkdir -p home
echo '{"time": "2026-11-21T20:30:00Z", "run": "mine", "model": "llama", "parameters": 1000, "layers": 1, "width": 8, "device": "d", "ranks": 1, "threads": 1,
"tokens_per_step": 10, "steps": 5, "calibration": null, "predicted": {"step_s": 1.1, "memory_bytes": 100}, "measured": {"step_s": 1.0, "memory_bytes": 200}}' |
    tr -d '\n' >home/accuracy.jsonl
expect 0 "${plan[@]}" --accuracy
prints "own runs" mine "+10.0 %" "-50.0 %"
expect 0 "${plan[@]}" --accuracy --json
check "own runs in JSON" python3 -c "
import json, sys
o = json.load(open('$out'))['own']
sys.exit(0 if o['rows'] == 1 and abs(o['step_median_error'] - 0.1) < 1e-6 and abs(o['memory_median_error'] - 0.5) < 1e-6 else str(o))"
expect 2 "${plan[@]}" --accuracy --data missing.csv
says missing.csv
echo "a,b,c" >other.csv
expect 3 "${plan[@]}" --accuracy --data other.csv
says other.csv

# ---- bad input: exit code 2, what was seen, what is allowed ----

# refuse OPTIONS... -- TEXT...: refused with each text on stderr, and no answer on stdout.
refuse() {
    local -a options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    expect 2 "${plan[@]}" "${options[@]}"
    says "$@"
    check "no answer: ${options[*]}" test ! -s "$out"
}
# What does not fit is answered all the same: DON'T in the first line, all keys of the contract, status 2.
misfit() {
    local -a options=()
    while [ "$1" != -- ]; do
        options+=("$1")
        shift
    done
    shift
    expect 2 "${plan[@]}" "${options[@]}"
    says "$@"
    check "DON'T comes first: ${options[*]}" sh -c "head -n 1 '$out' | grep -q \"^DON'T  .*does not fit\""
    expect 2 "${plan[@]}" "${options[@]}" --json
    says "$@"
    same "does not fit: ${options[*]}" "$(field "$out" verdict fits)" "DON'T False"
    holds_contract "${options[*]}"
}
refuse -- MODEL
refuse lama3-70b --gpus h100:8 -- lama3-70b llama3-70b
refuse llama3-70b --gpus h1000:8 -- h1000 H100
refuse llama3-70b --nodes dgx-x100:8 -- dgx-x100 DGX-H100
refuse llama3-70b --gpus h100 -- h100 KIND:COUNT
refuse llama3-70b --gpus h100:0 -- "--gpus"
refuse llama3-70b --gpus h100:-8 -- "--gpus" -8
refuse llama3-70b --gpus h100:8.5 -- 8.5
refuse llama3-70b --gpus h100:1e12 -- 1e12
refuse llama3-70b --gpus h100:64 --nodes dgx-h100:8 -- --gpus --nodes
refuse llama3-8b --gpus h100:8 --tokens -1T -- --tokens -1T
refuse llama3-8b --gpus h100:8 --tokens lots -- --tokens lots
refuse llama3-8b --gpus h100:8 --tokens 1B --global-batch 1M -- --global-batch 8.19B 122070
refuse llama3-8b --gpus h100:8 --deadline 60 -- --deadline "with its unit" 60d
refuse llama3-8b --gpus h100:8 --lead-time 90 -- --lead-time "with its unit"
refuse llama3-8b --nodes dgx-h100:1e6 -- 8000000 1000000 125000
refuse llama3-8b --gpus h100: -- "'h100:'" KIND:COUNT
refuse llama3-8b --gpus "" -- --gpus "no value"
refuse llama3-8b --gpus h100:8 --data runs.csv -- --data --accuracy
refuse llama3-8b --gpus h100:8 --seq 8x -- --seq 8x "whole number"
refuse llama3-8b --gpus h100:8 --seq 8.0005k -- --seq 8.0005k
refuse llama3-8b --gpus h100:8 --tokens nan -- --tokens nan
refuse llama3-8b --gpus h100:8 --tokens 1e99 -- --tokens
refuse llama3-8b --gpus h100:8 --global-batch -3 -- global_batch -3
refuse llama3-8b --gpus h100:8 --seq 0x -- seq 0x
refuse llama3-8b --gpus h100:8 --precision int1 -- precision int1 bf16
refuse llama3-8b --gpus h100:8 --optimizer adam2 -- optimizer adam2 adamw
refuse llama3-8b --gpus h100:8 --stack megatorn-core -- megatorn-core megatron-core
refuse llama3-8b --gpus a100:8 --precision fp8 -- fp8 A100 bf16
refuse llama3-8b --gpus v100:64 --precision bf16 -- bf16 V100 fp16
refuse llama3-8b --gpus h100:8 --api-tokens 1B -- --api-tokens --api-price
echo 'power_kw: 0' >dark.yaml
refuse llama3-8b --gpus h100:8 --site ./dark.yaml -- dark.yaml:1 "power_kw is 0"
refuse llama3-8b --gpus h100:8 --budget -5 -- --budget -5
refuse llama3-8b --gpus h100:8 --utilization 2 -- utilization 2
refuse llama3-8b --gpus h100:8 --deadline -1d -- deadline -1d
refuse llama3-8b --gpus h100:8 --data-control nobody -- nobody contract
refuse llama3-8b --gpus h100:8 --site nowhere -- nowhere colocation
refuse llama3-8b --gpus h100:8 --quote missing.yaml -- missing.yaml
refuse llama3-8b --gpus h100:8 --portfolio missing.yaml -- missing.yaml
refuse llama3-8b --gpus v100:8 --budget 1M -- V100 price --quote
refuse llama3-8b --gpus h100:8 --bogus 3 -- --bogus
refuse llama3-8b --gpus h100:8 --strategy tp=3 -- tp 3
refuse llama3-8b --gpus h100:8 --strategy tp=two -- two
refuse llama3-8b --gpus h100:8 --strategy tpp=2 -- tpp
refuse llama3-8b --gpus h100:8 --strategy tp=-1 -- -1
refuse llama3-8b --gpus h100:8 --strategy zero=4 -- zero 4
refuse llama3-8b --gpus h100:8 --strategy recompute=some -- some selective
refuse llama3-8b --gpus h100:8 --strategy tp=2,pp=2,dp=4,cp=1,ep=1,vpp=1,mb=1,zero=1,recompute=none,sp=1 -- 16 8
refuse llama3-8b --gpus h100:64 --strategy tp=1,pp=64 -- 64 32
refuse llama3-8b --gpus h100:8 --global-batch 12 --strategy dp=8 -- 12
refuse layers=0,hidden=64,heads=4,vocab=100,ffn=256 --gpus h100:8 -- layers
refuse layers=2,hidden=64,heads=5,vocab=100,ffn=256 --gpus h100:8 -- heads
refuse layers=2,hiden=64,heads=4,vocab=100,ffn=256 --gpus h100:8 -- hiden hidden
refuse layers=-2,hidden=64,heads=4,vocab=100,ffn=256 --gpus h100:8 -- layers
refuse missing/config.json --gpus h100:8 -- missing
echo '{"model_type": ' >broken.json
expect 3 "${plan[@]}" broken.json --gpus h100:8
says broken.json

# A model that does not fit: what it would take.
misfit llama3-405b --gpus h100:8 -- "does not fit" GiB "it fits on"
misfit llama3-405b --gpus h100:64 -- "it fits on 128"
for model in llama2-70b llama3-70b gpt3-175b mixtral-8x7b; do
    misfit $model --gpus a100:8 -- "it fits on"
done
prints "strategy\": {" "free tensors early"
misfit llama3.2-1b --gpus rtx-5090:1 --seq 8192 -- "or with --seq 4096" "or with --optimizer adamw-8bit"
misfit llama3.2-1b --gpus rtx-4090:1 -- "it fits on 2" "or with --optimizer adamw-8bit and --seq 4096"

# A length of the program's own choice is halved until something fits.
expect 0 "${plan[@]}" llama3.2-1b --gpus rtx-5090:1 --json
same "shorter" "$(field "$out" sequence fits)" "4096 True"
prints "sequences of 4096 tokens: nothing fits with 8192"

# Plain data parallel for 70B on 80 GB: what to use instead.
expect 2 "${plan[@]}" llama2-70b --gpus h100:64 --strategy tp=1,pp=1,dp=64,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=full,sp=0
says "does not fit" "what fits" ZeRO
expect 2 "${plan[@]}" llama2-70b --gpus h100:64 --strategy tp=1,pp=1,dp=64,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=full,sp=0 --json
check "JSON says so too" python3 -c "
import json, sys
r = json.load(open('$out'))
ok = r['fits'] is False and r['memory_gib']['total'] > 80 and r['verdict'] == \"DON'T\"
best = r['alternatives'][0]
sys.exit(0 if ok and best['fits'] and (best['strategy']['zero'] or best['strategy']['tp'] > 1) else str(r['reason']))"

for plain in tp=1,pp=1,zero=0 dp=64,zero=0 tp=1,pp=1,dp=64,zero=0,recompute=full; do
    misfit llama3-70b --gpus h100:64 --strategy $plain -- "does not fit" "what fits: TP"
done
misfit llama3-70b --strategy tp=1,pp=1,zero=0 -- "does not fit" ZeRO-3

# A word that is not one: what would be.
printf 'runs:\n  - model: gpt2\n    tokns: 1B\n    runs_per_month: 2\n' >typo.yaml
refuse --portfolio typo.yaml -- tokens "Keys of an item"
refuse --list -- models gpus
refuse --accuracy nope.csv -- --accuracy nope.csv
refuse gpt2 --gpus h100:1 --json --csv -- --csv
refuse gpt2 --gpus mac:1 -- M3-Ultra
for here in cpu this local; do
    refuse gpt2 --gpus $here:1 -- "lockstep calibrate"
done

# Other names of the sizes of a mixture.
mixture=layers=8,hidden=1024,heads=8,vocab=32000
expect 0 "${plan[@]}" $mixture,experts=8,active=2,expert_ffn=4096,shared=1 --gpus h100:8 --json
wanted=$(field "$out" parameters active_parameters)
expect 0 "${plan[@]}" $mixture,n_routed_experts=8,top_k=2,moe_intermediate_size=4096,n_shared_experts=1 --gpus h100:8 --json
same "the same mixture" "$(field "$out" parameters active_parameters)" "$wanted"

# Unified memory, and failures nobody counted, say so.
expect 0 "${plan[@]}" llama3-8b --gpus m3-ultra:1 --all
prints "384 of 512 GiB of unified memory" "no statistics exist for desks"

# A stage's criteria are those of the software that runs it.
expect 0 "${plan[@]}" llama3-8b --gpus h100:64 --ladder
check "no hashes of a trainer that has none" sh -c "! grep -q state_hash '$out'"

# A table of one's own: all that is left out is named, what was not fully specified is listed, and nothing is held out.
python3 - "$LS_SOURCE_DIR/data/published_runs.csv" >own.csv <<'PY'
import csv, sys
table = list(csv.reader(open(sys.argv[1])))
head = {name: i for i, name in enumerate(table[0])}
rows = [row for row in table[1:] if row[head["fully_specified"]] == "0"][:4]
for name in ("iter_time_s", "tokens_per_s_total", "tokens_per_s_per_gpu", "tflops_per_gpu", "mfu_pct", "hfu_pct"):
    rows[0][head[name]] = ""
csv.writer(sys.stdout).writerows([table[0]] + rows)
PY
expect 0 "${plan[@]}" --accuracy own.csv
prints "1 left out" "line 2, " "no step was measured" "runs with blanks with the largest errors"
check "nothing is held out" sh -c "! grep -q 'held out' '$out'"
check "no median of no runs" grep -q "^all  *0  *-  *-" "$out"

# ---- a catalogue of one's own ----
{
    echo "kind,name,year,bf16_dense_tflops,mem_gb,mem_tbs,scaleup_GBs_per_dir,scaleup_domain,pcie_GBs_per_dir,sms,tdp_w,nic_GBs_per_gpu_per_dir,\
price_usd_low,price_usd_high,cloud_usd_per_gpu_h_low,cloud_usd_per_gpu_h_high,price_date,confidence,notes" | tr -d '\\\n'
    echo
    echo "gpu,Mine-1,2026,500,64,2.0,300,8,32,100,500,25,10000,12000,1.00,2.00,2026-11,own,"
} >mine.csv
expect 0 "${plan[@]}" llama3-8b --gpus mine-1:8 --catalogue mine.csv --json
holds_contract "a card of one's own"
sed 's/,500,64,/,fast,64,/' mine.csv >broken.csv
expect 3 "${plan[@]}" llama3-8b --gpus mine-1:8 --catalogue broken.csv
says broken.csv fast
expect 2 "${plan[@]}" llama3-8b --gpus h100:8 --catalogue missing.csv
says missing.csv
# An explanation is a document too.
expect 0 "$LOCKSTEP" plan llama3-8b --gpus h100:8 --explain bubble --json
check "an explanation in JSON" python3 -c 'import json, sys; d = json.load(open(sys.argv[1])); sys.exit(not (d["term"] == "bubble" and "=" in d["text"]))' "$out"

# A run file says its batch, its sequences and its tokens; options say otherwise.
expect 0 "$LOCKSTEP" plan "$scratch/tiny.yaml" --gpus h100:1 --json
same "a run file's batch, sequences, tokens" "$(field "$out" global_batch sequence tokens)" "12 32 4608.0"
expect 0 "$LOCKSTEP" plan "$scratch/tiny.yaml" --gpus h100:1 --global-batch 24 --tokens 1M --json
same "options over a run file" "$(field "$out" global_batch tokens)" "24 1000000.0"

# Fine-tuning: three ways beside each other; the one that was asked for decides the exit code.
expect 0 "${plan[@]}" llama3-8b --finetune qlora --gpus rtx-4090:1 --json
same "what qlora needs" "$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); print(d["finetune"], d["fits"], d["seq"], int(d["adapter_parameters"]), sorted(a["finetune"] for a in d["alternatives"]))' "$out")" "qlora True 2048 41943040 ['full', 'lora']"
expect 2 "${plan[@]}" llama3-8b --finetune full --gpus rtx-4090:1
prints "does not fit" "> full"
says "--finetune qlora fits with" "--finetune lora fits with"
expect 0 "${plan[@]}" llama3.2-1b --finetune lora --assumptions
prints "the least memory of one GPU on which lora fits"
expect 2 "${plan[@]}" llama3-8b --finetune half
says "full, lora, qlora"
finish
