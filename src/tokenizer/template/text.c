// SPDX-License-Identifier: Apache-2.0
/* Text by characters: what Python's str does. */
#include "base/assert.h"
#include "tokenizer/template/jinja.h"
#include "tokenizer/unicode.h"

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
    for (; index > 0 && at < text.bytes; index--) {
        uint32_t c;
        at += ls_utf8_valid_decode(text.text + at, &c);
    }
    return at;
}

bool ls_jinja_is_space(uint32_t c)
{
    return (c >= 0x1c && c <= 0x1f) || (ls_unicode_of(c) & LS_UNICODE_SPACE);
}

size_t ls_jinja_find(ls_jinja_state *state, ls_jv text, size_t from, size_t to, ls_jv needle)
{
    if (from > to || to - from < needle.bytes) {
        return SIZE_MAX;
    }
    if (needle.bytes == 0) {
        return from;
    }
    const char *found = memmem(text.text + from, to - from, needle.text, needle.bytes);
    ls_jinja_spend(state, found ? (size_t)(found - text.text) - from : to - from);
    return found ? (size_t)(found - text.text) : SIZE_MAX;
}

static bool is_stripped(uint32_t c, ls_jv characters)
{
    if (characters.kind != LS_JV_STRING) {
        return ls_jinja_is_space(c);
    }
    for (size_t i = 0; i < characters.bytes;) {
        uint32_t other;
        i += ls_utf8_valid_decode(characters.text + i, &other);
        if (other == c) {
            return true;
        }
    }
    return false;
}

ls_jv ls_jinja_strip(ls_jinja_state *state, ls_jv text, ls_jv characters, bool left, bool right)
{
    size_t from = 0, to = text.bytes;
    uint32_t c;
    while (left && from < to) {
        const unsigned length = ls_utf8_valid_decode(text.text + from, &c);
        if (!is_stripped(c, characters)) {
            break;
        }
        from += length;
    }
    while (right && to > from) {
        const size_t last = ls_utf8_previous(text.text, to - 1);
        ls_utf8_valid_decode(text.text + last, &c);
        if (!is_stripped(c, characters)) {
            break;
        }
        to = last;
    }
    const size_t width = characters.kind == LS_JV_STRING ? characters.bytes : 1;
    ls_jinja_spend(state, (text.bytes - (to - from)) * width);
    ls_jv part = ls_jv_text(text.text + from, to - from);
    part.markup = text.markup;
    return part;
}

ls_jv ls_jinja_replace(ls_jinja_state *state, ls_jv text, ls_jv old, ls_jv new, int64_t count)
{
    ls_text out = {0};
    size_t at = 0;
    for (; count != 0 && !state->failed; count--) {
        size_t found = ls_jinja_find(state, text, at, text.bytes, old);
        if (found == SIZE_MAX) {
            break;
        }
        ls_text_append_bytes(&out, text.text + at, found - at);
        ls_jinja_append(state, &out, new);
        at = found + old.bytes;
        if (old.bytes == 0) {
            if (at >= text.bytes) {
                break;
            }
            uint32_t c;
            const unsigned length = ls_utf8_valid_decode(text.text + at, &c);
            ls_text_append_bytes(&out, text.text + at, length);
            at += length;
        }
    }
    if (at == 0 && out.bytes == 0) {
        return text;
    }
    ls_text_append_bytes(&out, text.text + at, text.bytes - at);
    ls_jinja_spend(state, text.bytes);
    ls_jv replaced = ls_jv_take_text(state, &out);
    replaced.markup = text.markup;
    return replaced;
}

