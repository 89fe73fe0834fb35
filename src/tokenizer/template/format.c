// SPDX-License-Identifier: Apache-2.0
/*
 * text % values and text.format(...): what chat templates use of Python's two languages of formats.
 * The first has sign, width, precision and the types s r d i u x X o e f g (and E F G); the second
 * has fields with a name or number, without a format. The rest is named as not supported.
 */
#include "tokenizer/template/jinja.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { WIDTH_MAX = 1000, PRECISION_MAX = 300 };

/* What one value is written with. */
typedef struct spec {
    ls_jv fill;           /* one character */
    char align;           /* '<', '>' or '=' (after the sign) */
    char sign;            /* '+', ' ' or 0 */
    int width, precision; /* precision: -1 for none */
    char type;            /* 0: none given */
} spec;

/* Appends `text`, whose first `sign` bytes are its sign, filled up to the width. */
static void pad(ls_jinja_state *state, const spec *s, ls_jv text, size_t sign, ls_text *out)
{
    const size_t length = ls_jinja_characters(text);
    const size_t missing = (size_t)s->width > length ? (size_t)s->width - length : 0;
    const size_t before = s->align == '>' ? missing : 0;
    for (size_t i = 0; i < before; i++) {
        ls_jinja_append(state, out, s->fill);
    }
    ls_jinja_append(state, out, ls_jv_text(text.text, sign));
    for (size_t i = before; i < missing && s->align == '='; i++) {
        ls_jinja_append(state, out, s->fill);
    }
    ls_jinja_append(state, out, ls_jv_text(text.text + sign, text.bytes - sign));
    for (size_t i = before; i < missing && s->align != '='; i++) {
        ls_jinja_append(state, out, s->fill);
    }
}

static void write_number(ls_jinja_state *state, const spec *s, ls_jv value, ls_text *out)
{
    ls_text text = {0};
    char digits[400];
    const bool is_whole = strchr("dixXo", s->type) != NULL;
    const int64_t whole = !is_whole                   ? 0
                          : value.kind == LS_JV_FLOAT ? (int64_t)value.real
                                                      : ls_jv_whole(value);
    const uint64_t size = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    const double real = ls_jv_real(value);
    const int precision = s->precision < 0 ? 6 : s->precision;
    const bool is_negative = is_whole ? whole < 0 : signbit(real);
    if (is_negative || s->sign) {
        ls_text_append_bytes(&text, is_negative ? "-" : &s->sign, 1);
    }
    switch (s->type) {
    case 'd':
    case 'i':
        ls_text_printf(&text, "%0*" PRIu64, s->precision < 0 ? 0 : s->precision, size);
        break;
    case 'x':
        ls_text_printf(&text, "%" PRIx64, size);
        break;
    case 'X':
        ls_text_printf(&text, "%" PRIX64, size);
        break;
    case 'o':
        ls_text_printf(&text, "%" PRIo64, size);
        break;
    default:
        snprintf(digits, sizeof digits,
                 (s->type | 32) == 'e'   ? "%.*e"
                 : (s->type | 32) == 'f' ? "%.*f"
                                         : "%.*g",
                 precision, fabs(real));
        for (char *at = digits; s->type < 'a' && *at; at++) {
            *at = (char)(*at >= 'a' && *at <= 'z' ? *at - 32 : *at);
        }
        ls_text_append(&text, digits);
    }
    pad(state, s, ls_jv_text(text.data, text.bytes), is_negative || s->sign, out);
    ls_text_release(&text);
}

/* A value whose type in `s` fits it. */
static void write_value(ls_jinja_state *state, const spec *s, ls_jv value, ls_text *out)
{
    if (s->type == 's' || s->type == 'r') {
        ls_text text = {0};
        (s->type == 's' ? ls_jv_print : ls_jv_repr)(state, value, &text);
        ls_jv printed = ls_jv_take_text(state, &text);
        if (s->precision >= 0) {
            printed.bytes = (uint32_t)ls_jinja_offset(printed, (size_t)s->precision);
        }
        pad(state, s, printed, 0, out);
    } else if (value.kind == LS_JV_FLOAT && s->type && strchr("di", s->type) &&
               !(fabs(value.real) < 0x1p63)) {
        ls_jinja_unsupported(state, "whole numbers beyond 64 bits are not supported");
    } else {
        write_number(state, s, value, out);
    }
}

