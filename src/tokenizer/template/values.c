// SPDX-License-Identifier: Apache-2.0
/* Values: making, comparing and iterating them, and what is in them, with Python's rules. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <math.h>

/* ---- the state ---- */

ls_jv ls_jinja_fail(ls_jinja *j, ls_status status, const char *format, ...)
{
    if (!j->failed) {
        ls_text text = {0};
        va_list args;
        va_start(args, format);
        ls_text_vprintf(&text, format, args);
        va_end(args);
        j->failed = ls_fail(status, "%s, line %u: %s", j->name, j->line, ls_text_string(&text));
        ls_text_release(&text);
    }
    return ls_jv_undefined();
}

void ls_jinja_spend(ls_jinja *j, size_t bytes)
{
    j->steps += 1 + bytes / 64;
    if (j->steps > LS_CHAT_STEPS_MAX) {
        ls_jinja_refuse(j, "the template takes more than %d steps", LS_CHAT_STEPS_MAX);
    }
}

void *ls_jinja_take(ls_jinja *j, size_t bytes)
{
    if (bytes > LS_CHAT_MEMORY_MAX || j->memory + bytes > LS_CHAT_MEMORY_MAX) {
        ls_jinja_refuse(j, "the template needs more than %d MiB", LS_CHAT_MEMORY_MAX >> 20);
        if (bytes > 4096) {
            return NULL;
        }
    }
    j->memory += bytes + 16;
    return ls_arena_alloc(&j->arena, bytes);
}

bool ls_jinja_enter(ls_jinja *j)
{
    if (j->depth >= LS_CHAT_DEPTH_MAX) {
        ls_jinja_refuse(j, "more than %d levels of calls, expressions or data inside each other",
                        LS_CHAT_DEPTH_MAX);
    }
    j->depth += !j->failed;
    return !j->failed;
}

void *ls_jinja_grow(ls_jinja *j, void *items, size_t count, size_t *capacity, size_t item_bytes)
{
    if (count == *capacity) {
        *capacity = count ? 2 * count : 8;
        void *grown = ls_arena_alloc(&j->arena, ls_arena_mul(*capacity, item_bytes));
        if (count > 0) {
            memcpy(grown, items, count * item_bytes);
        }
        items = grown;
    }
    return items;
}

int ls_jinja_word(const char *words, ls_jv name)
{
    for (int i = 0; *words && name.bytes > 0; i++) {
        if (*words == *name.text && strncmp(words, name.text, name.bytes) == 0 &&
            (words[name.bytes] == ' ' || words[name.bytes] == '\0')) {
            return i;
        }
        while (*words && *words++ != ' ') {
        }
    }
    return -1;
}

/* ---- text and lists ---- */

ls_jv ls_jv_take_text(ls_jinja *j, ls_text *text)
{
    char *copy = ls_jinja_take(j, text->bytes + 1);
    const ls_jv v = ls_jv_text(copy ? copy : "", copy ? text->bytes : 0);
    if (v.bytes > 0) {
        memcpy(copy, text->data, text->bytes);
    }
    ls_text_release(text);
    return v;
}

/* A text that is built up piece by piece keeps room at its end: each piece is copied once. */
ls_jv ls_jv_join(ls_jinja *j, ls_jv a, ls_jv b)
{
    const size_t bytes = (size_t)a.bytes + b.bytes;
    ls_jinja_spend(j, b.bytes);
    if (b.bytes == 0 || a.bytes == 0) {
        return a.bytes == 0 ? b : a;
    }
    const bool is_growing = a.text == j->growing && a.bytes == j->growing_bytes;
    if (!is_growing || bytes > j->growing_capacity) {
        ls_jinja_spend(j, a.bytes);
        const size_t capacity = bytes < 256 ? bytes : 2 * bytes;
        char *grown = ls_jinja_take(j, capacity);
        if (!grown) {
            return a;
        }
        memcpy(grown, a.text, a.bytes);
        j->growing = grown;
        j->growing_capacity = capacity;
    }
    memcpy(j->growing + a.bytes, b.text, b.bytes);
    j->growing_bytes = bytes;
    return ls_jv_text(j->growing, bytes);
}

