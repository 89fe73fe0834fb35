// SPDX-License-Identifier: Apache-2.0
/* Chat templates: small ones of our own for each construct, with what Jinja2 3.1 prints for them,
 * refusals, limits, and bytes that are no text. */
#include "test.h"

#include "tokenizer/template/chat_template.h"
#include "tokenizer/template/template_source.h"

#include "base/file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ls_text out;

static ls_status render_bytes(const char *source, size_t bytes, const char *variables, ls_text *text)
{
    ls_chat_template *template = NULL;
    ls_status status = ls_chat_template_open(source, bytes, "test", &template);
    if (status == LS_OK) {
        json_t *json = json_loads(variables, JSON_ALLOW_NUL, NULL);
        assert_non_null(json);
        status = ls_chat_template_render(template, json, text);
        json_decref(json);
    }
    ls_chat_template_close(template);
    return status;
}

static ls_status render(const char *source, const char *variables)
{
    return render_bytes(source, strlen(source), variables, &out);
}

static const char given[] =
    "{\"s\": \"Hello World\", \"n\": 5, \"f\": 2.5, \"l\": [3, 1, 2], \"d\": {\"b\": 1, \"a\": \"x\"}, "
    "\"no\": null, "
    "\"u\": \"\\u00e9t\\u00e9 \\u4f60\", \"template_date\": \"2026-01-15\", \"zero\": \"a\\u0000b\", "
    "\"rows\": [{\"name\": \"x\", \"v\": 3, \"role\": \"user\"}, {\"name\": \"Y\", \"v\": 1}]}";

typedef struct example {
    const char *source, *wanted;
} example;

static void assert_examples(const example *examples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (render(examples[i].source, given) != LS_OK) {
            fail_msg("%s: %s", examples[i].source, ls_error_text());
        }
        if (strcmp(ls_text_string(&out), examples[i].wanted) != 0) {
            fail_msg("%s\n  gives  '%s'\n  not    '%s'", examples[i].source, ls_text_string(&out),
                     examples[i].wanted);
        }
    }
}
#define ASSERT_EXAMPLES(...)                                                                                 \
    do {                                                                                                     \
        static const example examples[] = {__VA_ARGS__};                                                     \
        assert_examples(examples, sizeof examples / sizeof *examples);                                       \
    } while (0)

static void template_strips_white_space_around_tags(void **state)
{
    (void)state;
    ASSERT_EXAMPLES({"a\n  {% if true %}\n b\n  {% endif %}\nc\n", "a\n b\nc"},
                    {"a {%- if true -%} b {%- endif -%} c", "abc"}, {"  {{ 1 }}\n", "  1"},
                    {"  {%+ if true %}x{% endif +%}\ny", "  x\ny"}, {"a {#- note -#} b", "ab"},
                    {"a\n  {# note #}\nb", "a\nb"}, {"a\r\nb\rc", "a\nb\nc"},
                    {"{% raw %}{{ x }}{% y %}{% endraw %}!", "{{ x }}{% y %}!"},
                    {"x{{- ' y ' -}} z", "x y z"}, {"{{ '}}' }}{{ '%}' }}", "}}%}"},
                    {"{{ {'a': {'b': 1}}['a'] }}", "{'b': 1}"});
}

static void expression_has_pythons_operators(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 10 }} {{ 0.5 * 3 }}",
         "3 -4 2 3.5 1024 1.5"},
        {"{{ -7.5 / 2 }} {{ -7.5 - 2 }} {{ 1e16 }} {{ 0.1 + 0.2 }} {{ 1e-5 }} {{ 100.0 }}",
         "-3.75 -9.5 1e+16 0.30000000000000004 1e-05 100.0"},
        {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }}", "True False True True"},
        {"{{ 'a' in 'abc' }} {{ 4 not in l }} {{ 'b' in d }} {{ 'a' ~ 1 ~ none }}", "True True True a1None"},
        {"{{ [1] + [2] }} {{ 'ab' * 2 }} {{ (1,) }} {{ () }} {{ [none, true, 1.5, 'q'] }}",
         "[1, 2] abab (1,) () [None, True, 1.5, 'q']"},
        {"{{ s[0] }}{{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ u[1:] }} {{ l[:2] }} {{ l[::-1] }}",
         "Hd ell dlroW olleH té 你 [3, 1] [2, 1, 3]"},
        {"{{ 'y' if n == 5 else 'z' }}{{ 'y' if n == 6 }}{{ not n }} {{ n and 'x' }} {{ no or 'w' }}",
         "yFalse x w"},
        {"{{ \"it's\" ~ 'say \"x\"' }} {{ [\"it's\", 'a\\\\b\\n'] }} {{ '\\x41\\u00e9\\101' }}",
         "it'ssay \"x\" [\"it's\", 'a\\\\b\\n'] AéA"},
        {"{{ '%s-%05.1f-%d' % ('a', 2.25, 3) }} {{ '{} {n}|{{}}{!r}'.format(1, 'b', n=2) }}",
         "a-002.2-3 1 2|{}'b'"},
        {"{{ 1.5e3 }} {{ 10 }} {{ 'a' 'b' }} {{ d.b + d['b'] }} {{ rows.0.v }} {{ -n }} {{ - 2 ** 2 }}",
         "1500.0 10 ab 2 3 -5 4"});
}