/* A number at text[*at]; -1: too large. */
static int read_count(ls_jv text, size_t *at)
{
    int count = 0;
    for (; *at < text.bytes && text.text[*at] >= '0' && text.text[*at] <= '9'; ++*at) {
        count = count < 0 || count > WIDTH_MAX ? -1 : 10 * count + (text.text[*at] - '0');
    }
    return count > WIDTH_MAX ? -1 : count;
}

/* [width][.precision]; false: they are too large. */
static bool read_size(ls_jv text, size_t *at, spec *s)
{
    s->width = read_count(text, at);
    if (*at < text.bytes && text.text[*at] == '.') {
        ++*at;
        s->precision = read_count(text, at);
        return s->width >= 0 && s->precision >= 0 && s->precision <= PRECISION_MAX;
    }
    return s->width >= 0;
}

/* ---- text % values ---- */

typedef struct percent {
    ls_jinja_state *state;
    ls_jv format, values;
    size_t at, used;
} percent;

static char peek(const percent *p)
{
    return p->at < p->format.bytes ? p->format.text[p->at] : '\0';
}

static ls_jv next_value(percent *p)
{
    const bool is_tuple = p->values.kind == LS_JV_TUPLE;
    if (p->used >= (is_tuple ? p->values.list->count : 1)) {
        return ls_jinja_refuse(p->state, "not enough arguments for format string");
    }
    p->used++;
    return is_tuple ? p->values.list->items[p->used - 1] : p->values;
}

/* The value of "(key)". */
static ls_jv keyed_value(percent *p)
{
    const size_t from = ++p->at;
    while (peek(p) && peek(p) != ')') {
        p->at++;
    }
    const ls_jv key = ls_jv_text(p->format.text + from, p->at - from);
    p->at++;
    if (p->values.kind != LS_JV_DICT) {
        return ls_jinja_refuse(p->state, "format requires a mapping");
    }
    const ls_jv *found = ls_jinja_dict_find(p->state, p->values.dict, key);
    return found ? *found : ls_jinja_refuse(p->state, "KeyError: '%.*s'", (int)key.bytes, key.text);
}

static void one_percent(percent *p, ls_text *out)
{
    ls_jinja_state *state = p->state;
    spec s = {.fill = ls_jv_text(" ", 1), .align = '>', .precision = -1};
    bool is_left = false, is_zero = false;
    const bool is_keyed = peek(p) == '(';
    ls_jv value = is_keyed ? keyed_value(p) : ls_jv_none();
    for (; peek(p) && strchr("0- +", peek(p)); p->at++) {
        is_left |= peek(p) == '-';
        is_zero |= peek(p) == '0';
        s.sign = peek(p) == '+' || (peek(p) == ' ' && !s.sign) ? peek(p) : s.sign;
    }
    const bool is_sized = read_size(p->format, &p->at, &s);
    s.type = peek(p);
    p->at++;
    if (s.type == '%') {
        ls_text_append(out, "%");
        return;
    }
    s.type = s.type == 'u' ? 'd' : s.type;
    const bool is_number = s.type && strchr("dixXoeEfFgG", s.type);
    if (s.type && strchr("#*hlLca", s.type)) {
        ls_jinja_unsupported(state, "%%%c in a format is not supported", s.type);
    } else if (!is_sized || !s.type || (!is_number && s.type != 's' && s.type != 'r')) {
        ls_jinja_refuse(state, "unsupported format character, or a size above %d", WIDTH_MAX);
    }
    value = is_keyed || state->failed ? value : next_value(p);
    if (is_number && (!ls_jv_is_number(value) || (strchr("xXo", s.type) && value.kind == LS_JV_FLOAT))) {
        ls_jinja_refuse(state, "%%%c format: a number is required, not %s", s.type, ls_jv_type(value));
    }
    if (is_left) {
        s.align = '<';
    } else if (is_zero && is_number) {
        s.align = '=';
        s.fill = ls_jv_text("0", 1);
    }
    if (!state->failed) {
        write_value(state, &s, value, out);
    }
}