ls_jinja_list *ls_jinja_list_new(ls_jinja *j, size_t capacity)
{
    ls_jinja_list *list = ls_jinja_take(j, sizeof *list);
    list->items = capacity > 0 ? ls_jinja_take(j, capacity * sizeof(ls_jv)) : NULL;
    list->capacity = list->items ? capacity : 0;
    return list;
}

void ls_jv_push(ls_jinja *j, ls_jinja_list *list, ls_jv item)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 8;
        ls_jv *grown = ls_jinja_take(j, capacity * sizeof *grown);
        if (!grown) {
            return;
        }
        if (list->count > 0) {
            memcpy(grown, list->items, list->count * sizeof *grown);
        }
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
}

void ls_jinja_reverse(ls_jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const ls_jv item = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
}

ls_jv ls_jv_missing(ls_jinja *j, const char *hint)
{
    ls_jinja_missing *missing = ls_jinja_take(j, sizeof *missing);
    missing->hint = hint;
    return (ls_jv){.kind = LS_JV_UNDEFINED, .missing = missing};
}

ls_jv ls_jv_fail_undefined(ls_jinja *j, ls_jv v)
{
    const ls_jinja_missing *missing = v.missing;
    if (!missing || missing->hint) {
        return ls_jinja_refuse(j, "%s", missing ? missing->hint : "a value is undefined");
    }
    ls_text name = {0};
    ls_jv_repr(j, missing->name, &name);
    const char *text = ls_text_string(&name), *type = ls_jv_type(missing->object);
    if (missing->is_unsafe) {
        ls_jinja_refuse(j, "access to attribute %s of '%s' object is unsafe.", text, type);
    } else if (missing->object.kind == LS_JV_UNDEFINED) {
        ls_jinja_refuse(j, "%s is undefined", text);
    } else if (missing->object.kind == LS_JV_NONE) {
        ls_jinja_refuse(j, "'None' has no attribute %s", text);
    } else if (missing->name.kind == LS_JV_STRING) {
        ls_jinja_refuse(j, "'%s object' has no attribute %s", type, text);
    } else {
        ls_jinja_refuse(j, "%s object has no element %s", type, text);
    }
    ls_text_release(&name);
    return ls_jv_undefined();
}

/* ---- dicts ---- */

/* A step for each tuple: they may hold each other many times. */
static bool is_hashable(ls_jinja *j, ls_jv v)
{
    bool is = v.kind != LS_JV_LIST && v.kind != LS_JV_DICT && v.kind != LS_JV_VIEW;
    if (v.kind == LS_JV_TUPLE && ls_jinja_enter(j)) {
        ls_jinja_spend(j, 0);
        for (size_t i = 0; i < v.list->count && is && !j->failed; i++) {
            is = is_hashable(j, v.list->items[i]);
        }
        j->depth--;
    }
    return is;
}

/* They are searched one after the other: the entries of messages and tools are few. */
const ls_jv *ls_jinja_get(ls_jinja *j, const ls_jinja_list *dict, ls_jv key)
{
    ls_jinja_spend(j, dict ? 4 * dict->count : 0);
    for (size_t i = 0; dict && i < dict->count; i += 2) {
        const ls_jv other = dict->items[i];
        if (key.kind == LS_JV_STRING && other.kind == LS_JV_STRING ? ls_jv_same_text(key, other)
                                                                   : ls_jv_equal(j, other, key)) {
            return &dict->items[i + 1];
        }
    }
    return NULL;
}

