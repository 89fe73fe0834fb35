// SPDX-License-Identifier: Apache-2.0
/* Values as text: str(), repr() and JSON as Python writes them, text % values, text.format(). */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* How values inside values are written. */
typedef struct style {
    bool is_json, is_ascii, is_sorted;
    ls_jv indent; /* of one level, or none: all in one line */
    ls_jv item_separator, key_separator;
    size_t level;
} style;

static void write(ls_jinja *j, ls_jv v, style *s, ls_text *out);

static void append(ls_text *out, ls_jv text)
{
    ls_text_append_bytes(out, text.text, text.bytes);
}

/* The shortest decimal that reads back as the same number, with an exponent where Python has it. */
static void write_float(double value, bool is_json, ls_text *out)
{
    char text[40];
    if (!isfinite(value)) {
        ls_text_append(out, value < 0 ? "-" : "");
        ls_text_append(out, isnan(value) ? (is_json ? "NaN" : "nan") : is_json ? "Infinity" : "inf");
        return;
    }
    int digits = 0;
    snprintf(text, sizeof text, "%.0e", value);
    while (strtod(text, NULL) != value) {
        snprintf(text, sizeof text, "%.*e", ++digits, value);
    }
    const int exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10);
    if (exponent >= -4 && exponent < 16) {
        snprintf(text, sizeof text, "%.*f", digits - exponent > 1 ? digits - exponent : 1, value);
    }
    ls_text_append(out, text);
}

static bool is_printable(uint32_t c)
{
    /* The categories after the symbols are separators and control characters. */
    enum { SEPARATORS = 23 };
    const uint8_t category = ls_unicode_of(c) & LS_UNICODE_CATEGORY;
    return c == ' ' || (category != LS_UNICODE_CN && category < SEPARATORS);
}

/* Text in quotes, as a constant of Python or of JSON. */
static void write_quoted(ls_jv v, const style *s, ls_text *out)
{
    static const char marks[] = "\\\n\r\t\f\b", names[] = "\\nrtfb";
    const bool is_double =
        s->is_json || (memchr(v.text, '\'', v.bytes) != NULL && memchr(v.text, '"', v.bytes) == NULL);
    const char quote = is_double ? '"' : '\'';
    ls_text_append_bytes(out, &quote, 1);
    for (size_t at = 0; at < v.bytes;) {
        uint32_t c;
        const char *from = v.text + at;
        const unsigned length = ls_utf8_valid_decode(from, &c);
        const char *mark = c > 0 && c < 128 ? strchr(marks, (int)c) : NULL;
        const bool is_plain = s->is_json ? c >= 0x20 && (c < 0x7f || !s->is_ascii) : is_printable(c);
        at += length;
        if (c == (uint8_t)quote || (mark && (s->is_json || mark - marks < 4))) {
            ls_text_printf(out, "\\%c", mark ? names[mark - marks] : quote);
        } else if (is_plain) {
            ls_text_append_bytes(out, from, length);
        } else if (s->is_json && c > 0xffff) {
            ls_text_printf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10), 0xDC00 + (c & 0x3ff));
        } else if (c < 0x100 && !s->is_json) {
            ls_text_printf(out, "\\x%02x", c);
        } else {
            ls_text_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        }
    }
    ls_text_append_bytes(out, &quote, 1);
}

static void write_break(const style *s, ls_text *out)
{
    if (s->indent.kind == LS_JV_STRING) {
        ls_text_append(out, "\n");
        for (size_t i = 0; i < s->level; i++) {
            append(out, s->indent);
        }
    }
}

static void write_key(ls_jinja *j, ls_jv key, style *s, ls_text *out)
{
    const bool is_quoted = s->is_json && (ls_jv_is_number(key) || key.kind == LS_JV_NONE);
    if (s->is_json && key.kind != LS_JV_STRING && !is_quoted) {
        ls_jinja_refuse(j, "keys must be str, int, float, bool or None, not %s", ls_jv_type(key));
    }
    ls_text_append(out, is_quoted ? "\"" : "");
    write(j, key, s, out);
    ls_text_append(out, is_quoted ? "\"" : "");
    append(out, s->key_separator);
}

/* The items of a list, tuple or dict, or of what is printed like one. */
static void write_items(ls_jinja *j, ls_jv v, style *s, ls_text *out)
{
    const bool is_dict = v.kind == LS_JV_DICT || v.kind == LS_JV_NAMESPACE;
    const bool is_tuple = v.kind == LS_JV_TUPLE && !s->is_json;
    const ls_jinja_list *list = is_dict && s->is_sorted ? ls_jinja_sorted(j, v.list, false) : v.list;
    ls_text_append(out, is_dict ? "{" : is_tuple ? "(" : "[");
    s->level++;
    for (size_t i = 0; i < list->count && !j->failed; i++) {
        if (i > 0) {
            append(out, s->item_separator);
        }
        write_break(s, out);
        if (is_dict) {
            write_key(j, list->items[i++], s, out);
        }
        write(j, list->items[i], s, out);
    }
    s->level--;
    if (list->count > 0) {
        write_break(s, out);
    }
    ls_text_append(out, is_dict ? "}" : !is_tuple ? "]" : list->count == 1 ? ",)" : ")");
}

