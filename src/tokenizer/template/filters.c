// SPDX-License-Identifier: Apache-2.0
/* Filters on one value: text, numbers, JSON. Those on sequences are in sequences.c. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef ls_jinja_use use;

/* ---- text ---- */

static ls_jv plain(ls_jv text)
{
    text.markup = false;
    return text;
}

static ls_jv filter_case(ls_jinja_state *state, const use *u)
{
    return ls_jinja_case(state, ls_jv_string(state, u->self), u->how);
}

/* Words begin after white space and after - ( { [ <. */
static ls_jv filter_title(ls_jinja_state *state, const use *u)
{
    const ls_jv text = ls_jv_string(state, u->self);
    ls_jv titled = ls_jv_text("", 0);
    size_t from = 0;
    while (from < text.bytes && !state->failed) {
        size_t to = from;
        bool is_between = false;
        while (to < text.bytes) {
            uint32_t c;
            const unsigned length = ls_utf8_valid_decode(text.text + to, &c);
            const bool is_gap = ls_jinja_is_space(c) || (c < 128 && c && strchr("-({[<", (int)c));
            if (to > from && is_gap != is_between) {
                break;
            }
            is_between = is_gap;
            to += length;
        }
        const ls_jv word = ls_jv_text(text.text + from, to - from);
        titled = ls_jv_join(state, titled, is_between ? word : ls_jinja_case(state, word, 'c'));
        from = to;
    }
    return titled;
}

static ls_jv filter_trim(ls_jinja_state *state, const use *u)
{
    return ls_jinja_strip(state, ls_jv_string(state, u->self), u->given[0], true, true);
}

static ls_jv filter_string(ls_jinja_state *state, const use *u)
{
    return ls_jv_string(state, u->self);
}

static ls_jv filter_safe(ls_jinja_state *state, const use *u)
{
    ls_jv text = ls_jv_string(state, u->self);
    text.markup = true;
    return text;
}

static ls_jv filter_escape(ls_jinja_state *state, const use *u)
{
    return ls_jv_escape(state, u->self);
}

static ls_jv filter_replace(ls_jinja_state *state, const use *u)
{
    if (!ls_jv_is_absent(u->given[2]) && u->given[2].kind != LS_JV_NONE && !ls_jv_is_whole(u->given[2])) {
        return ls_jinja_refuse(state, "'%s' object cannot be interpreted as an integer",
                               ls_jv_type(u->given[2]));
    }
    const int64_t count = ls_jv_is_whole(u->given[2]) ? ls_jv_whole(u->given[2]) : -1;
    return ls_jinja_replace(state, plain(ls_jv_string(state, u->self)), ls_jv_string(state, u->given[0]),
                            ls_jv_string(state, u->given[1]), count);
}

static ls_jv filter_indent(ls_jinja_state *state, const use *u)
{
    ls_jv by = ls_jv_is_absent(u->given[0]) ? ls_jv_int(4) : u->given[0];
    const bool first = ls_jv_truth(state, u->given[1]), blank = ls_jv_truth(state, u->given[2]);
    if (by.kind != LS_JV_STRING) {
        by = ls_jv_binary(state, '*', ls_jv_text(" ", 1), by);
    }
    if (u->self.kind != LS_JV_STRING || u->self.markup) {
        return u->self.markup ? ls_jinja_unsupported(state, "indent of text marked as safe is not supported")
                              : ls_jv_binary(state, '+', u->self, ls_jv_text("\n", 1));
    }
    const ls_jv lines = ls_jinja_lines(state, ls_jv_join(state, u->self, ls_jv_text("\n", 1)), false);
    ls_text out = {0};
    for (size_t i = 0; i < lines.list->count && !state->failed; i++) {
        const ls_jv line = lines.list->items[i];
        ls_jinja_append(state, &out, i ? ls_jv_text("\n", 1) : ls_jv_text("", 0));
        if (i == 0 ? first : blank || line.bytes > 0) {
            ls_jinja_append(state, &out, by);
        }
        ls_jinja_append(state, &out, line);
    }
    return ls_jv_take_text(state, &out);
}

static ls_jv filter_format(ls_jinja_state *state, const use *u)
{
    if (u->args->count > 0 && u->args->keywords && u->args->keywords->count > 0) {
        return ls_jinja_refuse(state, "can't handle positional and keyword arguments at the same time");
    }
    ls_jv values = {.kind = LS_JV_DICT, .dict = u->args->keywords};
    if (!u->args->keywords || u->args->keywords->count == 0) {
        values = ls_jv_list(state, LS_JV_TUPLE, u->args->count);
        for (size_t i = 0; i < u->args->count; i++) {
            ls_jv_push(state, values.list, u->args->positional[i]);
        }
    }
    return ls_jinja_percent(state, ls_jv_string(state, u->self), values);
}

