// SPDX-License-Identifier: Apache-2.0
/* Filters on sequences and mappings. */
#include "tokenizer/template/jinja.h"

#include <stdlib.h>

typedef ls_jinja_use use;

/* ---- attributes of items ---- */

/* The parts of "a.b.0" as keys; an int or nothing else. */
static ls_jinja_list *attribute_parts(ls_jinja_state *state, ls_jv attribute)
{
    const ls_jv parts = ls_jv_list(state, LS_JV_LIST, 2);
    if (ls_jv_is_absent(attribute) || attribute.kind == LS_JV_NONE) {
        return parts.list;
    }
    if (attribute.kind != LS_JV_STRING) {
        ls_jv_push(state, parts.list, attribute);
        return parts.list;
    }
    for (size_t from = 0, at = 0; at <= attribute.bytes; at++) {
        if (at < attribute.bytes && attribute.text[at] != '.') {
            continue;
        }
        const ls_jv part = ls_jv_text(attribute.text + from, at - from);
        bool is_number = part.bytes > 0 && part.bytes < 10;
        int64_t number = 0;
        for (size_t i = 0; i < part.bytes; i++) {
            is_number = is_number && part.text[i] >= '0' && part.text[i] <= '9';
            number = 10 * number + (is_number ? part.text[i] - '0' : 0);
        }
        ls_jv_push(state, parts.list, is_number ? ls_jv_int(number) : part);
        from = at + 1;
    }
    return parts.list;
}

static ls_jv follow(ls_jinja_state *state, const ls_jinja_list *parts, ls_jv item, ls_jv otherwise)
{
    for (size_t i = 0; i < parts->count && !state->failed; i++) {
        item = ls_jv_item(state, item, parts->items[i]);
        if (item.kind == LS_JV_UNDEFINED && !ls_jv_is_absent(otherwise) && otherwise.kind != LS_JV_NONE) {
            item = otherwise;
        }
    }
    return item;
}

/* The key that an item is sorted and compared by. */
static ls_jv key_of(ls_jinja_state *state, const ls_jinja_list *parts, ls_jv item, bool is_case_sensitive)
{
    item = follow(state, parts, item, ls_jv_undefined());
    return item.kind == LS_JV_STRING && !is_case_sensitive ? ls_jinja_case(state, item, 'l') : item;
}

/* ---- map, select and reject ---- */

typedef struct selection {
    const ls_jinja_list *parts; /* of the attribute; NULL: the item itself */
    const ls_jinja_builtin *builtin;
    ls_jinja_args args;
    ls_jv otherwise;
    bool is_rejected, is_map;
} selection;

static bool select_each(ls_jinja_state *state, const ls_jinja_iterator *iterator, ls_jv *value)
{
    const selection *s = iterator->context;
    ls_jv v = s->parts ? follow(state, s->parts, *value, s->otherwise) : *value;
    if (s->builtin) {
        v = ls_jinja_call_builtin(state, s->builtin, v, &s->args);
    }
    if (s->is_map) {
        *value = v;
        return true;
    }
    return ls_jv_truth(state, v) != s->is_rejected;
}

/* What the first `from` arguments are not: the name of a filter or test, and its arguments. */
static void name_builtin(ls_jinja_state *state, selection *s, const ls_jinja_args *args, size_t from)
{
    const ls_jv name = args->positional[from];
    if (name.kind == LS_JV_STRING) {
        s->builtin = (s->is_map ? ls_jinja_filter_find : ls_jinja_test_find)(name);
    }
    if (!s->builtin) {
        ls_jinja_fail_builtin(state, ls_jv_string(state, name), !s->is_map);
    }
    s->args = (ls_jinja_args){.positional = args->positional + from + 1,
                              .count = args->count - from - 1,
                              .keywords = args->keywords};
}

static ls_jv selecting(ls_jinja_state *state, ls_jv self, selection *s)
{
    const ls_jv v = ls_jv_iterator(state, self);
    v.iterator->each = select_each;
    v.iterator->context = s;
    return v;
}

static ls_jv empty_iterator(ls_jinja_state *state)
{
    return ls_jv_iterator(state, ls_jv_list(state, LS_JV_LIST, 0));
}

