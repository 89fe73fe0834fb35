// SPDX-License-Identifier: Apache-2.0
/* Operators, attributes, subscripts and slices, with Python's rules. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <math.h>

/* ---- undefined ---- */

ls_jv ls_jv_fail_undefined(ls_jinja_state *state, ls_jv v)
{
    const ls_jinja_missing *missing = v.missing;
    if (!missing) {
        return ls_jinja_refuse(state, "a value is undefined");
    }
    if (missing->hint) {
        return ls_jinja_refuse(state, "%s", missing->hint);
    }
    ls_text name = {0};
    ls_jv_repr(state, missing->name, &name);
    const char *text = ls_text_string(&name);
    const char *type = ls_jv_type(missing->object);
    if (missing->is_unsafe) {
        ls_jinja_refuse(state, "access to attribute %s of '%s' object is unsafe.", text, type);
    } else if (!missing->of_object) {
        ls_jinja_refuse(state, "%s is undefined", text);
    } else if (missing->object.kind == LS_JV_NONE) {
        ls_jinja_refuse(state, "'None' has no attribute %s", text);
    } else if (missing->name.kind == LS_JV_STRING) {
        ls_jinja_refuse(state, "'%s object' has no attribute %s", type, text);
    } else {
        ls_jinja_refuse(state, "%s object has no element %s", type, text);
    }
    ls_text_release(&name);
    return ls_jv_undefined();
}

ls_jv ls_jv_missing(ls_jinja_state *state, const char *hint)
{
    ls_jinja_missing *missing = ls_jinja_take(state, sizeof *missing);
    missing->hint = hint;
    return (ls_jv){.kind = LS_JV_UNDEFINED, .missing = missing};
}

static ls_jv undefined_in(ls_jinja_state *state, ls_jv object, ls_jv name, bool is_unsafe)
{
    ls_jinja_missing *missing = ls_jinja_take(state, sizeof *missing);
    *missing = (ls_jinja_missing){.of_object = true, .is_unsafe = is_unsafe, .object = object, .name = name};
    return (ls_jv){.kind = LS_JV_UNDEFINED, .missing = missing};
}

/* ---- attributes and items ---- */

/* A method or property of the value: true when there is one, or one that the sandbox hides. */
static bool attribute(ls_jinja_state *state, ls_jv object, ls_jv name, ls_jv *value_out)
{
    if (object.kind == LS_JV_NAMESPACE) {
        const ls_jv *found = ls_jinja_dict_find(state, object.dict, name);
        if (!found) {
            return false;
        }
        *value_out = name.bytes > 0 && name.text[0] == '_' ? undefined_in(state, object, name, true) : *found;
        return true;
    }
    if (!ls_jinja_method_find(state, object, name, value_out)) {
        return false;
    }
    if (value_out->kind == LS_JV_UNDEFINED && !value_out->missing) {
        *value_out = undefined_in(state, object, name, true);
    }
    return true;
}

/* object[key]; false: Python raises a TypeError or a LookupError. */
static bool subscript(ls_jinja_state *state, ls_jv object, ls_jv key, ls_jv *value_out)
{
    if (object.kind == LS_JV_DICT) {
        const ls_jv *found = ls_jinja_dict_find(state, object.dict, key);
        if (found) {
            *value_out = *found;
        }
        return found != NULL;
    }
    size_t length;
    if (!ls_jv_is_whole(key) || object.kind == LS_JV_VIEW || !ls_jv_length(state, object, &length)) {
        return false;
    }
    int64_t at = ls_jv_whole(key);
    at += at < 0 ? (int64_t)length : 0;
    if (at < 0 || at >= (int64_t)length) {
        return false;
    }
    if (object.kind == LS_JV_STRING) {
        uint32_t c;
        const char *text = object.text + ls_jinja_offset(object, (size_t)at);
        *value_out = ls_jv_text(text, ls_utf8_valid_decode(text, &c));
        value_out->markup = object.markup;
    } else if (object.kind == LS_JV_RANGE) {
        *value_out = ls_jv_int(object.range->start + at * object.range->step);
    } else {
        *value_out = object.list->items[at];
    }
    return true;
}

ls_jv ls_jv_attribute(ls_jinja_state *state, ls_jv object, ls_jv name)
{
    ls_jv v = ls_jv_undefined();
    if (object.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, object);
    }
    if (attribute(state, object, name, &v) || subscript(state, object, name, &v)) {
        return v;
    }
    return undefined_in(state, object, name, false);
}