void ls_jinja_set(ls_jinja *j, ls_jinja_list *dict, ls_jv key, ls_jv value)
{
    const ls_jv *found = ls_jinja_get(j, dict, key);
    if (!is_hashable(j, key)) {
        ls_jinja_refuse(j, "a %s can't be the key of a dict", ls_jv_type(key));
    } else if (found) {
        dict->items[found - dict->items] = value;
    } else {
        ls_jv_push(j, dict, key);
        ls_jv_push(j, dict, value);
        dict->count -= dict->count % 2; /* the second one found no memory */
    }
}

ls_jv ls_jv_view(ls_jinja *j, const ls_jinja_list *dict, enum ls_jv_view what)
{
    ls_jinja_list *view = ls_jinja_list_new(j, dict->count / 2);
    ls_jinja_spend(j, 8 * dict->count);
    for (size_t i = 0; i < dict->count && !j->failed; i += 2) {
        ls_jv item = dict->items[i + (what == LS_JV_VALUES)];
        if (what == LS_JV_ITEMS) {
            item = ls_jv_of(LS_JV_TUPLE, ls_jinja_list_new(j, 2));
            ls_jv_push(j, item.list, dict->items[i]);
            ls_jv_push(j, item.list, dict->items[i + 1]);
        }
        ls_jv_push(j, view, item);
    }
    return (ls_jv){.kind = LS_JV_VIEW, .bytes = what, .list = view};
}

static ls_jv of_container(ls_jinja *j, const json_t *json)
{
    ls_jinja_list *list =
        ls_jinja_list_new(j, json_is_array(json) ? json_array_size(json) : 2 * json_object_size(json));
    for (size_t i = 0; i < json_array_size(json); i++) {
        ls_jv_push(j, list, ls_jv_of_json(j, json_array_get(json, i)));
    }
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        ls_jv_push(j, list, ls_jv_text(key, json_object_iter_key_len(json_object_key_to_iter(key))));
        ls_jv_push(j, list, ls_jv_of_json(j, value));
    }
    return ls_jv_of(json_is_array(json) ? LS_JV_LIST : LS_JV_DICT, list);
}