static ls_jv filter_tojson(ls_jinja_state *state, const use *u)
{
    ls_text out = {0};
    ls_jinja_json(state, u->self, u->given, &out);
    return ls_jv_take_text(state, &out);
}

/* ---- numbers ---- */

/* Text as a number: white space around it, single underscores between digits. False: it is none. */
static bool clean_number(ls_jinja_state *state, ls_jv v, char out[64])
{
    const ls_jv text = ls_jinja_strip(state, v, ls_jv_none(), true, true);
    size_t count = 0;
    if (text.bytes == 0 || text.bytes > 60) {
        return false;
    }
    for (size_t i = 0; i < text.bytes; i++) {
        const bool is_between = i > 0 && i + 1 < text.bytes && text.text[i - 1] >= '0' &&
                                text.text[i + 1] >= '0' && text.text[i - 1] != '_' && text.text[i + 1] != '_';
        if (text.text[i] == '\0' || (text.text[i] == '_' && !is_between)) {
            return false;
        }
        if (text.text[i] != '_') {
            out[count++] = text.text[i];
        }
    }
    out[count] = '\0';
    return true;
}

static bool parse_float(ls_jinja_state *state, ls_jv v, double *value_out)
{
    char text[64], *end;
    if (v.kind != LS_JV_STRING) {
        *value_out = ls_jv_is_number(v) ? ls_jv_real(v) : 0.0;
        return ls_jv_is_number(v);
    }
    /* Hexadecimal and nan(...) are C's, not Python's. */
    if (!clean_number(state, v, text) || strpbrk(text, "xXpP()")) {
        return false;
    }
    *value_out = strtod(text, &end);
    return *end == '\0';
}

/* Python's int(text). */
static bool parse_whole(ls_jinja_state *state, ls_jv v, int64_t *value_out)
{
    char text[64], *end;
    if (!clean_number(state, v, text) || strspn(text, "+-0123456789") != strlen(text)) {
        return false;
    }
    errno = 0;
    *value_out = strtoll(text, &end, 10);
    if (errno == ERANGE) {
        ls_jinja_unsupported(state, "whole numbers beyond 64 bits are not supported");
    }
    return *end == '\0' && end > text;
}

static ls_jv filter_int(ls_jinja_state *state, const use *u)
{
    const ls_jv otherwise = ls_jv_is_absent(u->given[0]) ? ls_jv_int(0) : u->given[0];
    int64_t value;
    double real;
    if (u->self.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, u->self);
    }
    if (ls_jv_is_whole(u->self)) {
        return ls_jv_int(ls_jv_whole(u->self));
    }
    if (!ls_jv_is_absent(u->given[1])) {
        return ls_jinja_unsupported(state, "int() with a base is not supported");
    }
    if (u->self.kind == LS_JV_STRING && parse_whole(state, u->self, &value)) {
        return ls_jv_int(value);
    }
    if (!parse_float(state, u->self, &real) || !isfinite(real)) {
        return u->self.kind == LS_JV_FLOAT && isinf(real)
                   ? ls_jinja_refuse(state, "cannot convert float infinity to integer")
                   : otherwise;
    }
    if (fabs(real) >= 0x1p63) {
        return ls_jinja_unsupported(state, "whole numbers beyond 64 bits are not supported");
    }
    return ls_jv_int((int64_t)real);
}

static ls_jv filter_float(ls_jinja_state *state, const use *u)
{
    double value;
    if (u->self.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, u->self);
    }
    return parse_float(state, u->self, &value) ? ls_jv_float(value)
           : ls_jv_is_absent(u->given[0])      ? ls_jv_float(0.0)
                                               : u->given[0];
}

static ls_jv filter_abs(ls_jinja_state *state, const use *u)
{
    if (u->self.kind == LS_JV_FLOAT) {
        return ls_jv_float(fabs(u->self.real));
    }
    if (!ls_jv_is_whole(u->self)) {
        return u->self.kind == LS_JV_UNDEFINED
                   ? ls_jinja_refuse(state, "bad operand type for abs(): 'Undefined'")
                   : ls_jinja_refuse(state, "bad operand type for abs(): '%s'", ls_jv_type(u->self));
    }
    const int64_t value = ls_jv_whole(u->self);
    return value < 0 ? ls_jv_binary(state, '-', ls_jv_int(0), ls_jv_int(value)) : ls_jv_int(value);
}

/* Python's round() of a float: the nearest decimal, ties to even. */
static double round_to(double value, int64_t places)
{
    char text[400];
    if (!isfinite(value) || places > 300) {
        return value;
    }
    if (places >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)places, value);
        return strtod(text, NULL);
    }
    if (places < -308) {
        return copysign(0.0, value);
    }
    const double unit = pow(10.0, (double)-places);
    return rint(value / unit) * unit;
}

