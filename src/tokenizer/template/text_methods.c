// SPDX-License-Identifier: Apache-2.0
/* The methods of text. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

typedef ls_jinja_use use;

static ls_jv part(ls_jv of, size_t from, size_t to)
{
    ls_jv text = ls_jv_text(of.text + from, to - from);
    text.markup = of.markup;
    return text;
}

static bool need_text(ls_jinja_state *state, ls_jv v)
{
    if (v.kind != LS_JV_STRING) {
        ls_jinja_refuse(state, "a str is needed here, not %s", ls_jv_type(v));
    }
    return v.kind == LS_JV_STRING;
}

/* A whole number, or `otherwise` when it was left out. */
static int64_t whole(ls_jinja_state *state, ls_jv v, int64_t otherwise)
{
    if (ls_jv_is_absent(v)) {
        return otherwise;
    }
    if (!ls_jv_is_whole(v)) {
        ls_jinja_refuse(state, "'%s' object cannot be interpreted as an integer", ls_jv_type(v));
        return otherwise;
    }
    return ls_jv_whole(v);
}

/* ---- splitting ---- */

/* Pieces between white space. */
static void split_spaces(ls_jinja_state *state, ls_jv text, int64_t limit, ls_jinja_list *pieces)
{
    size_t at = 0;
    for (;;) {
        const ls_jv rest = ls_jinja_strip(state, part(text, at, text.bytes), ls_jv_none(), true, false);
        if (rest.bytes == 0 || state->failed) {
            return;
        }
        at = (size_t)(rest.text - text.text);
        if (limit-- == 0) {
            ls_jv_push(state, pieces, rest);
            return;
        }
        size_t end = at;
        while (end < text.bytes) {
            uint32_t c;
            const unsigned length = ls_utf8_valid_decode(text.text + end, &c);
            if (ls_jinja_is_space(c)) {
                break;
            }
            end += length;
        }
        ls_jv_push(state, pieces, part(text, at, end));
        at = end;
    }
}

static void reverse(ls_jinja_list *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        const ls_jv item = list->items[i];
        list->items[i] = list->items[list->count - 1 - i];
        list->items[list->count - 1 - i] = item;
    }
}

/* The last place of `needle` in text[from, to). */
static size_t find_last(ls_jinja_state *state, ls_jv text, size_t from, size_t to, ls_jv needle)
{
    ls_jinja_spend(state, to - from);
    for (size_t at = to - from >= needle.bytes ? to - needle.bytes + 1 : from; at > from; at--) {
        if (memcmp(text.text + at - 1, needle.text, needle.bytes) == 0) {
            return at - 1;
        }
    }
    return SIZE_MAX;
}

/* split (l) and rsplit (r). */
static ls_jv split(ls_jinja_state *state, const use *u)
{
    const ls_jv text = u->self, separator = u->given[0];
    const bool from_right = u->how == 'r';
    int64_t limit = whole(state, u->given[1], -1);
    const ls_jv pieces = ls_jv_list(state, LS_JV_LIST, 0);
    if (ls_jv_is_absent(separator) || separator.kind == LS_JV_NONE) {
        if (from_right && limit >= 0) {
            return ls_jinja_unsupported(state, "rsplit() at white space with a limit is not supported");
        }
        split_spaces(state, text, limit, pieces.list);
        return pieces;
    }
    if (!need_text(state, separator)) {
        return pieces;
    }
    if (separator.bytes == 0) {
        return ls_jinja_refuse(state, "empty separator");
    }
    size_t from = 0, to = text.bytes;
    for (; limit != 0 && !state->failed; limit--) {
        const size_t found = from_right ? find_last(state, text, from, to, separator)
                                        : ls_jinja_find(state, text, from, to, separator);
        if (found == SIZE_MAX) {
            break;
        }
        ls_jv_push(state, pieces.list,
                   from_right ? part(text, found + separator.bytes, to) : part(text, from, found));
        from = from_right ? from : found + separator.bytes;
        to = from_right ? found : to;
    }
    ls_jv_push(state, pieces.list, part(text, from, to));
    if (from_right) {
        reverse(pieces.list);
    }
    return pieces;
}

