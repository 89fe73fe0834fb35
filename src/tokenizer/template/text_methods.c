// SPDX-License-Identifier: Apache-2.0
/* The methods of text. */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

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

/* Pieces between white space; from the right when `limit` counts there. */
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

static void split_spaces_right(ls_jinja_state *state, ls_jv text, int64_t limit, ls_jinja_list *pieces)
{
    size_t end = text.bytes;
    for (;;) {
        const ls_jv rest = ls_jinja_strip(state, part(text, 0, end), ls_jv_none(), false, true);
        end = rest.bytes;
        if (end == 0 || state->failed) {
            break;
        }
        if (limit-- == 0) {
            ls_jv_push(state, pieces, rest);
            break;
        }
        size_t from = end;
        while (from > 0) {
            uint32_t c;
            const size_t before = ls_utf8_previous(text.text, from - 1);
            ls_utf8_valid_decode(text.text + before, &c);
            if (ls_jinja_is_space(c)) {
                break;
            }
            from = before;
        }
        ls_jv_push(state, pieces, part(text, from, end));
        end = from;
    }
    reverse(pieces);
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

static ls_jv split(ls_jinja_state *state, ls_jv text, const ls_jv *given, bool from_right)
{
    const ls_jv separator = given[0];
    int64_t limit = whole(state, given[1], -1);
    const ls_jv pieces = ls_jv_list(state, LS_JV_LIST, 0);
    if (ls_jv_is_absent(separator) || separator.kind == LS_JV_NONE) {
        (from_right ? split_spaces_right : split_spaces)(state, text, limit, pieces.list);
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

LS_JINJA_BUILTIN(text_split)
{
    LS_JINJA_UNUSED();
    return split(state, self, given, false);
}

LS_JINJA_BUILTIN(text_rsplit)
{
    LS_JINJA_UNUSED();
    return split(state, self, given, true);
}

LS_JINJA_BUILTIN(text_splitlines)
{
    LS_JINJA_UNUSED();
    return ls_jinja_lines(state, self, ls_jv_truth(state, given[0]));
}

static ls_jv partition(ls_jinja_state *state, ls_jv text, ls_jv separator, bool from_right)
{
    if (!need_text(state, separator)) {
        return separator;
    }
    if (separator.bytes == 0) {
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

LS_JINJA_BUILTIN(text_partition)
{
    LS_JINJA_UNUSED();
    return partition(state, self, given[0], false);
}

LS_JINJA_BUILTIN(text_rpartition)
{
    LS_JINJA_UNUSED();
    return partition(state, self, given[0], true);
}

/* ---- the ends ---- */

static ls_jv strip(ls_jinja_state *state, ls_jv text, ls_jv characters, bool left, bool right)
{
    if (characters.kind != LS_JV_NONE && !ls_jv_is_absent(characters) && characters.kind != LS_JV_STRING) {
        return ls_jinja_refuse(state, "strip arg must be None or str");
    }
    return ls_jinja_strip(state, text, characters, left, right);
}

LS_JINJA_BUILTIN(text_strip)
{
    LS_JINJA_UNUSED();
    return strip(state, self, given[0], true, true);
}

LS_JINJA_BUILTIN(text_lstrip)
{
    LS_JINJA_UNUSED();
    return strip(state, self, given[0], true, false);
}

LS_JINJA_BUILTIN(text_rstrip)
{
    LS_JINJA_UNUSED();
    return strip(state, self, given[0], false, true);
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

static ls_jv starts_or_ends(ls_jinja_state *state, ls_jv text, const ls_jv *given, bool at_end)
{
    size_t from, to;
    const bool is_inside = window(state, text, given + 1, &from, &to);
    const ls_jv span = is_inside ? part(text, from, to) : text;
    if (given[0].kind == LS_JV_STRING) {
        return ls_jv_bool(is_inside && ends_at(span, given[0], at_end));
    }
    if (given[0].kind != LS_JV_TUPLE) {
        return ls_jinja_refuse(state, "%s first arg must be str or a tuple of str, not %s",
                               at_end ? "endswith" : "startswith", ls_jv_type(given[0]));
    }
    bool does = false;
    for (size_t i = 0; i < given[0].list->count && !does; i++) {
        does = need_text(state, given[0].list->items[i]) && is_inside &&
               ends_at(span, given[0].list->items[i], at_end);
    }
    return ls_jv_bool(does);
}

LS_JINJA_BUILTIN(text_startswith)
{
    LS_JINJA_UNUSED();
    return starts_or_ends(state, self, given, false);
}

LS_JINJA_BUILTIN(text_endswith)
{
    LS_JINJA_UNUSED();
    return starts_or_ends(state, self, given, true);
}

LS_JINJA_BUILTIN(text_removeprefix)
{
    LS_JINJA_UNUSED();
    const bool has = need_text(state, given[0]) && ends_at(self, given[0], false);
    return part(self, has ? given[0].bytes : 0, self.bytes);
}

LS_JINJA_BUILTIN(text_removesuffix)
{
    LS_JINJA_UNUSED();
    const bool has = need_text(state, given[0]) && ends_at(self, given[0], true);
    return part(self, 0, self.bytes - (has ? given[0].bytes : 0));
}

/* ---- finding ---- */

static int64_t position(ls_jinja_state *state, ls_jv text, const ls_jv *given, bool last)
{
    size_t from, to;
    if (!need_text(state, given[0]) || !window(state, text, given + 1, &from, &to)) {
        return -1;
    }
    const size_t found =
        last ? find_last(state, text, from, to, given[0]) : ls_jinja_find(state, text, from, to, given[0]);
    return found == SIZE_MAX ? -1 : (int64_t)ls_jinja_characters(part(text, 0, found));
}

static ls_jv index_of(ls_jinja_state *state, ls_jv text, const ls_jv *given, bool last)
{
    const int64_t at = position(state, text, given, last);
    return at < 0 ? ls_jinja_refuse(state, "substring not found") : ls_jv_int(at);
}

LS_JINJA_BUILTIN(text_find)
{
    LS_JINJA_UNUSED();
    return ls_jv_int(position(state, self, given, false));
}

LS_JINJA_BUILTIN(text_rfind)
{
    LS_JINJA_UNUSED();
    return ls_jv_int(position(state, self, given, true));
}

LS_JINJA_BUILTIN(text_index)
{
    LS_JINJA_UNUSED();
    return index_of(state, self, given, false);
}

LS_JINJA_BUILTIN(text_rindex)
{
    LS_JINJA_UNUSED();
    return index_of(state, self, given, true);
}

LS_JINJA_BUILTIN(text_count)
{
    LS_JINJA_UNUSED();
    size_t from, to;
    int64_t count = 0;
    if (!need_text(state, given[0]) || !window(state, self, given + 1, &from, &to)) {
        return ls_jv_int(0);
    }
    if (given[0].bytes == 0) {
        return ls_jv_int((int64_t)ls_jinja_characters(part(self, from, to)) + 1);
    }
    for (;; count++) {
        const size_t found = ls_jinja_find(state, self, from, to, given[0]);
        if (found == SIZE_MAX || state->failed) {
            return ls_jv_int(count);
        }
        from = found + given[0].bytes;
    }
}

LS_JINJA_BUILTIN(text_replace)
{
    LS_JINJA_UNUSED();
    if (!need_text(state, given[0]) || !need_text(state, given[1])) {
        return self;
    }
    const ls_jv new = self.markup ? ls_jv_escape(state, given[1]) : given[1];
    return ls_jinja_replace(state, self, given[0], new, whole(state, given[2], -1));
}

/* ---- joining and filling ---- */

LS_JINJA_BUILTIN(text_join)
{
    LS_JINJA_UNUSED();
    ls_text out = {0};
    ls_jinja_iterator *iterator = ls_jv_iterate(state, given[0]);
    ls_jv item;
    for (size_t i = 0; iterator && ls_jinja_next(state, iterator, &item); i++) {
        if (item.kind != LS_JV_STRING && !self.markup) {
            ls_jinja_refuse(state, "sequence item %zu: expected str instance, %s found", i, ls_jv_type(item));
            break;
        }
        item = self.markup ? ls_jv_escape(state, item) : item;
        ls_jinja_append(state, &out, i ? self : ls_jv_text("", 0));
        ls_jinja_append(state, &out, item);
    }
    ls_jv joined = ls_jv_take_text(state, &out);
    joined.markup = self.markup;
    return joined;
}

/* Fills up to `width` characters; `left` and `right` say where. */
static ls_jv fill(ls_jinja_state *state, ls_jv text, const ls_jv *given, bool left, bool right)
{
    const int64_t width = whole(state, given[0], 0), length = (int64_t)ls_jinja_characters(text);
    const ls_jv with = ls_jv_is_absent(given[1]) ? ls_jv_text(" ", 1) : given[1];
    if (!need_text(state, with) || width <= length || state->failed) {
        return text;
    }
    if (ls_jinja_characters(with) != 1) {
        return ls_jinja_refuse(state, "The fill character must be exactly one character long");
    }
    const int64_t missing = width - length;
    /* Python's rule for the odd one. */
    const int64_t before = !left ? 0 : !right ? missing : missing / 2 + (missing & width & 1);
    const ls_jv first = ls_jv_binary(state, '*', with, ls_jv_int(before));
    const ls_jv last = ls_jv_binary(state, '*', with, ls_jv_int(missing - before));
    ls_jv filled = state->failed ? text : ls_jv_join(state, ls_jv_join(state, first, text), last);
    filled.markup = text.markup;
    return filled;
}

LS_JINJA_BUILTIN(text_ljust)
{
    LS_JINJA_UNUSED();
    return fill(state, self, given, false, true);
}

LS_JINJA_BUILTIN(text_rjust)
{
    LS_JINJA_UNUSED();
    return fill(state, self, given, true, false);
}

LS_JINJA_BUILTIN(text_center)
{
    LS_JINJA_UNUSED();
    return fill(state, self, given, true, true);
}

LS_JINJA_BUILTIN(text_zfill)
{
    LS_JINJA_UNUSED();
    const ls_jv zeros[2] = {given[0], ls_jv_text("0", 1)};
    const size_t sign = self.bytes > 0 && (self.text[0] == '-' || self.text[0] == '+');
    const ls_jv width[2] = {ls_jv_int(whole(state, given[0], 0) - (int64_t)sign), zeros[1]};
    const ls_jv filled = fill(state, part(self, sign, self.bytes), width, true, false);
    return ls_jv_join(state, part(self, 0, sign), filled);
}

LS_JINJA_BUILTIN(text_expandtabs)
{
    LS_JINJA_UNUSED();
    const int64_t size = whole(state, given[0], 8);
    ls_text out = {0};
    int64_t column = 0;
    if (size > 1000) {
        return ls_jinja_unsupported(state, "tab sizes beyond 1000 are not supported");
    }
    for (size_t i = 0; i < self.bytes; i++) {
        const char c = self.text[i];
        if (c == '\t') {
            const int64_t blanks = size > 0 ? size - column % size : 0;
            ls_text_repeat(&out, ' ', (size_t)blanks);
            ls_jinja_spend(state, (size_t)blanks);
            column += blanks;
        } else {
            ls_text_append_bytes(&out, &c, 1);
            column = c == '\n' || c == '\r' ? 0 : column + (((uint8_t)c & 0xC0) != 0x80);
        }
    }
    return ls_jv_take_text(state, &out);
}

/* ---- case ---- */

LS_JINJA_BUILTIN(text_upper)
{
    LS_JINJA_UNUSED();
    return ls_jinja_case(state, self, 'u');
}

LS_JINJA_BUILTIN(text_lower)
{
    LS_JINJA_UNUSED();
    return ls_jinja_case(state, self, 'l');
}

LS_JINJA_BUILTIN(text_title)
{
    LS_JINJA_UNUSED();
    return ls_jinja_case(state, self, 't');
}

LS_JINJA_BUILTIN(text_capitalize)
{
    LS_JINJA_UNUSED();
    return ls_jinja_case(state, self, 'c');
}

LS_JINJA_BUILTIN(text_swapcase)
{
    LS_JINJA_UNUSED();
    return ls_jinja_case(state, self, 's');
}

/* ---- kinds of characters ---- */

static bool is_alnum(uint32_t c)
{
    return ls_unicode_is_letter(ls_unicode_of(c)) || ls_unicode_is_number(ls_unicode_of(c));
}

static bool is_alpha(uint32_t c)
{
    return ls_unicode_is_letter(ls_unicode_of(c));
}

static bool is_decimal(uint32_t c)
{
    return (ls_unicode_of(c) & LS_UNICODE_CATEGORY) == LS_UNICODE_ND;
}

static bool is_digit(uint32_t c)
{
    static const uint32_t more[][2] = {
        {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
        {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
        {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
        {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (c >= more[i][0] && c <= more[i][1]) {
            return true;
        }
    }
    return is_decimal(c);
}

static bool is_numeric(uint32_t c)
{
    return ls_unicode_is_number(ls_unicode_of(c));
}

static bool is_ascii(uint32_t c)
{
    return c < 128;
}

/* Whether there are characters and all are of the kind. */
static ls_jv all(ls_jinja_state *state, ls_jv text, bool (*is)(uint32_t c))
{
    bool are = text.bytes > 0;
    ls_jinja_spend(state, text.bytes);
    for (size_t at = 0; at < text.bytes && are;) {
        uint32_t c;
        at += ls_utf8_valid_decode(text.text + at, &c);
        are = is(c);
    }
    return ls_jv_bool(are);
}

#define ALL(name, is)                                                                                        \
    LS_JINJA_BUILTIN(name)                                                                                   \
    {                                                                                                        \
        LS_JINJA_UNUSED();                                                                                   \
        return all(state, self, is);                                                                         \
    }
ALL(text_isalnum, is_alnum)
ALL(text_isalpha, is_alpha)
ALL(text_isdecimal, is_decimal)
ALL(text_isdigit, is_digit)
ALL(text_isnumeric, is_numeric)
ALL(text_isspace, ls_jinja_is_space)
ALL(text_isprintable, ls_jinja_is_printable)

LS_JINJA_BUILTIN(text_isascii)
{
    LS_JINJA_UNUSED();
    return self.bytes == 0 ? ls_jv_bool(true) : all(state, self, is_ascii);
}

LS_JINJA_BUILTIN(text_isupper)
{
    LS_JINJA_UNUSED();
    return ls_jv_bool(ls_jinja_has_case(state, self, 'u'));
}

LS_JINJA_BUILTIN(text_islower)
{
    LS_JINJA_UNUSED();
    return ls_jv_bool(ls_jinja_has_case(state, self, 'l'));
}

LS_JINJA_BUILTIN(text_istitle)
{
    LS_JINJA_UNUSED();
    return ls_jv_bool(ls_jinja_has_case(state, self, 't'));
}

LS_JINJA_BUILTIN(text_isidentifier)
{
    LS_JINJA_UNUSED();
    bool is = self.bytes > 0;
    for (size_t at = 0; at < self.bytes && is;) {
        uint32_t c;
        const bool is_first = at == 0;
        at += ls_utf8_valid_decode(self.text + at, &c);
        is = c == '_' || is_alpha(c) || (!is_first && is_decimal(c));
    }
    return ls_jv_bool(is);
}

/* ---- formats ---- */

LS_JINJA_BUILTIN(text_format)
{
    LS_JINJA_UNUSED();
    return ls_jinja_format(state, self, args);
}

LS_JINJA_BUILTIN(text_format_map)
{
    LS_JINJA_UNUSED();
    if (given[0].kind != LS_JV_DICT) {
        return ls_jinja_unsupported(state, "format_map() of a %s is not supported", ls_jv_type(given[0]));
    }
    const ls_jinja_args named = {.keywords = given[0].dict};
    return ls_jinja_format(state, self, &named);
}

const ls_jinja_builtin ls_jinja_text_methods[] = {
    {"strip", "/chars", text_strip},
    {"split", "sep maxsplit", text_split},
    {"startswith", "/!prefix start end", text_startswith},
    {"endswith", "/!suffix start end", text_endswith},
    {"lstrip", "/chars", text_lstrip},
    {"rstrip", "/chars", text_rstrip},
    {"replace", "/!old !new count", text_replace},
    {"upper", "", text_upper},
    {"lower", "", text_lower},
    {"title", "", text_title},
    {"capitalize", "", text_capitalize},
    {"swapcase", "", text_swapcase},
    {"join", "/!iterable", text_join},
    {"format", NULL, text_format},
    {"format_map", "/!mapping", text_format_map},
    {"find", "/!sub start end", text_find},
    {"rfind", "/!sub start end", text_rfind},
    {"index", "/!sub start end", text_index},
    {"rindex", "/!sub start end", text_rindex},
    {"count", "/!sub start end", text_count},
    {"rsplit", "sep maxsplit", text_rsplit},
    {"splitlines", "keepends", text_splitlines},
    {"partition", "/!sep", text_partition},
    {"rpartition", "/!sep", text_rpartition},
    {"removeprefix", "/!prefix", text_removeprefix},
    {"removesuffix", "/!suffix", text_removesuffix},
    {"ljust", "/!width fillchar", text_ljust},
    {"rjust", "/!width fillchar", text_rjust},
    {"center", "/!width fillchar", text_center},
    {"zfill", "/!width", text_zfill},
    {"expandtabs", "tabsize", text_expandtabs},
    {"isalnum", "", text_isalnum},
    {"isalpha", "", text_isalpha},
    {"isascii", "", text_isascii},
    {"isdecimal", "", text_isdecimal},
    {"isdigit", "", text_isdigit},
    {"isidentifier", "", text_isidentifier},
    {"islower", "", text_islower},
    {"isnumeric", "", text_isnumeric},
    {"isprintable", "", text_isprintable},
    {"isspace", "", text_isspace},
    {"istitle", "", text_istitle},
    {"isupper", "", text_isupper},
};
const size_t ls_jinja_text_method_count = sizeof ls_jinja_text_methods / sizeof *ls_jinja_text_methods;