ls_jv ls_jv_of_json(ls_jinja *j, const json_t *json)
{
    ls_jv v = ls_jv_none();
    switch (json_typeof(json)) {
    case JSON_STRING:
        return ls_jv_text(json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        return ls_jv_int(json_integer_value(json));
    case JSON_REAL:
        return ls_jv_float(json_real_value(json));
    case JSON_TRUE:
    case JSON_FALSE:
        return ls_jv_bool(json_is_true(json));
    case JSON_NULL:
        break;
    default:
        if (ls_jinja_enter(j)) {
            v = of_container(j, json);
            j->depth--;
        }
    }
    return v;
}

/* ---- questions ---- */

const char *ls_jv_type(ls_jv v)
{
    static const char *const names[] = {
        "Undefined", "NoneType",  "bool", "int",       "float", "str",      "list",   "tuple",      "range",
        "dict view", "generator", "dict", "Namespace", "Macro", "function", "method", "LoopContext"};
    return v.kind == LS_JV_STRING && v.markup ? "Markup" : names[v.kind];
}

bool ls_jv_length(ls_jinja *j, ls_jv v, size_t *length_out)
{
    if (v.kind == LS_JV_STRING) {
        ls_jinja_spend(j, v.bytes);
        *length_out = ls_jinja_characters(v);
    } else if (v.kind >= LS_JV_LIST && v.kind <= LS_JV_VIEW) {
        *length_out = v.list->count;
    } else if (v.kind == LS_JV_LOOP) {
        *length_out = ls_jinja_loop_length(j, v.loop);
    } else {
        *length_out = v.kind == LS_JV_DICT ? v.list->count / 2 : 0;
        return v.kind == LS_JV_DICT || v.kind == LS_JV_UNDEFINED;
    }
    return true;
}

bool ls_jv_truth(ls_jinja *j, ls_jv v)
{
    (void)j;
    switch (v.kind) {
    case LS_JV_UNDEFINED:
    case LS_JV_NONE:
        return false;
    case LS_JV_BOOL:
        return v.truth;
    case LS_JV_INT:
        return v.integer != 0;
    case LS_JV_FLOAT:
        return v.real != 0.0;
    case LS_JV_STRING:
        return v.bytes > 0;
    default:
        return v.kind == LS_JV_GENERATOR || v.kind > LS_JV_DICT || v.list->count > 0;
    }
}

static bool equal_numbers(ls_jv a, ls_jv b)
{
    if (ls_jv_is_whole(a) && ls_jv_is_whole(b)) {
        return ls_jv_whole(a) == ls_jv_whole(b);
    }
    const double x = ls_jv_real(a), y = ls_jv_real(b);
    /* A whole number that no double equals is equal to none. */
    const int64_t n = ls_jv_is_whole(a) ? ls_jv_whole(a) : ls_jv_is_whole(b) ? ls_jv_whole(b) : 0;
    return x == y && (a.kind == b.kind || (fabs(x) < 0x1p63 && (int64_t)x == n));
}

static bool equal_lists(ls_jinja *j, ls_jv a, ls_jv b)
{
    const size_t step = a.kind == LS_JV_DICT ? 2 : 1;
    bool are_equal = a.list->count == b.list->count;
    for (size_t i = 0; i < a.list->count && are_equal; i += step) {
        const ls_jv *other = step == 2 ? ls_jinja_get(j, b.list, a.list->items[i]) : &b.list->items[i];
        are_equal = other && ls_jv_equal(j, a.list->items[i + step - 1], *other);
    }
    return are_equal;
}

bool ls_jv_equal(ls_jinja *j, ls_jv a, ls_jv b)
{
    ls_jinja_spend(j, a.kind == LS_JV_STRING ? a.bytes : 0);
    if (ls_jv_is_number(a) && ls_jv_is_number(b)) {
        return equal_numbers(a, b);
    }
    if (a.kind != b.kind || a.kind <= LS_JV_NONE) {
        return a.kind == b.kind;
    }
    if (a.kind == LS_JV_STRING) {
        return ls_jv_same_text(a, b);
    }
    if (a.kind == LS_JV_VIEW) {
        ls_jinja_unsupported(j, "comparing what keys(), values() and items() return is not supported");
    }
    if (a.kind == LS_JV_METHOD) {
        return a.method->builtin == b.method->builtin && ls_jv_equal(j, a.method->self, b.method->self);
    }
    if (a.list == b.list || a.kind > LS_JV_DICT || a.kind == LS_JV_GENERATOR || !ls_jinja_enter(j)) {
        return a.list == b.list;
    }
    const bool are_equal = equal_lists(j, a, b);
    j->depth--;
    return are_equal;
}

static bool less_lists(ls_jinja *j, const ls_jinja_list *a, const ls_jinja_list *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (!ls_jv_equal(j, a->items[i], b->items[i])) {
            return ls_jv_less(j, a->items[i], b->items[i]);
        }
    }
    return a->count < b->count;
}

bool ls_jv_less(ls_jinja *j, ls_jv a, ls_jv b)
{
    ls_jinja_spend(j, a.kind == LS_JV_STRING ? a.bytes : 0);
    if (ls_jv_is_whole(a) && ls_jv_is_whole(b)) {
        return ls_jv_whole(a) < ls_jv_whole(b);
    }
    if (ls_jv_is_number(a) && ls_jv_is_number(b)) {
        return ls_jv_real(a) < ls_jv_real(b);
    }
    if (a.kind == LS_JV_STRING && b.kind == LS_JV_STRING) {
        /* UTF-8 has the order of code points. */
        const int order = memcmp(a.text, b.text, a.bytes < b.bytes ? a.bytes : b.bytes);
        return order < 0 || (order == 0 && a.bytes < b.bytes);
    }
    if (a.kind == LS_JV_UNDEFINED || b.kind == LS_JV_UNDEFINED) {
        ls_jv_fail_undefined(j, a.kind == LS_JV_UNDEFINED ? a : b);
    } else if ((a.kind == LS_JV_LIST || a.kind == LS_JV_TUPLE) && a.kind == b.kind && ls_jinja_enter(j)) {
        const bool is_less = less_lists(j, a.list, b.list);
        j->depth--;
        return is_less;
    } else {
        ls_jinja_refuse(j, "a %s and a %s have no order", ls_jv_type(a), ls_jv_type(b));
    }
    return false;
}

