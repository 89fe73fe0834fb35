// SPDX-License-Identifier: Apache-2.0
/* What is built in: filters, tests, global functions, and the methods of values other than text. */
#include "tokenizer/template/jinja.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

typedef ls_jinja_use use;
typedef ls_jinja_list list;

static ls_jv generator(list *items)
{
    return ls_jv_of(LS_JV_GENERATOR, items);
}

/* ---- attributes of items ---- */

/* item.a.b.0 for the path "a.b.0"; `otherwise` for what is undefined, unless it is none. */
static ls_jv follow(ls_jinja *j, ls_jv path, ls_jv item, ls_jv otherwise)
{
    const bool has_other = !ls_jv_is_absent(otherwise) && otherwise.kind != LS_JV_NONE;
    if (ls_jv_is_absent(path) || path.kind == LS_JV_NONE) {
        return item;
    }
    for (size_t from = 0, to; from <= path.bytes && !j->failed; from = to + 1) {
        ls_jv part = path;
        to = path.bytes;
        if (path.kind == LS_JV_STRING) {
            const size_t dot = ls_jinja_find(j, path, from, path.bytes, ls_jv_text(".", 1), false);
            to = dot == SIZE_MAX ? path.bytes : dot;
            part = ls_jv_part(path, from, to);
            size_t digits = 0;
            int64_t number = 0;
            for (; digits < part.bytes && digits < 9 && part.text[digits] >= '0' && part.text[digits] <= '9';
                 digits++) {
                number = 10 * number + part.text[digits] - '0';
            }
            part = digits > 0 && digits == part.bytes ? ls_jv_int(number) : part;
        }
        item = ls_jv_item(j, item, part);
        item = item.kind == LS_JV_UNDEFINED && has_other ? otherwise : item;
    }
    return item;
}

static ls_jv without_case(ls_jinja *j, ls_jv key, ls_jv case_sensitive)
{
    return key.kind == LS_JV_STRING && !ls_jv_truth(j, case_sensitive) ? ls_jinja_case(j, key, 'l') : key;
}

/* The items of `self` with the keys that they are compared by: a dict whose keys may be equal. */
static list *keyed(ls_jinja *j, const use *u, ls_jv path, ls_jv case_sensitive)
{
    const list items = ls_jv_items(j, u->self);
    list *pairs = ls_jinja_list_new(j, 2 * items.count);
    for (size_t i = 0; i < items.count && !j->failed; i++) {
        ls_jv_push(j, pairs,
                   without_case(j, follow(j, path, items.items[i], ls_jv_undefined()), case_sensitive));
        ls_jv_push(j, pairs, items.items[i]);
    }
    return pairs;
}

/* ---- map, select and reject ---- */

/* map (m), select (s), reject (r), selectattr (S) and rejectattr (R). */
static ls_jv filter_select(ls_jinja *j, const use *u)
{
    const bool is_map = u->how == 'm', is_rejected = (u->how | 32) == 'r';
    const size_t has_attribute = u->how == 'S' || u->how == 'R';
    ls_jinja_args rest = *u->args;
    ls_jv path = ls_jv_undefined(), otherwise = path;
    const ls_jinja_builtin *builtin = NULL;
    list *chosen = ls_jinja_list_new(j, 0);
    if (!ls_jv_truth(j, u->self)) {
        return generator(chosen);
    }
    if (rest.count < has_attribute || (is_map && rest.count == 0 && !rest.keywords)) {
        return ls_jinja_refuse(j, "an attribute or a filter is missing");
    }
    if (is_map && rest.count == 0) {
        const ls_jv *attribute = ls_jinja_get(j, rest.keywords, ls_jv_text("attribute", 9));
        const ls_jv *other = ls_jinja_get(j, rest.keywords, ls_jv_text("default", 7));
        if (!attribute || rest.keywords->count > (other ? 4 : 2)) {
            return ls_jinja_refuse(j, "map needs an attribute, or a filter");
        }
        path = *attribute;
        otherwise = other ? *other : otherwise;
    } else if (has_attribute) {
        path = rest.positional[0];
    }
    if (rest.count > has_attribute) {
        const ls_jv name = ls_jv_string(j, rest.positional[has_attribute]);
        builtin = ls_jinja_builtin_find(is_map ? LS_AT_FILTER : LS_AT_TEST, name);
        if (!builtin) {
            return ls_jinja_refuse(j, "No %s named '%.*s'.", is_map ? "filter" : "test", LS_JV_PRINT(name));
        }
        rest.positional += has_attribute + 1;
        rest.count -= has_attribute + 1;
    }
    const list items = ls_jv_items(j, u->self);
    for (size_t i = 0; i < items.count && !j->failed; i++) {
        ls_jv v = follow(j, path, items.items[i], otherwise);
        v = builtin ? ls_jinja_call_builtin(j, builtin, v, &rest) : v;
        if (is_map || ls_jv_truth(j, v) != is_rejected) {
            ls_jv_push(j, chosen, is_map ? v : items.items[i]);
        }
    }
    return generator(chosen);
}

