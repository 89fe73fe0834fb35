// SPDX-License-Identifier: Apache-2.0
/* Text by characters, and what Python's str does with it: its methods, and the filters that do the
 * same. `how` tells a method from its neighbours: from the left (l) or right (r). */
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

typedef ls_jinja_use use;

size_t ls_jinja_characters(ls_jv text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.bytes; i++) {
        count += ((uint8_t)text.text[i] & 0xC0) != 0x80;
    }
    return count;
}

size_t ls_jinja_offset(ls_jv text, size_t index)
{
    size_t at = 0;
    uint32_t c;
    for (; index > 0 && at < text.bytes; index--) {
        at += ls_utf8_valid_decode(text.text + at, &c);
    }
    return at;
}

bool ls_jinja_is_space(uint32_t c)
{
    return (c >= 0x1c && c <= 0x1f) || (ls_unicode_of(c) & LS_UNICODE_SPACE);
}

void ls_jinja_append(ls_jinja *j, ls_text *out, ls_jv text)
{
    ls_jinja_spend(j, text.bytes);
    if (out->bytes + text.bytes > LS_JINJA_TEXT_MAX) {
        (void)ls_jinja_take(j, SIZE_MAX / 2);
    } else {
        ls_text_append_bytes(out, text.text, text.bytes);
    }
}

/* ---- finding ---- */

size_t ls_jinja_find(ls_jinja *j, ls_jv text, size_t from, size_t to, ls_jv needle, bool is_last)
{
    if (from > to || to - from < needle.bytes) {
        return SIZE_MAX;
    }
    const char *found = needle.bytes == 0 ? text.text + (is_last ? to : from) : NULL;
    if (needle.bytes > 0 && !is_last) {
        found = memmem(text.text + from, to - from, needle.text, needle.bytes);
    }
    for (size_t at = to - needle.bytes + 1; !found && is_last && at > from; at--) {
        found = memcmp(text.text + at - 1, needle.text, needle.bytes) == 0 ? text.text + at - 1 : NULL;
    }
    ls_jinja_spend(j, found && !is_last ? (size_t)(found - text.text) - from : to - from);
    return found ? (size_t)(found - text.text) : SIZE_MAX;
}

/* text[start:end] by characters; false: start is beyond the end. */
static bool window(ls_jv text, const ls_jv *bounds, size_t *from_out, size_t *to_out)
{
    const int64_t length = (int64_t)ls_jinja_characters(text);
    int64_t at[2];
    for (int i = 0; i < 2; i++) {
        at[i] = ls_jv_is_absent(bounds[i]) ? (i == 0 ? 0 : length) : ls_jv_whole(bounds[i]);
        at[i] += at[i] < 0 ? length : 0;
        at[i] = at[i] < 0 ? 0 : at[i];
    }
    *from_out = ls_jinja_offset(text, (size_t)at[0]);
    *to_out = ls_jinja_offset(text, (size_t)at[1]);
    return at[0] <= length && at[0] <= at[1];
}

/* find (f), rfind (F), index (i), rindex (I). */
static ls_jv find(ls_jinja *j, const use *u)
{
    size_t from, to, found = SIZE_MAX;
    if (window(u->self, u->given + 1, &from, &to)) {
        found = ls_jinja_find(j, u->self, from, to, u->given[0], u->how < 'a');
    }
    if (found == SIZE_MAX && (u->how | 32) == 'i') {
        return ls_jinja_refuse(j, "substring not found");
    }
    return ls_jv_int(found == SIZE_MAX ? -1 : (int64_t)ls_jinja_characters(ls_jv_part(u->self, 0, found)));
}

static ls_jv count(ls_jinja *j, const use *u)
{
    size_t from, to;
    int64_t found = 0;
    if (!window(u->self, u->given + 1, &from, &to)) {
        return ls_jv_int(0);
    }
    if (u->given[0].bytes == 0) {
        return ls_jv_int((int64_t)ls_jinja_characters(ls_jv_part(u->self, from, to)) + 1);
    }
    for (size_t at = 0; at != SIZE_MAX && !j->failed; found++) {
        at = ls_jinja_find(j, u->self, from, to, u->given[0], false);
        from = at + u->given[0].bytes;
    }
    return ls_jv_int(found - 1);
}

