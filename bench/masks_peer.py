# SPDX-License-Identifier: Apache-2.0
"""Compares the masks of `data show` with a reference that renders with Jinja2 and tokenises with Hugging Face tokenizers.

    pip install jinja2 tokenizers
    python3 bench/masks_peer.py build/release/lockstep ../shared/data/chat_templates

For every template TEMPLATE.jinja the conversations of golden.jsonl become records. The reference renders each conversation
before and after each answer, as transformers does, and marks the tokens between. Printed for each template:

    records     conversations with an answer
    refused     by lockstep, and why: both (the reference refuses as well), tools (an answer calls a tool, and the template does not
                write that), end (an answer without a token that ends it), else (printed)
    samples     made
    ended       records that differ from the reference only in tokens that end an answer and that the reference does not train
    differ      records that differ otherwise (printed)
    empty       masks without a token
    unstopped   samples with an answer without a token that ends it
"""
import datetime, json, pathlib, re, subprocess, sys, tempfile
import jinja2, jinja2.ext, jinja2.sandbox, tokenizers

SPECIAL = """<|endoftext|> <s> </s> <unk> <pad> <|im_start|> <|im_end|> <|begin_of_text|> <|end_of_text|> <|eot_id|> <|eom_id|>
<|start_header_id|> <|end_header_id|> <|python_tag|> <start_of_turn> <end_of_turn> <bos> <eos> <|end|> <|user|> <|assistant|>
<|system|> <|end_of_turn|> <|END_OF_TURN_TOKEN|> <|START_OF_TURN_TOKEN|> [INST] [/INST]
<|USER_TOKEN|> <|CHATBOT_TOKEN|> <|SYSTEM_TOKEN|> <|stop|> <|EOT|> <｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <im_end>""".split()


COLUMNS = "records refused both tools end else samples ended differ empty unstopped".split()