static void undefined_prints_nothing_and_refuses_use(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"[{{ missing }}{{ d.missing }}{{ l[9] }}{{ s.nothing }}]", "[]"},
        {"{{ missing is defined }} {{ missing|default('x') }} {{ missing|length }} {{ missing == nope }}",
         "False x 0 True"},
        {"{% for x in missing %}x{% else %}none{% endfor %}", "none"},
        {"{{ d.items is defined }} {{ d.append is defined }}", "True False"},
        {"{{ [missing] }} {{ 1 in missing }} {{ missing ~ 'x' }}", "[Undefined] False x"});
}

static void filters_print_what_jinja_prints(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"{{ d|tojson }} {{ [1.0, u, '<\"\\n']|tojson }}",
         "{\"b\": 1, \"a\": \"x\"} [1.0, \"été 你\", \"<\\\"\\n\"]"},
        {"{{ d|tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": \"x\"\n}"},
        {"{{ d|tojson(sort_keys=true, separators=(',', ':')) }} {{ u|tojson(ensure_ascii=true) }} {{ "
         "[]|tojson(indent=4) }}",
         "{\"a\":\"x\",\"b\":1} \"\\u00e9t\\u00e9 \\u4f60\" []"},
        {"{{ ' x '|trim }}|{{ 'xxaxx'|trim('x') }}|{{ s|upper }}|{{ u|upper }}|{{ 'a-b c'|title }}|{{ "
         "'aBC'|capitalize }}",
         "x|a|HELLO WORLD|ÉTÉ 你|A-B C|Abc"},
        {"{{ l|join('-') }} {{ rows|map(attribute='name')|join(',') }} {{ l|map('string')|list }} {{ l|first "
         "}}{{ l|last }}",
         "3-1-2 x,Y ['3', '1', '2'] 32"},
        {"{{ rows|selectattr('role', 'defined')|list|length }} {{ "
         "rows|rejectattr('role')|map(attribute='name')|list }} {{ l|select('gt', 1)|list }} {{ "
         "l|reject('odd')|list }}",
         "1 ['Y'] [3, 2] [2]"},
        {"{{ l|sort }} {{ l|sort(reverse=true) }} {{ rows|sort(attribute='v')|map(attribute='v')|list }} {{ "
         "['b', 'A']|sort }} {{ d|dictsort }}",
         "[1, 2, 3] [3, 2, 1] [1, 3] ['A', 'b'] [('a', 'x'), ('b', 1)]"},
        {"{{ l|sum }} {{ l|min }} {{ l|max }} {{ [1, 1.0, 'A', 'a']|unique|list }} {{ l|reverse|list }} {{ "
         "'abc'|reverse }}",
         "6 1 3 [1, 'A'] [2, 1, 3] cba"},
        {"{{ 2.5|round }} {{ 2.567|round(2) }} {{ 2.1|round(0, 'ceil') }} {{ 5|round }} {{ '7'|int + 1 }} {{ "
         "'x'|int(9) }} {{ '1.5'|float }} {{ -3|abs }}",
         "2.0 2.57 3.0 5 8 9 1.5 3"},
        {"{{ 'a\\n\\nb'|indent(2) }}|{{ 'a\\nb'|indent(2, true) }}", "a\n\n  b|  a\n  b"},
        {"{{ 'a.b.a'|replace('a', 'x', 1) }} {{ d|items|list }} {{ d|list }} {{ d|length }} {{ "
         "'%s!'|format('x') }} {{ 5|string ~ 1 }}",
         "x.b.a [('b', 1), ('a', 'x')] ['b', 'a'] 2 x! 51"},
        {"{{ '<a>'|e }} {{ '<a>'|safe + '<' }}", "&lt;a&gt; <a>&lt;"});
}

