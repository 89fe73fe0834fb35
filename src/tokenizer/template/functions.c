// SPDX-License-Identifier: Apache-2.0
/* The global functions of chat templates, and the methods of values other than text. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

typedef ls_jinja_use use;

/* ---- global functions ---- */

enum { RANGE_MAX = 100000 };

static ls_jv function_range(ls_jinja_state *state, const use *u)
{
    for (int i = 0; i < 3; i++) {
        if (!ls_jv_is_absent(u->given[i]) && !ls_jv_is_whole(u->given[i])) {
            return ls_jinja_refuse(state, "'%s' object cannot be interpreted as an integer",
                                   ls_jv_type(u->given[i]));
        }
    }
    const bool has_stop = !ls_jv_is_absent(u->given[1]);
    const int64_t start = has_stop ? ls_jv_whole(u->given[0]) : 0;
    const int64_t stop = ls_jv_whole(u->given[has_stop]);
    const int64_t step = ls_jv_is_absent(u->given[2]) ? 1 : ls_jv_whole(u->given[2]);
    if (step == 0) {
        return ls_jinja_refuse(state, "range() arg 3 must not be zero");
    }
    const uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
    const bool is_empty = step > 0 ? start >= stop : start <= stop;
    const uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    const uint64_t count = is_empty ? 0 : 1 + (span - 1) / stride;
    if (count > RANGE_MAX) {
        return ls_jinja_refuse(state, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).",
                               RANGE_MAX);
    }
    ls_jinja_range *range = ls_jinja_take(state, sizeof *range);
    *range = (ls_jinja_range){.start = start, .stop = stop, .step = step, .count = count};
    return (ls_jv){.kind = LS_JV_RANGE, .range = range};
}

/* dict(mapping or pairs, name=value, ...) */
static ls_jinja_dict *make_dict(ls_jinja_state *state, const ls_jinja_args *args)
{
    ls_jinja_dict *dict = ls_jinja_dict_new(state, 4);
    if (args->count > 1) {
        ls_jinja_refuse(state, "dict expected at most 1 argument, got %zu", args->count);
        return dict;
    }
    const ls_jinja_dict *sources[2] = {NULL, args->keywords};
    if (args->count == 1 && args->positional[0].kind == LS_JV_DICT) {
        sources[0] = args->positional[0].dict;
    } else if (args->count == 1) {
        const ls_jinja_list *pairs = ls_jv_to_list(state, args->positional[0]);
        for (size_t i = 0; i < pairs->count && !state->failed; i++) {
            const ls_jinja_list *pair = ls_jv_to_list(state, pairs->items[i]);
            if (pair->count != 2) {
                ls_jinja_refuse(state,
                                "dictionary update sequence element #%zu has length %zu; 2 is required", i,
                                pair->count);
                return dict;
            }
            ls_jinja_dict_set(state, dict, pair->items[0], pair->items[1]);
        }
    }
    for (int s = 0; s < 2; s++) {
        for (size_t i = 0; sources[s] && i < sources[s]->count; i++) {
            ls_jinja_dict_set(state, dict, sources[s]->keys[i], sources[s]->values[i]);
        }
    }
    return dict;
}

static ls_jv function_dict(ls_jinja_state *state, const use *u)
{
    return (ls_jv){.kind = LS_JV_DICT, .dict = make_dict(state, u->args)};
}

static ls_jv function_namespace(ls_jinja_state *state, const use *u)
{
    return (ls_jv){.kind = LS_JV_NAMESPACE, .dict = make_dict(state, u->args)};
}

static ls_jv function_raise(ls_jinja_state *state, const use *u)
{
    const ls_jv text = ls_jv_string(state, u->given[0]);
    return ls_jinja_refuse(state, "%.*s", (int)text.bytes, text.text);
}

static ls_jv function_strftime(ls_jinja_state *state, const use *u)
{
    if (u->given[0].kind != LS_JV_STRING) {
        return ls_jinja_refuse(state, "strftime() argument 1 must be str, not %s", ls_jv_type(u->given[0]));
    }
    /* Each directive alone, so that zero bytes and unknown ones are seen. */
    ls_text out = {0};
    const ls_jv format = u->given[0];
    for (size_t i = 0; i < format.bytes; i++) {
        if (format.text[i] != '%') {
            ls_text_append_bytes(&out, format.text + i, 1);
            continue;
        }
        const size_t from = i++;
        i += i < format.bytes && format.text[i] == '-';
        const char letter = i < format.bytes ? format.text[i] : 0;
        if (!letter || !strchr("aAwdbBmyYHIMSpjUWcxXGuVeDFTRhnt%kls", letter)) {
            ls_text_release(&out);
            return ls_jinja_unsupported(state, "strftime_now does not have the directive %%%c",
                                        letter ? letter : '?');
        }
        char directive[4] = {0}, text[64];
        memcpy(directive, format.text + from, i + 1 - from);
        ls_text_append_bytes(&out, text, strftime(text, sizeof text, directive, &state->now));
    }
    return ls_jv_take_text(state, &out);
}