static bool contains(ls_jinja *j, ls_jv container, ls_jv item)
{
    const bool has_keys =
        container.kind == LS_JV_DICT || (container.kind == LS_JV_VIEW && container.bytes == LS_JV_KEYS);
    if (container.kind == LS_JV_STRING && item.kind != LS_JV_STRING) {
        ls_jinja_refuse(j, "'in <string>' requires string as left operand, not %s", ls_jv_type(item));
    } else if (container.kind == LS_JV_STRING) {
        return ls_jinja_find(j, container, 0, container.bytes, item, false) != SIZE_MAX;
    } else if (has_keys && !is_hashable(j, item)) {
        ls_jinja_refuse(j, "unhashable type: '%s'", ls_jv_type(item));
    } else if (container.kind == LS_JV_DICT) {
        return ls_jinja_get(j, container.list, item) != NULL;
    }
    const ls_jinja_list items = ls_jv_items(j, container);
    size_t at = 0;
    while (at < items.count && !j->failed && !ls_jv_equal(j, items.items[at], item)) {
        at++;
    }
    if (container.kind == LS_JV_GENERATOR && at + 1 < items.count) {
        *container.list = (ls_jinja_list){.items = items.items + at + 1, .count = items.count - at - 1};
    }
    return at < items.count;
}

bool ls_jv_compare(ls_jinja *j, uint16_t op, ls_jv a, ls_jv b)
{
    switch (op) {
    case LS_JINJA_OP('=', '='):
        return ls_jv_equal(j, a, b);
    case LS_JINJA_OP('!', '='):
        return !ls_jv_equal(j, a, b);
    case '<':
        return ls_jv_less(j, a, b);
    case '>':
        return ls_jv_less(j, b, a);
    case LS_JINJA_OP('<', '='):
        return ls_jv_less(j, a, b) || ls_jv_equal(j, a, b);
    case LS_JINJA_OP('>', '='):
        return ls_jv_less(j, b, a) || ls_jv_equal(j, a, b);
    default:
        return contains(j, b, a) == (op != LS_JINJA_NOT_IN);
    }
}

/* ---- iterating ---- */

bool ls_jv_is_iterable(ls_jv v)
{
    return v.kind == LS_JV_UNDEFINED || (v.kind >= LS_JV_STRING && v.kind <= LS_JV_DICT) ||
           v.kind == LS_JV_LOOP;
}

static ls_jinja_list characters(ls_jinja *j, ls_jv text)
{
    ls_jinja_list *list = ls_jinja_list_new(j, ls_jinja_characters(text));
    for (size_t at = 0; at < text.bytes && !j->failed;) {
        uint32_t c;
        const unsigned length = ls_utf8_valid_decode(text.text + at, &c);
        ls_jv_push(j, list, ls_jv_text(text.text + at, length));
        at += length;
    }
    return *list;
}

ls_jinja_list ls_jv_items(ls_jinja *j, ls_jv v)
{
    ls_jinja_list items = {0};
    if (!ls_jv_is_iterable(v)) {
        ls_jinja_refuse(j, "'%s' object is not iterable", ls_jv_type(v));
    } else if (v.kind == LS_JV_LOOP) {
        ls_jinja_unsupported(j, "iterating over the variable loop is not supported");
    } else if (v.kind == LS_JV_STRING) {
        items = characters(j, v);
    } else if (v.kind == LS_JV_DICT) {
        items = *ls_jv_view(j, v.list, LS_JV_KEYS).list;
    } else if (v.kind != LS_JV_UNDEFINED) {
        items = *v.list;
        v.list->count = v.kind == LS_JV_GENERATOR ? 0 : v.list->count;
    }
    ls_jinja_spend(j, 64 * items.count);
    return items;
}