/* select (s), reject (r), selectattr (S) and rejectattr (R). */
static ls_jv filter_select(ls_jinja_state *state, const use *u)
{
    const ls_jinja_args *args = u->args;
    const bool has_attribute = u->how == 'S' || u->how == 'R';
    if (!ls_jv_truth(state, u->self)) {
        return empty_iterator(state);
    }
    selection *s = ls_jinja_take(state, sizeof *s);
    s->is_rejected = (u->how | 32) == 'r';
    if (has_attribute && args->count == 0) {
        return ls_jinja_refuse(state, "Missing parameter for attribute name");
    }
    s->parts = has_attribute ? attribute_parts(state, args->positional[0]) : NULL;
    if (args->count > has_attribute) {
        name_builtin(state, s, args, has_attribute);
    }
    return selecting(state, u->self, s);
}

static ls_jv filter_map(ls_jinja_state *state, const use *u)
{
    if (!ls_jv_truth(state, u->self)) {
        return empty_iterator(state);
    }
    selection *s = ls_jinja_take(state, sizeof *s);
    s->is_map = true;
    const ls_jv *attribute =
        u->args->keywords ? ls_jinja_dict_find(state, u->args->keywords, ls_jv_text("attribute", 9)) : NULL;
    const ls_jv *otherwise =
        u->args->keywords ? ls_jinja_dict_find(state, u->args->keywords, ls_jv_text("default", 7)) : NULL;
    if (u->args->count == 0 && attribute) {
        if (u->args->keywords->count > 1 + (otherwise != NULL)) {
            return ls_jinja_refuse(state, "map got an unexpected keyword argument");
        }
        s->parts = attribute_parts(state, *attribute);
        s->otherwise = otherwise ? *otherwise : ls_jv_undefined();
    } else if (u->args->count == 0) {
        return ls_jinja_refuse(state, "map requires a filter argument");
    } else {
        name_builtin(state, s, u->args, 0);
    }
    return selecting(state, u->self, s);
}

/* ---- parts of sequences ---- */

static ls_jv filter_first(ls_jinja_state *state, const use *u)
{
    ls_jinja_iterator *iterator = ls_jv_iterate(state, u->self);
    ls_jv value;
    return iterator && ls_jinja_next(state, iterator, &value)
               ? value
               : ls_jv_missing(state, "No first item, sequence was empty.");
}

/* reversed(): of sequences and dicts, not of iterators. */
static bool is_reversible(ls_jv v)
{
    return v.kind == LS_JV_STRING || v.kind == LS_JV_LIST || v.kind == LS_JV_TUPLE || v.kind == LS_JV_RANGE ||
           v.kind == LS_JV_DICT || v.kind == LS_JV_VIEW || v.kind == LS_JV_UNDEFINED;
}

static ls_jv filter_last(ls_jinja_state *state, const use *u)
{
    if (!is_reversible(u->self)) {
        return ls_jinja_refuse(state, "'%s' object is not reversible", ls_jv_type(u->self));
    }
    if (u->self.kind == LS_JV_LIST || u->self.kind == LS_JV_TUPLE || u->self.kind == LS_JV_STRING) {
        ls_jv v;
        size_t length;
        (void)ls_jv_length(state, u->self, &length);
        v = length > 0 ? ls_jv_item(state, u->self, ls_jv_int(-1)) : ls_jv_undefined();
        v.markup = false;
        return length > 0 ? v : ls_jv_missing(state, "No last item, sequence was empty.");
    }
    const ls_jinja_list *list = ls_jv_to_list(state, u->self);
    return list->count > 0 ? list->items[list->count - 1]
                           : ls_jv_missing(state, "No last item, sequence was empty.");
}

static ls_jv filter_reverse(ls_jinja_state *state, const use *u)
{
    if (u->self.kind == LS_JV_STRING) {
        const ls_jv bounds[3] = {ls_jv_none(), ls_jv_none(), ls_jv_int(-1)};
        return ls_jv_slice(state, u->self, bounds);
    }
    const ls_jv list = {.kind = LS_JV_LIST, .list = ls_jv_to_list(state, u->self)};
    ls_jv *items = list.list->items;
    for (size_t i = 0; i < list.list->count / 2; i++) {
        const ls_jv item = items[i];
        items[i] = items[list.list->count - 1 - i];
        items[list.list->count - 1 - i] = item;
    }
    return is_reversible(u->self) ? ls_jv_iterator(state, list) : list;
}

