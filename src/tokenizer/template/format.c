// SPDX-License-Identifier: Apache-2.0
/* text % values and text.format(...): Python's two languages of formats. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH_MAX = 100000, PRECISION_MAX = 300 };

/* What one value is written with. */
typedef struct spec {
    char fill[5]; /* one character */
    char align;   /* '<', '>', '^', '=' or 0 for what the type has */
    char sign;    /* '+', ' ' or 0 */
    char group;   /* ',' or '_' between thousands, or 0 */
    bool is_alternate;
    int width, precision; /* precision: -1 for none */
    char type;
} spec;

/* Appends `text`, whose first `prefix` bytes are sign and base, filled up to the width. */
static void pad(ls_jinja_state *state, const spec *s, ls_jv text, size_t prefix, ls_text *out)
{
    const size_t length = ls_jinja_characters(text);
    const size_t missing = (size_t)s->width > length ? (size_t)s->width - length : 0;
    const size_t before = s->align == '<' || s->align == '=' ? 0 : s->align == '^' ? missing / 2 : missing;
    const size_t inside = s->align == '=' ? missing : 0;
    ls_jinja_spend(state, text.bytes + missing);
    for (size_t i = 0; i < before; i++) {
        ls_text_append(out, s->fill);
    }
    ls_text_append_bytes(out, text.text, prefix);
    for (size_t i = 0; i < inside; i++) {
        ls_text_append(out, s->fill);
    }
    ls_text_append_bytes(out, text.text + prefix, text.bytes - prefix);
    for (size_t i = 0; i < missing - before - inside; i++) {
        ls_text_append(out, s->fill);
    }
}

static void write_text(ls_jinja_state *state, const spec *s, ls_jv text, ls_text *out)
{
    if (s->precision >= 0) {
        text.bytes = (uint32_t)ls_jinja_offset(text, (size_t)s->precision);
    }
    pad(state, s, text, 0, out);
}

