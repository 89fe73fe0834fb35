// SPDX-License-Identifier: Apache-2.0
/* The operators of Python: + - * / // % ** of numbers, text and lists. */
#include "tokenizer/template/jinja.h"

/* ---- numbers ---- */

static ls_jv whole_operation(ls_jinja *j, uint16_t op, int64_t a, int64_t b)
{
    int64_t value = 0;
    bool overflows = false;
    switch (op) {
    case '+':
        overflows = __builtin_add_overflow(a, b, &value);
        break;
    case '-':
        overflows = __builtin_sub_overflow(a, b, &value);
        break;
    case '*':
        overflows = __builtin_mul_overflow(a, b, &value);
        break;
    case LS_JINJA_OP('*', '*'):
        if (b < 0) {
            return ls_jinja_unsupported(j, "** is supported for whole numbers, not below 0 on its right");
        }
        value = 1;
        /* 0, 1 and -1 have powers of any size: two steps more or less don't matter. */
        for (b = a >= -1 && a <= 1 && b > 2 ? 2 + b % 2 : b; b > 0 && !overflows; b--) {
            overflows = __builtin_mul_overflow(value, a, &value);
        }
        break;
    default:
        if (b == 0) {
            return ls_jinja_refuse(j, op == '/' ? "division by zero" : "integer division or modulo by zero");
        }
        if (op == '/') {
            return ls_jv_float((double)a / (double)b);
        }
        if (b == -1) {
            return whole_operation(j, '*', a, op == '%' ? 0 : -1);
        }
        /* C rounds towards zero, Python down. */
        value = a % b != 0 && (a < 0) != (b < 0);
        value = op == '%' ? a % b + value * b : a / b - value;
    }
    return overflows ? ls_jinja_unsupported(j, "whole numbers beyond 64 bits are not supported")
                     : ls_jv_int(value);
}

static ls_jv real_operation(ls_jinja *j, uint16_t op, double a, double b)
{
    switch (op) {
    case '+':
        return ls_jv_float(a + b);
    case '-':
        return ls_jv_float(a - b);
    case '*':
        return ls_jv_float(a * b);
    case '/':
        return b == 0.0 ? ls_jinja_refuse(j, "float division by zero") : ls_jv_float(a / b);
    default:
        return ls_jinja_unsupported(j, "//, %% and ** are not supported for floats");
    }
}

/* ---- text and lists ---- */

static ls_jv add_text(ls_jinja *j, ls_jv a, ls_jv b)
{
    const bool markup = a.markup || b.markup;
    ls_jv joined = markup ? ls_jv_join(j, ls_jv_escape(j, a), ls_jv_escape(j, b)) : ls_jv_join(j, a, b);
    joined.markup = markup;
    return joined;
}

static ls_jv repeat_text(ls_jinja *j, ls_jv text, uint64_t times)
{
    const size_t bytes = times * text.bytes;
    char *copy = ls_jinja_take(j, bytes);
    ls_jinja_spend(j, copy ? bytes : 0);
    for (size_t at = 0; copy && at < bytes; at += text.bytes) {
        memcpy(copy + at, text.text, text.bytes);
    }
    text.text = copy ? copy : "";
    text.bytes = copy ? (uint32_t)bytes : 0;
    return text;
}

/* `times` copies of a text or list. */
static ls_jv repeat(ls_jinja *j, ls_jv what, int64_t times)
{
    const size_t count = what.kind == LS_JV_STRING ? what.bytes : what.list->count;
    times = times < 0 || count == 0 ? 0 : times;
    if (times > LS_CHAT_MEMORY_MAX) {
        ls_jinja_take(j, SIZE_MAX / 2);
        return what;
    }
    if (what.kind == LS_JV_STRING) {
        return repeat_text(j, what, (uint64_t)times);
    }
    ls_jinja_list *list = ls_jinja_list_new(j, (size_t)times * count);
    for (size_t i = 0; i < (size_t)times * count && !j->failed; i++) {
        ls_jv_push(j, list, what.list->items[i % count]);
        ls_jinja_spend(j, 0);
    }
    return ls_jv_of(what.kind, list);
}

static ls_jv add_lists(ls_jinja *j, ls_jv a, ls_jv b)
{
    ls_jinja_list *sum = ls_jv_to_list(j, a);
    ls_jinja_spend(j, 16 * b.list->count);
    for (size_t i = 0; i < b.list->count && !j->failed; i++) {
        ls_jv_push(j, sum, b.list->items[i]);
    }
    return ls_jv_of(a.kind, sum);
}

ls_jv ls_jv_binary(ls_jinja *j, uint16_t op, ls_jv a, ls_jv b)
{
    const bool is_sequence = a.kind == LS_JV_STRING || a.kind == LS_JV_LIST || a.kind == LS_JV_TUPLE;
    if (ls_jv_is_whole(a) && ls_jv_is_whole(b)) {
        return whole_operation(j, op, ls_jv_whole(a), ls_jv_whole(b));
    }
    if (ls_jv_is_number(a) && ls_jv_is_number(b)) {
        return real_operation(j, op, ls_jv_real(a), ls_jv_real(b));
    }
    if (op == '%' && a.kind == LS_JV_STRING) {
        return ls_jinja_percent(j, a, b);
    }
    if (a.kind == LS_JV_UNDEFINED || b.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, a.kind == LS_JV_UNDEFINED ? a : b);
    }
    if (op == '+' && a.kind == b.kind && is_sequence) {
        return a.kind == LS_JV_STRING ? add_text(j, a, b) : add_lists(j, a, b);
    }
    if (op == '*' && is_sequence && ls_jv_is_whole(b)) {
        return repeat(j, a, ls_jv_whole(b));
    }
    if (op == '*' && ls_jv_is_whole(a) && b.kind >= LS_JV_STRING && b.kind <= LS_JV_TUPLE) {
        return repeat(j, b, ls_jv_whole(a));
    }
    if (op == '-' && (a.kind == LS_JV_VIEW || b.kind == LS_JV_VIEW)) {
        return ls_jinja_unsupported(j, "sets of keys() and items() are not supported");
    }
    const char text[3] = {(char)(op & 255), (char)(op >> 8), 0};
    return ls_jinja_refuse(j, "unsupported operand type(s) for %s: '%s' and '%s'", text, ls_jv_type(a),
                           ls_jv_type(b));
}