static ls_jv filter_length(ls_jinja_state *state, const use *u)
{
    size_t length;
    if (u->self.kind == LS_JV_LOOP) {
        return ls_jv_int((int64_t)ls_jinja_loop_length(state, u->self.loop));
    }
    if (!ls_jv_length(state, u->self, &length)) {
        return ls_jinja_refuse(state, "object of type '%s' has no len()", ls_jv_type(u->self));
    }
    return ls_jv_int((int64_t)length);
}

static ls_jv filter_list(ls_jinja_state *state, const use *u)
{
    return (ls_jv){.kind = LS_JV_LIST, .list = ls_jv_to_list(state, u->self)};
}

static ls_jv filter_items_of(ls_jinja_state *state, const use *u)
{
    if (u->self.kind != LS_JV_DICT && u->self.kind != LS_JV_UNDEFINED) {
        return ls_jv_iterator(state, ls_jv_int(0)); /* refused when it is asked for a value */
    }
    const ls_jv items = {.kind = LS_JV_VIEW, .bytes = LS_JV_ITEMS, .dict = u->self.dict};
    return u->self.kind == LS_JV_DICT ? ls_jv_iterator(state, items) : empty_iterator(state);
}

static ls_jv filter_join(ls_jinja_state *state, const use *u)
{
    const ls_jv separator =
        ls_jv_is_absent(u->given[0]) ? ls_jv_text("", 0) : ls_jv_string(state, u->given[0]);
    const ls_jinja_list *parts = attribute_parts(state, u->given[1]);
    ls_jinja_iterator *iterator = ls_jv_iterate(state, u->self);
    ls_text out = {0};
    ls_jv item;
    for (size_t i = 0; iterator && ls_jinja_next(state, iterator, &item); i++) {
        item = ls_jv_string(state, follow(state, parts, item, ls_jv_undefined()));
        if (i > 0) {
            ls_jinja_append(state, &out, separator);
        }
        ls_jinja_append(state, &out, item);
    }
    return ls_jv_take_text(state, &out);
}

/* ---- order ---- */

/* Sorts `items` by `keys`, stable: merges runs of `width`. */
static void merge_sort(ls_jinja_state *state, ls_jv *keys, ls_jv *items, size_t count, bool is_reversed)
{
    ls_jv *room = ls_jinja_take(state, 2 * count * sizeof *room);
    for (size_t width = 1; room && width < count && !state->failed; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t left = from, middle = from + width < count ? from + width : count, right = middle;
            const size_t end = from + 2 * width < count ? from + 2 * width : count;
            for (size_t at = from; at < end; at++) {
                const bool takes_right =
                    left >= middle ||
                    (right < end && (is_reversed ? ls_jv_less(state, keys[left], keys[right])
                                                 : ls_jv_less(state, keys[right], keys[left])));
                const size_t taken = takes_right ? right++ : left++;
                room[at] = keys[taken];
                room[count + at] = items[taken];
            }
        }
        memcpy(keys, room, count * sizeof *keys);
        memcpy(items, room + count, count * sizeof *items);
    }
}

/* The keys of the items of `list`, by one attribute or several ("a,b"). */
static ls_jinja_list *sort_keys(ls_jinja_state *state, const ls_jinja_list *list, ls_jv attribute,
                                bool is_case_sensitive)
{
    const ls_jv keys = ls_jv_list(state, LS_JV_LIST, list->count);
    const ls_jv attributes = ls_jv_list(state, LS_JV_LIST, 1);
    size_t from = 0;
    for (size_t at = 0; attribute.kind == LS_JV_STRING && at < attribute.bytes; at++) {
        if (attribute.text[at] == ',') {
            ls_jv_push(state, attributes.list, ls_jv_text(attribute.text + from, at - from));
            from = at + 1;
        }
    }
    ls_jv_push(state, attributes.list,
               attribute.kind == LS_JV_STRING ? ls_jv_text(attribute.text + from, attribute.bytes - from)
                                              : attribute);
    for (size_t i = 0; i < list->count && !state->failed; i++) {
        const ls_jv key = ls_jv_list(state, LS_JV_LIST, attributes.list->count);
        for (size_t j = 0; j < attributes.list->count; j++) {
            const ls_jinja_list *parts = attribute_parts(state, attributes.list->items[j]);
            ls_jv_push(state, key.list, key_of(state, parts, list->items[i], is_case_sensitive));
        }
        ls_jv_push(state, keys.list, key);
    }
    return keys.list;
}