ls_jv ls_jv_item(ls_jinja_state *state, ls_jv object, ls_jv key)
{
    ls_jv v = ls_jv_undefined();
    if (object.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, object);
    }
    if (subscript(state, object, key, &v) ||
        (key.kind == LS_JV_STRING && attribute(state, object, key, &v))) {
        return v;
    }
    return undefined_in(state, object, key, false);
}

/* Python's bounds of a slice of `length` items. */
static bool slice_bounds(ls_jinja_state *state, const ls_jv bounds[3], int64_t length, int64_t at[3])
{
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind == LS_JV_UNDEFINED && bounds[i].missing) {
            ls_jinja_refuse(state, "slice indices must be integers or None or have an __index__ method");
            return false;
        }
        if (bounds[i].kind > LS_JV_NONE && !ls_jv_is_whole(bounds[i])) {
            ls_jinja_refuse(state, "slice indices must be integers or None or have an __index__ method");
            return false;
        }
    }
    const int64_t step = ls_jv_is_whole(bounds[2]) ? ls_jv_whole(bounds[2]) : 1;
    if (step == 0) {
        ls_jinja_refuse(state, "slice step cannot be zero");
        return false;
    }
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    for (int i = 0; i < 2; i++) {
        int64_t value = (i == 0) == (step > 0) ? low : high;
        if (ls_jv_is_whole(bounds[i])) {
            value = ls_jv_whole(bounds[i]);
            value += value < 0 ? length : 0;
            value = value < low ? low : value > high ? high : value;
        }
        at[i] = value;
    }
    at[2] = step;
    return true;
}

/* Characters at, at + step, ...; `count` of them. */
static ls_jv slice_text(ls_jinja_state *state, ls_jv object, int64_t at, int64_t step, size_t count)
{
    ls_jv part;
    if (step == 1 || count == 0) {
        const size_t from = count == 0 ? 0 : ls_jinja_offset(object, (size_t)at);
        const ls_jv rest = ls_jv_text(object.text + from, object.bytes - from);
        part = ls_jv_text(rest.text, ls_jinja_offset(rest, count));
    } else {
        const size_t length = ls_jinja_characters(object);
        uint32_t *starts = ls_jinja_take(state, (length + 1) * sizeof *starts);
        if (!starts) {
            return object;
        }
        for (uint32_t i = 0, byte = 0; i < length; i++) {
            uint32_t c;
            starts[i] = byte;
            byte += ls_utf8_valid_decode(object.text + byte, &c);
        }
        ls_text text = {0};
        for (size_t i = 0; i < count; i++, at += step) {
            uint32_t c;
            const char *from = object.text + starts[at];
            ls_text_append_bytes(&text, from, ls_utf8_valid_decode(from, &c));
        }
        part = ls_jv_take_text(state, &text);
    }
    part.markup = object.markup;
    return part;
}

ls_jv ls_jv_slice(ls_jinja_state *state, ls_jv object, const ls_jv bounds[3])
{
    size_t length;
    int64_t at[3];
    if (object.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, object);
    }
    if (object.kind == LS_JV_DICT || object.kind == LS_JV_VIEW || !ls_jv_length(state, object, &length)) {
        return ls_jinja_refuse(state, "a %s has no slices", ls_jv_type(object));
    }
    if (!slice_bounds(state, bounds, (int64_t)length, at)) {
        return ls_jv_undefined();
    }
    const int64_t step = at[2], span = step > 0 ? at[1] - at[0] : at[0] - at[1];
    const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const size_t count = span <= 0 ? 0 : 1 + (uint64_t)(span - 1) / stride;
    ls_jinja_spend(state, object.kind == LS_JV_STRING ? object.bytes : count);
    if (object.kind == LS_JV_STRING) {
        return slice_text(state, object, at[0], step, count);
    }
    if (object.kind == LS_JV_RANGE) {
        ls_jinja_range *range = ls_jinja_take(state, sizeof *range);
        *range = (ls_jinja_range){.start = object.range->start + at[0] * object.range->step,
                                  .stop = object.range->start + at[1] * object.range->step,
                                  .step = object.range->step * step,
                                  .count = count};
        return (ls_jv){.kind = LS_JV_RANGE, .range = range};
    }
    const ls_jv part = ls_jv_list(state, object.kind, count);
    for (size_t i = 0; i < count; i++) {
        ls_jv_push(state, part.list, object.list->items[at[0] + (int64_t)i * step]);
    }
    return part;
}