class Ignored(jinja2.ext.Extension):
    """{% generation %} prints what is in it."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def environment():
    def refuse(message):
        raise jinja2.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                       extensions=[Ignored, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 1, 15, 12).strftime(f)
    return env


def make_model(folder):
    """A byte-level tokenizer without merges, and the special tokens of the families."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    model = tokenizers.models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[])
    t = tokenizers.Tokenizer(model)
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens([tokenizers.AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    t.save(str(folder / "tokenizer.json"))
    return t


def loose(turn, prompt):
    """Where turn goes on after prompt, white space aside; None if it does not."""
    at = 0
    for c in prompt:
        if c.isspace():
            continue
        while at < len(turn) and turn[at].isspace():
            at += 1
        if at == len(turn) or turn[at] != c:
            return None
        at += 1
    while at < len(turn) and turn[at].isspace():
        at += 1
    return at


def reference(render, tokenizer, messages):
    """The samples of a conversation as (ids, mask), or None where an answer is not asked for as it is written."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "assistant")
    whole, spans = render(messages[:last + 1], False), []
    for i, message in enumerate(messages[:last + 1]):
        if message["role"] != "assistant":
            continue
        prompt, turn = render(messages[:i], True), render(messages[:i + 1], False)
        begin = len(prompt) if turn.startswith(prompt) else loose(turn, prompt)
        if begin is None or begin == len(turn):
            return None
        spans.append((begin, turn))
    if all(whole.startswith(turn) for _, turn in spans):
        samples = [(whole, [(b, len(t)) for b, t in spans])]
    else:
        samples = [(t, [(b, len(t))]) for b, t in spans]
    made = []
    for text, parts in samples:
        e = tokenizer.encode(text, add_special_tokens=False)
        made.append((e.ids, [int(any(b <= o[0] and o[1] <= end for b, end in parts)) for o in e.offsets]))
    return made


def has_stop(tokenizer, ids, mask, stops):
    """Every run of trained tokens holds a stop token."""
    runs = re.findall("1+", "".join(map(str, mask)))
    ends = [m.span() for m in re.finditer("1+", "".join(map(str, mask)))]
    return bool(runs) and all(any(ids[i] in stops for i in range(a, b)) for a, b in ends)


def differs_in_ends(made, wanted, stops):
    """Made differs from wanted only in that tokens that end an answer are trained, or added at the end of a sample."""
    if wanted is None or len(made) != len(wanted):
        return False
    for (ids, mask), (ids_wanted, mask_wanted) in zip(made, wanted):
        n = len(ids_wanted)
        if ids[:n] != ids_wanted or any(i not in stops for i in ids[n:]) or not all(mask[n:]):
            return False
        if any(a != b and not (a and i in stops) for i, a, b in zip(ids, mask, mask_wanted)):
            return False
    return True


def reason(problem, wanted):
    if wanted is None:
        return "both"
    return "tools" if "does not write tool calls" in problem else "end" if "without a token that ends" in problem else "else"


def compare(lockstep, folder, tokenizer, template, source, cases):
    stops = {tokenizer.token_to_id(s) for s in SPECIAL}
    compiled = environment().from_string(source)
    count = dict.fromkeys(COLUMNS, 0)
    (folder / "chat_template.jinja").write_text(source)
    for case in cases:
        variables = {k: v for k, v in case.items() if k not in ("messages", "add_generation_prompt")}
        if not any(m["role"] == "assistant" for m in case["messages"]):
            continue
        if any(m["role"] == "assistant" and not m["content"].strip() and not m.get("tool_calls") for m in case["messages"]):
            continue
        tokens = {k: v for k, v in variables.items() if k.endswith("_token")}
        (folder / "tokenizer_config.json").write_text(json.dumps(tokens))
        (folder / "records.jsonl").write_text(json.dumps({"messages": case["messages"], "tools": case.get("tools")}) + "\n")
        try:
            wanted = reference(lambda m, p: compiled.render(messages=m, add_generation_prompt=p, documents=None, **variables),
                               tokenizer, case["messages"])
        except (jinja2.TemplateError, TypeError):
            wanted = None
        out = subprocess.run([lockstep, "data", "show", str(folder / "records.jsonl"), "--json", "--set", "tokenizer.kind=file",
                              "--set", f"tokenizer.file={folder}/tokenizer.json", "--set", "model.context=65536",
                              "--set", "data.template_date=2026-01-15"], capture_output=True, text=True)
        seen = json.loads(out.stdout) if out.stdout else {"records": [], "problems": [out.stderr]}
        count["records"] += 1
        if seen["problems"]:
            why = reason(seen["problems"][0], wanted)
            count["refused"] += 1
            count[why] += 1
            if why == "else" and count["else"] < 3:
                print(f"  {template}: refused: {seen['problems'][0][:300]}")
            continue
        made = [(r["tokens"], r["mask"]) for r in seen["records"]]
        count["samples"] += len(made)
        ended = made != wanted and differs_in_ends(made, wanted, stops)
        count["ended"] += ended
        count["differ"] += made != wanted and not ended
        if made != wanted and not ended and count["differ"] < 3:
            print(f"  {template}: differs from the reference" + (" that refuses" if wanted is None else ""))
            print("   ", json.dumps(case["messages"])[:600])
        for ids, mask in made:
            count["empty"] += not any(mask)
            count["unstopped"] += not has_stop(tokenizer, ids, mask, stops)
    return count


def main():
    lockstep, data = sys.argv[1], pathlib.Path(sys.argv[2])
    cases = {}
    for line in open(data / "golden.jsonl"):
        case = json.loads(line)
        cases.setdefault(case["template"], []).append(case["input"])
    wanted = sys.argv[3:] or sorted(cases)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        tokenizer = make_model(folder)
        print(" " * 56, *(f"{name:>9}" for name in COLUMNS))
        total = dict.fromkeys(COLUMNS, 0)
        for template in wanted:
            c = compare(lockstep, folder, tokenizer, template, (data / f"{template}.jinja").read_text(), cases[template])
            print(f"{template:56}", *(f"{c[name]:9}" for name in COLUMNS), flush=True)
            total = {name: total[name] + c[name] for name in COLUMNS}
        print(f"{len(wanted)} templates".ljust(56), *(f"{total[name]:9}" for name in COLUMNS))


main()
