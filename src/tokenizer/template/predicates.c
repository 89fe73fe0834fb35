// SPDX-License-Identifier: Apache-2.0
/* The tests of Jinja2: what follows `is`. */
#include "tokenizer/template/jinja.h"

/* value % divisor == rest */
static bool has_rest(ls_jinja_state *state, ls_jv v, ls_jv divisor, int64_t rest)
{
    return ls_jv_equal(state, ls_jv_binary(state, '%', v, divisor), ls_jv_int(rest));
}

static bool is_same(ls_jv a, ls_jv b)
{
    if (a.kind != b.kind || a.kind == LS_JV_NONE) {
        return a.kind == b.kind;
    }
    if (a.kind == LS_JV_STRING) {
        return a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0;
    }
    return a.kind == LS_JV_BOOL ? a.truth == b.truth : a.integer == b.integer;
}

static bool is(ls_jinja_state *state, const ls_jinja_use *use)
{
    const ls_jv v = use->self, other = use->given[0];
    switch (use->how) {
    case 'd':
        return v.kind != LS_JV_UNDEFINED;
    case 'u':
        return v.kind == LS_JV_UNDEFINED;
    case 't':
        return v.kind == LS_JV_BOOL && v.truth;
    case 'f':
        return v.kind == LS_JV_BOOL && !v.truth;
    case '#':
        return ls_jv_is_number(v);
    case 'i':
        return ls_jv_is_iterable(v);
    case 's': /* what has a length and subscripts */
        return (ls_jv_is_iterable(v) && v.kind != LS_JV_ITERATOR && v.kind != LS_JV_VIEW &&
                v.kind != LS_JV_LOOP);
    case 'c':
        return (v.kind >= LS_JV_MACRO && v.kind <= LS_JV_LOOP) || v.kind == LS_JV_UNDEFINED;
    case 'o':
    case 'e':
        return has_rest(state, v, ls_jv_int(2), use->how == 'o');
    case '%':
        return has_rest(state, v, other, 0);
    case 'S':
        return is_same(v, other);
    case 'M':
        return v.kind == LS_JV_STRING && v.markup;
    case 'L':
    case 'U':
        return ls_jinja_has_case(state, ls_jv_string(state, v), use->how == 'L' ? 'l' : 'u');
    case 'n':
        return ls_jv_contains(state, other, v);
    case '=':
        return ls_jv_equal(state, v, other);
    case '!':
        return !ls_jv_equal(state, v, other);
    case '<':
    case 'l':
        return ls_jv_less(state, v, other) || (use->how == 'l' && ls_jv_equal(state, v, other));
    default:
        return ls_jv_less(state, other, v) || (use->how == 'g' && ls_jv_equal(state, v, other));
    }
}

static ls_jv test(ls_jinja_state *state, const ls_jinja_use *use)
{
    return ls_jv_bool(is(state, use));
}

static ls_jv test_kind(ls_jinja_state *state, const ls_jinja_use *use)
{
    (void)state;
    return ls_jv_bool(use->self.kind == (ls_jv_kind)use->how);
}

static const ls_jinja_builtin tests[] = {
    {"defined", "", test, 'd'},
    {"undefined", "", test, 'u'},
    {"none", "", test_kind, LS_JV_NONE},
    {"string", "", test_kind, LS_JV_STRING},
    {"mapping", "", test_kind, LS_JV_DICT},
    {"integer", "", test_kind, LS_JV_INT},
    {"float", "", test_kind, LS_JV_FLOAT},
    {"boolean", "", test_kind, LS_JV_BOOL},
    {"iterable", "", test, 'i'},
    {"sequence", "", test, 's'},
    {"number", "", test, '#'},
    {"true", "", test, 't'},
    {"false", "", test, 'f'},
    {"odd", "", test, 'o'},
    {"even", "", test, 'e'},
    {"divisibleby", "!num", test, '%'},
    {"callable", "", test, 'c'},
    {"sameas", "!other", test, 'S'},
    {"escaped", "", test, 'M'},
    {"lower", "", test, 'L'},
    {"upper", "", test, 'U'},
    {"in", "!seq", test, 'n'},
    {"eq", "/!b", test, '='},
    {"equalto", "/!b", test, '='},
    {"==", "/!b", test, '='},
    {"ne", "/!b", test, '!'},
    {"!=", "/!b", test, '!'},
    {"lt", "/!b", test, '<'},
    {"lessthan", "/!b", test, '<'},
    {"<", "/!b", test, '<'},
    {"gt", "/!b", test, '>'},
    {"greaterthan", "/!b", test, '>'},
    {">", "/!b", test, '>'},
    {"le", "/!b", test, 'l'},
    {"<=", "/!b", test, 'l'},
    {"ge", "/!b", test, 'g'},
    {">=", "/!b", test, 'g'},
};

const ls_jinja_builtin *ls_jinja_test_find(ls_jv name)
{
    return ls_jinja_builtin_find(tests, sizeof tests / sizeof *tests, name);
}