static void methods_print_what_python_prints(void **state)
{
    (void)state;
    ASSERT_EXAMPLES({"{{ s.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a b  c'.split(None, 1) }} {{ "
                     "'a.b.c'.rsplit('.', 1) }}",
                     "['Hello', 'World'] ['a', 'b', '', 'c'] ['a', 'b  c'] ['a.b', 'c']"},
                    {"{{ '  x '.strip() }}|{{ 'xax'.lstrip('x') }}|{{ 'xax'.rstrip('x') }}|{{ "
                     "s.startswith('He') }} {{ s.endswith(('x', 'd')) }}",
                     "x|ax|xa|True True"},
                    {"{{ s.replace('l', 'L', 1) }} {{ s.find('o') }} {{ s.find('z') }} {{ s.rfind('o') }} {{ "
                     "s.count('l') }} {{ ','.join(['a', 'b']) }}",
                     "HeLlo World 4 -1 7 3 a,b"},
                    {"{{ s.upper() }} {{ s.lower() }} {{ 'a b'.title() }} {{ 'aB'.swapcase() }} {{ "
                     "'x=1'.partition('=') }} {{ 'a\\nb'.splitlines() }}",
                     "HELLO WORLD hello world A B Ab ('x', '=', '1') ['a', 'b']"},
                    {"{{ d.get('b') }} {{ d.get('z') }} {{ d.get('z', 0) }} {{ d.keys()|list }} {{ "
                     "d.values()|list }} {{ d.items()|list }}",
                     "1 None 0 ['b', 'a'] [1, 'x'] [('b', 1), ('a', 'x')]"},
                    {"{{ '42'.isdigit() }} {{ 'a1'.isalnum() }} {{ 'A'.isupper() }} {{ '7'.zfill(3) }} {{ "
                     "'a'.ljust(3) }}| {{ l.index(1) }} {{ l.count(3) }}",
                     "True True True 007 a  | 1 1"});
}

static void tests_answer_as_jinja_does(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"{{ s is string }}{{ d is mapping }}{{ l is iterable }}{{ l is sequence }}{{ d is sequence }}{{ n "
         "is number }}",
         "TrueTrueTrueTrueTrueTrue"},
        {"{{ true is number }} {{ true is integer }} {{ f is float }} {{ no is none }} {{ no is not none }} "
         "{{ true is boolean }}",
         "True False True True False True"},
        {"{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 3 is in l }} {{ 3 is eq 3 }} {{ 'a' is "
         "sameas 'a' }} {{ false is false }}",
         "True False True True True True True"},
        {"{{ 3 is gt 2 and 3 is le(3) }} {{ 'AB' is upper }} {{ range is callable }}", "True True True"});
}

static void loops_have_their_variables(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last "
         "}}{{ loop.length }} {% endfor %}",
         "103TrueFalse3 212FalseFalse3 321FalseTrue3 "},
        {"{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "<3>1 3<1>2 1<2> "},
        {"{% for x in l if x > 1 %}{{ x }}{{ loop.last }}{% endfor %}", "3False2True"},
        {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=x;"},
        {"{% for x in [] %}{% else %}none{% endfor %}", "none"},
        {"{% for x in range(9) %}{% if x == 1 %}{% continue %}{% elif x == 4 %}{% break %}{% endif %}{{ x "
         "}}{% endfor %}",
         "023"},
        {"{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
         "aTruebTrueaTrue"},
        {"{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{{ loop.depth }}{% "
         "endfor %}",
         "11223321"});
}

static void variables_have_jinjas_scopes(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "1"},
        {"{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "7"},
        {"{% if true %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
        {"{% if false %}{% set n = 1 %}{% endif %}{{ n }}", "5"},
        {"{% for i in [1] %}[{{ n }}]{% endfor %}{% set n = 1 %}", "[]"},
        {"{% set a, b = 1, 2 %}{{ a }}{{ b }}", "12"},
        {"{% with x = 1, y = n %}{{ x }}{{ y }}{% endwith %}{{ x }}", "15"},
        {"{% set x %}a{{ n }}{% endset %}{{ x }}", "a5"},
        {"{% set x | upper %}a{% endset %}{{ x }}{% filter replace('a', 'b') %}aa{% endfilter %}", "Abb"},
        {"{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}", "1"},
        {"{% for i in l %}{% if loop.first %}{% set x = i %}{% endif %}[{{ x }}]{% endfor %}", "[3][][]"});
}