/* ---- sequences ---- */

static ls_jv filter_first(ls_jinja *j, const use *u)
{
    const list items = ls_jv_items(j, u->self);
    if (u->self.kind == LS_JV_GENERATOR && items.count > 0) {
        *u->self.list = (list){.items = items.items + 1, .count = items.count - 1};
    }
    return items.count > 0 ? items.items[0] : ls_jv_missing(j, "No first item, sequence was empty.");
}

/* Whether Python can go through it from the end. */
static bool is_reversible(ls_jv v)
{
    return ls_jv_is_iterable(v) && v.kind != LS_JV_GENERATOR && v.kind != LS_JV_LOOP;
}

static ls_jv filter_last(ls_jinja *j, const use *u)
{
    if (!is_reversible(u->self)) {
        return ls_jinja_refuse(j, "'%s' object is not reversible", ls_jv_type(u->self));
    }
    const list items = ls_jv_items(j, u->self);
    return items.count > 0 ? items.items[items.count - 1]
                           : ls_jv_missing(j, "No last item, sequence was empty.");
}

static ls_jv filter_reverse(ls_jinja *j, const use *u)
{
    if (u->self.kind == LS_JV_STRING) {
        return ls_jv_slice(j, u->self, (const ls_jv[]){ls_jv_none(), ls_jv_none(), ls_jv_int(-1)});
    }
    list *items = ls_jv_to_list(j, u->self);
    ls_jinja_reverse(items);
    return is_reversible(u->self) ? generator(items) : ls_jv_of(LS_JV_LIST, items);
}

static ls_jv filter_length(ls_jinja *j, const use *u)
{
    size_t length;
    return ls_jv_length(j, u->self, &length)
               ? ls_jv_int((int64_t)length)
               : ls_jinja_refuse(j, "object of type '%s' has no len()", ls_jv_type(u->self));
}

static ls_jv filter_list(ls_jinja *j, const use *u)
{
    return ls_jv_of(LS_JV_LIST, ls_jv_to_list(j, u->self));
}

static ls_jv filter_items(ls_jinja *j, const use *u)
{
    if (u->self.kind != LS_JV_DICT && u->self.kind != LS_JV_UNDEFINED) {
        return ls_jinja_refuse(j, "Can only get item pairs from a mapping.");
    }
    return generator(u->self.kind == LS_JV_DICT ? ls_jv_view(j, u->self.list, LS_JV_ITEMS).list
                                                : ls_jinja_list_new(j, 0));
}

/* The filter (f) of any values, and the method (m) of a separator, which joins text only. */
static ls_jv join(ls_jinja *j, const use *u)
{
    const bool is_method = u->how == 'm';
    const list items = ls_jv_items(j, is_method ? u->given[0] : u->self);
    const ls_jv nothing = ls_jv_text("", 0),
                separator = is_method ? u->self : ls_jv_string(j, ls_jv_or(u->given[0], nothing));
    ls_text out = {0};
    for (size_t i = 0; i < items.count && !j->failed; i++) {
        ls_jv item = items.items[i];
        if (is_method && item.kind != LS_JV_STRING) {
            ls_jinja_refuse(j, "sequence item %zu: expected str instance, %s found", i, ls_jv_type(item));
            break;
        }
        item = is_method ? item : ls_jv_string(j, follow(j, u->given[1], item, ls_jv_undefined()));
        ls_jinja_append(j, &out, i > 0 ? separator : nothing);
        ls_jinja_append(j, &out, item);
    }
    return ls_jv_take_text(j, &out);
}