ls_jinja_list *ls_jv_to_list(ls_jinja *j, ls_jv v)
{
    const ls_jinja_list items = ls_jv_items(j, v);
    ls_jinja_list *list = ls_jinja_list_new(j, items.count);
    for (size_t i = 0; i < items.count; i++) {
        ls_jv_push(j, list, items.items[i]);
    }
    return list;
}

/* ---- attributes and items ---- */

static ls_jv undefined_in(ls_jinja *j, ls_jv object, ls_jv name, bool is_unsafe)
{
    ls_jinja_missing *missing = ls_jinja_take(j, sizeof *missing);
    *missing = (ls_jinja_missing){.is_unsafe = is_unsafe, .object = object, .name = name};
    return (ls_jv){.kind = LS_JV_UNDEFINED, .missing = missing};
}

/* A method or property of the value, what a namespace has, or one that the sandbox hides; false: it
 * has none of that name. */
static bool attribute(ls_jinja *j, ls_jv object, ls_jv name, ls_jv *value_out)
{
    static const uint16_t where[LS_JV_LOOP + 1] = {
        [LS_JV_BOOL] = LS_AT_NUMBER,    [LS_JV_INT] = LS_AT_NUMBER,    [LS_JV_FLOAT] = LS_AT_NUMBER,
        [LS_JV_STRING] = LS_AT_TEXT,    [LS_JV_LIST] = LS_AT_LIST,     [LS_JV_TUPLE] = LS_AT_TUPLE,
        [LS_JV_RANGE] = LS_AT_ITERABLE, [LS_JV_VIEW] = LS_AT_ITERABLE, [LS_JV_GENERATOR] = LS_AT_ITERABLE,
        [LS_JV_DICT] = LS_AT_DICT,      [LS_JV_MACRO] = LS_AT_MACRO,   [LS_JV_LOOP] = LS_AT_LOOP,
    };
    if (object.kind == LS_JV_NAMESPACE) {
        const ls_jv *found = ls_jinja_get(j, object.list, name);
        *value_out = !found ? *value_out : *name.text == '_' ? undefined_in(j, object, name, true) : *found;
        return found != NULL;
    }
    const ls_jinja_builtin *found = ls_jinja_builtin_find(where[object.kind], name);
    if (!found) {
        return false;
    }
    if (!found->run && found->how == LS_JINJA_HIDDEN) {
        *value_out = undefined_in(j, object, name, true);
    } else if (!found->run) {
        ls_jinja_unsupported(j, "'%.*s' of a %s is not supported", LS_JV_PRINT(name), ls_jv_type(object));
    } else if (found->parameters && *found->parameters == '@') {
        *value_out = found->run(j, &(ls_jinja_use){.self = object, .how = found->how});
    } else {
        ls_jinja_method *method = ls_jinja_take(j, sizeof *method);
        *method = (ls_jinja_method){.self = object, .builtin = found};
        *value_out = (ls_jv){.kind = LS_JV_METHOD, .method = method};
    }
    return true;
}

/* object[key]; false: Python raises a TypeError or a LookupError. */
static bool subscript(ls_jinja *j, ls_jv object, ls_jv key, ls_jv *value_out)
{
    if (object.kind == LS_JV_DICT) {
        const ls_jv *found = ls_jinja_get(j, object.list, key);
        *value_out = found ? *found : *value_out;
        return found != NULL;
    }
    size_t length;
    if (!ls_jv_is_whole(key) || object.kind < LS_JV_STRING || object.kind > LS_JV_RANGE ||
        !ls_jv_length(j, object, &length)) {
        return false;
    }
    int64_t at = ls_jv_whole(key);
    at += at < 0 ? (int64_t)length : 0;
    if (at < 0 || at >= (int64_t)length) {
        return false;
    }
    if (object.kind == LS_JV_STRING) {
        const size_t from = ls_jinja_offset(object, (size_t)at);
        uint32_t c;
        *value_out = ls_jv_part(object, from, from + ls_utf8_valid_decode(object.text + from, &c));
    } else {
        *value_out = object.list->items[at];
    }
    return true;
}