static bool ends_at(ls_jv text, ls_jv end, bool at_end)
{
    return end.bytes <= text.bytes &&
           memcmp(text.text + (at_end ? text.bytes - end.bytes : 0), end.text, end.bytes) == 0;
}

/* startswith and endswith, of one text or any of a tuple. */
static ls_jv starts_or_ends(ls_jinja *j, const use *u)
{
    size_t from, to;
    bool does = false;
    ls_jv one = u->given[0];
    const bool is_inside = window(u->self, u->given + 1, &from, &to);
    const ls_jinja_list single = {.items = &one, .count = 1},
                        *list = one.kind == LS_JV_TUPLE ? one.list : &single;
    for (size_t i = 0; i < list->count && !does; i++) {
        if (list->items[i].kind != LS_JV_STRING) {
            return ls_jinja_refuse(j, "a str or a tuple of str is needed here, not %s",
                                   ls_jv_type(list->items[i]));
        }
        does = is_inside && ends_at(ls_jv_part(u->self, from, to), list->items[i], u->how == 'r');
    }
    return ls_jv_bool(does);
}

/* removeprefix and removesuffix. */
static ls_jv remove_end(ls_jinja *j, const use *u)
{
    (void)j;
    const size_t bytes = ends_at(u->self, u->given[0], u->how == 'r') ? u->given[0].bytes : 0;
    return u->how == 'l' ? ls_jv_part(u->self, bytes, u->self.bytes)
                         : ls_jv_part(u->self, 0, u->self.bytes - bytes);
}

/* ---- parts ---- */

static bool is_stripped(uint32_t c, ls_jv characters)
{
    char utf8[4];
    const unsigned bytes = ls_utf8_encode(c, utf8);
    return characters.kind != LS_JV_STRING ? ls_jinja_is_space(c)
                                           : memmem(characters.text, characters.bytes, utf8, bytes) != NULL;
}

ls_jv ls_jinja_strip(ls_jinja *j, ls_jv text, ls_jv characters, char ends)
{
    size_t from = 0, to = text.bytes;
    uint32_t c;
    for (unsigned length = 1; ends != 'r' && from < to && length > 0; from += length) {
        length = ls_utf8_valid_decode(text.text + from, &c);
        length = is_stripped(c, characters) ? length : 0;
    }
    while (ends != 'l' && to > from) {
        const size_t last = ls_utf8_previous(text.text, to - 1);
        ls_utf8_valid_decode(text.text + last, &c);
        if (!is_stripped(c, characters)) {
            break;
        }
        to = last;
    }
    ls_jinja_spend(j, (text.bytes - (to - from)) * (characters.kind == LS_JV_STRING ? characters.bytes : 1));
    return ls_jv_part(text, from, to);
}

static ls_jv strip(ls_jinja *j, const use *u)
{
    const ls_jv characters = u->given[0];
    if (!ls_jv_is_absent(characters) && characters.kind != LS_JV_NONE && characters.kind != LS_JV_STRING) {
        return ls_jinja_refuse(j, "strip arg must be None or str");
    }
    return ls_jinja_strip(j, ls_jv_string(j, u->self), characters, (char)u->how);
}

/* Pieces between white space. */
static void split_spaces(ls_jinja *j, ls_jv text, int64_t limit, ls_jinja_list *pieces)
{
    ls_jv rest = ls_jinja_strip(j, text, ls_jv_none(), 'l');
    while (rest.bytes > 0 && !j->failed) {
        size_t end = limit-- == 0 ? rest.bytes : 0;
        while (end < rest.bytes) {
            uint32_t c;
            const unsigned length = ls_utf8_valid_decode(rest.text + end, &c);
            if (ls_jinja_is_space(c)) {
                break;
            }
            end += length;
        }
        ls_jv_push(j, pieces, ls_jv_part(rest, 0, end));
        rest = ls_jinja_strip(j, ls_jv_part(rest, end, rest.bytes), ls_jv_none(), 'l');
    }
}

