// SPDX-License-Identifier: Apache-2.0
/* Values as text: str(), repr() and JSON, as Python writes them. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* ---- numbers ---- */

/* The digits and exponent of the shortest decimal that reads back as `value` > 0. */
static int shortest(double value, char digits[20])
{
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    size_t count = 0;
    const char *at = text;
    for (; *at != 'e'; at++) {
        if (*at != '.') {
            digits[count++] = *at;
        }
    }
    while (count > 1 && digits[count - 1] == '0') {
        count--;
    }
    digits[count] = '\0';
    return (int)strtol(at + 1, NULL, 10);
}

void ls_jinja_float_repr(double value, ls_text *out)
{
    char digits[20];
    if (!isfinite(value)) {
        ls_text_append(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    ls_text_append(out, signbit(value) ? "-" : "");
    const int exponent =
        value == 0.0 ? (digits[0] = '0', digits[1] = '\0', 0) : shortest(fabs(value), digits);
    const int count = (int)strlen(digits);
    if (exponent < -4 || exponent >= 16) {
        ls_text_append_bytes(out, digits, 1);
        ls_text_printf(out, "%s%se%c%02d", count > 1 ? "." : "", digits + 1, exponent < 0 ? '-' : '+',
                       abs(exponent));
    } else if (exponent < 0) {
        ls_text_append(out, "0.");
        ls_text_repeat(out, '0', (size_t)(-exponent - 1));
        ls_text_append(out, digits);
    } else {
        const int before = exponent + 1 < count ? exponent + 1 : count;
        ls_text_append_bytes(out, digits, (size_t)before);
        ls_text_repeat(out, '0', (size_t)(exponent + 1 - before));
        ls_text_printf(out, ".%s", before < count ? digits + before : "0");
    }
}

/* ---- repr ---- */

static bool is_printable(uint32_t c)
{
    /* The categories after the symbols are separators and control characters. */
    enum { SEPARATORS = 23 };
    const uint8_t category = ls_unicode_of(c) & LS_UNICODE_CATEGORY;
    return c == ' ' || (category != LS_UNICODE_CN && category < SEPARATORS);
}

static void repr_text(ls_jv v, ls_text *out)
{
    const bool is_single = memchr(v.text, '\'', v.bytes) == NULL || memchr(v.text, '"', v.bytes) != NULL;
    const char quote = is_single ? '\'' : '"';
    ls_text_append_bytes(out, &quote, 1);
    for (size_t at = 0; at < v.bytes;) {
        uint32_t c;
        const char *from = v.text + at;
        const unsigned length = ls_utf8_valid_decode(from, &c);
        at += length;
        if (c == (uint8_t)quote || c == '\\') {
            ls_text_printf(out, "\\%c", (char)c);
        } else if (c == '\n' || c == '\r' || c == '\t') {
            ls_text_append(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
        } else if (is_printable(c)) {
            ls_text_append_bytes(out, from, length);
        } else {
            ls_text_printf(out, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        }
    }
    ls_text_append_bytes(out, &quote, 1);
}

static void repr_items(ls_jinja_state *state, ls_jv v, ls_text *out)
{
    const bool is_list = v.kind == LS_JV_LIST;
    ls_text_append(out, is_list ? "[" : "(");
    for (size_t i = 0; i < v.list->count && !state->failed; i++) {
        ls_text_append(out, i ? ", " : "");
        ls_jv_repr(state, v.list->items[i], out);
    }
    ls_text_append(out, is_list ? "]" : v.list->count == 1 ? ",)" : ")");
}

static void repr_dict(ls_jinja_state *state, const ls_jinja_dict *dict, ls_text *out)
{
    ls_text_append(out, "{");
    for (size_t i = 0; i < dict->count && !state->failed; i++) {
        ls_text_append(out, i ? ", " : "");
        ls_jv_repr(state, dict->keys[i], out);
        ls_text_append(out, ": ");
        ls_jv_repr(state, dict->values[i], out);
    }
    ls_text_append(out, "}");
}

static void repr_view(ls_jinja_state *state, ls_jv v, ls_text *out)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    ls_text_append(out, names[v.bytes]);
    repr_items(state, (ls_jv){.kind = LS_JV_LIST, .list = ls_jv_to_list(state, v)}, out);
    ls_text_append(out, ")");
}

static void repr_object(ls_jinja_state *state, ls_jv v, ls_text *out)
{
    size_t length;
    switch (v.kind) {
    case LS_JV_LIST:
    case LS_JV_TUPLE:
        repr_items(state, v, out);
        break;
    case LS_JV_DICT:
        repr_dict(state, v.dict, out);
        break;
    case LS_JV_VIEW:
        repr_view(state, v, out);
        break;
    case LS_JV_NAMESPACE:
        ls_text_append(out, "<Namespace ");
        repr_dict(state, v.dict, out);
        ls_text_append(out, ">");
        break;
    case LS_JV_RANGE:
        ls_text_printf(out, "range(%" PRId64 ", %" PRId64, v.range->start, v.range->stop);
        ls_text_append(out, v.range->step == 1 ? ")" : "");
        if (v.range->step != 1) {
            ls_text_printf(out, ", %" PRId64 ")", v.range->step);
        }
        break;
    case LS_JV_MACRO:
        ls_text_append(out, "<Macro ");
        if (v.macro->node->kind == LS_JINJA_MACRO) {
            repr_text(v.macro->node->value, out);
        } else {
            ls_text_append(out, "anonymous");
        }
        ls_text_append(out, ">");
        break;
    case LS_JV_LOOP:
        length = ls_jinja_loop_length(state, v.loop);
        ls_text_printf(out, "<LoopContext %" PRId64 "/%zu>", v.loop->index0 + 1, length);
        break;
    default:
        ls_jinja_unsupported(
            state, "printing a %s (Python prints its address) is not supported; use |list or call it",
            ls_jv_type(v));
    }
}

void ls_jv_repr(ls_jinja_state *state, ls_jv v, ls_text *out)
{
    switch (v.kind) {
    case LS_JV_UNDEFINED:
        ls_text_append(out, "Undefined");
        return;
    case LS_JV_NONE:
        ls_text_append(out, "None");
        return;
    case LS_JV_BOOL:
        ls_text_append(out, v.truth ? "True" : "False");
        return;
    case LS_JV_INT:
        ls_text_printf(out, "%" PRId64, v.integer);
        return;
    case LS_JV_FLOAT:
        ls_jinja_float_repr(v.real, out);
        return;
    case LS_JV_STRING:
        ls_jinja_spend(state, v.bytes);
        ls_text_append(out, v.markup ? "Markup(" : "");
        repr_text(v, out);
        ls_text_append(out, v.markup ? ")" : "");
        return;
    default:
        break;
    }
    ls_jinja_spend(state, 0);
    if (out->bytes > LS_JINJA_TEXT_MAX) {
        ls_jinja_take(state, SIZE_MAX / 2);
    }
    if (ls_jinja_enter(state)) {
        repr_object(state, v, out);
        state->depth--;
    }
}

void ls_jv_print(ls_jinja_state *state, ls_jv v, ls_text *out)
{
    if (v.kind == LS_JV_STRING) {
        ls_text_append_bytes(out, v.text, v.bytes);
    } else if (v.kind != LS_JV_UNDEFINED) {
        ls_jv_repr(state, v, out);
    }
}

ls_jv ls_jv_string(ls_jinja_state *state, ls_jv v)
{
    if (v.kind == LS_JV_STRING) {
        return v;
    }
    ls_text text = {0};
    ls_jv_print(state, v, &text);
    return ls_jv_take_text(state, &text);
}

/* ---- JSON ---- */

typedef struct json_style {
    ls_jv indent, item_separator, key_separator; /* indent: the text of one level, or none */
    bool is_ascii, is_sorted;
    size_t level;
} json_style;

static void json_value(ls_jinja_state *state, ls_jv v, json_style *style, ls_text *out);

static void json_text(ls_jv v, const json_style *style, ls_text *out)
{
    static const char marks[] = "\"\\\n\r\t\f\b", names[] = "\"\\nrtfb";
    ls_text_append(out, "\"");
    for (size_t at = 0; at < v.bytes;) {
        uint32_t c;
        const unsigned length = ls_utf8_valid_decode(v.text + at, &c);
        const char *mark = c > 0 && c < 128 ? strchr(marks, (int)c) : NULL;
        if (mark) {
            ls_text_printf(out, "\\%c", names[mark - marks]);
        } else if (c < 0x20 || (style->is_ascii && c > 0x7e && c < 0x10000)) {
            ls_text_printf(out, "\\u%04x", c);
        } else if (style->is_ascii && c > 0x7e) {
            ls_text_printf(out, "\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                           0xDC00 + ((c - 0x10000) & 0x3ff));
        } else {
            ls_text_append_bytes(out, v.text + at, length);
        }
        at += length;
    }
    ls_text_append(out, "\"");
}

static void json_number(ls_jv v, ls_text *out)
{
    if (v.kind == LS_JV_FLOAT && !isfinite(v.real)) {
        ls_text_append(out, isnan(v.real) ? "NaN" : v.real < 0 ? "-Infinity" : "Infinity");
    } else if (v.kind == LS_JV_FLOAT) {
        ls_jinja_float_repr(v.real, out);
    } else if (v.kind == LS_JV_BOOL) {
        ls_text_append(out, v.truth ? "true" : "false");
    } else {
        ls_text_printf(out, "%" PRId64, v.integer);
    }
}

static void json_key(ls_jinja_state *state, ls_jv key, const json_style *style, ls_text *out)
{
    ls_text text = {0};
    if (key.kind == LS_JV_STRING) {
        json_text(key, style, out);
        return;
    }
    if (ls_jv_is_number(key)) {
        json_number(key, &text);
    } else if (key.kind == LS_JV_NONE) {
        ls_text_append(&text, "null");
    } else {
        ls_jinja_refuse(state, "keys must be str, int, float, bool or None, not %s", ls_jv_type(key));
    }
    ls_text_printf(out, "\"%s\"", ls_text_string(&text));
    ls_text_release(&text);
}

static void json_break(const json_style *style, ls_text *out)
{
    if (style->indent.kind == LS_JV_STRING) {
        ls_text_append(out, "\n");
        for (size_t i = 0; i < style->level; i++) {
            ls_text_append_bytes(out, style->indent.text, style->indent.bytes);
        }
    }
}

static void json_container(ls_jinja_state *state, ls_jv v, json_style *style, ls_text *out)
{
    const bool is_dict = v.kind == LS_JV_DICT;
    const size_t count = is_dict ? v.dict->count : v.list->count;
    const ls_jinja_list *order = is_dict && style->is_sorted ? ls_jinja_sorted_keys(state, v.dict) : NULL;
    ls_text_append(out, is_dict ? "{" : "[");
    style->level++;
    for (size_t i = 0; i < count && !state->failed; i++) {
        if (i > 0) {
            ls_text_append_bytes(out, style->item_separator.text, style->item_separator.bytes);
        }
        json_break(style, out);
        if (!is_dict) {
            json_value(state, v.list->items[i], style, out);
            continue;
        }
        const ls_jv key = order ? order->items[i] : v.dict->keys[i];
        json_key(state, key, style, out);
        ls_text_append_bytes(out, style->key_separator.text, style->key_separator.bytes);
        json_value(state, order ? *ls_jinja_dict_find(state, v.dict, key) : v.dict->values[i], style, out);
    }
    style->level--;
    if (count > 0) {
        json_break(style, out);
    }
    ls_text_append(out, is_dict ? "}" : "]");
}

static void json_value(ls_jinja_state *state, ls_jv v, json_style *style, ls_text *out)
{
    ls_jinja_spend(state, v.kind == LS_JV_STRING ? v.bytes : 0);
    if (out->bytes > LS_JINJA_TEXT_MAX) {
        ls_jinja_take(state, SIZE_MAX / 2);
    }
    if (v.kind == LS_JV_STRING) {
        json_text(v, style, out);
    } else if (ls_jv_is_number(v)) {
        json_number(v, out);
    } else if (v.kind == LS_JV_NONE) {
        ls_text_append(out, "null");
    } else if (v.kind != LS_JV_LIST && v.kind != LS_JV_TUPLE && v.kind != LS_JV_DICT) {
        ls_jinja_refuse(state, "Object of type %s is not JSON serializable", ls_jv_type(v));
    } else if (ls_jinja_enter(state)) {
        json_container(state, v, style, out);
        state->depth--;
    }
}

/* options: ensure_ascii, indent, separators, sort_keys */
void ls_jinja_json(ls_jinja_state *state, ls_jv v, const ls_jv *options, ls_text *out)
{
    const ls_jv indent = options[1], separators = options[2];
    json_style style = {.is_ascii = ls_jv_truth(state, options[0]),
                        .is_sorted = ls_jv_truth(state, options[3])};
    if (ls_jv_is_whole(indent)) {
        const int64_t width = ls_jv_whole(indent) < 0 ? 0 : ls_jv_whole(indent);
        style.indent = ls_jv_binary(state, '*', ls_jv_text(" ", 1), ls_jv_int(width));
    } else if (indent.kind == LS_JV_STRING) {
        style.indent = indent;
    } else if (!ls_jv_is_absent(indent) && indent.kind != LS_JV_NONE) {
        ls_jinja_refuse(state, "indent must be a number or text, not %s", ls_jv_type(indent));
    }
    style.item_separator = style.indent.kind == LS_JV_STRING ? ls_jv_text(",", 1) : ls_jv_text(", ", 2);
    style.key_separator = ls_jv_text(": ", 2);
    if (!ls_jv_is_absent(separators) && separators.kind != LS_JV_NONE) {
        const ls_jinja_list *pair = ls_jv_to_list(state, separators);
        if (pair->count != 2 || pair->items[0].kind != LS_JV_STRING || pair->items[1].kind != LS_JV_STRING) {
            ls_jinja_refuse(state, "separators must be two texts");
            return;
        }
        style.item_separator = pair->items[0];
        style.key_separator = pair->items[1];
    }
    json_value(state, v, &style, out);
}
