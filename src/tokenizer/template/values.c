// SPDX-License-Identifier: Apache-2.0
/* Values: making, comparing and iterating them, with Python's rules. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

#include <math.h>

/* ---- the state ---- */

ls_jv ls_jinja_fail(ls_jinja_state *state, ls_status status, const char *format, ...)
{
    if (!state->failed) {
        ls_text text = {0};
        va_list args;
        va_start(args, format);
        ls_text_vprintf(&text, format, args);
        va_end(args);
        state->failed = ls_fail(status, "%s, line %u: %s", state->name, state->line, ls_text_string(&text));
        ls_text_release(&text);
    }
    return ls_jv_undefined();
}

void ls_jinja_spend(ls_jinja_state *state, size_t bytes)
{
    state->steps += 1 + bytes / 64;
    if (state->steps > LS_CHAT_STEPS_MAX && !state->failed) {
        ls_jinja_refuse(state, "the template takes more than %d steps", LS_CHAT_STEPS_MAX);
    }
}

void *ls_jinja_take(ls_jinja_state *state, size_t bytes)
{
    if (bytes > LS_CHAT_MEMORY_MAX || state->memory + bytes > LS_CHAT_MEMORY_MAX) {
        ls_jinja_refuse(state, "the template needs more than %d MiB", LS_CHAT_MEMORY_MAX >> 20);
        if (bytes > 4096) {
            return NULL;
        }
    }
    state->memory += bytes + 16;
    return ls_arena_alloc(&state->arena, bytes);
}

bool ls_jinja_enter(ls_jinja_state *state)
{
    if (state->failed) {
        return false;
    }
    if (state->depth >= LS_CHAT_DEPTH_MAX) {
        ls_jinja_refuse(state, "more than %d levels of calls, expressions or data inside each other",
                        LS_CHAT_DEPTH_MAX);
        return false;
    }
    state->depth++;
    return true;
}

/* ---- making ---- */

ls_jv ls_jv_copy(ls_jinja_state *state, const char *text, size_t bytes)
{
    char *copy = ls_jinja_take(state, bytes + 1);
    if (!copy) {
        return ls_jv_text("", 0);
    }
    if (bytes > 0) {
        memcpy(copy, text, bytes);
    }
    return ls_jv_text(copy, bytes);
}

ls_jv ls_jv_take_text(ls_jinja_state *state, ls_text *text)
{
    const ls_jv v = ls_jv_copy(state, text->data, text->bytes);
    ls_text_release(text);
    return v;
}

/* A text that is built up piece by piece keeps room at its end: each piece is copied once. */
ls_jv ls_jv_join(ls_jinja_state *state, ls_jv a, ls_jv b)
{
    const size_t bytes = (size_t)a.bytes + b.bytes;
    ls_jinja_spend(state, b.bytes);
    if (b.bytes == 0 || a.bytes == 0) {
        return a.bytes == 0 ? b : a;
    }
    if (!(state->growing && a.text == state->growing && a.bytes == state->growing_bytes &&
          bytes <= state->growing_capacity)) {
        ls_jinja_spend(state, a.bytes);
        const size_t capacity = bytes < 256 ? bytes : 2 * bytes;
        char *grown = ls_jinja_take(state, capacity);
        if (!grown) {
            return a;
        }
        memcpy(grown, a.text, a.bytes);
        state->growing = grown;
        state->growing_capacity = capacity;
    }
    memcpy(state->growing + a.bytes, b.text, b.bytes);
    state->growing_bytes = bytes;
    return ls_jv_text(state->growing, bytes);
}

ls_jv ls_jv_list(ls_jinja_state *state, ls_jv_kind kind, size_t capacity)
{
    ls_jinja_list *list = ls_jinja_take(state, sizeof *list);
    list->items = capacity > 0 ? ls_jinja_take(state, capacity * sizeof(ls_jv)) : NULL;
    list->capacity = list->items ? capacity : 0;
    return (ls_jv){.kind = kind, .list = list};
}