ls_jv ls_jinja_percent(ls_jinja_state *state, ls_jv format, ls_jv values)
{
    percent p = {.state = state, .format = format, .values = values};
    const bool is_mapping = values.kind == LS_JV_DICT || values.kind == LS_JV_LIST ||
                            values.kind == LS_JV_RANGE || values.kind == LS_JV_UNDEFINED;
    ls_text out = {0};
    while (p.at < format.bytes && !state->failed) {
        if (format.text[p.at++] == '%') {
            one_percent(&p, &out);
        } else {
            ls_text_append_bytes(&out, &format.text[p.at - 1], 1);
        }
    }
    if (!is_mapping && p.used < (values.kind == LS_JV_TUPLE ? values.list->count : 1)) {
        ls_jinja_refuse(state, "not all arguments converted during string formatting");
    }
    return ls_jv_take_text(state, &out);
}

/* ---- text.format(...) ---- */

/* The argument that a field names: by "name", "0", or "" for the next. */
static ls_jv field_value(ls_jinja_state *state, const ls_jinja_args *args, ls_jv name, size_t *next)
{
    size_t at = 0;
    int index = read_count(name, &at);
    if (name.bytes == 0 || at == name.bytes) {
        if ((*next > 0 && name.bytes > 0) || (*next == SIZE_MAX && name.bytes == 0)) {
            return ls_jinja_refuse(state, "cannot mix automatic and numbered fields in format()");
        }
        index = name.bytes > 0 ? index : (int)(*next)++;
        *next = name.bytes > 0 ? SIZE_MAX : *next;
        return index >= 0 && (size_t)index < args->count
                   ? args->positional[index]
                   : ls_jinja_refuse(state, "Replacement index %d out of range for positional args", index);
    }
    const ls_jv *found = args->keywords ? ls_jinja_dict_find(state, args->keywords, name) : NULL;
    return found ? *found : ls_jinja_refuse(state, "KeyError: '%.*s'", (int)name.bytes, name.text);
}

static void one_field(ls_jinja_state *state, const ls_jinja_args *args, ls_jv field, size_t *next,
                      ls_text *out)
{
    const bool is_repr = field.bytes >= 2 && memcmp(field.text + field.bytes - 2, "!r", 2) == 0;
    const ls_jv name = ls_jv_text(field.text, field.bytes - (is_repr ? 2 : 0));
    for (size_t i = 0; i < name.bytes; i++) {
        if (name.text[i] && strchr(":!{.[", name.text[i])) {
            ls_jinja_unsupported(state,
                                 "the field {%.*s} of format() is not supported: it may have a name or "
                                 "number, and !r",
                                 (int)field.bytes, field.text);
        }
    }
    const ls_jv value = field_value(state, args, name, next);
    if (!state->failed) {
        (is_repr ? ls_jv_repr : ls_jv_print)(state, value, out);
    }
}

ls_jv ls_jinja_format(ls_jinja_state *state, ls_jv text, const ls_jinja_args *args)
{
    ls_text out = {0};
    size_t next = 0;
    for (size_t at = 0; at < text.bytes && !state->failed;) {
        const char c = text.text[at++];
        if ((c == '{' || c == '}') && at < text.bytes && text.text[at] == c) {
            ls_text_append_bytes(&out, &c, 1);
            at++;
        } else if (c == '{') {
            const char *end = memchr(text.text + at, '}', text.bytes - at);
            if (!end) {
                ls_jinja_refuse(state, "expected '}' before end of string");
                break;
            }
            const ls_jv field = ls_jv_text(text.text + at, (size_t)(end - text.text) - at);
            one_field(state, args, field, &next, &out);
            at += field.bytes + 1;
        } else if (c == '}') {
            ls_jinja_refuse(state, "Single '}' encountered in format string");
        } else {
            ls_text_append_bytes(&out, &c, 1);
        }
    }
    return ls_jv_take_text(state, &out);
}