static void macros_take_arguments(void **state)
{
    (void)state;
    ASSERT_EXAMPLES(
        {"{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=3) }} {{ m() }}",
         "121 123 2"},
        {"{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, x=2) }}", "(1,){'x': 2}"},
        {"{% macro m(a) %}<{{ caller(a) }}>{% endmacro %}{% call(x) m(3) %}{{ x + 1 }}{% endcall %}", "<4>"},
        {"{% macro f(i) %}{{ i }}{% if i > 0 %}{{ f(i - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"},
        {"{% macro m(x) %}{{ y }}{% endmacro %}{% set y = 7 %}{{ m(1) }}", "7"},
        {"{{ range(3)|list }} {{ range(5, 0, -2)|list }} {{ dict(a=1) }} {{ namespace(a=1) }} {{ "
         "range(2)|list }}",
         "[0, 1, 2] [5, 3, 1] {'a': 1} <Namespace {'a': 1}> [0, 1]"},
        {"{{ strftime_now('%d %B %Y, %H:%M') }}", "15 January 2026, 12:00"});
}

/* ---- refusals ---- */

static void refused_with(const char *source, ls_status wanted, const char *text)
{
    ls_text_clear(&out);
    ls_text_append(&out, "untouched");
    const ls_status status = render(source, given);
    if (status != wanted || !strstr(ls_error_text(), text)) {
        fail_msg("%s: status %s, '%s', not '%s'", source, ls_status_name(status), ls_error_text(), text);
    }
    assert_string_equal(ls_text_string(&out), "untouched");
}

static void template_refuses_with_name_and_line(void **state)
{
    (void)state;
    refused_with("a\n\n{{ raise_exception('Roles must alternate!') }}", LS_ERR_DATA,
                 "test, line 3: Roles must alternate!");
    refused_with("{{ missing.x }}", LS_ERR_DATA, "'missing' is undefined");
    refused_with("{{ d.x.y }}", LS_ERR_DATA, "'dict object' has no attribute 'x'");
    refused_with("{{ 1 + 'a' }}", LS_ERR_DATA, "unsupported operand type(s) for +: 'int' and 'str'");
    refused_with("{{ 'a' + missing }}", LS_ERR_DATA, "'missing' is undefined");
    refused_with("{{ l|tojson(indent=2)|length / 0 }}", LS_ERR_DATA, "division by zero");
    refused_with("{{ missing|tojson }}", LS_ERR_DATA, "not JSON serializable");
    refused_with("{{ l.append(1) }}", LS_ERR_DATA, "access to attribute 'append' of 'list' object is unsafe");
    refused_with("{% set d.x = 1 %}", LS_ERR_DATA, "non-namespace");
    refused_with("{{ s|nosuch }}", LS_ERR_DATA, "No filter named 'nosuch'");
    refused_with("{{ s.nosuch() }}", LS_ERR_DATA, "'str object' has no attribute 'nosuch'");
    refused_with("{{ [3, 'a']|sort }}", LS_ERR_DATA, "no order");
    refused_with("{{ {[]: 1} }}", LS_ERR_DATA, "key of a dict");
    refused_with("{{ range(10**9) }}", LS_ERR_DATA, "Range too big");
    refused_with("{{ (l|map('upper'))|length }}", LS_ERR_DATA, "has no len()");
    refused_with("{{ loop(1) }}", LS_ERR_DATA, "'loop' is undefined");
}