static ls_jv splitlines(ls_jinja_state *state, const use *u)
{
    return ls_jinja_lines(state, u->self, ls_jv_truth(state, u->given[0]));
}

/* partition (l) and rpartition (r). */
static ls_jv partition(ls_jinja_state *state, const use *u)
{
    const ls_jv text = u->self, separator = u->given[0];
    const bool from_right = u->how == 'r';
    if (!need_text(state, separator) || separator.bytes == 0) {
        return ls_jinja_refuse(state, "empty separator");
    }
    size_t at = from_right ? find_last(state, text, 0, text.bytes, separator)
                           : ls_jinja_find(state, text, 0, text.bytes, separator);
    const bool is_found = at != SIZE_MAX;
    at = is_found ? at : from_right ? 0 : text.bytes;
    const size_t after = is_found ? at + separator.bytes : at;
    const ls_jv parts = ls_jv_list(state, LS_JV_TUPLE, 3);
    ls_jv_push(state, parts.list, part(text, 0, at));
    ls_jv_push(state, parts.list, is_found ? separator : ls_jv_text("", 0));
    ls_jv_push(state, parts.list, part(text, after, text.bytes));
    return parts;
}

/* ---- the ends ---- */

/* strip (b), lstrip (l) and rstrip (r). */
static ls_jv strip(ls_jinja_state *state, const use *u)
{
    const ls_jv characters = u->given[0];
    if (characters.kind != LS_JV_NONE && !ls_jv_is_absent(characters) && characters.kind != LS_JV_STRING) {
        return ls_jinja_refuse(state, "strip arg must be None or str");
    }
    return ls_jinja_strip(state, u->self, characters, u->how != 'r', u->how != 'l');
}

static bool ends_at(ls_jv text, ls_jv end, bool at_end)
{
    return end.bytes <= text.bytes &&
           memcmp(text.text + (at_end ? text.bytes - end.bytes : 0), end.text, end.bytes) == 0;
}

/* text[start:end] by characters, for searching; false: start is beyond the end. */
static bool window(ls_jinja_state *state, ls_jv text, const ls_jv *bounds, size_t *from_out, size_t *to_out)
{
    const int64_t length = (int64_t)ls_jinja_characters(text);
    int64_t at[2] = {0, length};
    for (int i = 0; i < 2; i++) {
        if (!ls_jv_is_absent(bounds[i]) && bounds[i].kind != LS_JV_NONE) {
            at[i] = whole(state, bounds[i], 0);
            at[i] += at[i] < 0 ? length : 0;
            at[i] = at[i] < 0 ? 0 : at[i];
        }
    }
    const bool is_inside = at[0] <= length && at[0] <= at[1];
    *from_out = ls_jinja_offset(text, (size_t)at[0]);
    *to_out = ls_jinja_offset(text, (size_t)at[1]);
    return is_inside;
}

/* startswith (l) and endswith (r), of one text or any of a tuple. */
static ls_jv starts_or_ends(ls_jinja_state *state, const use *u)
{
    size_t from, to;
    const ls_jv wanted = u->given[0];
    const bool is_inside = window(state, u->self, u->given + 1, &from, &to);
    const ls_jv span = is_inside ? part(u->self, from, to) : u->self;
    if (wanted.kind == LS_JV_STRING) {
        return ls_jv_bool(is_inside && ends_at(span, wanted, u->how == 'r'));
    }
    if (wanted.kind != LS_JV_TUPLE) {
        return ls_jinja_refuse(state, "first arg must be str or a tuple of str, not %s", ls_jv_type(wanted));
    }
    bool does = false;
    for (size_t i = 0; i < wanted.list->count && !does; i++) {
        const ls_jv one = wanted.list->items[i];
        does = need_text(state, one) && is_inside && ends_at(span, one, u->how == 'r');
    }
    return ls_jv_bool(does);
}