ls_jv ls_jv_attribute(ls_jinja *j, ls_jv object, ls_jv name)
{
    ls_jv v = ls_jv_undefined();
    if (object.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, object);
    }
    return attribute(j, object, name, &v) || subscript(j, object, name, &v)
               ? v
               : undefined_in(j, object, name, false);
}

ls_jv ls_jv_item(ls_jinja *j, ls_jv object, ls_jv key)
{
    ls_jv v = ls_jv_undefined();
    if (object.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, object);
    }
    return subscript(j, object, key, &v) || (key.kind == LS_JV_STRING && attribute(j, object, key, &v))
               ? v
               : undefined_in(j, object, key, false);
}

/* A bound of a slice of `length` items, in Python's way. */
static int64_t slice_bound(ls_jv bound, int64_t length, bool is_stop, int64_t step)
{
    const int64_t low = step < 0 ? -1 : 0, high = step < 0 ? length - 1 : length;
    if (!ls_jv_is_whole(bound)) {
        return is_stop == (step > 0) ? high : low;
    }
    const int64_t value = ls_jv_whole(bound) + (ls_jv_whole(bound) < 0 ? length : 0);
    return value < low ? low : value > high ? high : value;
}

ls_jv ls_jv_slice(ls_jinja *j, ls_jv object, const ls_jv bounds[3])
{
    size_t length;
    if (object.kind == LS_JV_UNDEFINED) {
        return ls_jv_fail_undefined(j, object);
    }
    if (object.kind < LS_JV_STRING || object.kind > LS_JV_RANGE || !ls_jv_length(j, object, &length)) {
        return ls_jinja_refuse(j, "a %s has no slices", ls_jv_type(object));
    }
    for (int i = 0; i < 3; i++) {
        if (bounds[i].kind != LS_JV_NONE && !ls_jv_is_whole(bounds[i])) {
            return ls_jinja_refuse(j, "slice indices must be integers or None or have an __index__ method");
        }
    }
    const int64_t step = ls_jv_is_whole(bounds[2]) ? ls_jv_whole(bounds[2]) : 1;
    if (step == 0) {
        return ls_jinja_refuse(j, "slice step cannot be zero");
    }
    int64_t at = slice_bound(bounds[0], (int64_t)length, false, step);
    const int64_t stop = slice_bound(bounds[1], (int64_t)length, true, step);
    if (object.kind == LS_JV_STRING && step == 1) {
        return ls_jv_part(object, ls_jinja_offset(object, (size_t)at),
                          ls_jinja_offset(object, (size_t)(stop > at ? stop : at)));
    }
    const ls_jinja_list items = ls_jv_items(j, object);
    ls_jinja_list *part = ls_jinja_list_new(j, 0);
    while ((step > 0 ? at < stop : at > stop) && !j->failed) {
        ls_jv_push(j, part, items.items[at]);
        at = step > 0 && step >= stop - at ? stop : step < 0 && step <= stop - at ? stop : at + step;
    }
    if (object.kind != LS_JV_STRING) {
        return ls_jv_of(object.kind, part);
    }
    ls_text text = {0};
    for (size_t i = 0; i < part->count; i++) {
        ls_text_append_bytes(&text, part->items[i].text, part->items[i].bytes);
    }
    ls_jv joined = ls_jv_take_text(j, &text);
    joined.markup = object.markup;
    return joined;
}