void ls_jv_push(ls_jinja_state *state, ls_jinja_list *list, ls_jv item)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 8;
        ls_jv *grown = ls_jinja_take(state, capacity * sizeof *grown);
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

ls_jv ls_jv_pair(ls_jinja_state *state, ls_jv first, ls_jv second)
{
    const ls_jv pair = ls_jv_list(state, LS_JV_TUPLE, 2);
    ls_jv_push(state, pair.list, first);
    ls_jv_push(state, pair.list, second);
    return pair;
}

/* ---- dicts ---- */

bool ls_jv_is_hashable(ls_jv v)
{
    if (v.kind == LS_JV_TUPLE) {
        for (size_t i = 0; i < v.list->count; i++) {
            if (!ls_jv_is_hashable(v.list->items[i])) {
                return false;
            }
        }
    }
    return v.kind != LS_JV_LIST && v.kind != LS_JV_DICT && v.kind != LS_JV_VIEW;
}

ls_jinja_dict *ls_jinja_dict_new(ls_jinja_state *state, size_t capacity)
{
    ls_jinja_dict *dict = ls_jinja_take(state, sizeof *dict);
    dict->keys = capacity > 0 ? ls_jinja_take(state, 2 * capacity * sizeof(ls_jv)) : NULL;
    dict->capacity = dict->keys ? capacity : 0;
    dict->values = dict->keys ? dict->keys + capacity : NULL;
    return dict;
}

static size_t find_entry(ls_jinja_state *state, const ls_jinja_dict *dict, ls_jv key)
{
    ls_jinja_spend(state, 8 * dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        const ls_jv other = dict->keys[i];
        if (key.kind == LS_JV_STRING && other.kind == LS_JV_STRING
                ? key.bytes == other.bytes && memcmp(key.text, other.text, key.bytes) == 0
                : ls_jv_equal(state, other, key)) {
            return i;
        }
    }
    return SIZE_MAX;
}

const ls_jv *ls_jinja_dict_find(ls_jinja_state *state, const ls_jinja_dict *dict, ls_jv key)
{
    const size_t entry = ls_jv_is_hashable(key) ? find_entry(state, dict, key) : SIZE_MAX;
    return entry == SIZE_MAX ? NULL : &dict->values[entry];
}

void ls_jinja_dict_set(ls_jinja_state *state, ls_jinja_dict *dict, ls_jv key, ls_jv value)
{
    if (!ls_jv_is_hashable(key)) {
        ls_jinja_refuse(state, "a %s can't be the key of a dict", ls_jv_type(key));
        return;
    }
    const size_t entry = find_entry(state, dict, key);
    if (entry != SIZE_MAX) {
        dict->values[entry] = value;
        return;
    }
    if (dict->count == dict->capacity) {
        const size_t capacity = dict->capacity ? 2 * dict->capacity : 4;
        ls_jv *grown = ls_jinja_take(state, 2 * capacity * sizeof *grown);
        if (!grown) {
            return;
        }
        if (dict->count > 0) {
            memcpy(grown, dict->keys, dict->count * sizeof *grown);
            memcpy(grown + capacity, dict->values, dict->count * sizeof *grown);
        }
        dict->keys = grown;
        dict->values = grown + capacity;
        dict->capacity = capacity;
    }
    dict->keys[dict->count] = key;
    dict->values[dict->count++] = value;
}

/* ---- from JSON ---- */

static ls_jv of_container(ls_jinja_state *state, const json_t *json)
{
    if (json_is_array(json)) {
        const ls_jv list = ls_jv_list(state, LS_JV_LIST, json_array_size(json));
        for (size_t i = 0; i < json_array_size(json); i++) {
            ls_jv_push(state, list.list, ls_jv_of_json(state, json_array_get(json, i)));
        }
        return list;
    }
    ls_jinja_dict *dict = ls_jinja_dict_new(state, json_object_size(json));
    void *iterator = json_object_iter((json_t *)(uintptr_t)json);
    for (; iterator && dict->keys; iterator = json_object_iter_next((json_t *)(uintptr_t)json, iterator)) {
        /* Keys of an object differ: no search for an older one. */
        dict->keys[dict->count] =
            ls_jv_text(json_object_iter_key(iterator), json_object_iter_key_len(iterator));
        dict->values[dict->count++] = ls_jv_of_json(state, json_object_iter_value(iterator));
    }
    return (ls_jv){.kind = LS_JV_DICT, .dict = dict};
}