static ls_jv filter_sort(ls_jinja_state *state, const use *u)
{
    const ls_jv list = {.kind = LS_JV_LIST, .list = ls_jv_to_list(state, u->self)};
    const ls_jinja_list *keys = sort_keys(state, list.list, u->given[2], ls_jv_truth(state, u->given[1]));
    if (!state->failed) {
        merge_sort(state, keys->items, list.list->items, list.list->count, ls_jv_truth(state, u->given[0]));
    }
    return list;
}

ls_jinja_list *ls_jinja_sorted_keys(ls_jinja_state *state, const ls_jinja_dict *dict)
{
    const ls_jv keys = ls_jv_list(state, LS_JV_LIST, dict->count),
                same = ls_jv_list(state, LS_JV_LIST, dict->count);
    for (size_t i = 0; i < dict->count; i++) {
        ls_jv_push(state, keys.list, dict->keys[i]);
        ls_jv_push(state, same.list, dict->keys[i]);
    }
    if (!state->failed) {
        merge_sort(state, keys.list->items, same.list->items, dict->count, false);
    }
    return keys.list;
}

static ls_jv filter_dictsort(ls_jinja_state *state, const use *u)
{
    const bool by_value = ls_jv_is(u->given[1], "value");
    if (u->self.kind != LS_JV_DICT) {
        return u->self.kind == LS_JV_UNDEFINED ? ls_jv_fail_undefined(state, u->self)
                                               : ls_jinja_refuse(state, "dictsort needs a dict");
    }
    if (!by_value && !ls_jv_is_absent(u->given[1]) && !ls_jv_is(u->given[1], "key")) {
        return ls_jinja_refuse(state, "You can only sort by either \"key\" or \"value\"");
    }
    const ls_jv pairs = ls_jv_list(state, LS_JV_LIST, u->self.dict->count);
    const ls_jv keys = ls_jv_list(state, LS_JV_LIST, u->self.dict->count);
    const ls_jinja_list nothing = {0};
    for (size_t i = 0; i < u->self.dict->count; i++) {
        const ls_jv key = by_value ? u->self.dict->values[i] : u->self.dict->keys[i];
        ls_jv_push(state, pairs.list, ls_jv_pair(state, u->self.dict->keys[i], u->self.dict->values[i]));
        ls_jv_push(state, keys.list, key_of(state, &nothing, key, ls_jv_truth(state, u->given[0])));
    }
    if (!state->failed) {
        merge_sort(state, keys.list->items, pairs.list->items, pairs.list->count,
                   ls_jv_truth(state, u->given[2]));
    }
    return pairs;
}

static ls_jv filter_unique(ls_jinja_state *state, const use *u)
{
    const ls_jinja_list *list = ls_jv_to_list(state, u->self), *parts = attribute_parts(state, u->given[1]);
    const ls_jv unique = ls_jv_list(state, LS_JV_LIST, list->count);
    ls_jinja_dict *seen = ls_jinja_dict_new(state, 8);
    for (size_t i = 0; i < list->count && !state->failed; i++) {
        const ls_jv key = key_of(state, parts, list->items[i], ls_jv_truth(state, u->given[0]));
        const size_t before = seen->count;
        ls_jinja_dict_set(state, seen, key, ls_jv_none());
        if (seen->count > before) {
            ls_jv_push(state, unique.list, list->items[i]);
        }
    }
    return ls_jv_iterator(state, unique);
}