/* removeprefix (l) and removesuffix (r). */
static ls_jv remove_end(ls_jinja_state *state, const use *u)
{
    const bool has = need_text(state, u->given[0]) && ends_at(u->self, u->given[0], u->how == 'r');
    const size_t bytes = has ? u->given[0].bytes : 0;
    return u->how == 'l' ? part(u->self, bytes, u->self.bytes) : part(u->self, 0, u->self.bytes - bytes);
}

/* ---- finding ---- */

/* find (f), rfind (F), index (i), rindex (I). */
static ls_jv find(ls_jinja_state *state, const use *u)
{
    size_t from, to, found = SIZE_MAX;
    if (need_text(state, u->given[0]) && window(state, u->self, u->given + 1, &from, &to)) {
        found = u->how == 'F' || u->how == 'I' ? find_last(state, u->self, from, to, u->given[0])
                                               : ls_jinja_find(state, u->self, from, to, u->given[0]);
    }
    if (found == SIZE_MAX) {
        return (u->how | 32) == 'i' ? ls_jinja_refuse(state, "substring not found") : ls_jv_int(-1);
    }
    return ls_jv_int((int64_t)ls_jinja_characters(part(u->self, 0, found)));
}

static ls_jv count(ls_jinja_state *state, const use *u)
{
    size_t from, to;
    if (!need_text(state, u->given[0]) || !window(state, u->self, u->given + 1, &from, &to)) {
        return ls_jv_int(0);
    }
    if (u->given[0].bytes == 0) {
        return ls_jv_int((int64_t)ls_jinja_characters(part(u->self, from, to)) + 1);
    }
    for (int64_t found = 0;; found++) {
        const size_t at = ls_jinja_find(state, u->self, from, to, u->given[0]);
        if (at == SIZE_MAX || state->failed) {
            return ls_jv_int(found);
        }
        from = at + u->given[0].bytes;
    }
}

static ls_jv replace(ls_jinja_state *state, const use *u)
{
    if (!need_text(state, u->given[0]) || !need_text(state, u->given[1])) {
        return u->self;
    }
    const ls_jv new = u->self.markup ? ls_jv_escape(state, u->given[1]) : u->given[1];
    return ls_jinja_replace(state, u->self, u->given[0], new, whole(state, u->given[2], -1));
}

/* ---- joining and filling ---- */

static ls_jv join(ls_jinja_state *state, const use *u)
{
    ls_text out = {0};
    ls_jinja_iterator *iterator = ls_jv_iterate(state, u->given[0]);
    ls_jv item;
    for (size_t i = 0; iterator && ls_jinja_next(state, iterator, &item); i++) {
        if (item.kind != LS_JV_STRING && !u->self.markup) {
            ls_jinja_refuse(state, "sequence item %zu: expected str instance, %s found", i, ls_jv_type(item));
            break;
        }
        item = u->self.markup ? ls_jv_escape(state, item) : item;
        ls_jinja_append(state, &out, i ? u->self : ls_jv_text("", 0));
        ls_jinja_append(state, &out, item);
    }
    ls_jv joined = ls_jv_take_text(state, &out);
    joined.markup = u->self.markup;
    return joined;
}

/* ljust (l), rjust (r), center (c) and zfill (z): filled up to a number of characters. */
static ls_jv fill(ls_jinja_state *state, const use *u)
{
    const ls_jv with = u->how == 'z'                  ? ls_jv_text("0", 1)
                       : ls_jv_is_absent(u->given[1]) ? ls_jv_text(" ", 1)
                                                      : u->given[1];
    const int64_t width = whole(state, u->given[0], 0), length = (int64_t)ls_jinja_characters(u->self);
    const size_t sign =
        u->how == 'z' && u->self.bytes > 0 && (u->self.text[0] == '-' || u->self.text[0] == '+');
    if (!need_text(state, with) || width <= length) {
        return u->self;
    }
    if (ls_jinja_characters(with) != 1) {
        return ls_jinja_refuse(state, "The fill character must be exactly one character long");
    }
    const int64_t missing = width - length;
    /* Python's rule for the odd one. */
    const int64_t before = u->how == 'l' ? 0 : u->how == 'c' ? missing / 2 + (missing & width & 1) : missing;
    const ls_jv first = ls_jv_binary(state, '*', with, ls_jv_int(before));
    const ls_jv last = ls_jv_binary(state, '*', with, ls_jv_int(missing - before));
    ls_jv filled = ls_jv_join(state, part(u->self, 0, sign), state->failed ? u->self : first);
    filled = ls_jv_join(state, filled, part(u->self, sign, u->self.bytes));
    return state->failed ? u->self : ls_jv_join(state, filled, last);
}

