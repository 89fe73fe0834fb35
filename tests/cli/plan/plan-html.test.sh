#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# plan --html: one page that needs nothing else, with nine pictures, and the numbers of the JSON.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

plan=("$LOCKSTEP" plan)

# holds_page FILE PICTURES WHAT: the page parses, its pictures are XML, nothing is loaded, no number is missing.
holds_page() {
    check "the page: $3" python3 - "$1" "$2" <<'PY'
import html.parser, re, sys
import xml.etree.ElementTree as tree
page = open(sys.argv[1], encoding="utf-8").read()
pictures = re.findall(r"<svg.*?</svg>", page, re.S)
ids = ["memory", "pipeline", "timeline", "scaling", "cost", "topology", "goodput", "power", "accuracy"]
wrong = [f"no {name}" for name in ids if page.count(f'id="{name}"') != 1]
if len(pictures) != 2 * int(sys.argv[2]):
    wrong.append(f"{len(pictures)} drawings of {sys.argv[2]} pictures")
for picture in pictures:
    root = tree.fromstring(picture)
    wide = float(root.get("viewBox").split()[2])
    for text in root.iter("{http://www.w3.org/2000/svg}text"):
        if re.search(r"\b(nan|inf)\b", "".join(text.itertext()), re.I):
            wrong.append("".join(text.itertext()))
        if not -1 <= float(text.get("x")) <= wide + 1:
            wrong.append(f"text outside at {text.get('x')}: {''.join(text.itertext())}")
    for number in re.findall(r'"[^"]*\b(?:nan|inf)\b[^"]*"', picture):
        wrong.append(number)
words = re.sub(r"<style>.*?</style>|<[^>]*>", " ", page, flags=re.S)
if re.search(r"\b(nan|inf)\b|%!|\(null\)", words, re.I):
    wrong.append("a number is missing")
if re.search(r'(src|href)="(?!data:)|url\(|@import|<script', page):
    wrong.append("the page needs another file")
if "prefers-color-scheme" not in page or 'name="viewport"' not in page:
    wrong.append("not for the dark, or not for a phone")
sys.exit("\n".join(wrong) or 0)
PY
}

expect 0 "${plan[@]}" llama3-70b --gpus h100:256 --tokens 1.4T --html a.html --json
holds_page a.html 9 "70B on 256 H100"
check "the page has the numbers of the JSON" python3 -c "
import html, json, sys
r = json.load(open('$out')); page = html.unescape(open('a.html', encoding='utf-8').read())
said = [r['verdict'] + '<', '%.1f of %.4g GiB' % (r['memory_gib']['total'], r['memory_gib']['capacity']), '%.1f %%</b> of the time' % (100 * r['goodput']),
        '%.1f %%</b><span>of the peak' % (100 * r['mfu'])] + r['assumptions']
sys.exit('\n'.join(s for s in said if s not in page) or 0)"

expect 0 "${plan[@]}" gpt2 --gpus rtx4090:1 --tokens 3B --html b.html
holds_page b.html 8 "one card"
expect 0 "${plan[@]}" llama3-8b --gpus m3-ultra:1 --tokens 1B --html c.html
holds_page c.html 8 "Apple"
expect 0 "${plan[@]}" mixtral-8x7b --gpus a100:64 --html d.html
holds_page d.html 9 "experts"
expect 0 "${plan[@]}" llama3-8b --gpus h100:32 --strategy tp=2,pp=1,cp=1,ep=1,mb=1,zero=3,recompute=none --html e.html
holds_page e.html 9 "no pipeline"
expect 0 "${plan[@]}" llama3-405b --gpus h100:16384 --global_batch 2048 --html f.html
holds_page f.html 9 "16,384 GPUs"

# The command on the page asks the same question again.
expect 0 "${plan[@]}" llama3-8b --nodes dgx-h100:4 --tokens 2T --deadline 90d --budget 2M --runs_per_month 0.5 --lead_time 30d \
    --strategy tp=2,zero=1 --site colocation --utilization 0.8 --json --html h.html
cp "$out" first.json
command=$(grep -o '<code>lockstep plan[^<]*' h.html | sed 's/<code>lockstep //')
eval "expect 0 \"$LOCKSTEP\" $command --json"
check "the same answer: $command" python3 -c "
import json, sys
a, b = json.load(open('first.json')), json.load(open('$out'))
a.pop('scaling'), b.pop('scaling', None) # the page has the whole curve
sys.exit('\n'.join(f'{k}: {a.get(k)} and {b.get(k)}' for k in a.keys() | b.keys() if a.get(k) != b.get(k)) or 0)"

# What is refused gets its page too: what stands in the way, and what would do.
expect 2 "${plan[@]}" llama2-70b --gpus h100:64 --strategy tp=1,pp=1,dp=64,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=full,sp=0 --html g.html
holds_page g.html 7 "refused"
check "it says why, and what fits" grep -q "does not fit with DP 64.*what fits: TP" g.html

# One picture by itself.
expect 0 "$LS_BUILD_DIR/lockstep-figures" plan-pipeline --gpus h100:128 --strategy tp=8,pp=4 -o pipeline.svg
check "a picture is XML" python3 -c "import xml.etree.ElementTree as t; t.parse('pipeline.svg')"
expect 2 "$LS_BUILD_DIR/lockstep-figures" plan-weather
says plan-memory

# It can't be written: said, not passed over.
expect 2 "${plan[@]}" gpt2 --gpus h100:8 --html missing/a.html
says missing/a.html
# On a phone the wide tables say that there is more of them; what is called pale is.
expect 0 "${plan[@]}" llama3-70b --gpus h100:64 --html wide.html
check "wide tables say so" grep -q 'class="sideways">More to the right' wide.html
check "pale in the legend" sh -c "grep -B1 'pale: hidden' wide.html | grep -q 'fill-opacity=\"0.30\"'"
finish