/* min (<) and max (>). */
static ls_jv filter_extreme(ls_jinja_state *state, const use *u)
{
    const ls_jinja_list *list = ls_jv_to_list(state, u->self), *parts = attribute_parts(state, u->given[1]);
    const bool is_case_sensitive = ls_jv_truth(state, u->given[0]);
    if (list->count == 0) {
        return ls_jv_missing(state, "No aggregated item, sequence was empty.");
    }
    size_t best = 0;
    ls_jv best_key = key_of(state, parts, list->items[0], is_case_sensitive);
    for (size_t i = 1; i < list->count && !state->failed; i++) {
        const ls_jv key = key_of(state, parts, list->items[i], is_case_sensitive);
        if (u->how == '>' ? ls_jv_less(state, best_key, key) : ls_jv_less(state, key, best_key)) {
            best = i;
            best_key = key;
        }
    }
    return list->items[best];
}

static ls_jv filter_sum(ls_jinja_state *state, const use *u)
{
    const ls_jinja_list *parts = attribute_parts(state, u->given[0]);
    ls_jinja_iterator *iterator = ls_jv_iterate(state, u->self);
    ls_jv sum = ls_jv_is_absent(u->given[1]) ? ls_jv_int(0) : u->given[1], item;
    if (sum.kind == LS_JV_STRING) {
        return ls_jinja_refuse(state, "sum() can't sum strings [use ''.join(seq) instead]");
    }
    while (iterator && ls_jinja_next(state, iterator, &item)) {
        sum = ls_jv_binary(state, '+', sum, follow(state, parts, item, ls_jv_undefined()));
    }
    return sum;
}

static ls_jv filter_groupby(ls_jinja_state *state, const use *u)
{
    const ls_jv list = {.kind = LS_JV_LIST, .list = ls_jv_to_list(state, u->self)};
    const ls_jinja_list *parts = attribute_parts(state, u->given[0]);
    const ls_jv keys = ls_jv_list(state, LS_JV_LIST, list.list->count),
                groups = ls_jv_list(state, LS_JV_LIST, 4);
    const bool is_case_sensitive = ls_jv_truth(state, u->given[2]);
    for (size_t i = 0; i < list.list->count && !state->failed; i++) {
        const ls_jv value = follow(state, parts, list.list->items[i], u->given[1]);
        ls_jv_push(state, keys.list,
                   value.kind == LS_JV_STRING && !is_case_sensitive ? ls_jinja_case(state, value, 'l')
                                                                    : value);
    }
    if (!state->failed) {
        merge_sort(state, keys.list->items, list.list->items, list.list->count, false);
    }
    for (size_t i = 0; i < list.list->count && !state->failed;) {
        const ls_jv members = ls_jv_list(state, LS_JV_LIST, 4);
        const ls_jv key = keys.list->items[i];
        const ls_jv name = follow(state, parts, list.list->items[i], u->given[1]);
        for (; i < list.list->count && ls_jv_equal(state, keys.list->items[i], key); i++) {
            ls_jv_push(state, members.list, list.list->items[i]);
        }
        ls_jv_push(state, groups.list, ls_jv_pair(state, is_case_sensitive ? key : name, members));
    }
    return groups;
}

const ls_jinja_builtin ls_jinja_sequence_filters[] = {
    {"count", "", filter_length},
    {"dictsort", "case_sensitive by reverse", filter_dictsort},
    {"first", "", filter_first},
    {"groupby", "!attribute default case_sensitive", filter_groupby},
    {"items", "", filter_items_of},
    {"join", "d attribute", filter_join},
    {"last", "", filter_last},
    {"length", "", filter_length},
    {"list", "", filter_list},
    {"map", NULL, filter_map},
    {"max", "case_sensitive attribute", filter_extreme, '>'},
    {"min", "case_sensitive attribute", filter_extreme, '<'},
    {"reject", NULL, filter_select, 'r'},
    {"rejectattr", NULL, filter_select, 'R'},
    {"reverse", "", filter_reverse},
    {"select", NULL, filter_select, 's'},
    {"selectattr", NULL, filter_select, 'S'},
    {"sort", "reverse case_sensitive attribute", filter_sort},
    {"sum", "attribute start", filter_sum},
    {"unique", "case_sensitive attribute", filter_unique},
};
const size_t ls_jinja_sequence_filter_count =
    sizeof ls_jinja_sequence_filters / sizeof *ls_jinja_sequence_filters;