static void syntax_errors_are_named(void **state)
{
    (void)state;
    refused_with("{% if x %}", LS_ERR_DATA, "{% endif %} expected");
    refused_with("x\n{{ 1 + }}", LS_ERR_DATA, "line 2: an expression expected");
    refused_with("{% endfor %}", LS_ERR_DATA, "unknown tag");
    refused_with("{{ 'abc }}", LS_ERR_DATA, "a string has no end");
    refused_with("{# x", LS_ERR_DATA, "has no #}");
    refused_with("{% raw %}x", LS_ERR_DATA, "endraw");
    refused_with("{{ (1 }}", LS_ERR_DATA, "'}' closes a bracket that is not open");
    refused_with("{{ a ? b }}", LS_ERR_DATA, "unexpected character U+003F");
    refused_with("{% break %}", LS_ERR_DATA, "belong into a loop");
    refused_with("{% set 1 = 2 %}", LS_ERR_DATA, "a name to assign to");
    refused_with("{% for x in l %}{% set loop = 1 %}{% endfor %}", LS_ERR_DATA, "loop");
    refused_with("{{ f(a=1, 2) }}", LS_ERR_DATA, "wrong order");
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    refused_with("a\n{% include 'x' %}", LS_ERR_UNSUPPORTED, "line 2: {% include %} is not supported");
    refused_with("{% extends 'x' %}", LS_ERR_UNSUPPORTED, "{% extends %}");
    refused_with("{{ s|wordwrap }}", LS_ERR_UNSUPPORTED, "the filter 'wordwrap' is not supported");
    refused_with("{{ s.encode() }}", LS_ERR_UNSUPPORTED, "'encode' of a str is not supported");
    refused_with("{{ 9223372036854775807 + 1 }}", LS_ERR_UNSUPPORTED, "beyond 64 bits");
    refused_with("{{ l|select }}", LS_ERR_UNSUPPORTED, "printing a generator is not supported");
    refused_with("{{ rows|groupby('v') }}", LS_ERR_UNSUPPORTED, "the filter 'groupby' is not supported");
    refused_with("{{ 7.5 // 2 }}", LS_ERR_UNSUPPORTED, "//, % and ** are not supported for floats");
    refused_with("{{ '%(a)s' % d }}", LS_ERR_UNSUPPORTED, "%( in a format is not supported");
    refused_with("{{ range(2) }}", LS_ERR_UNSUPPORTED, "printing a range is not supported");
    refused_with("{{ '%.3d' % 1 }}", LS_ERR_UNSUPPORTED, "formatting this number with %.3d");
    refused_with("{{ ('x'|safe).join(['y']) }}", LS_ERR_UNSUPPORTED, "join() of text marked as safe");
    refused_with("{{ 0x1f }}", LS_ERR_UNSUPPORTED, "in another base than 10");
    refused_with("{{ '{:>4}'.format(1) }}", LS_ERR_UNSUPPORTED, "the field {:>4} of format()");
    refused_with("{{ '\\ud83d' }}", LS_ERR_UNSUPPORTED, "surrogate");
}

static void limits_end_every_template(void **state)
{
    (void)state;
    refused_with("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                 LS_ERR_DATA, "more than 20000000 steps");
    refused_with(
        "{% set ns = namespace(x='ab') %}{% for a in range(99) %}{% set ns.x = ns.x * 2 %}{% endfor %}",
        LS_ERR_DATA, "more than 512 MiB");
    refused_with("{{ 'a' * 10**12 }}", LS_ERR_DATA, "more than 512 MiB");
    refused_with("{{ [1] * 10**12 }}", LS_ERR_DATA, "more than 512 MiB");
    refused_with("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", LS_ERR_DATA, "levels of calls");
    refused_with("{{ '%99999s' % 1 }}", LS_ERR_UNSUPPORTED, "%99999s in a format is not");
    refused_with("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", LS_ERR_DATA, "levels of calls");
    /* 2^60 tuples, of 60 that are there */
    refused_with("{% set ns = namespace(x=(1,)) %}{% for a in range(60) %}{% set ns.x = (ns.x, ns.x) %}"
                 "{% endfor %}{{ {ns.x: 1} }}",
                 LS_ERR_DATA, "more than 20000000 steps");
    ls_text deep = {0};
    ls_text_append(&deep, "{{ ");
    ls_text_repeat(&deep, '(', 100000);
    refused_with(ls_text_string(&deep), LS_ERR_DATA, "inside each other");
    ls_text_clear(&deep);
    ls_text_append(&deep, "{{ 1");
    for (int i = 0; i < 100000; i++) {
        ls_text_append(&deep, " + 1");
    }
    ls_text_append(&deep, " }}");
    refused_with(ls_text_string(&deep), LS_ERR_DATA, "inside each other");
    ls_text_release(&deep);
}

static void bytes_that_are_no_text_are_refused(void **state)
{
    (void)state;
    ls_chat_template *template = NULL;
    assert_int_equal(ls_chat_template_open("a\xff", 2, "file.jinja", &template), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "file.jinja is not UTF-8 text: byte 1"));
    assert_null(template);
    /* Zero bytes are characters. */
    static const char source[] = "a\0b{{ zero|length }}{{ '\0\\n'|tojson }}";
    assert_int_equal(render_bytes(source, sizeof source - 1, given, &out), LS_OK);
    assert_int_equal(out.bytes, 14);
    assert_memory_equal(out.data, "a\0b3\"\\u0000\\n\"", 14);
    assert_int_equal(render("", "[]"), LS_ERR_DATA);
    assert_int_equal(render("{{ strftime_now('%Y') }}", "{\"template_date\": \"2026-02-30\"}"),
                     LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "2026-02-30"));
}

