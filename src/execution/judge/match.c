// SPDX-License-Identifier: Apache-2.0
#define PCRE2_CODE_UNIT_WIDTH 8
#include "execution/judge/match.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

enum { MATCH_LIMIT = 1000000 };

struct ls_extractor {
    pcre2_code *code;
    pcre2_match_context *limits;
};

/* ---- normal form ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_punctuation(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
}

/* Appends the number at the start of `text` in its normal form and returns its bytes. */
static size_t append_number(const char *text, size_t bytes, ls_text *out)
{
    size_t at = 0;
    while (at + 1 < bytes && text[at] == '0' && (is_digit(text[at + 1]) || text[at + 1] == ',')) {
        at++;
    }
    for (; at < bytes; at++) {
        const bool groups = text[at] == ',' && at + 3 < bytes && is_digit(text[at + 1]) &&
                            is_digit(text[at + 2]) && is_digit(text[at + 3]);
        if (is_digit(text[at])) {
            ls_text_append_bytes(out, text + at, 1);
        } else if (!groups) {
            break;
        }
    }
    if (at + 1 >= bytes || text[at] != '.' || !is_digit(text[at + 1])) {
        return at;
    }
    size_t end = at + 1;
    while (end < bytes && is_digit(text[end])) {
        end++;
    }
    size_t kept = end;
    while (kept > at && (text[kept - 1] == '0' || text[kept - 1] == '.')) {
        const bool was_point = text[--kept] == '.';
        if (was_point) {
            break;
        }
    }
    ls_text_append_bytes(out, text + at, kept - at);
    return end;
}

/* A minus belongs to the number after it unless something stands directly before it: "5-3". A
 * currency sign may come between. */
static bool is_sign(const char *text, size_t bytes, size_t at)
{
    const size_t next = at + 1 < bytes && text[at + 1] == '$' ? at + 2 : at + 1;
    const bool alone = at == 0 || is_space(text[at - 1]) || text[at - 1] == '$' || text[at - 1] == '(';
    return text[at] == '-' && alone && next < bytes && (is_digit(text[next]) || text[next] == '.');
}

static bool is_fraction(const char *text, size_t bytes, size_t at)
{
    return text[at] == '/' && at > 0 && is_digit(text[at - 1]) && at + 1 < bytes && is_digit(text[at + 1]);
}

/* ".5" is "0.5". */
static bool is_bare_fraction(const char *text, size_t bytes, size_t at)
{
    return text[at] == '.' && at + 1 < bytes && is_digit(text[at + 1]) &&
           (at == 0 || is_space(text[at - 1]) || is_sign(text, bytes, at - 1) || text[at - 1] == '$');
}

void ls_answer_normalise(const char *answer, size_t bytes, ls_text *out)
{
    const size_t start = out->bytes;
    bool gap = false;
    for (size_t at = 0; at < bytes;) {
        const char c = answer[at];
        const bool starts_number = is_digit(c) || is_bare_fraction(answer, bytes, at);
        const bool kept = starts_number || is_sign(answer, bytes, at) || is_fraction(answer, bytes, at) ||
                          !is_punctuation(c);
        if (is_space(c) || !kept) {
            gap |= is_space(c) || strchr("-/,;:", c) != NULL;
            at++;
            continue;
        }
        if (gap && out->bytes > start) {
            ls_text_append_bytes(out, " ", 1);
        }
        gap = false;
        if (starts_number) {
            ls_text_append(out, c == '.' ? "0" : "");
            at += append_number(answer + at, bytes - at, out);
        } else {
            const char lower = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
            ls_text_append_bytes(out, &lower, 1);
            at++;
        }
    }
}

/* ---- extraction ---- */

ls_status ls_extractor_create(const char *pattern, ls_extractor **extractor_out)
{
    int error = 0;
    PCRE2_SIZE offset = 0;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, NULL);
    if (!code) {
        char problem[120];
        pcre2_get_error_message(error, (PCRE2_UCHAR *)problem, sizeof problem);
        return ls_fail(LS_ERR_INVALID, "the pattern '%s' is no regular expression: %s at character %zu",
                       pattern, problem, (size_t)offset + 1);
    }
    ls_extractor *extractor = calloc(1, sizeof *extractor);
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    if (!extractor || !limits) {
        free(extractor);
        pcre2_match_context_free(limits);
        pcre2_code_free(code);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a regular expression");
    }
    pcre2_set_match_limit(limits, MATCH_LIMIT);
    *extractor = (ls_extractor){code, limits};
    *extractor_out = extractor;
    return LS_OK;
}

void ls_extractor_destroy(ls_extractor *extractor)
{
    if (extractor) {
        pcre2_code_free(extractor->code);
        pcre2_match_context_free(extractor->limits);
        free(extractor);
    }
}

bool ls_extractor_find(const ls_extractor *extractor, const char *text, size_t bytes, size_t *first_out,
                       size_t *bytes_out)
{
    pcre2_match_data *match = pcre2_match_data_create_from_pattern(extractor->code, NULL);
    const int groups =
        match ? pcre2_match(extractor->code, (PCRE2_SPTR)text, bytes, 0, 0, match, extractor->limits) : -1;
    if (groups > 0) {
        const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(match);
        const size_t group = groups > 1 && ends[2] != PCRE2_UNSET ? 1 : 0;
        *first_out = ends[2 * group];
        *bytes_out = ends[2 * group + 1] - ends[2 * group];
    }
    pcre2_match_data_free(match);
    return groups > 0;
}