/* What has no JSON. */
static void write_object(ls_jinja *j, ls_jv v, style *s, ls_text *out)
{
    static const char *const views[] = {"dict_keys(", "dict_values(", "dict_items("};
    if (v.kind == LS_JV_VIEW) {
        ls_text_append(out, views[v.bytes]);
        write_items(j, v, s, out);
        ls_text_append(out, ")");
    } else if (v.kind == LS_JV_NAMESPACE) {
        ls_text_append(out, "<Namespace ");
        write_items(j, v, s, out);
        ls_text_append(out, ">");
    } else if (v.kind == LS_JV_LOOP) {
        ls_text_printf(out, "<LoopContext %" PRId64 "/%zu>", v.loop->index0 + 1,
                       ls_jinja_loop_length(j, v.loop));
    } else {
        ls_jinja_unsupported(j, "printing a %s is not supported; use |list or call it", ls_jv_type(v));
    }
}

static void write(ls_jinja *j, ls_jv v, style *s, ls_text *out)
{
    ls_jinja_spend(j, v.kind == LS_JV_STRING ? v.bytes : 0);
    if (out->bytes > LS_JINJA_TEXT_MAX) {
        ls_jinja_take(j, SIZE_MAX / 2);
    }
    if (v.kind == LS_JV_NONE) {
        ls_text_append(out, s->is_json ? "null" : "None");
    } else if (v.kind == LS_JV_BOOL) {
        ls_text_append(out, s->is_json ? (v.truth ? "true" : "false") : v.truth ? "True" : "False");
    } else if (v.kind == LS_JV_INT) {
        ls_text_printf(out, "%" PRId64, v.integer);
    } else if (v.kind == LS_JV_FLOAT) {
        write_float(v.real, s->is_json, out);
    } else if (v.kind == LS_JV_STRING) {
        ls_text_append(out, v.markup && !s->is_json ? "Markup(" : "");
        write_quoted(v, s, out);
        ls_text_append(out, v.markup && !s->is_json ? ")" : "");
    } else if (v.kind == LS_JV_LIST || v.kind == LS_JV_TUPLE || v.kind == LS_JV_DICT) {
        if (ls_jinja_enter(j)) {
            write_items(j, v, s, out);
            j->depth--;
        }
    } else if (s->is_json) {
        ls_jinja_refuse(j, "Object of type %s is not JSON serializable", ls_jv_type(v));
    } else if (v.kind == LS_JV_UNDEFINED) {
        ls_text_append(out, "Undefined");
    } else if (ls_jinja_enter(j)) {
        write_object(j, v, s, out);
        j->depth--;
    }
}

void ls_jv_repr(ls_jinja *j, ls_jv v, ls_text *out)
{
    style s = {.item_separator = ls_jv_text(", ", 2), .key_separator = ls_jv_text(": ", 2)};
    write(j, v, &s, out);
}

void ls_jv_print(ls_jinja *j, ls_jv v, ls_text *out)
{
    if (v.kind == LS_JV_STRING) {
        append(out, v);
    } else if (v.kind != LS_JV_UNDEFINED) {
        ls_jv_repr(j, v, out);
    }
}

ls_jv ls_jv_string(ls_jinja *j, ls_jv v)
{
    ls_text text = {0};
    if (v.kind == LS_JV_STRING) {
        return v;
    }
    ls_jv_print(j, v, &text);
    return ls_jv_take_text(j, &text);
}

ls_jv ls_jv_escape(ls_jinja *j, ls_jv v)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char marks[] = "&<>'\"";
    ls_text out = {0};
    ls_jv text = ls_jv_string(j, v);
    for (size_t i = 0; i < text.bytes && !text.markup; i++) {
        const char *mark = text.text[i] ? strchr(marks, text.text[i]) : NULL;
        append(&out, mark ? ls_jv_text(names[mark - marks], strlen(names[mark - marks]))
                          : ls_jv_text(&text.text[i], 1));
    }
    text = text.markup ? text : ls_jv_take_text(j, &out);
    text.markup = true;
    return text;
}