static const ls_jinja_builtin functions[] = {
    {"range", "/!stop start step", function_range}, {"dict", NULL, function_dict},
    {"namespace", NULL, function_namespace},        {"raise_exception", "!message", function_raise},
    {"strftime_now", "!format", function_strftime},
};

ls_jv ls_jinja_global_find(ls_jv name)
{
    const ls_jinja_builtin *found =
        ls_jinja_builtin_find(functions, sizeof functions / sizeof *functions, name);
    return found ? (ls_jv){.kind = LS_JV_FUNCTION, .function = found} : ls_jv_undefined();
}

/* ---- loops ---- */

size_t ls_jinja_loop_length(ls_jinja_state *state, ls_jinja_loop *loop)
{
    if (!loop->has_length && !ls_jv_length(state, loop->iterable, &loop->length)) {
        const ls_jv rest = {.kind = LS_JV_LIST, .list = ls_jv_to_list(state, loop->iterator)};
        loop->length = rest.list->count + (size_t)(loop->index0 + 1) + loop->has_after;
        loop->iterator = ls_jv_iterator(state, rest);
    }
    loop->has_length = true;
    return loop->length;
}

static bool loop_peek(ls_jinja_state *state, ls_jinja_loop *loop)
{
    loop->has_after = loop->has_after || ls_jinja_next(state, loop->iterator.iterator, &loop->after);
    return loop->has_after;
}

static ls_jv loop_cycle(ls_jinja_state *state, const use *u)
{
    if (u->args->count == 0 || u->args->keywords) {
        return ls_jinja_refuse(state, "no items for cycling u->given");
    }
    return u->args->positional[(size_t)u->self.loop->index0 % u->args->count];
}

static ls_jv loop_changed(ls_jinja_state *state, const use *u)
{
    ls_jinja_loop *loop = u->self.loop;
    const ls_jv now = ls_jv_list(state, LS_JV_TUPLE, u->args->count);
    for (size_t i = 0; i < u->args->count; i++) {
        ls_jv_push(state, now.list, u->args->positional[i]);
    }
    const bool has_changed = !loop->has_changed || !ls_jv_equal(state, loop->changed, now);
    loop->has_changed = true;
    loop->changed = now;
    return ls_jv_bool(has_changed);
}

static const ls_jinja_builtin loop_methods[] = {{"cycle", NULL, loop_cycle}, {"changed", NULL, loop_changed}};

/* The properties of the variable loop. */
static bool loop_property(ls_jinja_state *state, ls_jinja_loop *loop, ls_jv name, ls_jv *value_out)
{
    const int64_t index = loop->index0 + 1;
    if (ls_jv_is(name, "index0")) {
        *value_out = ls_jv_int(loop->index0);
    } else if (ls_jv_is(name, "index")) {
        *value_out = ls_jv_int(index);
    } else if (ls_jv_is(name, "first")) {
        *value_out = ls_jv_bool(loop->index0 == 0);
    } else if (ls_jv_is(name, "last")) {
        *value_out = ls_jv_bool(!loop_peek(state, loop));
    } else if (ls_jv_is(name, "length")) {
        *value_out = ls_jv_int((int64_t)ls_jinja_loop_length(state, loop));
    } else if (ls_jv_is(name, "revindex")) {
        *value_out = ls_jv_int((int64_t)ls_jinja_loop_length(state, loop) - loop->index0);
    } else if (ls_jv_is(name, "revindex0")) {
        *value_out = ls_jv_int((int64_t)ls_jinja_loop_length(state, loop) - index);
    } else if (ls_jv_is(name, "depth") || ls_jv_is(name, "depth0")) {
        *value_out = ls_jv_int((int64_t)loop->depth0 + ls_jv_is(name, "depth"));
    } else if (ls_jv_is(name, "previtem")) {
        *value_out = loop->index0 == 0 ? ls_jv_missing(state, "there is no previous item") : loop->before;
    } else if (ls_jv_is(name, "nextitem")) {
        *value_out = loop_peek(state, loop) ? loop->after : ls_jv_missing(state, "there is no next item");
    } else {
        return false;
    }
    return true;
}

/* ---- methods ---- */

static ls_jv dict_get(ls_jinja_state *state, const use *u)
{
    if (!ls_jv_is_hashable(u->given[0])) {
        return ls_jinja_refuse(state, "unhashable type: '%s'", ls_jv_type(u->given[0]));
    }
    const ls_jv *found = ls_jinja_dict_find(state, u->self.dict, u->given[0]);
    return found ? *found : ls_jv_is_absent(u->given[1]) ? ls_jv_none() : u->given[1];
}

