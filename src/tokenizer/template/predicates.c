// SPDX-License-Identifier: Apache-2.0
/* The tests of Jinja2: what follows `is`. */
#include "tokenizer/template/jinja.h"

#define TEST(name, is)                                                                                       \
    LS_JINJA_BUILTIN(name)                                                                                   \
    {                                                                                                        \
        LS_JINJA_UNUSED();                                                                                   \
        return ls_jv_bool(is);                                                                               \
    }

static bool has_rest(ls_jinja_state *state, ls_jv v, ls_jv divisor, int64_t rest)
{
    return ls_jv_equal(state, ls_jv_binary(state, '%', v, divisor), ls_jv_int(rest));
}

static bool is_same(ls_jv a, ls_jv b)
{
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case LS_JV_NONE:
        return true;
    case LS_JV_BOOL:
        return a.truth == b.truth;
    case LS_JV_INT:
    case LS_JV_FLOAT:
        return a.integer == b.integer;
    case LS_JV_STRING:
        return a.bytes == b.bytes && memcmp(a.text, b.text, a.bytes) == 0;
    default:
        return a.dict == b.dict;
    }
}

static bool is_sequence(ls_jv v)
{
    return v.kind == LS_JV_STRING || v.kind == LS_JV_LIST || v.kind == LS_JV_TUPLE || v.kind == LS_JV_DICT ||
           v.kind == LS_JV_RANGE || v.kind == LS_JV_UNDEFINED;
}

static bool is_callable(ls_jv v)
{
    return v.kind == LS_JV_FUNCTION || v.kind == LS_JV_METHOD || v.kind == LS_JV_MACRO ||
           v.kind == LS_JV_LOOP || v.kind == LS_JV_UNDEFINED;
}

TEST(test_odd, has_rest(state, self, ls_jv_int(2), 1))
TEST(test_even, has_rest(state, self, ls_jv_int(2), 0))
TEST(test_divisibleby, has_rest(state, self, given[0], 0))
TEST(test_defined, self.kind != LS_JV_UNDEFINED)
TEST(test_undefined, self.kind == LS_JV_UNDEFINED)
TEST(test_none, self.kind == LS_JV_NONE)
TEST(test_boolean, self.kind == LS_JV_BOOL)
TEST(test_true, self.kind == LS_JV_BOOL && self.truth)
TEST(test_false, self.kind == LS_JV_BOOL && !self.truth)
TEST(test_integer, self.kind == LS_JV_INT)
TEST(test_float, self.kind == LS_JV_FLOAT)
TEST(test_number, ls_jv_is_number(self))
TEST(test_string, self.kind == LS_JV_STRING)
TEST(test_mapping, self.kind == LS_JV_DICT)
TEST(test_sequence, is_sequence(self))
TEST(test_iterable, ls_jv_is_iterable(self))
TEST(test_callable, is_callable(self))
TEST(test_sameas, is_same(self, given[0]))
TEST(test_escaped, self.kind == LS_JV_STRING && self.markup)
TEST(test_lower, ls_jinja_has_case(state, ls_jv_string(state, self), 'l'))
TEST(test_upper, ls_jinja_has_case(state, ls_jv_string(state, self), 'u'))
TEST(test_in, ls_jv_contains(state, given[0], self))
TEST(test_eq, ls_jv_equal(state, self, given[0]))
TEST(test_ne, !ls_jv_equal(state, self, given[0]))
TEST(test_lt, ls_jv_less(state, self, given[0]))
TEST(test_gt, ls_jv_less(state, given[0], self))
TEST(test_le, ls_jv_less(state, self, given[0]) || ls_jv_equal(state, self, given[0]))
TEST(test_ge, ls_jv_less(state, given[0], self) || ls_jv_equal(state, self, given[0]))

static const ls_jinja_builtin tests[] = {
    {"defined", "", test_defined},   {"undefined", "", test_undefined},
    {"none", "", test_none},         {"string", "", test_string},
    {"mapping", "", test_mapping},   {"iterable", "", test_iterable},
    {"sequence", "", test_sequence}, {"number", "", test_number},
    {"integer", "", test_integer},   {"float", "", test_float},
    {"boolean", "", test_boolean},   {"true", "", test_true},
    {"false", "", test_false},       {"odd", "", test_odd},
    {"even", "", test_even},         {"divisibleby", "!num", test_divisibleby},
    {"callable", "", test_callable}, {"sameas", "!other", test_sameas},
    {"escaped", "", test_escaped},   {"lower", "", test_lower},
    {"upper", "", test_upper},       {"in", "!seq", test_in},
    {"eq", "/!b", test_eq},          {"equalto", "/!b", test_eq},
    {"==", "/!b", test_eq},          {"ne", "/!b", test_ne},
    {"!=", "/!b", test_ne},          {"lt", "/!b", test_lt},
    {"lessthan", "/!b", test_lt},    {"<", "/!b", test_lt},
    {"gt", "/!b", test_gt},          {"greaterthan", "/!b", test_gt},
    {">", "/!b", test_gt},           {"le", "/!b", test_le},
    {"<=", "/!b", test_le},          {"ge", "/!b", test_ge},
    {">=", "/!b", test_ge},
};

const ls_jinja_builtin *ls_jinja_test_find(const char *name, size_t bytes)
{
    const ls_jv wanted = ls_jv_text(name, bytes);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (ls_jv_is(wanted, tests[i].name)) {
            return &tests[i];
        }
    }
    return NULL;
}