ls_jv ls_jv_of_json(ls_jinja_state *state, const json_t *json)
{
    switch (json_typeof(json)) {
    case JSON_STRING:
        return ls_jv_text(json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        return ls_jv_int(json_integer_value(json));
    case JSON_REAL:
        return ls_jv_float(json_real_value(json));
    case JSON_NULL:
        return ls_jv_none();
    case JSON_TRUE:
    case JSON_FALSE:
        return ls_jv_bool(json_is_true(json));
    default:
        break;
    }
    if (!ls_jinja_enter(state)) {
        return ls_jv_none();
    }
    const ls_jv v = of_container(state, json);
    state->depth--;
    return v;
}

/* ---- questions ---- */

const char *ls_jv_type(ls_jv v)
{
    static const char *const names[] = {"Undefined", "NoneType",   "bool",      "int",   "float",
                                        "str",       "list",       "tuple",     "dict",  "dict view",
                                        "range",     "generator",  "Namespace", "Macro", "function",
                                        "method",    "LoopContext"};
    return v.kind == LS_JV_STRING && v.markup ? "Markup" : names[v.kind];
}

bool ls_jv_length(ls_jinja_state *state, ls_jv v, size_t *length_out)
{
    switch (v.kind) {
    case LS_JV_UNDEFINED:
        *length_out = 0;
        return true;
    case LS_JV_STRING:
        ls_jinja_spend(state, v.bytes);
        *length_out = ls_jinja_characters(v);
        return true;
    case LS_JV_LIST:
    case LS_JV_TUPLE:
        *length_out = v.list->count;
        return true;
    case LS_JV_DICT:
    case LS_JV_VIEW:
        *length_out = v.dict->count;
        return true;
    case LS_JV_RANGE:
        *length_out = v.range->count;
        return true;
    default:
        return false;
    }
}

bool ls_jv_truth(ls_jinja_state *state, ls_jv v)
{
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
    default:;
        size_t length = 1;
        return !ls_jv_length(state, v, &length) || length > 0;
    }
}

static bool equal_lists(ls_jinja_state *state, const ls_jinja_list *a, const ls_jinja_list *b)
{
    bool are_equal = a->count == b->count;
    for (size_t i = 0; i < a->count && are_equal; i++) {
        are_equal = ls_jv_equal(state, a->items[i], b->items[i]);
    }
    return are_equal;
}

static bool equal_dicts(ls_jinja_state *state, const ls_jinja_dict *a, const ls_jinja_dict *b)
{
    bool are_equal = a->count == b->count;
    for (size_t i = 0; i < a->count && are_equal; i++) {
        const ls_jv *other = ls_jinja_dict_find(state, b, a->keys[i]);
        are_equal = other && ls_jv_equal(state, a->values[i], *other);
    }
    return are_equal;
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

static bool equal_containers(ls_jinja_state *state, ls_jv a, ls_jv b)
{
    if (a.kind == LS_JV_LIST || a.kind == LS_JV_TUPLE) {
        return a.list == b.list || equal_lists(state, a.list, b.list);
    }
    if (a.kind == LS_JV_DICT) {
        return a.dict == b.dict || equal_dicts(state, a.dict, b.dict);
    }
    if (a.kind == LS_JV_RANGE) {
        return a.range->count == b.range->count &&
               (a.range->count == 0 || a.range->start == b.range->start) &&
               (a.range->count < 2 || a.range->step == b.range->step);
    }
    if (a.kind == LS_JV_VIEW) {
        ls_jinja_unsupported(state, "comparing what keys(), values() and items() return is not supported");
        return false;
    }
    if (a.kind == LS_JV_METHOD) {
        return a.method->builtin == b.method->builtin && ls_jv_equal(state, a.method->self, b.method->self);
    }
    return a.iterator == b.iterator;
}

bool ls_jv_equal(ls_jinja_state *state, ls_jv a, ls_jv b)
{
    if (ls_jv_is_number(a) && ls_jv_is_number(b)) {
        return equal_numbers(a, b);
    }
    if (a.kind != b.kind) {
        return false;
    }
    if (a.kind == LS_JV_UNDEFINED || a.kind == LS_JV_NONE) {
        return true;
    }
    if (a.kind == LS_JV_STRING) {
        if (a.bytes != b.bytes) {
            return false;
        }
        ls_jinja_spend(state, a.bytes);
        return memcmp(a.text, b.text, a.bytes) == 0;
    }
    if (!ls_jinja_enter(state)) {
        return false;
    }
    ls_jinja_spend(state, 0);
    const bool are_equal = equal_containers(state, a, b);
    state->depth--;
    return are_equal;
}

static bool less_lists(ls_jinja_state *state, const ls_jinja_list *a, const ls_jinja_list *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++) {
        if (!ls_jv_equal(state, a->items[i], b->items[i])) {
            return ls_jv_less(state, a->items[i], b->items[i]);
        }
    }
    return a->count < b->count;
}