static ls_jv filter_sum(ls_jinja *j, const use *u)
{
    const list items = ls_jv_items(j, u->self);
    ls_jv sum = ls_jv_or(u->given[1], ls_jv_int(0));
    if (sum.kind == LS_JV_STRING) {
        return ls_jinja_refuse(j, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    for (size_t i = 0; i < items.count && !j->failed; i++) {
        sum = ls_jv_binary(j, '+', sum, follow(j, u->given[0], items.items[i], ls_jv_undefined()));
    }
    return sum;
}

/* ---- order ---- */

/* Merges runs of `width` pairs of `from` into `to`. */
static void merge(ls_jinja *j, const list *from, list *to, size_t width, bool is_reversed)
{
    to->count = 0;
    for (size_t low = 0; low < from->count; low += 4 * width) {
        const size_t middle = low + 2 * width < from->count ? low + 2 * width : from->count;
        const size_t end = low + 4 * width < from->count ? low + 4 * width : from->count;
        for (size_t left = low, right = middle; left < middle || right < end;) {
            const ls_jv *a = &from->items[left], *b = &from->items[right];
            const bool takes_right =
                left >= middle ||
                (right < end && (is_reversed ? ls_jv_less(j, *a, *b) : ls_jv_less(j, *b, *a)));
            ls_jv_push(j, to, takes_right ? b[0] : a[0]);
            ls_jv_push(j, to, takes_right ? b[1] : a[1]);
            *(takes_right ? &right : &left) += 2;
        }
    }
}

list *ls_jinja_sorted(ls_jinja *j, const list *dict, bool is_reversed)
{
    list *sorted = ls_jv_to_list(j, ls_jv_of(LS_JV_LIST, (list *)(uintptr_t)dict));
    list *room = ls_jinja_list_new(j, dict->count);
    for (size_t width = 1; 2 * width < dict->count && !j->failed; width *= 2) {
        merge(j, sorted, room, width, is_reversed);
        list *const other = sorted;
        sorted = room;
        room = other;
    }
    return sorted;
}

static ls_jv values_of(ls_jinja *j, const list *pairs)
{
    return ls_jv_of(LS_JV_LIST, ls_jv_view(j, pairs, LS_JV_VALUES).list);
}

/* By one attribute or several, "a,b": then each key is a list. */
static ls_jv filter_sort(ls_jinja *j, const use *u)
{
    list *pairs = keyed(j, u, ls_jv_none(), ls_jv_bool(true));
    const ls_jv attribute = u->given[2], comma = ls_jv_text(",", 1);
    for (size_t i = 0; i < pairs->count && !j->failed; i += 2) {
        list *key = ls_jinja_list_new(j, 1);
        for (size_t from = 0, to = 0; from <= to; from = to + 1) {
            to = attribute.kind == LS_JV_STRING
                     ? ls_jinja_find(j, attribute, from, attribute.bytes, comma, false)
                     : SIZE_MAX;
            const ls_jv path = attribute.kind == LS_JV_STRING
                                   ? ls_jv_part(attribute, from, to == SIZE_MAX ? attribute.bytes : to)
                                   : attribute;
            const ls_jv part = follow(j, path, pairs->items[i + 1], ls_jv_undefined());
            ls_jv_push(j, key, without_case(j, part, u->given[1]));
            if (to == SIZE_MAX) {
                break;
            }
        }
        pairs->items[i] = ls_jv_of(LS_JV_LIST, key);
    }
    return values_of(j, ls_jinja_sorted(j, pairs, ls_jv_truth(j, u->given[0])));
}

static ls_jv filter_dictsort(ls_jinja *j, const use *u)
{
    const bool by_value = ls_jv_is(u->given[1], "value");
    if (u->self.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, u->self);
    }
    if (u->self.kind != LS_JV_DICT ||
        (!by_value && !ls_jv_is_absent(u->given[1]) && !ls_jv_is(u->given[1], "key"))) {
        return ls_jinja_refuse(j, "dictsort needs a dict, and sorts it by \"key\" or \"value\"");
    }
    const list *entries = ls_jv_view(j, u->self.list, LS_JV_ITEMS).list;
    list *pairs = ls_jinja_list_new(j, u->self.list->count);
    for (size_t i = 0; i < entries->count && !j->failed; i++) {
        ls_jv_push(j, pairs, without_case(j, entries->items[i].list->items[by_value], u->given[0]));
        ls_jv_push(j, pairs, entries->items[i]);
    }
    return values_of(j, ls_jinja_sorted(j, pairs, ls_jv_truth(j, u->given[2])));
}

static ls_jv filter_unique(ls_jinja *j, const use *u)
{
    const list *pairs = keyed(j, u, u->given[1], u->given[0]);
    list *seen = ls_jinja_list_new(j, pairs->count);
    for (size_t i = 0; i < pairs->count && !j->failed; i += 2) {
        if (!ls_jinja_get(j, seen, pairs->items[i])) {
            ls_jinja_set(j, seen, pairs->items[i], pairs->items[i + 1]);
        }
    }
    return generator(values_of(j, seen).list);
}

/* min (<) and max (>). */
static ls_jv filter_extreme(ls_jinja *j, const use *u)
{
    const list *pairs = keyed(j, u, u->given[1], u->given[0]);
    size_t best = 0;
    if (pairs->count == 0) {
        return ls_jv_missing(j, "No aggregated item, sequence was empty.");
    }
    for (size_t i = 2; i < pairs->count && !j->failed; i += 2) {
        best = ls_jv_compare(j, u->how, pairs->items[i], pairs->items[best]) ? i : best;
    }
    return pairs->items[best + 1];
}

/* ---- numbers ---- */

/* Text as a whole number, or as a float; undefined: it is none. */
static ls_jv parse_number(ls_jinja *j, ls_jv v, bool is_whole)
{
    const ls_jv text = ls_jinja_strip(j, v, ls_jv_none(), 'b');
    char digits[64] = {0}, *end;
    if (text.bytes == 0 || text.bytes >= sizeof digits || memchr(text.text, '\0', text.bytes)) {
        return ls_jv_undefined();
    }
    memcpy(digits, text.text, text.bytes);
    if (strpbrk(digits, "_")) {
        return ls_jinja_unsupported(j, "numbers with _ are not supported");
    }
    errno = 0;
    /* Hexadecimal and nan(...) are C's, not Python's. */
    const ls_jv number = is_whole ? ls_jv_int(strtoll(digits, &end, 10)) : ls_jv_float(strtod(digits, &end));
    if (*end || strpbrk(digits, "xXpP()")) {
        return ls_jv_undefined();
    }
    return is_whole && errno == ERANGE
               ? ls_jinja_unsupported(j, "whole numbers beyond 64 bits are not supported")
               : number;
}

/* float (f) and int (i). */
static ls_jv filter_number(ls_jinja *j, const use *u)
{
    const bool is_whole = u->how == 'i', is_text = u->self.kind == LS_JV_STRING;
    const ls_jv otherwise = ls_jv_or(u->given[0], is_whole ? ls_jv_int(0) : ls_jv_float(0.0));
    if (u->self.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, u->self);
    }
    if (is_whole && !ls_jv_is_absent(u->given[1])) {
        return ls_jinja_unsupported(j, "int() with a base is not supported");
    }
    ls_jv v = is_text ? parse_number(j, u->self, is_whole) : u->self;
    v = is_text && ls_jv_is_absent(v) ? parse_number(j, u->self, false) : v;
    if (!ls_jv_is_number(v) || (is_whole && isnan(ls_jv_real(v)))) {
        return otherwise;
    }
    if (!is_whole || ls_jv_is_whole(v)) {
        return is_whole ? ls_jv_int(ls_jv_whole(v)) : ls_jv_float(ls_jv_real(v));
    }
    if (isinf(v.real)) {
        return ls_jinja_refuse(j, "cannot convert float infinity to integer");
    }
    return fabs(v.real) < 0x1p63 ? ls_jv_int((int64_t)v.real)
                                 : ls_jinja_unsupported(j, "whole numbers beyond 64 bits are not supported");
}