/* split and rsplit. */
static ls_jv split(ls_jinja *j, const use *u)
{
    const ls_jv text = u->self, separator = u->given[0];
    const bool from_right = u->how == 'r';
    int64_t limit = ls_jv_is_absent(u->given[1]) ? -1 : ls_jv_whole(u->given[1]);
    ls_jinja_list *pieces = ls_jinja_list_new(j, 0);
    if (ls_jv_is_absent(separator) || separator.kind == LS_JV_NONE) {
        if (from_right && limit >= 0) {
            return ls_jinja_unsupported(j, "rsplit() at white space with a limit is not supported");
        }
        split_spaces(j, text, limit, pieces);
        return ls_jv_of(LS_JV_LIST, pieces);
    }
    if (separator.kind != LS_JV_STRING || separator.bytes == 0) {
        return ls_jinja_refuse(j, "empty separator, or one that is no str");
    }
    size_t from = 0, to = text.bytes, found;
    while (limit-- != 0 && !j->failed &&
           (found = ls_jinja_find(j, text, from, to, separator, from_right)) != SIZE_MAX) {
        const size_t after = found + separator.bytes;
        ls_jv_push(j, pieces, from_right ? ls_jv_part(text, after, to) : ls_jv_part(text, from, found));
        from = from_right ? from : after;
        to = from_right ? found : to;
    }
    ls_jv_push(j, pieces, ls_jv_part(text, from, to));
    if (from_right) {
        ls_jinja_reverse(pieces);
    }
    return ls_jv_of(LS_JV_LIST, pieces);
}

/* partition and rpartition. */
static ls_jv partition(ls_jinja *j, const use *u)
{
    const ls_jv text = u->self, separator = u->given[0];
    const bool from_right = u->how == 'r';
    if (separator.bytes == 0) {
        return ls_jinja_refuse(j, "empty separator");
    }
    const size_t found = ls_jinja_find(j, text, 0, text.bytes, separator, from_right);
    const size_t at = found != SIZE_MAX ? found : from_right ? 0 : text.bytes;
    const size_t after = found != SIZE_MAX ? found + separator.bytes : at;
    ls_jinja_list *parts = ls_jinja_list_new(j, 3);
    ls_jv_push(j, parts, ls_jv_part(text, 0, at));
    ls_jv_push(j, parts, ls_jv_part(text, at, after));
    ls_jv_push(j, parts, ls_jv_part(text, after, text.bytes));
    return ls_jv_of(LS_JV_TUPLE, parts);
}