bool ls_jv_less(ls_jinja_state *state, ls_jv a, ls_jv b)
{
    ls_jinja_spend(state, 0);
    if (ls_jv_is_whole(a) && ls_jv_is_whole(b)) {
        return ls_jv_whole(a) < ls_jv_whole(b);
    }
    if (ls_jv_is_number(a) && ls_jv_is_number(b)) {
        return ls_jv_real(a) < ls_jv_real(b);
    }
    if (a.kind == LS_JV_STRING && b.kind == LS_JV_STRING) {
        /* UTF-8 has the order of code points. */
        const size_t bytes = a.bytes < b.bytes ? a.bytes : b.bytes;
        ls_jinja_spend(state, bytes);
        const int order = memcmp(a.text, b.text, bytes);
        return order < 0 || (order == 0 && a.bytes < b.bytes);
    }
    if (a.kind == LS_JV_UNDEFINED || b.kind == LS_JV_UNDEFINED) {
        ls_jv_fail_undefined(state, a.kind == LS_JV_UNDEFINED ? a : b);
        return false;
    }
    if ((a.kind == LS_JV_LIST || a.kind == LS_JV_TUPLE) && a.kind == b.kind && ls_jinja_enter(state)) {
        const bool is_less = less_lists(state, a.list, b.list);
        state->depth--;
        return is_less;
    }
    ls_jinja_refuse(state, "a %s and a %s have no order", ls_jv_type(a), ls_jv_type(b));
    return false;
}

bool ls_jv_contains(ls_jinja_state *state, ls_jv container, ls_jv item)
{
    if (container.kind == LS_JV_STRING) {
        if (item.kind != LS_JV_STRING) {
            ls_jinja_refuse(state, "'in <string>' requires string as left operand, not %s", ls_jv_type(item));
            return false;
        }
        return ls_jinja_find(state, container, 0, container.bytes, item) != SIZE_MAX;
    }
    if (container.kind == LS_JV_DICT || (container.kind == LS_JV_VIEW && container.bytes == LS_JV_KEYS)) {
        if (!ls_jv_is_hashable(item)) {
            ls_jinja_refuse(state, "unhashable type: '%s'", ls_jv_type(item));
        }
        return ls_jinja_dict_find(state, container.dict, item) != NULL;
    }
    ls_jinja_iterator *iterator = ls_jv_iterate(state, container);
    ls_jv value;
    while (iterator && ls_jinja_next(state, iterator, &value)) {
        if (ls_jv_equal(state, value, item)) {
            return true;
        }
    }
    return false;
}

/* ---- iterating ---- */

bool ls_jv_is_iterable(ls_jv v)
{
    switch (v.kind) {
    case LS_JV_UNDEFINED:
    case LS_JV_STRING:
    case LS_JV_LIST:
    case LS_JV_TUPLE:
    case LS_JV_DICT:
    case LS_JV_VIEW:
    case LS_JV_RANGE:
    case LS_JV_ITERATOR:
    case LS_JV_LOOP:
        return true;
    default:
        return false;
    }
}