static ls_jv filter_abs(ls_jinja *j, const use *u)
{
    if (u->self.kind == LS_JV_FLOAT) {
        return ls_jv_float(fabs(u->self.real));
    }
    if (!ls_jv_is_whole(u->self)) {
        return ls_jinja_refuse(j, "bad operand type for abs(): '%s'", ls_jv_type(u->self));
    }
    return ls_jv_binary(j, '*', u->self, ls_jv_int(ls_jv_whole(u->self) < 0 ? -1 : 1));
}

/* Python's round() of a float: the nearest decimal, ties to even. */
static double round_to(double value, int64_t places)
{
    char text[400];
    if (!isfinite(value) || places > 300) {
        return value;
    }
    snprintf(text, sizeof text, "%.*f", (int)places, value);
    return strtod(text, NULL);
}

static ls_jv filter_round(ls_jinja *j, const use *u)
{
    const int64_t places = ls_jv_is_absent(u->given[0]) ? 0 : ls_jv_whole(u->given[0]);
    const ls_jv method = ls_jv_or(u->given[1], ls_jv_text("common", 6));
    const bool is_ceil = ls_jv_is(method, "ceil");
    if (!ls_jv_is_number(u->self)) {
        return u->self.kind == LS_JV_UNDEFINED ? ls_jv_fail_undefined(j, u->self)
                                               : ls_jinja_refuse(j, "round() needs numbers");
    }
    if (places < 0) {
        return ls_jinja_unsupported(j, "round() to tens is not supported");
    }
    if (ls_jv_is(method, "common")) {
        return ls_jv_is_whole(u->self) ? ls_jv_int(ls_jv_whole(u->self))
                                       : ls_jv_float(round_to(u->self.real, places));
    }
    if (!is_ceil && !ls_jv_is(method, "floor")) {
        return ls_jinja_refuse(j, "method must be common, ceil or floor");
    }
    const double unit = pow(10.0, (double)places), scaled = ls_jv_real(u->self) * unit;
    return ls_jv_float(((is_ceil ? ceil(scaled) : floor(scaled)) + 0.0) / unit);
}