/* ---- numbers ---- */

static ls_jv whole(ls_jinja_state *state, bool overflows, const int64_t *value)
{
    return overflows ? ls_jinja_unsupported(state, "whole numbers beyond 64 bits are not supported")
                     : ls_jv_int(*value);
}

static ls_jv whole_power(ls_jinja_state *state, int64_t base, int64_t exponent)
{
    int64_t value = 1;
    bool overflows = false;
    if (base == 0 || base == 1 || base == -1) {
        return ls_jv_int(exponent == 0 ? 1 : base == -1 && exponent % 2 == 0 ? 1 : base);
    }
    for (; exponent > 0 && !overflows; exponent--) {
        overflows = __builtin_mul_overflow(value, base, &value);
    }
    return whole(state, overflows, &value);
}

static ls_jv real_power(ls_jinja_state *state, double a, double b)
{
    if (a == 0.0 && b < 0.0) {
        return ls_jinja_refuse(state, "0.0 cannot be raised to a negative power");
    }
    if (a < 0.0 && isfinite(a) && isfinite(b) && b != floor(b)) {
        return ls_jinja_unsupported(state, "complex numbers are not supported");
    }
    const double value = pow(a, b);
    if (isinf(value) && isfinite(a) && isfinite(b)) {
        return ls_jinja_refuse(state, "the result of ** is too large");
    }
    return ls_jv_float(value);
}

static ls_jv whole_operation(ls_jinja_state *state, uint16_t op, int64_t a, int64_t b)
{
    int64_t value = 0;
    switch (op) {
    case '+':
        return whole(state, __builtin_add_overflow(a, b, &value), &value);
    case '-':
        return whole(state, __builtin_sub_overflow(a, b, &value), &value);
    case '*':
        return whole(state, __builtin_mul_overflow(a, b, &value), &value);
    case '/':
        return b == 0 ? ls_jinja_refuse(state, "division by zero") : ls_jv_float((double)a / (double)b);
    case LS_JINJA_OP('*', '*'):
        return b < 0 ? real_power(state, (double)a, (double)b) : whole_power(state, a, b);
    default:
        break;
    }
    if (b == 0) {
        return ls_jinja_refuse(state, "integer division or modulo by zero");
    }
    if (b == -1) {
        return op == '%' ? ls_jv_int(0) : whole(state, __builtin_sub_overflow(0, a, &value), &value);
    }
    const int64_t rest = a % b;
    const bool is_between = rest != 0 && (rest < 0) != (b < 0);
    return ls_jv_int(op == '%' ? rest + (is_between ? b : 0) : a / b - is_between);
}

static ls_jv real_operation(ls_jinja_state *state, uint16_t op, double a, double b)
{
    switch (op) {
    case '+':
        return ls_jv_float(a + b);
    case '-':
        return ls_jv_float(a - b);
    case '*':
        return ls_jv_float(a * b);
    case '/':
        return b == 0.0 ? ls_jinja_refuse(state, "float division by zero") : ls_jv_float(a / b);
    case LS_JINJA_OP('*', '*'):
        return real_power(state, a, b);
    default:
        break;
    }
    if (b == 0.0) {
        return ls_jinja_refuse(state, "float floor division or modulo by zero");
    }
    double rest = fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0.0) {
        if ((b < 0) != (rest < 0)) {
            rest += b;
            quotient -= 1.0;
        }
    } else {
        rest = copysign(0.0, b);
    }
    if (op == '%') {
        return ls_jv_float(rest);
    }
    double below = floor(quotient);
    below += quotient - below > 0.5;
    return ls_jv_float(quotient != 0.0 ? below : copysign(0.0, a / b));
}

/* ---- text and lists ---- */

/* &, <, >, ' and " as markupsafe writes them. */
static ls_jv escape(ls_jinja_state *state, ls_jv v)
{
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    static const char marks[] = "&<>'\"";
    ls_text text = {0};
    for (size_t i = 0; i < v.bytes; i++) {
        const char *mark = v.text[i] ? strchr(marks, v.text[i]) : NULL;
        ls_text_append_bytes(&text, mark ? names[mark - marks] : &v.text[i],
                             mark ? strlen(names[mark - marks]) : 1);
    }
    return ls_jv_take_text(state, &text);
}

ls_jv ls_jv_escape(ls_jinja_state *state, ls_jv v)
{
    ls_jv text = ls_jv_string(state, v);
    if (!text.markup) {
        text = escape(state, text);
        text.markup = true;
    }
    return text;
}