/* ---- several threads ---- */

typedef struct worker {
    const ls_chat_template *template;
    const json_t *variables;
    bool is_equal;
} worker;

static void *render_many(void *context)
{
    worker *w = context;
    ls_text text = {0};
    w->is_equal = true;
    for (int i = 0; i < 200; i++) {
        w->is_equal = w->is_equal && ls_chat_template_render(w->template, w->variables, &text) == LS_OK &&
                      strcmp(ls_text_string(&text), "3:1:2:été") == 0;
    }
    ls_text_release(&text);
    return NULL;
}

static void template_renders_in_threads(void **state)
{
    (void)state;
    const char *source =
        "{% macro m(x) %}{{ x }}:{% endmacro %}{% for x in l %}{{ m(x) }}{% endfor %}{{ u.split()[0] }}";
    ls_chat_template *template = NULL;
    assert_int_equal(ls_chat_template_open(source, strlen(source), "test", &template), LS_OK);
    json_t *json = json_loads(given, JSON_ALLOW_NUL, NULL);
    worker workers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        workers[i] = (worker){.template = template, .variables = json};
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, &workers[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].is_equal);
    }
    json_decref(json);
    ls_chat_template_close(template);
}

/* ---- where templates are ---- */

static void source_picks_jinja_then_config(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_template_source source;
    const char *list =
        "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"default\", "
        "\"template\": \"D\"}], \"bos_token\": \"<s>\", \"eos_token\": {\"content\": \"</s>\"}, "
        "\"add_bos_token\": true, \"pad_token\": null}";
    ls_template_files files = {.where = "dir", .config = list, .config_bytes = strlen(list)};
    assert_int_equal(ls_template_source_pick(&arena, &files, NULL, &source), LS_OK);
    assert_string_equal(source.text, "D");
    assert_string_equal(source.where, "dir/tokenizer_config.json");
    assert_int_equal(json_object_size(source.tokens), 2);
    assert_string_equal(json_string_value(json_object_get(source.tokens, "eos_token")), "</s>");
    json_decref(source.tokens);
    assert_int_equal(ls_template_source_pick(&arena, &files, "rag", &source), LS_OK);
    assert_string_equal(source.text, "R");
    json_decref(source.tokens);
    assert_int_equal(ls_template_source_pick(&arena, &files, "tool", &source), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "rag, default"));
    files.jinja = "J";
    files.jinja_bytes = 1;
    assert_int_equal(ls_template_source_pick(&arena, &files, NULL, &source), LS_OK);
    assert_string_equal(source.text, "J");
    json_decref(source.tokens);
    assert_int_equal(ls_template_source_pick(&arena, &(ls_template_files){.where = "dir"}, NULL, &source),
                     LS_OK);
    assert_null(source.text);
    json_decref(source.tokens);
    files = (ls_template_files){.where = "dir", .config = "{", .config_bytes = 1};
    assert_int_equal(ls_template_source_pick(&arena, &files, NULL, &source), LS_ERR_DATA);
    ls_arena_release(&arena);
}

static int tear_down(void **state)
{
    (void)state;
    ls_text_release(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template_strips_white_space_around_tags),
        cmocka_unit_test(expression_has_pythons_operators),
        cmocka_unit_test(undefined_prints_nothing_and_refuses_use),
        cmocka_unit_test(filters_print_what_jinja_prints),
        cmocka_unit_test(methods_print_what_python_prints),
        cmocka_unit_test(tests_answer_as_jinja_does),
        cmocka_unit_test(loops_have_their_variables),
        cmocka_unit_test(variables_have_jinjas_scopes),
        cmocka_unit_test(macros_take_arguments),
        cmocka_unit_test(template_refuses_with_name_and_line),
        cmocka_unit_test(syntax_errors_are_named),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(limits_end_every_template),
        cmocka_unit_test(bytes_that_are_no_text_are_refused),
        cmocka_unit_test(template_renders_in_threads),
        cmocka_unit_test(source_picks_jinja_then_config),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