/* ---- any value ---- */

/* string, safe (s) and escape (e). */
static ls_jv filter_string(ls_jinja *j, const use *u)
{
    ls_jv text = u->how == 'e' ? ls_jv_escape(j, u->self) : ls_jv_string(j, u->self);
    text.markup = text.markup || u->how == 's';
    return text;
}

static ls_jv filter_format(ls_jinja *j, const use *u)
{
    list positional = {.items = u->args->positional, .count = u->args->count};
    return u->args->keywords
               ? ls_jinja_unsupported(j, "the filter format with names is not supported")
               : ls_jinja_percent(j, ls_jv_string(j, u->self), ls_jv_of(LS_JV_TUPLE, &positional));
}

static ls_jv filter_default(ls_jinja *j, const use *u)
{
    const bool is_kept =
        u->self.kind != LS_JV_UNDEFINED && (ls_jv_truth(j, u->self) || !ls_jv_truth(j, u->given[1]));
    return is_kept ? u->self : ls_jv_or(u->given[0], ls_jv_text("", 0));
}

/* ---- tests ---- */

static bool is_same(ls_jv a, ls_jv b)
{
    if (a.kind != b.kind || a.kind <= LS_JV_NONE) {
        return a.kind == b.kind;
    }
    return a.kind == LS_JV_STRING ? ls_jv_same_text(a, b)
           : a.kind == LS_JV_BOOL ? a.truth == b.truth
                                  : a.integer == b.integer;
}

static ls_jv test(ls_jinja *j, const use *u)
{
    const ls_jv v = u->self;
    switch (u->how) {
    case 'd':
        return ls_jv_bool(v.kind != LS_JV_UNDEFINED);
    case 't':
    case 'f':
        return ls_jv_bool(v.kind == LS_JV_BOOL && v.truth == (u->how == 't'));
    case '#':
        return ls_jv_bool(ls_jv_is_number(v));
    case 'i':
        return ls_jv_bool(ls_jv_is_iterable(v));
    case 's': /* what has a length and subscripts */
        return ls_jv_bool(is_reversible(v) && v.kind != LS_JV_VIEW);
    case 'c':
        return ls_jv_bool(v.kind >= LS_JV_MACRO || v.kind == LS_JV_UNDEFINED);
    case 'S':
        return ls_jv_bool(is_same(v, u->given[0]));
    case 'M':
        return ls_jv_bool(v.kind == LS_JV_STRING && v.markup);
    default: /* divisible: odd (o), even (e), by a number */
        return ls_jv_bool(ls_jv_equal(j, ls_jv_binary(j, '%', v, ls_jv_or(u->given[0], ls_jv_int(2))),
                                      ls_jv_int(u->how == 'o')));
    }
}

static ls_jv test_kind(ls_jinja *j, const use *u)
{
    (void)j;
    return ls_jv_bool(u->self.kind == (ls_jv_kind)u->how);
}

static ls_jv test_compare(ls_jinja *j, const use *u)
{
    return ls_jv_bool(ls_jv_compare(j, u->how, u->self, u->given[0]));
}

/* ---- functions ---- */

enum { RANGE_MAX = 100000 };