static ls_jv add_text(ls_jinja_state *state, ls_jv a, ls_jv b)
{
    const bool markup = a.markup || b.markup;
    if (markup) {
        a = ls_jv_escape(state, a);
        b = ls_jv_escape(state, b);
    }
    ls_jv joined = ls_jv_join(state, a, b);
    joined.markup = markup;
    return joined;
}

static ls_jv repeat_text(ls_jinja_state *state, ls_jv text, int64_t times)
{
    if (times <= 0 || text.bytes == 0) {
        return ls_jv_text("", 0);
    }
    const size_t bytes = times > LS_CHAT_MEMORY_MAX ? SIZE_MAX : (size_t)times * text.bytes;
    char *copy = ls_jinja_take(state, bytes);
    if (!copy || bytes == SIZE_MAX) {
        return ls_jv_text("", 0);
    }
    ls_jinja_spend(state, bytes);
    for (size_t at = 0; at < bytes; at += text.bytes) {
        memcpy(copy + at, text.text, text.bytes);
    }
    ls_jv repeated = ls_jv_text(copy, bytes);
    repeated.markup = text.markup;
    return repeated;
}

static ls_jv repeat(ls_jinja_state *state, ls_jv what, int64_t times)
{
    if (what.kind == LS_JV_STRING) {
        return repeat_text(state, what, times);
    }
    times = times < 0 || what.list->count == 0 ? 0 : times;
    if (times > LS_CHAT_MEMORY_MAX) {
        return ls_jinja_refuse(state, "the template needs more than %d MiB", LS_CHAT_MEMORY_MAX >> 20);
    }
    const ls_jv repeated = ls_jv_list(state, what.kind, (size_t)times * what.list->count);
    for (int64_t i = 0; i < times && !state->failed; i++) {
        for (size_t j = 0; j < what.list->count; j++) {
            ls_jv_push(state, repeated.list, what.list->items[j]);
        }
        ls_jinja_spend(state, 64 * what.list->count);
    }
    return repeated;
}

static ls_jv add_lists(ls_jinja_state *state, ls_jv a, ls_jv b)
{
    const ls_jv sum = ls_jv_list(state, a.kind, a.list->count + b.list->count);
    ls_jinja_spend(state, 16 * (a.list->count + b.list->count));
    for (size_t i = 0; i < a.list->count + b.list->count && !state->failed; i++) {
        ls_jv_push(state, sum.list, i < a.list->count ? a.list->items[i] : b.list->items[i - a.list->count]);
    }
    return sum;
}

static bool is_sequence(ls_jv v)
{
    return v.kind == LS_JV_STRING || v.kind == LS_JV_LIST || v.kind == LS_JV_TUPLE;
}

ls_jv ls_jv_binary(ls_jinja_state *state, uint16_t op, ls_jv a, ls_jv b)
{
    if (ls_jv_is_whole(a) && ls_jv_is_whole(b)) {
        return whole_operation(state, op, ls_jv_whole(a), ls_jv_whole(b));
    }
    if (ls_jv_is_number(a) && ls_jv_is_number(b)) {
        return real_operation(state, op, ls_jv_real(a), ls_jv_real(b));
    }
    if (op == '%' && a.kind == LS_JV_STRING) {
        return ls_jinja_percent(state, a, b);
    }
    if (a.kind == LS_JV_UNDEFINED || b.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(state, a.kind == LS_JV_UNDEFINED ? a : b);
    }
    if (op == '+' && a.kind == b.kind && is_sequence(a)) {
        return a.kind == LS_JV_STRING ? add_text(state, a, b) : add_lists(state, a, b);
    }
    if (op == '*' && is_sequence(a) && ls_jv_is_whole(b)) {
        return repeat(state, a, ls_jv_whole(b));
    }
    if (op == '*' && is_sequence(b) && ls_jv_is_whole(a)) {
        return repeat(state, b, ls_jv_whole(a));
    }
    if (op == '-' && (a.kind == LS_JV_VIEW || b.kind == LS_JV_VIEW)) {
        return ls_jinja_unsupported(state, "sets of keys() and items() are not supported");
    }
    const char text[3] = {(char)(op > 255 ? op >> 8 : op), (char)(op > 255 ? op & 255 : 0), 0};
    return ls_jinja_refuse(state, "unsupported operand type(s) for %s: '%s' and '%s'", text, ls_jv_type(a),
                           ls_jv_type(b));
}