/* ---- case and kinds of characters ---- */

static ls_jv change_case(ls_jinja_state *state, const use *u)
{
    return ls_jinja_case(state, u->self, u->how);
}

static ls_jv has_case(ls_jinja_state *state, const use *u)
{
    return ls_jv_bool(ls_jinja_has_case(state, u->self, u->how));
}

/* isalpha (a), isdecimal and isdigit (d), isalnum (n), isspace (s). */
static ls_jv is_all(ls_jinja_state *state, const use *u)
{
    bool are = u->self.bytes > 0;
    ls_jinja_spend(state, u->self.bytes);
    for (size_t at = 0; at < u->self.bytes && are;) {
        uint32_t c;
        at += ls_utf8_valid_decode(u->self.text + at, &c);
        const uint8_t properties = ls_unicode_of(c), category = properties & LS_UNICODE_CATEGORY;
        if (category == LS_UNICODE_NO && u->how == 'd') {
            ls_jinja_unsupported(state, "isdigit() of U+%04X is not supported", c);
        }
        are = u->how == 's' ? ls_jinja_is_space(c)
              : u->how == 'd'
                  ? category == LS_UNICODE_ND
                  : ls_unicode_is_letter(properties) || (u->how == 'n' && ls_unicode_is_number(properties));
    }
    return ls_jv_bool(are);
}

static ls_jv format(ls_jinja_state *state, const use *u)
{
    return ls_jinja_format(state, u->self, u->args);
}

const ls_jinja_builtin ls_jinja_text_methods[] = {
    {"strip", "/chars", strip, 'b'},
    {"split", "sep maxsplit", split, 'l'},
    {"startswith", "/!prefix start end", starts_or_ends, 'l'},
    {"endswith", "/!suffix start end", starts_or_ends, 'r'},
    {"lstrip", "/chars", strip, 'l'},
    {"rstrip", "/chars", strip, 'r'},
    {"replace", "/!old !new count", replace, 0},
    {"upper", "", change_case, 'u'},
    {"lower", "", change_case, 'l'},
    {"title", "", change_case, 't'},
    {"capitalize", "", change_case, 'c'},
    {"swapcase", "", change_case, 's'},
    {"join", "/!iterable", join, 0},
    {"format", NULL, format, 0},
    {"find", "/!sub start end", find, 'f'},
    {"rfind", "/!sub start end", find, 'F'},
    {"index", "/!sub start end", find, 'i'},
    {"rindex", "/!sub start end", find, 'I'},
    {"count", "/!sub start end", count, 0},
    {"rsplit", "sep maxsplit", split, 'r'},
    {"splitlines", "keepends", splitlines, 0},
    {"partition", "/!sep", partition, 'l'},
    {"rpartition", "/!sep", partition, 'r'},
    {"removeprefix", "/!prefix", remove_end, 'l'},
    {"removesuffix", "/!suffix", remove_end, 'r'},
    {"ljust", "/!width fillchar", fill, 'l'},
    {"rjust", "/!width fillchar", fill, 'r'},
    {"center", "/!width fillchar", fill, 'c'},
    {"zfill", "/!width", fill, 'z'},
    {"isalnum", "", is_all, 'n'},
    {"isalpha", "", is_all, 'a'},
    {"isdigit", "", is_all, 'd'},
    {"isdecimal", "", is_all, 'd'},
    {"isspace", "", is_all, 's'},
    {"islower", "", has_case, 'l'},
    {"isupper", "", has_case, 'u'},
};
const size_t ls_jinja_text_method_count = sizeof ls_jinja_text_methods / sizeof *ls_jinja_text_methods;