static ls_jv function_range(ls_jinja *j, const use *u)
{
    const bool has_stop = !ls_jv_is_absent(u->given[1]);
    const int64_t start = has_stop ? ls_jv_whole(u->given[0]) : 0, stop = ls_jv_whole(u->given[has_stop]);
    const int64_t step = ls_jv_is_absent(u->given[2]) ? 1 : ls_jv_whole(u->given[2]);
    if (step == 0) {
        return ls_jinja_refuse(j, "range() arg 3 must not be zero");
    }
    const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t count = (step > 0 ? start >= stop : start <= stop) ? 0 : 1 + (span - 1) / stride;
    if (count > RANGE_MAX) {
        return ls_jinja_refuse(j, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                               RANGE_MAX);
    }
    list *range = ls_jinja_list_new(j, count);
    for (uint64_t i = 0; i < count; i++) {
        ls_jv_push(j, range, ls_jv_int(start + (int64_t)i * step));
    }
    return ls_jv_of(LS_JV_RANGE, range);
}

/* dict and namespace of (mapping or pairs, name=value, ...). */
static ls_jv function_dict(ls_jinja *j, const use *u)
{
    const list *named = u->args->keywords, nothing = {0};
    list *dict = ls_jinja_list_new(j, 4), given = {0};
    if (u->args->count > 1) {
        return ls_jinja_refuse(j, "dict expected at most 1 argument, got %zu", u->args->count);
    }
    if (u->args->count == 1) {
        const ls_jv from = u->args->positional[0];
        given = from.kind == LS_JV_DICT ? *ls_jv_view(j, from.list, LS_JV_ITEMS).list : ls_jv_items(j, from);
    }
    for (size_t i = 0; i < given.count && !j->failed; i++) {
        const list pair = ls_jv_items(j, given.items[i]);
        if (pair.count != 2) {
            return ls_jinja_refuse(j, "dictionary update sequence element #%zu has length %zu; 2 is required",
                                   i, pair.count);
        }
        ls_jinja_set(j, dict, pair.items[0], pair.items[1]);
    }
    named = named ? named : &nothing;
    for (size_t i = 0; i < named->count; i += 2) {
        ls_jinja_set(j, dict, named->items[i], named->items[i + 1]);
    }
    return ls_jv_of((ls_jv_kind)u->how, dict);
}

static ls_jv function_raise(ls_jinja *j, const use *u)
{
    const ls_jv text = ls_jv_string(j, u->given[0]);
    return ls_jinja_refuse(j, "%.*s", LS_JV_PRINT(text));
}

/* Each directive alone, so that zero bytes and unknown ones are seen. */
static ls_jv function_strftime(ls_jinja *j, const use *u)
{
    const ls_jv format = u->given[0];
    ls_text out = {0};
    for (size_t i = 0; i < format.bytes && !j->failed; i++) {
        char directive[4] = {0}, text[64];
        const size_t from = i;
        i += format.text[i] == '%';
        i += i > from && i < format.bytes && format.text[i] == '-';
        const char letter = i < format.bytes ? format.text[i] : 0;
        memcpy(directive, format.text + from, i < format.bytes ? i + 1 - from : 0);
        if (i == from) {
            ls_text_append_bytes(&out, format.text + from, 1);
        } else if (!letter || !strchr("aAwdbBmyYHIMSpjUWcxXGuVeDFTRhnt%kls", letter)) {
            ls_jinja_unsupported(j, "strftime_now does not have the directive %%%c", letter ? letter : '?');
        } else {
            ls_text_append_bytes(&out, text, strftime(text, sizeof text, directive, &j->now));
        }
    }
    return ls_jv_take_text(j, &out);
}

/* ---- methods and properties ---- */

static ls_jv loop_cycle(ls_jinja *j, const use *u)
{
    if (u->args->count == 0 || u->args->keywords) {
        return ls_jinja_refuse(j, "no items for cycling given");
    }
    return u->args->positional[(size_t)u->self.loop->index0 % u->args->count];
}

static ls_jv loop_changed(ls_jinja *j, const use *u)
{
    ls_jinja_loop *loop = u->self.loop;
    list given = {.items = u->args->positional, .count = u->args->count};
    const ls_jv now = ls_jv_of(LS_JV_TUPLE, ls_jv_to_list(j, ls_jv_of(LS_JV_LIST, &given)));
    const bool has_changed = !loop->has_changed || !ls_jv_equal(j, loop->changed, now);
    loop->has_changed = true;
    loop->changed = now;
    return ls_jv_bool(has_changed);
}