static bool is_line_end(uint32_t c)
{
    return (c >= '\n' && c <= '\r') || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

ls_jv ls_jinja_lines(ls_jinja_state *state, ls_jv text, bool keep_ends)
{
    const ls_jv lines = ls_jv_list(state, LS_JV_LIST, 0);
    ls_jinja_spend(state, text.bytes);
    for (size_t from = 0, at = 0; from < text.bytes && !state->failed; from = at) {
        uint32_t c = 0;
        size_t end = at;
        while (at < text.bytes) {
            end = at;
            at += ls_utf8_valid_decode(text.text + at, &c);
            if (is_line_end(c)) {
                break;
            }
            end = at;
        }
        at += c == '\r' && end < at && at < text.bytes && text.text[at] == '\n';
        ls_jv_push(state, lines.list, ls_jv_text(text.text + from, (keep_ends ? at : end) - from));
    }
    return lines;
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

/* Appends the character at text[at], c, in upper (u), title (t) or lower (l) case. */
static void append_cased(ls_jinja_state *state, ls_jv text, size_t at, uint32_t c, char how, ls_text *out)
{
    char utf8[4];
    if (c < 128) {
        c = how != 'l' && c >= 'a' && c <= 'z' ? c - 32 : how == 'l' && c >= 'A' && c <= 'Z' ? c + 32 : c;
    } else if (c == 0xDF && how != 'l') { /* sharp s */
        ls_text_append(out, how == 'u' ? "SS" : "Ss");
        return;
    } else if (c == 0x3A3 && how == 'l') { /* sigma has a form for the ends of words */
        uint32_t before = 0, after = 0;
        const size_t next = at + 2;
        if (at > 0) {
            ls_utf8_valid_decode(text.text + ls_utf8_previous(text.text, at - 1), &before);
        }
        if (next < text.bytes) {
            ls_utf8_valid_decode(text.text + next, &after);
        }
        c = is_cased(before) && !is_cased(after) ? 0x3C2 : 0x3C3;
    } else {
        const bool is_lower = how == 'l';
        const ls_jinja_case_run *run = find_run(is_lower ? ls_jinja_lower : ls_jinja_upper,
                                                is_lower ? ls_jinja_lower_count : ls_jinja_upper_count, c);
        if (is_lower ? c == 0x130 : is_cased(c) && find_run(ls_jinja_odd_case, ls_jinja_odd_case_count, c)) {
            ls_jinja_unsupported(state, "changing the case of U+%04X is not supported", c);
        }
        c = run ? (uint32_t)((int32_t)c + run->difference) : c;
    }
    ls_text_append_bytes(out, utf8, ls_utf8_encode(c, utf8));
}

/* upper (u), lower (l), title (t), capitalize (c), swapcase (s) */
ls_jv ls_jinja_case(ls_jinja_state *state, ls_jv text, char how)
{
    ls_text out = {0};
    bool in_word = false;
    ls_jinja_spend(state, 4 * (size_t)text.bytes);
    for (size_t at = 0; at < text.bytes;) {
        uint32_t c;
        const size_t from = at;
        at += ls_utf8_valid_decode(text.text + at, &c);
        char to = how;
        if (how == 't' || how == 'c') {
            to = how == 't' ? (in_word ? 'l' : 't') : from == 0 ? 't' : 'l';
            in_word = is_cased(c);
        } else if (how == 's') {
            to = (ls_unicode_of(c) & LS_UNICODE_CATEGORY) == LS_UNICODE_LU ? 'l' : 'u';
        }
        append_cased(state, text, from, c, to, &out);
    }
    ls_jv cased = ls_jv_take_text(state, &out);
    cased.markup = text.markup;
    return cased;
}

bool ls_jinja_has_case(ls_jinja_state *state, ls_jv text, char how)
{
    bool is_any = false, in_word = false;
    ls_jinja_spend(state, text.bytes);
    for (size_t at = 0; at < text.bytes;) {
        uint32_t c;
        at += ls_utf8_valid_decode(text.text + at, &c);
        if (!is_cased(c)) {
            in_word = false;
            continue;
        }
        const bool is_lower = (ls_unicode_of(c) & LS_UNICODE_CATEGORY) == LS_UNICODE_LL;
        const bool must_be_lower = how == 'l' || (how == 't' && in_word);
        if (is_lower != must_be_lower) {
            return false;
        }
        is_any = in_word = true;
    }
    return is_any;
}

void ls_jinja_append(ls_jinja_state *state, ls_text *out, ls_jv text)
{
    ls_jinja_spend(state, text.bytes);
    if (out->bytes + text.bytes > LS_JINJA_TEXT_MAX) {
        (void)ls_jinja_take(state, SIZE_MAX / 2);
    } else {
        ls_text_append_bytes(out, text.text, text.bytes);
    }
}