static ls_jv filter_round(ls_jinja_state *state, const use *u)
{
    const int64_t places = ls_jv_is_absent(u->given[0]) ? 0 : ls_jv_whole(u->given[0]);
    const bool is_common = ls_jv_is_absent(u->given[1]) || ls_jv_is(u->given[1], "common");
    if (!ls_jv_is_number(u->self) || (!ls_jv_is_absent(u->given[0]) && !ls_jv_is_whole(u->given[0]))) {
        return u->self.kind == LS_JV_UNDEFINED ? ls_jv_fail_undefined(state, u->self)
                                               : ls_jinja_refuse(state, "round() needs numbers");
    }
    if (is_common && ls_jv_is_whole(u->self) && places >= 0) {
        return ls_jv_int(ls_jv_whole(u->self));
    }
    if (is_common && ls_jv_is_whole(u->self)) {
        return ls_jinja_unsupported(state, "round() of a whole number to tens is not supported");
    }
    if (is_common) {
        return ls_jv_float(round_to(ls_jv_real(u->self), places));
    }
    if (!ls_jv_is(u->given[1], "ceil") && !ls_jv_is(u->given[1], "floor")) {
        return ls_jinja_refuse(state, "method must be common, ceil or floor");
    }
    /* func(value * 10 ** precision) / 10 ** precision */
    const double unit = pow(10.0, (double)places);
    const double scaled = ls_jv_real(u->self) * unit;
    return ls_jv_float(((ls_jv_is(u->given[1], "ceil") ? ceil(scaled) : floor(scaled)) + 0.0) / unit);
}

/* ---- any value ---- */

static ls_jv filter_default(ls_jinja_state *state, const use *u)
{
    const bool is_replaced =
        u->self.kind == LS_JV_UNDEFINED || (ls_jv_truth(state, u->given[1]) && !ls_jv_truth(state, u->self));
    return !is_replaced ? u->self : ls_jv_is_absent(u->given[0]) ? ls_jv_text("", 0) : u->given[0];
}

static ls_jv filter_attr(ls_jinja_state *state, const use *u)
{
    ls_jv value;
    if (u->given[0].kind != LS_JV_STRING) {
        return ls_jinja_refuse(state, "attribute name must be string, not '%s'", ls_jv_type(u->given[0]));
    }
    if (u->self.kind == LS_JV_NAMESPACE) {
        return ls_jv_attribute(state, u->self, u->given[0]);
    }
    if (u->self.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, u->self);
    }
    if (ls_jinja_method_find(state, u->self, u->given[0], &value)) {
        return ls_jv_attribute(state, u->self, u->given[0]);
    }
    return ls_jv_missing(state, "the value has no such attribute");
}

static const ls_jinja_builtin filters[] = {
    {"abs", "", filter_abs},
    {"attr", "!name", filter_attr},
    {"capitalize", "", filter_case, 'c'},
    {"d", "default_value boolean", filter_default},
    {"default", "default_value boolean", filter_default},
    {"e", "", filter_escape},
    {"escape", "", filter_escape},
    {"float", "default", filter_float},
    {"format", NULL, filter_format},
    {"indent", "width first blank", filter_indent},
    {"int", "default base", filter_int},
    {"lower", "", filter_case, 'l'},
    {"replace", "!old !new count", filter_replace},
    {"round", "precision method", filter_round},
    {"safe", "", filter_safe},
    {"string", "", filter_string},
    {"title", "", filter_title},
    {"tojson", "ensure_ascii indent separators sort_keys", filter_tojson},
    {"trim", "chars", filter_trim},
    {"upper", "", filter_case, 'u'},
};

const ls_jinja_builtin *ls_jinja_filter_find(ls_jv name)
{
    const ls_jinja_builtin *found = ls_jinja_builtin_find(filters, sizeof filters / sizeof *filters, name);
    return found ? found
                 : ls_jinja_builtin_find(ls_jinja_sequence_filters, ls_jinja_sequence_filter_count, name);
}

void ls_jinja_fail_builtin(ls_jinja_state *state, ls_jv name, bool is_test)
{
    static const char *const without[] = {"batch",  "center",    "filesizeformat", "forceescape", "pprint",
                                          "random", "slice",     "striptags",      "truncate",    "urlencode",
                                          "urlize", "wordcount", "wordwrap",       "xmlattr"};
    const char *kind = is_test ? "test" : "filter";
    for (size_t i = 0; i < sizeof without / sizeof *without && !is_test; i++) {
        if (ls_jv_is(name, without[i])) {
            ls_jinja_unsupported(state, "the filter '%s' is not supported", without[i]);
        }
    }
    if (is_test && (ls_jv_is(name, "filter") || ls_jv_is(name, "test"))) {
        ls_jinja_unsupported(state, "the test '%.*s' is not supported", (int)name.bytes, name.text);
    }
    ls_jinja_refuse(state, "No %s named '%.*s'.", kind, (int)name.bytes, name.text);
}