static ls_jv loop_property(ls_jinja *j, const use *u)
{
    ls_jinja_loop *loop = u->self.loop;
    switch (u->how) {
    case '0':
    case '1':
        return ls_jv_int(loop->index0 + (u->how == '1'));
    case 'f':
        return ls_jv_bool(loop->index0 == 0);
    case 'l':
        return ls_jv_bool(!ls_jinja_loop_peek(j, loop));
    case '#':
        return ls_jv_int((int64_t)ls_jinja_loop_length(j, loop));
    case 'r':
    case 'R':
        return ls_jv_int((int64_t)ls_jinja_loop_length(j, loop) - loop->index0 - (u->how == 'r'));
    case 'd':
    case 'D':
        return ls_jv_int((int64_t)loop->depth0 + (u->how == 'D'));
    case 'p':
        return loop->index0 == 0 ? ls_jv_missing(j, "there is no previous item") : loop->before;
    default:
        return ls_jinja_loop_peek(j, loop) ? loop->after : ls_jv_missing(j, "there is no next item");
    }
}

static ls_jv dict_get(ls_jinja *j, const use *u)
{
    const bool has = ls_jv_compare(j, LS_JINJA_OP('i', 'n'), u->given[0], u->self);
    const ls_jv *found = has ? ls_jinja_get(j, u->self.list, u->given[0]) : NULL;
    return found ? *found : ls_jv_or(u->given[1], ls_jv_none());
}

static ls_jv dict_view(ls_jinja *j, const use *u)
{
    return ls_jv_view(j, u->self.list, (enum ls_jv_view)u->how);
}

static ls_jv copy(ls_jinja *j, const use *u)
{
    (void)j;
    return u->self;
}

/* count (c) and index (i). */
static ls_jv list_find(ls_jinja *j, const use *u)
{
    int64_t count = 0;
    for (size_t i = 0; i < u->self.list->count; i++) {
        const bool is_equal = ls_jv_equal(j, u->self.list->items[i], u->given[0]);
        if (is_equal && u->how == 'i') {
            return ls_jv_int((int64_t)i);
        }
        count += is_equal;
    }
    return u->how == 'c' ? ls_jv_int(count) : ls_jinja_refuse(j, "the value is not in the list");
}

enum { FILTER = LS_AT_FILTER, TEST = LS_AT_TEST, GLOBAL = LS_AT_GLOBAL, LOOP = LS_AT_LOOP };