ls_jv ls_jv_iterator(ls_jinja_state *state, ls_jv source)
{
    ls_jinja_iterator *iterator = ls_jinja_take(state, sizeof *iterator);
    iterator->source = source;
    return (ls_jv){.kind = LS_JV_ITERATOR, .iterator = iterator};
}

ls_jinja_iterator *ls_jv_iterate(ls_jinja_state *state, ls_jv v)
{
    if (!ls_jv_is_iterable(v)) {
        ls_jinja_refuse(state, "'%s' object is not iterable", ls_jv_type(v));
        return NULL;
    }
    if (v.kind == LS_JV_LOOP) {
        ls_jinja_unsupported(state, "iterating over the variable loop is not supported");
        return NULL;
    }
    if (v.kind == LS_JV_UNDEFINED && v.missing && v.missing->is_unsafe) {
        v.missing = NULL;
    }
    return v.kind == LS_JV_ITERATOR ? v.iterator : ls_jv_iterator(state, v).iterator;
}

static bool next_character(ls_jinja_iterator *iterator, ls_jv *value_out)
{
    const ls_jv text = iterator->source;
    if (iterator->position >= text.bytes) {
        return false;
    }
    uint32_t c;
    const char *at = text.text + iterator->position;
    *value_out = ls_jv_text(at, ls_utf8_valid_decode(at, &c));
    iterator->position += value_out->bytes;
    return true;
}

static bool next_item(ls_jinja_state *state, ls_jinja_iterator *iterator, ls_jv *value_out)
{
    const ls_jv source = iterator->source;
    const size_t at = iterator->position;
    size_t length = 0;
    if (source.kind == LS_JV_ITERATOR) {
        if (!ls_jinja_enter(state)) {
            return false;
        }
        const bool is_more = ls_jinja_next(state, source.iterator, value_out);
        state->depth--;
        return is_more;
    }
    if (source.kind == LS_JV_STRING) {
        return next_character(iterator, value_out);
    }
    if (!ls_jv_is_iterable(source)) {
        ls_jinja_refuse(state, "'%s' object is not iterable", ls_jv_type(source));
    }
    if (!ls_jv_length(state, source, &length) || at >= length) {
        return false;
    }
    iterator->position++;
    if (source.kind == LS_JV_RANGE) {
        *value_out = ls_jv_int(source.range->start + (int64_t)at * source.range->step);
    } else if (source.kind == LS_JV_LIST || source.kind == LS_JV_TUPLE) {
        *value_out = source.list->items[at];
    } else if (source.kind == LS_JV_DICT || source.bytes == LS_JV_KEYS) {
        *value_out = source.dict->keys[at];
    } else if (source.bytes == LS_JV_VALUES) {
        *value_out = source.dict->values[at];
    } else {
        *value_out = ls_jv_pair(state, source.dict->keys[at], source.dict->values[at]);
    }
    return true;
}

bool ls_jinja_next(ls_jinja_state *state, ls_jinja_iterator *iterator, ls_jv *value_out)
{
    for (;;) {
        ls_jinja_spend(state, 0);
        if (state->failed || !next_item(state, iterator, value_out)) {
            return false;
        }
        if (!iterator->each) {
            return true;
        }
        if (!ls_jinja_enter(state)) {
            return false;
        }
        const bool is_kept = iterator->each(state, iterator, value_out);
        state->depth--;
        if (state->failed || is_kept) {
            return !state->failed;
        }
    }
}

ls_jinja_list *ls_jv_to_list(ls_jinja_state *state, ls_jv v)
{
    const ls_jv list = ls_jv_list(state, LS_JV_LIST, 0);
    ls_jinja_iterator *iterator = ls_jv_iterate(state, v);
    ls_jv item;
    while (iterator && ls_jinja_next(state, iterator, &item)) {
        ls_jv_push(state, list.list, item);
    }
    return list.list;
}