/* parameters: ensure_ascii, indent, separators, sort_keys */
ls_jv ls_jinja_json(ls_jinja *j, const ls_jinja_use *u)
{
    const ls_jv indent = u->given[1], separators = u->given[2];
    const bool is_indented = ls_jv_is_whole(indent) || indent.kind == LS_JV_STRING;
    style s = {.is_json = true,
               .is_ascii = ls_jv_truth(j, u->given[0]),
               .is_sorted = ls_jv_truth(j, u->given[3]),
               .indent = ls_jv_is_whole(indent) ? ls_jv_binary(j, '*', ls_jv_text(" ", 1), indent) : indent,
               .item_separator = ls_jv_text(", ", is_indented ? 1 : 2),
               .key_separator = ls_jv_text(": ", 2)};
    if (!is_indented && !ls_jv_is_absent(indent) && indent.kind != LS_JV_NONE) {
        return ls_jinja_refuse(j, "indent must be a number or text, not %s", ls_jv_type(indent));
    }
    if (!ls_jv_is_absent(separators) && separators.kind != LS_JV_NONE) {
        const ls_jinja_list pair = ls_jv_items(j, separators);
        if (pair.count != 2 || pair.items[0].kind != LS_JV_STRING || pair.items[1].kind != LS_JV_STRING) {
            return ls_jinja_refuse(j, "separators must be two texts");
        }
        s.item_separator = pair.items[0];
        s.key_separator = pair.items[1];
    }
    ls_text out = {0};
    write(j, u->self, &s, &out);
    return ls_jv_take_text(j, &out);
}

/* ---- text % values ---- */

enum { SIZE_DIGITS_MAX = 3 };

typedef struct percent {
    ls_jinja *j;
    ls_jv format, values;
    size_t at, used;
} percent;

/* Goes past the characters at `at` that are among `wanted`. */
static ls_jv span(percent *p, const char *wanted)
{
    const size_t from = p->at;
    while (p->at < p->format.bytes && p->format.text[p->at] && strchr(wanted, p->format.text[p->at])) {
        p->at++;
    }
    return ls_jv_part(p->format, from, p->at);
}

static ls_jv next_value(percent *p)
{
    const bool is_tuple = p->values.kind == LS_JV_TUPLE;
    if (p->used++ >= (is_tuple ? p->values.list->count : 1)) {
        return ls_jinja_refuse(p->j, "not enough arguments for format string");
    }
    return is_tuple ? p->values.list->items[p->used - 1] : p->values;
}

/* A number, with the flags and sizes of `size`, which C has too. */
static void percent_number(ls_jinja *j, ls_jv size, char type, ls_jv value, ls_text *out)
{
    const bool is_real = strchr("eEfFgG", type) != NULL;
    const double real = ls_jv_is_number(value) ? ls_jv_real(value) : 0.0;
    char format[32];
    if (!ls_jv_is_number(value) || (strchr("xXo", type) && value.kind == LS_JV_FLOAT)) {
        ls_jinja_refuse(j, "%%%c format: a number is required, not %s", type, ls_jv_type(value));
        return;
    }
    const int64_t whole = is_real                     ? 0
                          : value.kind != LS_JV_FLOAT ? ls_jv_whole(value)
                          : fabs(real) < 0x1p63       ? (int64_t)real
                                                      : INT64_MIN;
    /* What C and Python write in different ways, or C can't. */
    if (!isfinite(real) || whole == INT64_MIN || (whole < 0 && strchr("xXo", type)) ||
        (!is_real && memchr(size.text, '.', size.bytes))) {
        ls_jinja_unsupported(j, "formatting this number with %%%.*s%c is not supported", LS_JV_PRINT(size),
                             type);
    } else if (is_real) {
        snprintf(format, sizeof format, "%%%.*s%c", LS_JV_PRINT(size), type);
        ls_text_printf(out, format, real);
    } else {
        snprintf(format, sizeof format, "%%%.*sj%c", LS_JV_PRINT(size), type == 'u' ? 'd' : type);
        ls_text_printf(out, format, (intmax_t)whole);
    }
}

static void percent_text(ls_jinja *j, ls_jv flags, int width, int precision, ls_jv text, ls_text *out)
{
    if (precision >= 0) {
        text.bytes = (uint32_t)ls_jinja_offset(text, (size_t)precision);
    }
    ls_jinja_pad(j, out, text, width, ls_jv_text(" ", 1), memchr(flags.text, '-', flags.bytes) ? 'l' : 'r');
}