static ls_jinja_list *lines(ls_jinja *j, ls_jv text, bool keep_ends)
{
    ls_jinja_list *list = ls_jinja_list_new(j, 0);
    ls_jinja_spend(j, text.bytes);
    for (size_t from = 0, at = 0; from < text.bytes && !j->failed; from = at) {
        uint32_t c = 0;
        size_t end = from;
        bool is_end = false;
        for (; at < text.bytes && !is_end; end = is_end ? end : at) {
            at += ls_utf8_valid_decode(text.text + at, &c);
            is_end = (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
                     c == 0x2029;
        }
        at += is_end && c == '\r' && at < text.bytes && text.text[at] == '\n';
        ls_jv_push(j, list, ls_jv_part(text, from, keep_ends ? at : end));
    }
    return list;
}

static ls_jv splitlines(ls_jinja *j, const use *u)
{
    return ls_jv_of(LS_JV_LIST, lines(j, u->self, ls_jv_truth(j, u->given[0])));
}

/* ---- making ---- */

static ls_jv replace(ls_jinja *j, const use *u)
{
    ls_jv text = ls_jv_string(j, u->self), old = ls_jv_string(j, u->given[0]),
          new = ls_jv_string(j, u->given[1]);
    int64_t limit = ls_jv_is_absent(u->given[2]) ? -1 : ls_jv_whole(u->given[2]);
    ls_text out = {0};
    size_t at = 0, found;
    text.markup = false;
    while (limit-- != 0 && !j->failed &&
           (found = ls_jinja_find(j, text, at, text.bytes, old, false)) != SIZE_MAX) {
        ls_jinja_append(j, &out, ls_jv_part(text, at, found));
        ls_jinja_append(j, &out, new);
        at = found + old.bytes;
        if (old.bytes == 0) { /* between all characters */
            const ls_jv one = ls_jv_part(text, at, at + ls_jinja_offset(ls_jv_part(text, at, text.bytes), 1));
            ls_jinja_append(j, &out, one);
            at += one.bytes;
            limit = one.bytes == 0 ? 0 : limit;
        }
    }
    ls_jinja_append(j, &out, ls_jv_part(text, at, text.bytes));
    return ls_jv_take_text(j, &out);
}

static ls_jv indent(ls_jinja *j, const use *u)
{
    const ls_jv width = ls_jv_or(u->given[0], ls_jv_int(4)), line_end = ls_jv_text("\n", 1);
    const ls_jv by = width.kind == LS_JV_STRING ? width : ls_jv_binary(j, '*', ls_jv_text(" ", 1), width);
    const bool first = ls_jv_truth(j, u->given[1]), blank = ls_jv_truth(j, u->given[2]);
    const ls_jv text = ls_jv_binary(j, '+', u->self, line_end);
    if (j->failed || text.markup) {
        return ls_jinja_unsupported(j, "indent of text marked as safe is not supported");
    }
    const ls_jinja_list *list = lines(j, text, false);
    ls_text out = {0};
    for (size_t i = 0; i < list->count && !j->failed; i++) {
        const ls_jv line = list->items[i];
        ls_jinja_append(j, &out, i > 0 ? line_end : ls_jv_text("", 0));
        ls_jinja_append(j, &out, (i == 0 ? first : blank || line.bytes > 0) ? by : ls_jv_text("", 0));
        ls_jinja_append(j, &out, line);
    }
    return ls_jv_take_text(j, &out);
}

void ls_jinja_pad(ls_jinja *j, ls_text *out, ls_jv text, int64_t width, ls_jv fill, char align)
{
    const int64_t length = (int64_t)ls_jinja_characters(text), missing = width > length ? width - length : 0;
    const size_t sign = align == 'z' && text.bytes > 0 && (*text.text == '-' || *text.text == '+');
    /* center: Python's rule for the odd one */
    const int64_t before = align == 'l' ? 0 : align == 'c' ? missing / 2 + (missing & width & 1) : missing;
    ls_jinja_append(j, out, ls_jv_part(text, 0, sign));
    for (int64_t i = 0; i <= missing && !j->failed; i++) {
        ls_jinja_append(j, out, i == before ? ls_jv_part(text, sign, text.bytes) : ls_jv_text("", 0));
        ls_jinja_append(j, out, i < missing ? fill : ls_jv_text("", 0));
    }
}

/* ljust (l), rjust (r), center (c) and zfill (z). */
static ls_jv justify(ls_jinja *j, const use *u)
{
    const ls_jv fill = ls_jv_or(u->given[1], ls_jv_text(u->how == 'z' ? "0" : " ", 1));
    ls_text out = {0};
    if (ls_jinja_characters(fill) != 1) {
        return ls_jinja_refuse(j, "The fill character must be exactly one character long");
    }
    ls_jinja_pad(j, &out, u->self, ls_jv_whole(u->given[0]), fill, (char)u->how);
    return ls_jv_take_text(j, &out);
}

/* ---- upper and lower case ---- */

static const ls_jinja_case_run *find_run(const ls_jinja_case_run *runs, size_t count, uint32_t c)
{
    for (size_t i = 0; i < count && runs[i].first <= c; i++) {
        if (c <= runs[i].last && (c - runs[i].first) % runs[i].step == 0) {
            return &runs[i];
        }
    }
    return NULL;
}

static bool is_cased(uint32_t c)
{
    const uint8_t category = ls_unicode_of(c) & LS_UNICODE_CATEGORY;
    return category == LS_UNICODE_LU || category == LS_UNICODE_LL || category == LS_UNICODE_LT;
}

/* The form of sigma in lower case that the letters around text[at] ask for. */
static uint32_t lower_sigma(ls_jv text, size_t at)
{
    uint32_t before = 0, after = 0;
    if (at > 0) {
        ls_utf8_valid_decode(text.text + ls_utf8_previous(text.text, at - 1), &before);
    }
    if (at + 2 < text.bytes) {
        ls_utf8_valid_decode(text.text + at + 2, &after);
    }
    return is_cased(before) && !is_cased(after) ? 0x3C2 : 0x3C3;
}

/* Appends the character at text[at], c, in upper (u), title (t) or lower (l) case. */
static void append_cased(ls_jinja *j, ls_jv text, size_t at, uint32_t c, char how, ls_text *out)
{
    const bool is_lower = how == 'l';
    char utf8[4];
    if (c < 128) {
        c = !is_lower && c >= 'a' && c <= 'z' ? c - 32 : is_lower && c >= 'A' && c <= 'Z' ? c + 32 : c;
    } else if (c == 0xDF && !is_lower) { /* sharp s */
        ls_text_append(out, how == 'u' ? "SS" : "Ss");
        return;
    } else if (c == 0x3A3 && is_lower) {
        c = lower_sigma(text, at);
    } else {
        const ls_jinja_case_run *run = is_lower ? find_run(ls_jinja_lower, ls_jinja_lower_count, c)
                                                : find_run(ls_jinja_upper, ls_jinja_upper_count, c);
        if (is_lower ? c == 0x130 : is_cased(c) && find_run(ls_jinja_odd_case, ls_jinja_odd_case_count, c)) {
            ls_jinja_unsupported(j, "changing the case of U+%04X is not supported", c);
        }
        c = run ? (uint32_t)((int32_t)c + run->difference) : c;
    }
    ls_text_append_bytes(out, utf8, ls_utf8_encode(c, utf8));
}

/* Whether a word of the filter title begins after c. */
static bool is_gap(uint32_t c)
{
    return ls_jinja_is_space(c) || (c > 0 && c < 128 && strchr("-({[<", (int)c));
}

ls_jv ls_jinja_case(ls_jinja *j, ls_jv text, char how)
{
    ls_text out = {0};
    bool in_word = false;
    ls_jinja_spend(j, 4 * (size_t)text.bytes);
    for (size_t at = 0, length; at < text.bytes; at += length) {
        uint32_t c;
        length = ls_utf8_valid_decode(text.text + at, &c);
        const bool is_upper = (ls_unicode_of(c) & LS_UNICODE_CATEGORY) == LS_UNICODE_LU;
        const char first = how == 'w' ? 'u' : 't';
        const char to = how == 'u' || how == 'l' ? how
                        : how == 's'             ? (is_upper ? 'l' : 'u')
                        : in_word                ? 'l'
                                                 : first;
        append_cased(j, text, at, c, to, &out);
        in_word = how == 't' ? is_cased(c) : how == 'w' ? !is_gap(c) : true;
    }
    ls_jv cased = ls_jv_take_text(j, &out);
    cased.markup = text.markup && how != 'w';
    return cased;
}

static ls_jv change_case(ls_jinja *j, const use *u)
{
    return ls_jinja_case(j, ls_jv_string(j, u->self), (char)u->how);
}

/* islower (l) and isupper (u). */
static ls_jv has_case(ls_jinja *j, const use *u)
{
    const ls_jv text = ls_jv_string(j, u->self);
    bool is_any = false;
    ls_jinja_spend(j, text.bytes);
    for (size_t at = 0; at < text.bytes;) {
        uint32_t c;
        at += ls_utf8_valid_decode(text.text + at, &c);
        const bool is_lower = (ls_unicode_of(c) & LS_UNICODE_CATEGORY) == LS_UNICODE_LL;
        if (is_cased(c) && is_lower != (u->how == 'l')) {
            return ls_jv_bool(false);
        }
        is_any = is_any || is_cased(c);
    }
    return ls_jv_bool(is_any);
}

/* isalpha (a), isdecimal and isdigit (d), isalnum (n), isspace (s). */
static ls_jv is_all(ls_jinja *j, const use *u)
{
    bool are = u->self.bytes > 0;
    ls_jinja_spend(j, u->self.bytes);
    for (size_t at = 0; at < u->self.bytes && are;) {
        uint32_t c;
        at += ls_utf8_valid_decode(u->self.text + at, &c);
        const uint8_t properties = ls_unicode_of(c), category = properties & LS_UNICODE_CATEGORY;
        if (category == LS_UNICODE_NO && u->how == 'd') {
            ls_jinja_unsupported(j, "isdigit() of U+%04X is not supported", c);
        }
        are = u->how == 's' ? ls_jinja_is_space(c)
              : u->how == 'd'
                  ? category == LS_UNICODE_ND
                  : ls_unicode_is_letter(properties) || (u->how == 'n' && ls_unicode_is_number(properties));
    }
    return ls_jv_bool(are);
}

const ls_jinja_builtin ls_jinja_text_builtins[] = {
    {"strip", LS_AT_TEXT, "/chars", strip, 'b'},
    {"lstrip", LS_AT_TEXT, "/chars", strip, 'l'},
    {"rstrip", LS_AT_TEXT, "/chars", strip, 'r'},
    {"trim", LS_AT_FILTER, "chars", strip, 'b'},
    {"split", LS_AT_TEXT, "sep maxsplit:i", split, 'l'},
    {"rsplit", LS_AT_TEXT, "sep maxsplit:i", split, 'r'},
    {"splitlines", LS_AT_TEXT, "keepends", splitlines},
    {"partition", LS_AT_TEXT, "/!sep:s", partition, 'l'},
    {"rpartition", LS_AT_TEXT, "/!sep:s", partition, 'r'},
    {"startswith", LS_AT_TEXT, "/!prefix start:n end:n", starts_or_ends, 'l'},
    {"endswith", LS_AT_TEXT, "/!suffix start:n end:n", starts_or_ends, 'r'},
    {"removeprefix", LS_AT_TEXT, "/!prefix:s", remove_end, 'l'},
    {"removesuffix", LS_AT_TEXT, "/!suffix:s", remove_end, 'r'},
    {"find", LS_AT_TEXT, "/!sub:s start:n end:n", find, 'f'},
    {"rfind", LS_AT_TEXT, "/!sub:s start:n end:n", find, 'F'},
    {"index", LS_AT_TEXT, "/!sub:s start:n end:n", find, 'i'},
    {"rindex", LS_AT_TEXT, "/!sub:s start:n end:n", find, 'I'},
    {"count", LS_AT_TEXT, "/!sub:s start:n end:n", count},
    {"replace", LS_AT_TEXT | LS_AT_PLAIN, "/!old:s !new:s count:i", replace},
    {"replace", LS_AT_FILTER, "!old !new count:n", replace},
    {"format", LS_AT_TEXT | LS_AT_PLAIN, NULL, ls_jinja_format},
    {"indent", LS_AT_FILTER, "width first blank", indent},
    {"ljust", LS_AT_TEXT | LS_AT_PLAIN, "/!width:i fillchar:s", justify, 'l'},
    {"rjust", LS_AT_TEXT | LS_AT_PLAIN, "/!width:i fillchar:s", justify, 'r'},
    {"center", LS_AT_TEXT | LS_AT_PLAIN, "/!width:i fillchar:s", justify, 'c'},
    {"zfill", LS_AT_TEXT | LS_AT_PLAIN, "/!width:i", justify, 'z'},
    {"upper", LS_AT_TEXT | LS_AT_FILTER, "", change_case, 'u'},
    {"lower", LS_AT_TEXT | LS_AT_FILTER, "", change_case, 'l'},
    {"capitalize", LS_AT_TEXT | LS_AT_FILTER, "", change_case, 'c'},
    {"swapcase", LS_AT_TEXT, "", change_case, 's'},
    {"title", LS_AT_TEXT, "", change_case, 't'},
    {"title", LS_AT_FILTER, "", change_case, 'w'},
    {"islower", LS_AT_TEXT, "", has_case, 'l'},
    {"isupper", LS_AT_TEXT, "", has_case, 'u'},
    {"lower", LS_AT_TEST, "", has_case, 'l'},
    {"upper", LS_AT_TEST, "", has_case, 'u'},
    {"isalpha", LS_AT_TEXT, "", is_all, 'a'},
    {"isalnum", LS_AT_TEXT, "", is_all, 'n'},
    {"isdigit isdecimal", LS_AT_TEXT, "", is_all, 'd'},
    {"isspace", LS_AT_TEXT, "", is_all, 's'},
    {"casefold encode expandtabs format_map isascii isidentifier isnumeric isprintable istitle maketrans "
     "translate",
     LS_AT_TEXT},
    {NULL},
};