static void write_whole(spec *s, int64_t value, ls_text *out)
{
    const uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    const unsigned base = s->type == 'x' || s->type == 'X' ? 16
                          : s->type == 'o'                 ? 8
                          : s->type == 'b'                 ? 2
                                                           : 10;
    char digits[80];
    size_t at = sizeof digits;
    uint64_t rest = size;
    do {
        digits[--at] = (s->type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef")[rest % base];
        rest /= base;
    } while (rest > 0);
    ls_text_append(out, value < 0 ? "-" : "");
    if (value >= 0 && s->sign) {
        ls_text_append_bytes(out, &s->sign, 1);
    }
    if (s->is_alternate && base != 10) {
        ls_text_append_bytes(out, (const char[]){'0', s->type}, 2);
    }
    if (s->precision > (int)(sizeof digits - at)) {
        ls_text_repeat(out, '0', (size_t)s->precision - (sizeof digits - at));
    }
    ls_text_append_bytes(out, digits + at, sizeof digits - at);
}

/* Python's float formats: printf's, but for type 0: repr or, with a precision, nearly g. */
static void write_real(const spec *s, double value, ls_text *out)
{
    if (!signbit(value) && s->sign) {
        ls_text_append_bytes(out, &s->sign, 1);
    }
    if (s->type == 0 && s->precision < 0) {
        ls_jinja_float_repr(value, out);
        return;
    }
    const size_t from = out->bytes;
    const int precision = s->precision < 0 ? 6 : s->precision;
    char format[] = "%#.*f", text[700];
    format[s->is_alternate ? 4 : 3] = s->type == '%' ? 'f' : s->type == 0 || s->type == 'n' ? 'g' : s->type;
    if (!s->is_alternate) {
        memmove(format + 1, format + 2, sizeof format - 2);
        format[3] = s->type == '%' ? 'f' : s->type == 0 || s->type == 'n' ? 'g' : s->type;
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(text, sizeof text, format, precision, s->type == '%' ? 100.0 * value : value);
#pragma GCC diagnostic pop
    ls_text_append(out, text);
    if (s->type == 0 && !strpbrk(out->data + from, ".en")) {
        ls_text_append(out, ".0");
    }
    if (s->type == '%') {
        ls_text_append(out, "%");
    }
}

/* Puts separators between the thousands of the digits at `from`. */
static void group_digits(const spec *s, size_t from, ls_text *out)
{
    const size_t width = s->type == 'x' || s->type == 'X' || s->type == 'o' || s->type == 'b' ? 4 : 3;
    while (from < out->bytes && !strchr("0123456789", out->data[from])) {
        from++;
    }
    size_t digits = 0;
    while (out->data && from + digits < out->bytes &&
           strchr("0123456789abcdefABCDEF", out->data[from + digits]) &&
           (width == 4 || (out->data[from + digits] >= '0' && out->data[from + digits] <= '9'))) {
        digits++;
    }
    ls_text grouped = {0};
    ls_text_append_bytes(&grouped, out->data, from);
    for (size_t i = 0; i < digits; i++) {
        if (i > 0 && (digits - i) % width == 0) {
            ls_text_append_bytes(&grouped, &s->group, 1);
        }
        ls_text_append_bytes(&grouped, out->data + from + i, 1);
    }
    ls_text_append_bytes(&grouped, out->data + from + digits, out->bytes - from - digits);
    ls_text_release(out);
    *out = grouped;
}

static void write_number(ls_jinja_state *state, spec *s, ls_jv value, ls_text *out)
{
    ls_text text = {0};
    const bool is_whole = s->type && strchr("diuxXob", s->type);
    if (is_whole) {
        write_whole(s, value.kind == LS_JV_FLOAT ? (int64_t)value.real : ls_jv_whole(value), &text);
    } else {
        write_real(s, ls_jv_real(value), &text);
    }
    if (s->group) {
        if (s->fill[0] == '0' && s->align == '=') {
            ls_jinja_unsupported(state, "zeros and separators together in a format are not supported");
        }
        group_digits(s, 0, &text);
    }
    const char *at = ls_text_string(&text);
    size_t prefix = *at == '-' || *at == '+' || *at == ' ';
    prefix += is_whole && s->is_alternate && s->type != 'd' ? 2 : 0;
    pad(state, s, ls_jv_text(at, text.bytes), prefix, out);
    ls_text_release(&text);
}

static bool has_whole_value(ls_jinja_state *state, ls_jv value)
{
    if (value.kind == LS_JV_FLOAT && !(fabs(value.real) < 0x1p63)) {
        ls_jinja_unsupported(state, "whole numbers beyond 64 bits are not supported");
    }
    return !state->failed;
}

/* ---- text % values ---- */

typedef struct percent {
    ls_jinja_state *state;
    ls_jv format, values;
    size_t at, used;
    bool is_mapping;
} percent;

static ls_jv next_value(percent *p)
{
    const bool is_tuple = p->values.kind == LS_JV_TUPLE;
    if (p->used >= (is_tuple ? p->values.list->count : 1)) {
        return ls_jinja_refuse(p->state, "not enough arguments for format string");
    }
    p->used++;
    return is_tuple ? p->values.list->items[p->used - 1] : p->values;
}

static char peek(const percent *p)
{
    return p->at < p->format.bytes ? p->format.text[p->at] : '\0';
}

static int read_count(percent *p, bool *is_negative_out)
{
    int64_t value = 0;
    if (peek(p) == '*') {
        p->at++;
        const ls_jv given = next_value(p);
        if (given.kind != LS_JV_INT) {
            ls_jinja_refuse(p->state, "* wants int");
            return 0;
        }
        *is_negative_out = given.integer < 0;
        value = given.integer < 0 ? -(given.integer + 1) + 1 : given.integer;
    }
    for (; peek(p) >= '0' && peek(p) <= '9'; p->at++) {
        value = value > WIDTH_MAX ? value : 10 * value + (peek(p) - '0');
    }
    if (value > WIDTH_MAX) {
        ls_jinja_refuse(p->state, "a width or precision in a format is above %d", WIDTH_MAX);
        return 0;
    }
    return (int)value;
}

static ls_jv read_key(percent *p)
{
    const size_t from = ++p->at;
    int depth = 1;
    for (; p->at < p->format.bytes && depth > 0; p->at++) {
        depth += peek(p) == '(' ? 1 : peek(p) == ')' ? -1 : 0;
    }
    if (depth > 0) {
        return ls_jinja_refuse(p->state, "incomplete format key");
    }
    if (p->values.kind != LS_JV_DICT) {
        return ls_jinja_refuse(p->state, "format requires a mapping");
    }
    const ls_jv key = ls_jv_text(p->format.text + from, p->at - 1 - from);
    const ls_jv *found = ls_jinja_dict_find(p->state, p->values.dict, key);
    return found ? *found : ls_jinja_refuse(p->state, "KeyError: '%.*s'", (int)key.bytes, key.text);
}

static void write_percent(percent *p, spec *s, ls_jv value, ls_text *out)
{
    ls_jinja_state *state = p->state;
    if (s->type == 's' || s->type == 'r') {
        ls_text text = {0};
        (s->type == 's' ? ls_jv_print : ls_jv_repr)(state, value, &text);
        write_text(state, s, ls_jv_take_text(state, &text), out);
    } else if (s->type == 'c') {
        char utf8[4];
        ls_jv text = value;
        if (ls_jv_is_whole(value) && ls_jv_whole(value) >= 0 && ls_jv_whole(value) <= 0x10FFFF) {
            text = ls_jv_text(utf8, ls_utf8_encode((uint32_t)ls_jv_whole(value), utf8));
        }
        if (text.kind != LS_JV_STRING || ls_jinja_characters(text) != 1) {
            ls_jinja_refuse(state, "%%c requires int or char");
            return;
        }
        pad(state, s, text, 0, out);
    } else if (!s->type || !strchr("diuxXoeEfFgG", s->type)) {
        ls_jinja_refuse(state, "unsupported format character in a format string");
    } else if (!ls_jv_is_number(value) || (strchr("xXo", s->type) && value.kind == LS_JV_FLOAT)) {
        if (value.kind == LS_JV_UNDEFINED) {
            ls_jv_fail_undefined(state, value);
        }
        ls_jinja_refuse(state, "%%%c format: a number is required, not %s", s->type, ls_jv_type(value));
    } else if (!strchr("diu", s->type) || has_whole_value(state, value)) {
        write_number(state, s, value, out);
    }
}

static void one_percent(percent *p, ls_text *out)
{
    spec s = {.fill = " ", .align = '>', .precision = -1};
    bool is_left = false, is_zero = false, is_negative = false;
    ls_jv value = ls_jv_undefined();
    const bool is_named = peek(p) == '(';
    if (is_named) {
        value = read_key(p);
    }
    for (; peek(p) && strchr("#0- +", peek(p)); p->at++) {
        is_left |= peek(p) == '-';
        is_zero |= peek(p) == '0';
        s.is_alternate |= peek(p) == '#';
        s.sign = peek(p) == '+' || (peek(p) == ' ' && !s.sign) ? peek(p) : s.sign;
    }
    s.width = read_count(p, &is_negative);
    is_left |= is_negative;
    if (peek(p) == '.') {
        p->at++;
        is_negative = false;
        s.precision = read_count(p, &is_negative);
        s.precision = is_negative ? 0 : s.precision;
    }
    p->at += peek(p) == 'h' || peek(p) == 'l' || peek(p) == 'L';
    s.type = peek(p);
    if (!s.type) {
        ls_jinja_refuse(p->state, "incomplete format");
        return;
    }
    p->at++;
    if (s.type == '%') {
        ls_text_append(out, "%");
        return;
    }
    if (s.precision > PRECISION_MAX && s.type != 's' && s.type != 'r') {
        ls_jinja_refuse(p->state, "a precision in a format is above %d", PRECISION_MAX);
    }
    value = is_named ? value : next_value(p);
    if (is_left) {
        s.align = '<';
    } else if (is_zero && s.type != 's' && s.type != 'r' && s.type != 'c') {
        s.align = '=';
        s.fill[0] = '0';
    }
    if (!p->state->failed) {
        write_percent(p, &s, value, out);
    }
}

ls_jv ls_jinja_percent(ls_jinja_state *state, ls_jv format, ls_jv values)
{
    percent p = {.state = state, .format = format, .values = values};
    p.is_mapping = values.kind == LS_JV_DICT || values.kind == LS_JV_LIST || values.kind == LS_JV_RANGE ||
                   values.kind == LS_JV_UNDEFINED;
    if (format.markup) {
        return ls_jinja_unsupported(state, "%% with text marked as safe is not supported");
    }
    ls_text out = {0};
    while (p.at < format.bytes && !state->failed) {
        if (format.text[p.at] == '%') {
            p.at++;
            one_percent(&p, &out);
        } else {
            ls_text_append_bytes(&out, &format.text[p.at++], 1);
        }
        if (out.bytes > LS_JINJA_TEXT_MAX) {
            (void)ls_jinja_take(state, SIZE_MAX / 2);
        }
    }
    if (!p.is_mapping && p.used < (values.kind == LS_JV_TUPLE ? values.list->count : 1)) {
        ls_jinja_refuse(state, "not all arguments converted during string formatting");
    }
    return ls_jv_take_text(state, &out);
}

/* ---- text.format(...) ---- */

typedef struct formatting {
    ls_jinja_state *state;
    const ls_jinja_args *args;
    size_t automatic;
    bool is_automatic, is_numbered;
} formatting;

static ls_jv format_text(formatting *f, ls_jv text, int depth);

static ls_jv field_value(formatting *f, ls_jv name)
{
    size_t at = 0;
    while (at < name.bytes && name.text[at] != '.' && name.text[at] != '[') {
        at++;
    }
    const ls_jv first = ls_jv_text(name.text, at);
    bool is_number = true;
    size_t number = 0;
    for (size_t i = 0; i < at; i++) {
        is_number = is_number && name.text[i] >= '0' && name.text[i] <= '9' && i < 9;
        number = 10 * number + (is_number ? (size_t)(name.text[i] - '0') : 0);
    }
    f->is_automatic |= at == 0;
    f->is_numbered |= at > 0 && is_number;
    if (f->is_automatic && f->is_numbered) {
        return ls_jinja_refuse(f->state, "cannot mix automatic and numbered fields in format()");
    }
    number = at == 0 ? f->automatic++ : number;
    const ls_jv *named =
        !is_number && f->args->keywords ? ls_jinja_dict_find(f->state, f->args->keywords, first) : NULL;
    if (is_number ? number >= f->args->count : !named) {
        return ls_jinja_refuse(f->state, "format() has no argument for the field '%.*s'", (int)name.bytes,
                               name.text);
    }
    ls_jv value = is_number ? f->args->positional[number] : *named;
    while (at < name.bytes && !f->state->failed) {
        const bool is_item = name.text[at] == '[';
        const size_t from = ++at;
        while (at < name.bytes &&
               (is_item ? name.text[at] != ']' : name.text[at] != '.' && name.text[at] != '[')) {
            at++;
        }
        const ls_jv part = ls_jv_text(name.text + from, at - from);
        if (part.bytes == 0 || (is_item && at == name.bytes)) {
            return ls_jinja_refuse(f->state, "an attribute or item of a field of format() is empty");
        }
        char *end = NULL, digits[12] = "";
        memcpy(digits, part.text, part.bytes < 11 ? part.bytes : 0);
        const long index = strtol(digits, &end, 10);
        const bool is_index = is_item && digits[0] >= '0' && digits[0] <= '9' && *end == '\0';
        value = is_index  ? ls_jv_item(f->state, value, ls_jv_int(index))
                : is_item ? ls_jv_item(f->state, value, part)
                          : ls_jv_attribute(f->state, value, part);
        at += is_item;
    }
    return value;
}

/* [[fill]align][sign][#][0][width][,|_][.precision][type]; false: it is not that. */
static bool parse_spec(ls_jv text, spec *s)
{
    size_t at = 0;
    uint32_t c;
    const unsigned first = text.bytes > 0 ? ls_utf8_valid_decode(text.text, &c) : 0;
#define AT()    (at < text.bytes ? text.text[at] : '\0')
#define IS(set) (AT() && strchr(set, AT()))
    if (first > 0 && first < text.bytes && text.text[first] && strchr("<>=^", text.text[first])) {
        memcpy(s->fill, text.text, first);
        s->fill[first] = '\0';
        s->align = text.text[first];
        at = first + 1;
    } else if (IS("<>=^")) {
        s->align = text.text[at++];
    }
    if (IS("+- ")) {
        s->sign = text.text[at] == '-' ? 0 : text.text[at];
        at++;
    }
    s->is_alternate = AT() == '#';
    at += s->is_alternate;
    if (AT() == '0') {
        if (!s->align) {
            s->align = '=';
            memcpy(s->fill, "0", 2);
        }
        at++;
    }
    for (; AT() >= '0' && AT() <= '9' && s->width <= WIDTH_MAX; at++) {
        s->width = 10 * s->width + (AT() - '0');
    }
    if (IS(",_")) {
        s->group = text.text[at++];
    }
    if (AT() == '.') {
        at++;
        s->precision = 0;
        if (!(AT() >= '0' && AT() <= '9')) {
            return false;
        }
        for (; AT() >= '0' && AT() <= '9' && s->precision <= WIDTH_MAX; at++) {
            s->precision = 10 * s->precision + (AT() - '0');
        }
    }
    if (at < text.bytes) {
        s->type = text.text[at++];
    }
#undef AT
#undef IS
    return at == text.bytes && s->width <= WIDTH_MAX && s->precision <= WIDTH_MAX;
}

static void write_field(formatting *f, ls_jv value, ls_jv text, ls_text *out)
{
    ls_jinja_state *state = f->state;
    spec s = {.fill = " ", .precision = -1};
    if (text.bytes == 0) {
        ls_jv_print(state, value, out);
        return;
    }
    if (!parse_spec(text, &s)) {
        ls_jinja_refuse(state, "Invalid format specifier '%.*s'", (int)text.bytes, text.text);
        return;
    }
    const bool is_number = ls_jv_is_number(value) && !(value.kind == LS_JV_BOOL && s.type == 0);
    if (value.kind == LS_JV_STRING || (value.kind == LS_JV_BOOL && s.type == 0)) {
        if ((s.type && s.type != 's') || s.sign || s.is_alternate || s.group || s.align == '=') {
            const bool is_zero = s.align == '=' && s.fill[0] == '0';
            if (!is_zero || s.type || s.sign || s.is_alternate || s.group) {
                ls_jinja_refuse(state, "the format '%.*s' does not fit text", (int)text.bytes, text.text);
                return;
            }
        }
        if (value.kind == LS_JV_BOOL) {
            ls_jinja_unsupported(state, "formats of True and False are not supported");
            return;
        }
        s.align = !s.align || s.align == '=' ? '<' : s.align;
        write_text(state, &s, value, out);
        return;
    }
    if (!is_number) {
        ls_jinja_refuse(state, "unsupported format string passed to %s.__format__", ls_jv_type(value));
        return;
    }
    const bool is_whole_type = s.type && strchr("dxXob", s.type);
    s.type = !s.type && value.kind != LS_JV_FLOAT ? 'd' : s.type;
    if ((is_whole_type && value.kind == LS_JV_FLOAT) || (s.type && !strchr("dxXobeEfFgG%", s.type)) ||
        (value.kind != LS_JV_FLOAT && strchr("dxXob", s.type) && s.precision >= 0)) {
        ls_jinja_refuse(state, "the format '%.*s' does not fit a number", (int)text.bytes, text.text);
        return;
    }
    if (s.precision > PRECISION_MAX) {
        ls_jinja_refuse(state, "a precision in a format is above %d", PRECISION_MAX);
        return;
    }
    s.align = s.align ? s.align : '>';
    write_number(state, &s, value, out);
}

/* A field at text[at], after its brace; returns where it ends. */
static size_t one_field(formatting *f, ls_jv text, size_t at, int depth, ls_text *out)
{
    const size_t from = at;
    int open = 1;
    size_t name_end = SIZE_MAX, conversion = 0, spec_from = 0;
    for (; at < text.bytes && open > 0; at++) {
        const char c = text.text[at];
        open += c == '{' ? 1 : c == '}' ? -1 : 0;
        if (open == 1 && name_end == SIZE_MAX && (c == '!' || c == ':')) {
            name_end = at;
            conversion = c == '!' ? at + 1 : 0;
            spec_from = c == ':' ? at + 1 : 0;
        } else if (open == 1 && c == ':' && conversion && !spec_from) {
            spec_from = at + 1;
        }
    }
    if (open > 0) {
        ls_jinja_refuse(f->state, "expected '}' before end of string");
        return at;
    }
    const size_t end = at - 1;
    name_end = name_end == SIZE_MAX ? end : name_end;
    ls_jv value = field_value(f, ls_jv_text(text.text + from, name_end - from));
    if (conversion) {
        const size_t length = (spec_from ? spec_from - 1 : end) - conversion;
        const char how = length == 1 ? text.text[conversion] : '?';
        if (how != 'r' && how != 's') {
            ls_jinja_unsupported(f->state, "the conversion of a field of format() must be !r or !s");
        }
        ls_text printed = {0};
        (how == 'r' ? ls_jv_repr : ls_jv_print)(f->state, value, &printed);
        value = ls_jv_take_text(f->state, &printed);
    }
    ls_jv given = spec_from ? ls_jv_text(text.text + spec_from, end - spec_from) : ls_jv_text("", 0);
    given = given.bytes > 0 ? format_text(f, given, depth + 1) : given;
    if (!f->state->failed) {
        write_field(f, value, given, out);
    }
    return at;
}

static ls_jv format_text(formatting *f, ls_jv text, int depth)
{
    ls_text out = {0};
    if (depth > 1) {
        return memchr(text.text, '{', text.bytes) ? ls_jinja_refuse(f->state, "Max string recursion exceeded")
                                                  : text;
    }
    for (size_t at = 0; at < text.bytes && !f->state->failed;) {
        const char c = text.text[at];
        const bool is_double = (c == '{' || c == '}') && at + 1 < text.bytes && text.text[at + 1] == c;
        if (c == '{' && !is_double) {
            at = one_field(f, text, at + 1, depth, &out);
        } else if (c == '}' && !is_double) {
            ls_jinja_refuse(f->state, "Single '}' encountered in format string");
        } else {
            ls_text_append_bytes(&out, &c, 1);
            at += 1 + is_double;
        }
        if (out.bytes > LS_JINJA_TEXT_MAX) {
            (void)ls_jinja_take(f->state, SIZE_MAX / 2);
        }
    }
    return ls_jv_take_text(f->state, &out);
}

ls_jv ls_jinja_format(ls_jinja_state *state, ls_jv format, const ls_jinja_args *args)
{
    formatting f = {.state = state, .args = args};
    if (format.markup) {
        return ls_jinja_unsupported(state, "format() of text marked as safe is not supported");
    }
    return format_text(&f, format, 0);
}