/* What follows a percent sign. */
static void one_percent(percent *p, ls_text *out)
{
    const size_t from = p->at;
    const ls_jv flags = span(p, "0- +"), width = span(p, "0123456789"), dot = span(p, ".");
    const ls_jv precision = span(p, "0123456789");
    const ls_jv size = ls_jv_part(p->format, from, p->at);
    const char type = p->at < p->format.bytes ? p->format.text[p->at++] : 0;
    if (type == '%') {
        ls_text_append(out, "%");
        return;
    }
    if (width.bytes > SIZE_DIGITS_MAX || precision.bytes > SIZE_DIGITS_MAX - 1 || flags.bytes > 4 ||
        dot.bytes > 1 || !type || !strchr("srdiuxXoeEfFgG", type)) {
        const bool is_python = type && strchr("srdiuxXoeEfFgG#*hlLca(", type);
        ls_jinja_fail(p->j, is_python ? LS_ERR_UNSUPPORTED : LS_ERR_DATA,
                      "%%%.*s%c in a format is not supported", LS_JV_PRINT(size), type ? type : '?');
        return;
    }
    const ls_jv value = next_value(p);
    if (p->j->failed) {
        return;
    }
    if (type != 's' && type != 'r') {
        percent_number(p->j, size, type, value, out);
        return;
    }
    ls_text text = {0};
    (type == 's' ? ls_jv_print : ls_jv_repr)(p->j, value, &text);
    percent_text(p->j, flags, (int)strtol(width.text, NULL, 10),
                 dot.bytes ? (int)strtol(precision.text, NULL, 10) : -1, ls_jv_take_text(p->j, &text), out);
}

ls_jv ls_jinja_percent(ls_jinja *j, ls_jv format, ls_jv values)
{
    percent p = {.j = j, .format = format, .values = values};
    const bool is_mapping = values.kind == LS_JV_DICT || values.kind == LS_JV_LIST ||
                            values.kind == LS_JV_RANGE || values.kind == LS_JV_UNDEFINED;
    ls_text out = {0};
    if (format.markup) {
        return ls_jinja_unsupported(j, "formats marked as safe are not supported");
    }
    while (p.at < format.bytes && !j->failed) {
        if (format.text[p.at++] == '%') {
            one_percent(&p, &out);
        } else {
            ls_text_append_bytes(&out, &format.text[p.at - 1], 1);
        }
    }
    if (!is_mapping && p.used < (values.kind == LS_JV_TUPLE ? values.list->count : 1)) {
        ls_jinja_refuse(j, "not all arguments converted during string formatting");
    }
    return ls_jv_take_text(j, &out);
}

/* ---- text.format(...) ---- */

/* A field without its brackets: a name, a number, or nothing for the next value, and !r. */
static void one_field(ls_jinja *j, const ls_jinja_args *args, ls_jv field, size_t *next, ls_text *out)
{
    const bool is_repr = field.bytes >= 2 && memcmp(field.text + field.bytes - 2, "!r", 2) == 0;
    const ls_jv name = ls_jv_part(field, 0, field.bytes - (is_repr ? 2 : 0));
    const ls_jv *found = ls_jinja_get(j, args->keywords, name);
    const bool is_automatic = name.bytes == 0;
    size_t index = is_automatic ? *next : 0, digits = 0;
    for (; digits < name.bytes && digits < 9 && strchr("0123456789", name.text[digits]); digits++) {
        index = 10 * index + (size_t)(name.text[digits] - '0');
    }
    if (digits == name.bytes) {
        found = index < args->count ? &args->positional[index] : NULL;
        if (is_automatic ? *next == SIZE_MAX : *next > 0 && *next != SIZE_MAX) {
            ls_jinja_refuse(j, "cannot mix automatic and numbered fields in format()");
        }
        *next = is_automatic ? *next + 1 : SIZE_MAX;
    }
    for (size_t i = 0; i < name.bytes; i++) {
        if (name.text[i] && strchr(":!{.[", name.text[i])) {
            ls_jinja_unsupported(
                j, "the field {%.*s} of format() is not supported: it may have a name or number, and !r",
                LS_JV_PRINT(field));
        }
    }
    if (!found) {
        ls_jinja_refuse(j, "format() has no value for the field {%.*s}", LS_JV_PRINT(field));
    } else if (!j->failed) {
        (is_repr ? ls_jv_repr : ls_jv_print)(j, *found, out);
    }
}

ls_jv ls_jinja_format(ls_jinja *j, const ls_jinja_use *u)
{
    const ls_jv text = u->self;
    ls_text out = {0};
    size_t next = 0;
    for (size_t at = 0; at < text.bytes && !j->failed;) {
        const char c = text.text[at++];
        const bool is_double = at < text.bytes && text.text[at] == c;
        const char *end = c == '{' && !is_double ? memchr(text.text + at, '}', text.bytes - at) : NULL;
        if (end) {
            const ls_jv field = ls_jv_part(text, at, (size_t)(end - text.text));
            one_field(j, u->args, field, &next, &out);
            at += field.bytes + 1;
        } else if ((c == '{' || c == '}') && !is_double) {
            ls_jinja_refuse(j, "a single '%c' in a format string", c);
        } else {
            ls_text_append_bytes(&out, &c, 1);
            at += c == '{' || c == '}';
        }
    }
    return ls_jv_take_text(j, &out);
}