const ls_jinja_builtin ls_jinja_builtins[] = {
    {"get", LS_AT_DICT, "/!key default", dict_get},
    {"items", LS_AT_DICT, "", dict_view, LS_JV_ITEMS},
    {"keys", LS_AT_DICT, "", dict_view, LS_JV_KEYS},
    {"values", LS_AT_DICT, "", dict_view, LS_JV_VALUES},
    {"copy", LS_AT_DICT | LS_AT_LIST, "", copy},
    {"count", LS_AT_LIST | LS_AT_TUPLE, "/!value", list_find, 'c'},
    {"index", LS_AT_LIST | LS_AT_TUPLE, "/!value", list_find, 'i'},
    {"clear pop popitem setdefault update", LS_AT_DICT, .how = LS_JINJA_HIDDEN},
    {"append clear pop reverse insert sort extend remove", LS_AT_LIST, .how = LS_JINJA_HIDDEN},
    {"fromkeys", LS_AT_DICT},
    {"index", LOOP, "@", loop_property, '1'},
    {"index0", LOOP, "@", loop_property, '0'},
    {"first", LOOP, "@", loop_property, 'f'},
    {"last", LOOP, "@", loop_property, 'l'},
    {"length", LOOP, "@", loop_property, '#'},
    {"revindex", LOOP, "@", loop_property, 'R'},
    {"revindex0", LOOP, "@", loop_property, 'r'},
    {"depth", LOOP, "@", loop_property, 'D'},
    {"depth0", LOOP, "@", loop_property, 'd'},
    {"previtem", LOOP, "@", loop_property, 'p'},
    {"nextitem", LOOP, "@", loop_property, 'n'},
    {"cycle", LOOP, NULL, loop_cycle},
    {"changed", LOOP, NULL, loop_changed},
    {"real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes as_integer_ratio "
     "is_integer "
     "hex fromhex",
     LS_AT_NUMBER},
    {"name arguments caller catch_kwargs catch_varargs explicit_caller", LS_AT_MACRO},
    {"isdisjoint mapping start stop step count index send throw close", LS_AT_ITERABLE},
    {"raise_exception", GLOBAL, "!message", function_raise},
    {"namespace", GLOBAL, NULL, function_dict, LS_JV_NAMESPACE},
    {"dict", GLOBAL, NULL, function_dict, LS_JV_DICT},
    {"range", GLOBAL, "/!start:i stop:i step:i", function_range},
    {"strftime_now", GLOBAL, "!format:s", function_strftime},
    {"cycler joiner lipsum", GLOBAL},
    {"defined", TEST, "", test, 'd'},
    {"undefined", TEST, "", test_kind, LS_JV_UNDEFINED},
    {"none", TEST, "", test_kind, LS_JV_NONE},
    {"string", TEST, "", test_kind, LS_JV_STRING},
    {"mapping", TEST, "", test_kind, LS_JV_DICT},
    {"integer", TEST, "", test_kind, LS_JV_INT},
    {"float", TEST, "", test_kind, LS_JV_FLOAT},
    {"boolean", TEST, "", test_kind, LS_JV_BOOL},
    {"iterable", TEST, "", test, 'i'},
    {"sequence", TEST, "", test, 's'},
    {"number", TEST, "", test, '#'},
    {"true", TEST, "", test, 't'},
    {"false", TEST, "", test, 'f'},
    {"odd", TEST, "", test, 'o'},
    {"even", TEST, "", test, 'e'},
    {"divisibleby", TEST, "!num", test, '%'},
    {"callable", TEST, "", test, 'c'},
    {"sameas", TEST, "!other", test, 'S'},
    {"escaped", TEST, "", test, 'M'},
    {"in", TEST, "!seq", test_compare, LS_JINJA_OP('i', 'n')},
    {"eq equalto ==", TEST, "/!b", test_compare, LS_JINJA_OP('=', '=')},
    {"ne !=", TEST, "/!b", test_compare, LS_JINJA_OP('!', '=')},
    {"lt lessthan <", TEST, "/!b", test_compare, '<'},
    {"gt greaterthan >", TEST, "/!b", test_compare, '>'},
    {"le <=", TEST, "/!b", test_compare, LS_JINJA_OP('<', '=')},
    {"ge >=", TEST, "/!b", test_compare, LS_JINJA_OP('>', '=')},
    {"filter test", TEST},
    {"abs", FILTER, "", filter_abs},
    {"default d", FILTER, "default_value boolean", filter_default},
    {"dictsort", FILTER, "case_sensitive by reverse", filter_dictsort},
    {"escape e", FILTER, "", filter_string, 'e'},
    {"first", FILTER, "", filter_first},
    {"float", FILTER, "default", filter_number, 'f'},
    {"format", FILTER, NULL, filter_format},
    {"int", FILTER, "default base", filter_number, 'i'},
    {"items", FILTER, "", filter_items},
    {"join", FILTER, "d attribute", join, 'f'},
    {"join", LS_AT_TEXT | LS_AT_PLAIN, "/!iterable", join, 'm'},
    {"last", FILTER, "", filter_last},
    {"length count", FILTER, "", filter_length},
    {"list", FILTER, "", filter_list},
    {"map", FILTER, NULL, filter_select, 'm'},
    {"max", FILTER, "case_sensitive attribute", filter_extreme, '>'},
    {"min", FILTER, "case_sensitive attribute", filter_extreme, '<'},
    {"reject", FILTER, NULL, filter_select, 'r'},
    {"rejectattr", FILTER, NULL, filter_select, 'R'},
    {"reverse", FILTER, "", filter_reverse},
    {"round", FILTER, "precision:i method", filter_round},
    {"safe", FILTER, "", filter_string, 's'},
    {"select", FILTER, NULL, filter_select, 's'},
    {"selectattr", FILTER, NULL, filter_select, 'S'},
    {"sort", FILTER, "reverse case_sensitive attribute", filter_sort},
    {"string", FILTER, "", filter_string},
    {"sum", FILTER, "attribute start", filter_sum},
    {"tojson", FILTER, "ensure_ascii indent separators sort_keys", ls_jinja_json},
    {"unique", FILTER, "case_sensitive attribute", filter_unique},
    {"attr batch center filesizeformat forceescape groupby pprint random slice striptags truncate urlencode "
     "urlize "
     "wordcount "
     "wordwrap xmlattr",
     FILTER},
    {NULL},
};

const ls_jinja_builtin *ls_jinja_builtin_find(unsigned where, ls_jv name)
{
    static const ls_jinja_builtin *const tables[] = {ls_jinja_text_builtins, ls_jinja_builtins};
    for (size_t i = 0; i < 2; i++) {
        for (const ls_jinja_builtin *at = tables[i]; at->names; at++) {
            if ((at->where & where) && ls_jinja_word(at->names, name) >= 0) {
                return at;
            }
        }
    }
    return NULL;
}
