#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `lockstep template` with Jinja2 3.1, set up as transformers does, on random templates. Run by hand; needs jinja2.

    tests/tools/template_differential.py build/release/lockstep [CASES [SEED]]

A case counts as equal when both print the same text or both refuse. What lockstep names as not supported (exit code 2) is
counted apart. Exits 1 when there is a difference, after printing the first ones.
"""
import collections
import concurrent.futures
import copy
import datetime
import json
import os
import random
import re
import subprocess
import sys
import tempfile

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda f: datetime.datetime(2026, 1, 15, 12, 0, 0).strftime(f)

VARIABLES = {
    "s": "Hello World", "e": "", "u": "été 你好 Straße ΣΟΦΟΣ Ж", "ml": "one\n two\r\n\nthree\n", "sp": "  x y\t", "num": "42", "fl": "3.75",
    "n": 5, "neg": -3, "z": 0, "f": 2.5, "big": 1e20, "small": 1.5e-7, "t": True, "fa": False, "no": None,
    "l": [3, 1, 2], "ls": ["b", "A", "c", "a"], "le": [], "mixed": [1, "x", None, 2.5, True, [1], {"k": "v"}],
    "d": {"b": 1, "a": "two", "C": [1, 2]}, "de": {}, "nested": {"x": {"y": [{"z": 1}, {"z": 2}]}},
    "rows": [{"name": "x", "v": 3, "role": "user"}, {"name": "Y", "v": 1, "role": "assistant"}, {"name": "z", "v": 2}],
    "q": "it's \"q\" <b>&\\", "template_date": "2026-01-15", "quote": "a'b", "ctl": "\x01\x7f\u200b\u00a0é😀\t",
}
NAMES = [k for k in VARIABLES if k != "template_date"] + ["missing"]
FILTERS = """abs|attr('x')|capitalize|count|d('D')|default('D',true)|default|dictsort|dictsort(true)
dictsort(false,'value')|dictsort(reverse=true)|e|escape|first|float|float(1.5)|groupby('name')|indent|indent(2)|indent(3,true)
indent(1,true,true)|indent('> ')|int|int(7)|items|list|join|join(', ')|join('-','name')|join(attribute='v')|last|length|list|lower
map('upper')|list|map(attribute='name')|list|map(attribute='q',default='?')|list|map('int')|list|max|max(attribute='v')|min|min(attribute='name')
reject|list|reject('odd')|list|rejectattr('role')|list|rejectattr('v','gt',1)|list|replace('o','0')|replace('l','L',1)|replace('','-')|reverse
reverse|list|round|round(1)|round(2,'floor')|round(0,'ceil')|round(-1)|safe|select|list|select('string')|list|select('in',[1,2])|list
selectattr('role','defined')|list|selectattr('role','equalto','user')|list|selectattr('v','ge',2)|map(attribute='name')|join(',')|
sort|sort(true)|sort(case_sensitive=true)|sort(attribute='v')|sort(attribute='name,v')|string|sum|sum(attribute='v')|sum(start=10)|title|tojson
tojson(indent=2)|tojson(ensure_ascii=true)|tojson(sort_keys=true)|tojson(separators=(',',':'))|trim|trim('H')|unique|list|unique(true)|list|upper|format(1)|string|string|length|list|length|map('length')|list
map('trim')|join('|')|map(attribute=0)|list|first|upper|last|last|items|first|nosuch|map('nosuch')|list""".replace("\n", "|").split("|")
TESTS = """defined|undefined|none|string|mapping|iterable|sequence|number|integer|float|boolean|true|false|odd|even|divisibleby(3)|divisibleby 2
callable|sameas(none)|sameas true|escaped|lower|upper|in([1,2])|in 'abc'|eq(5)|equalto('x')|ne(1)|lt(3)|gt 2|ge(5)|le(5)|greaterthan(1)
lessthan(1)|not none|not defined|nosuch""".replace("\n", "|").split("|")
METHODS = """upper()|lower()|title()|capitalize()|swapcase()|strip()|lstrip()|rstrip('d')|strip('Hd')|split()|split(' ')|split('l',1)|split(None,1)
split(sep='o')|split(maxsplit=1)|rsplit('l',1)|rsplit()|rsplit(None,1)|splitlines()|splitlines(true)|startswith('H')|startswith(('x','H'))|endswith('d')
endswith('d',0,3)|replace('l','L')|replace('l','L',1)|replace('','-',2)|find('o')|find('o',5)|rfind('o')|index('o')|rindex('l')|count('l')|count('')
join(['a','b'])|join(ls)|partition(' ')|rpartition('l')|partition('zz')|removeprefix('He')|removesuffix('ld')|ljust(13)|rjust(13,'.')|center(14,'*')
zfill(13)|isalnum()|isalpha()|isdecimal()|isdigit()|islower()|
isspace()|isupper()|format(1)|get('a')|get('zz')|get('zz',1)|keys()|values()|items()|keys()|list|values()|list|items()|list|copy()
index(1)|count(1)|append(1)|pop()|update({})|sort()|clear()|name|x.y|real|__class__|nosuch()""".replace("\n", "|").split("|")
OPERATORS = "+ - * / // % ** ~ == != < > <= >= and or in".split() + ["not in", "~", "+", "=="]


def literal(r):
    return r.choice(["1", "0", "-1", "2.5", "1e3", "10**3", "'a'", "\"b'c\"", "'\\n'", "'\\u00e9\\x41\\\\'", "''", "true", "none", "[]", "{}", "()",
                     "[1,'a',none]", "(1,)", "(1, 2)", "{'a': 1, 2: [3]}", "range(3)", "range(1,8,3)|list", "dict(a=1)", "'%s'", "'%d-%s'", "'{}'",
                     "'a' 'b'", "namespace(a=1)", "namespace(a=1).a", "'%05.1f'", "'{}|{!r}'", "1.0", "1e16", "123456789.123",
                     "0.1", "-0.0", "1e-5", "100000000000000000.0", "7", "3", "10"])


def expression(r, depth):
    if depth <= 0 or r.random() < 0.15:
        return r.choice(NAMES) if r.random() < 0.65 else literal(r)
    kind = r.random()
    a = expression(r, depth - 1)
    if kind < 0.28:
        count = r.choice([1, 1, 1, 2])
        chosen = [r.choice(FILTERS) for _ in range(count)]
        return f"({a})|" + "|".join(chosen)
    if kind < 0.36:
        return f"({a}) is {r.choice(TESTS)}"
    if kind < 0.50:
        return f"({a}).{r.choice(METHODS)}"
    if kind < 0.72:
        return f"({a}) {r.choice(OPERATORS)} ({expression(r, depth - 1)})"
    if kind < 0.78:
        a = r.choice(NAMES) if r.random() < 0.7 else f"({a})|list"
        return f"({a})[{r.choice(['0', '-1', '1', ':2', '1:', '::-1', '-2:', ':-1', '1:3', '5:1:-2', repr('a'), repr('name'), repr('upper'), '100', ':', 'n', 'no:2'])}]"
    if kind < 0.82:
        return f"({a}) if ({expression(r, depth - 1)}) else ({expression(r, depth - 1)})"
    if kind < 0.84:
        return f"({a}) if ({expression(r, depth - 1)})"
    if kind < 0.87:
        return f"not ({a})"
    if kind < 0.89:
        return f"-({a})"
    if kind < 0.92:
        return f"({a}) < ({expression(r, depth - 1)}) < ({expression(r, depth - 1)})"
    if kind < 0.96:
        return f"[{a}, {expression(r, depth - 1)}]"
    return f"{{'k': {a}, 'a': {expression(r, depth - 1)}}}"


def name(r):
    return r.choice(["a", "b", "c", "s", "n"])


def simple(r, in_loop):
    inside = ["loop.index", "loop.last", "loop.length", "loop.first", "loop.revindex", "loop.previtem", "loop.nextitem", "loop.cycle('p','q')",
              "loop.changed(x)", "loop.depth", "loop", "x"]
    return r.choice([name(r), name(r), "1", "'v'", f"({name(r)} ~ 'x')", "ns.v", "x", "m(1)", "m()", "m(q=2)", "caller() if caller", "varargs", "kwargs",
                     "m2(n)", "p", "q"] + (inside if in_loop else []))


def gap(r):
    return r.choice(["", "", " ", "\n", "\n  ", "  \n", "text", "\n\n", "\t"])


def tag(r, text):
    return "{%" + r.choice(["", "", "-", "+"]) + " " + text + " " + r.choice(["", "", "-", "+"]) + "%}"


def statements(r, depth, in_loop=False):
    text = ""
    for _ in range(r.randint(1, 3)):
        text += gap(r) + statement(r, depth, in_loop)
    return text + gap(r)


def statement(r, depth, in_loop):
    kind = r.random()
    if depth <= 0 or kind < 0.25:
        return "{{" + r.choice(["", "-"]) + " " + simple(r, in_loop) + " " + r.choice(["", "-"]) + "}}"
    inner = statements(r, depth - 1, in_loop)
    if kind < 0.40:
        target = r.choice([name(r), name(r), name(r), "ns.v", "a, b"])
        return tag(r, f"set {target} = {simple(r, in_loop) if target != 'a, b' else '(1, ' + name(r) + ')'}")
    if kind < 0.52:
        other = r.choice(["", tag(r, "else") + statements(r, depth - 1, in_loop), tag(r, f"elif {name(r)}") + statements(r, depth - 1, in_loop)])
        return tag(r, f"if {simple(r, in_loop)}") + inner + other + tag(r, "endif")
    if kind < 0.70:
        over = r.choice(["[1,2,3]", "[]", "l", "range(2)", "rows|map(attribute='v')", "'ab'", "d", f"[{name(r)}, 2]", "missing", "d.items()", "rows"])
        test = r.choice(["", "", "", " if x != 2", f" if {name(r)}", " if loop is defined", " if x == ns.v"])
        target = r.choice(["x", "x", "x", name(r), "x, a"])
        inner = statements(r, depth - 1, True)
        other = r.choice(["", "", tag(r, "else") + statements(r, depth - 1, in_loop)])
        return tag(r, f"for {target} in {over}{test}{r.choice(['', '', '', ' recursive'])}") + inner + other + tag(r, "endfor")
    if kind < 0.76:
        return tag(r, f"macro {r.choice(['m', 'm', 'm2'])}({r.choice(['', 'p', 'p, q=n', 'p=1, q=p', 'a, b=c', 'p, caller=none'])})") + inner + tag(r, "endmacro")
    if kind < 0.80:
        return tag(r, f"set {name(r)}{r.choice(['', '', '|upper', '|trim|length'])}") + inner + tag(r, "endset")
    if kind < 0.84:
        return tag(r, f"with {r.choice(['a=1', 'a=b, b=a', 's=n', ''])}") + inner + tag(r, "endwith")
    if kind < 0.88:
        return tag(r, f"call{r.choice(['', '(p)', '(p=2)'])} m({r.choice(['', '1'])})") + inner + tag(r, "endcall")
    if kind < 0.91:
        return tag(r, f"filter {r.choice(['upper', 'trim', 'replace(a, b)', 'upper|lower'])}") + inner + tag(r, "endfilter")
    if kind < 0.94:
        return tag(r, "generation") + inner + tag(r, "endgeneration")
    if kind < 0.96 and in_loop:
        return tag(r, r.choice(["break", "continue"]))
    if kind < 0.98:
        return "{#" + r.choice(["", "-", "+"]) + " note " + r.choice(["", "-", "+"]) + "#}"
    return "{% raw %}{{ raw }} {% x %}" + tag(r, "endraw")


def case(seed):
    r = random.Random(seed)
    if seed % 2:
        return "{{ " + expression(r, r.choice([1, 1, 2, 2, 3])) + " }}"
    return "{% set ns = namespace(v=1) %}{% macro m(p, q=3) %}[{{ p }}{{ q }}{{ caller() if caller else '' }}]{% endmacro %}" \
        "{% macro m2(a) %}<{{ a }}{{ b }}{{ s }}>{% endmacro %}" + statements(r, 3)


def reference(source):
    try:
        return environment.from_string(source).render(**copy.deepcopy(VARIABLES))
    except Exception as error:  # any refusal counts
        return error


def ours(program, folder, seed, source):
    path = os.path.join(folder, f"{seed}.jinja")
    with open(path, "w", newline="") as file:
        file.write(source)
    done = subprocess.run([program, "template", path, "--input", os.path.join(folder, "input.json")], capture_output=True)
    os.unlink(path)
    return done.returncode, done.stdout.decode(), done.stderr.decode().strip()


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    outcome, shown = collections.Counter(), 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(4) as pool:
        with open(os.path.join(folder, "input.json"), "w") as file:
            json.dump(VARIABLES, file)
        cases = {seed: case(seed) for seed in range(first, first + count)}
        results = pool.map(lambda item: ours(program, folder, *item), cases.items())
        for (seed, source), (code, text, message) in zip(cases.items(), results):
            wanted = reference(source)
            if code == 2 and "not supported" in message:
                outcome["not supported: " + message.split(": ", 2)[-1]] += 1
            elif code == 3 if isinstance(wanted, Exception) else code == 0 and text == wanted:
                outcome["refused alike" if code else "equal"] += 1
            elif " object at 0x" in str(wanted) or "<generator" in str(wanted):
                outcome["the reference prints an address"] += 1
            elif code == 3 and re.search(r"\|(map|select|reject|unique|items|reverse)", source):
                outcome["refused, where the reference may never ask a filter for its values"] += 1
            else:
                outcome["DIFFERENT"] += 1
                shown += 1
                if shown <= 20:
                    print(f"--- seed {seed}: {source!r}\n  wanted {wanted!r}\n  got    {code} {text!r} {message}")
    for key, number in outcome.most_common():
        print(f"{number:7} {key}")
    return 1 if outcome["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