static ls_jv dict_view(ls_jinja_state *state, const use *u)
{
    (void)state;
    return (ls_jv){.kind = LS_JV_VIEW, .bytes = (uint32_t)u->how, .dict = u->self.dict};
}

static ls_jv copy(ls_jinja_state *state, const use *u)
{
    (void)state;
    return u->self;
}

static ls_jv list_count(ls_jinja_state *state, const use *u)
{
    int64_t count = 0;
    for (size_t i = 0; i < u->self.list->count; i++) {
        count += ls_jv_equal(state, u->self.list->items[i], u->given[0]);
    }
    return ls_jv_int(count);
}

static ls_jv list_index(ls_jinja_state *state, const use *u)
{
    for (size_t i = 0; i < u->self.list->count; i++) {
        if (ls_jv_equal(state, u->self.list->items[i], u->given[0])) {
            return ls_jv_int((int64_t)i);
        }
    }
    return ls_jinja_refuse(state, "the value is not in the list");
}

static const ls_jinja_builtin dict_methods[] = {
    {"get", "/!key default", dict_get},
    {"keys", "", dict_view, LS_JV_KEYS},
    {"values", "", dict_view, LS_JV_VALUES},
    {"items", "", dict_view, LS_JV_ITEMS},
    {"copy", "", copy},
};
static const ls_jinja_builtin list_methods[] = {
    {"count", "/!value", list_count}, {"index", "/!value", list_index}, {"copy", "", copy}};

/* What values of a kind have: methods, attributes that the sandbox hides, and those that we do not
 * have. */
typedef struct attributes {
    const ls_jinja_builtin *methods;
    size_t count;
    const char *hidden, *unknown;
} attributes;

#define NUMBER_ATTRIBUTES                                                                                    \
    "real imag numerator denominator conjugate bit_length bit_count to_bytes from_bytes as_integer_ratio "   \
    "is_integer hex fromhex"

static attributes attributes_of(ls_jv v)
{
    switch (v.kind) {
    case LS_JV_STRING:
        return (attributes){
            ls_jinja_text_methods, ls_jinja_text_method_count, "",
            "casefold encode expandtabs format_map isascii isidentifier isnumeric isprintable "
            "istitle maketrans translate"};
    case LS_JV_DICT:
        return (attributes){dict_methods, sizeof dict_methods / sizeof *dict_methods,
                            "clear pop popitem setdefault update", "fromkeys"};
    case LS_JV_LIST:
        return (attributes){list_methods, 3, "append clear pop reverse insert sort extend remove", ""};
    case LS_JV_TUPLE:
        return (attributes){list_methods, 2, "", ""};
    case LS_JV_LOOP:
        return (attributes){loop_methods, sizeof loop_methods / sizeof *loop_methods, "", ""};
    case LS_JV_BOOL:
    case LS_JV_INT:
    case LS_JV_FLOAT:
        return (attributes){NULL, 0, "", NUMBER_ATTRIBUTES};
    case LS_JV_MACRO:
        return (attributes){NULL, 0, "", "name arguments caller catch_kwargs catch_varargs explicit_caller"};
    case LS_JV_VIEW:
    case LS_JV_RANGE:
    case LS_JV_ITERATOR:
        return (attributes){NULL, 0, "", "isdisjoint mapping start stop step count index send throw close"};
    default:
        return (attributes){NULL, 0, "", ""};
    }
}

static bool is_one_of(ls_jv name, const char *names)
{
    while (*names) {
        const size_t bytes = strcspn(names, " ");
        if (name.bytes == bytes && memcmp(name.text, names, bytes) == 0) {
            return true;
        }
        names += bytes + (names[bytes] == ' ');
    }
    return false;
}

bool ls_jinja_method_find(ls_jinja_state *state, ls_jv self, ls_jv name, ls_jv *value_out)
{
    const attributes has = attributes_of(self);
    if (self.kind == LS_JV_LOOP && loop_property(state, self.loop, name, value_out)) {
        return true;
    }
    const ls_jinja_builtin *found = ls_jinja_builtin_find(has.methods, has.count, name);
    if (found) {
        ls_jinja_method *method = ls_jinja_take(state, sizeof *method);
        *method = (ls_jinja_method){.self = self, .builtin = found};
        *value_out = (ls_jv){.kind = LS_JV_METHOD, .method = method};
        return true;
    }
    if (is_one_of(name, has.unknown)) {
        ls_jinja_unsupported(state, "'%.*s' of a %s is not supported", (int)name.bytes, name.text,
                             ls_jv_type(self));
    }
    *value_out = ls_jv_undefined();
    return is_one_of(name, has.hidden);
}
