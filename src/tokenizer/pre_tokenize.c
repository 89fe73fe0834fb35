// SPDX-License-Identifier: Apache-2.0
/*
 * Hand-written code for the known split patterns. A pattern is a list of alternatives, of which the
 * first that matches counts; quantifiers are greedy. Comments repeat the alternatives that the code
 * below them implements.
 */
#include "tokenizer/tokenizer_internal.h"

#include "base/assert.h"
#include "tokenizer/unicode.h"

#include <string.h>

static const char gpt2_regex[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
static const char cl100k_regex[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char qwen_regex[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
static const char o200k_regex[] =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'"
    "ve|'m|'ll|'d)?|"
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'"
    "ve|'m|'ll|'d)?|"
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

ls_split_pattern ls_split_pattern_of(const char *regex)
{
    static const struct {
        const char *regex;
        ls_split_pattern pattern;
    } known[] = {
        {gpt2_regex, LS_PATTERN_GPT2},
        {cl100k_regex, LS_PATTERN_CL100K},
        {qwen_regex, LS_PATTERN_QWEN},
        {o200k_regex, LS_PATTERN_O200K},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(regex, known[i].regex) == 0) {
            return known[i].pattern;
        }
    }
    return LS_PATTERN_UNKNOWN;
}

/* ---- character classes ---- */

enum { LETTER = 1, NUMBER = 2, SPACE = 4, OTHER = 8 };

#define X8(a) a, a, a, a, a, a, a, a
static const uint8_t ascii_class[128] = {
    X8(OTHER),  OTHER,  SPACE,  SPACE,  SPACE,  SPACE,      SPACE,      OTHER,      OTHER,      X8(OTHER),
    X8(OTHER),  SPACE,  OTHER,  OTHER,  OTHER,  OTHER,      OTHER,      OTHER,      OTHER,      X8(OTHER),
    X8(NUMBER), NUMBER, NUMBER, OTHER,  OTHER,  OTHER,      OTHER,      OTHER,      OTHER,      OTHER,
    LETTER,     LETTER, LETTER, LETTER, LETTER, LETTER,     LETTER,     X8(LETTER), X8(LETTER), LETTER,
    LETTER,     LETTER, OTHER,  OTHER,  OTHER,  OTHER,      OTHER,      OTHER,      LETTER,     LETTER,
    LETTER,     LETTER, LETTER, LETTER, LETTER, X8(LETTER), X8(LETTER), LETTER,     LETTER,     LETTER,
    OTHER,      OTHER,  OTHER,  OTHER,  OTHER,
};
#undef X8

static unsigned class_of(uint32_t c)
{
    const uint8_t properties = ls_unicode_of(c);
    return ls_unicode_is_letter(properties)   ? LETTER
           : ls_unicode_is_number(properties) ? NUMBER
           : properties & LS_UNICODE_SPACE    ? SPACE
                                              : OTHER;
}

/* The class of the character at `at`; *bytes_out: its length. */
static inline unsigned class_at(const char *text, size_t at, unsigned *bytes_out)
{
    const unsigned char byte = (unsigned char)text[at];
    if (byte < 0x80) {
        *bytes_out = 1;
        return ascii_class[byte];
    }
    uint32_t c;
    *bytes_out = ls_utf8_valid_decode(text + at, &c);
    return class_of(c);
}

/* The end of the run of characters of the classes in `mask` that begins at `at`. */
static inline size_t run_end(const char *text, size_t at, size_t end, unsigned mask)
{
    while (at < end) {
        unsigned bytes;
        if (!(class_at(text, at, &bytes) & mask)) {
            break;
        }
        at += bytes;
    }
    return at;
}

/* \s+(?!\S)|\s+ : the white space up to `space_end`; if text follows, without its last character,
 * unless that is the only one. */
static size_t space_word(const char *text, size_t at, size_t space_end, size_t end)
{
    if (space_end == end) {
        return end;
    }
    const size_t last = ls_utf8_previous(text, space_end - 1);
    return last > at ? last : space_end;
}

/* ---- 's|'t|'re|'ve|'m|'ll|'d ---- */

/* The length of a contraction at `at`, where there is an apostrophe; 0: none. */
static size_t contraction(const char *text, size_t at, size_t end)
{
    const char first = end - at > 1 ? text[at + 1] : 0;
    const char second = end - at > 2 ? text[at + 2] : 0;
    switch (first) {
    case 's':
    case 't':
    case 'm':
    case 'd':
        return 2;
    case 'r':
    case 'v':
        return second == 'e' ? 3 : 0;
    case 'l':
        return second == 'l' ? 3 : 0;
    default:
        return 0;
    }
}

/* The same under (?i: ). The long s folds to s, as in Unicode's simple case folding. */
static size_t contraction_any_case(const char *text, size_t at, size_t end)
{
    if (end - at > 2 && (unsigned char)text[at + 1] == 0xc5 && (unsigned char)text[at + 2] == 0xbf) {
        return 3;
    }
    char lower[3] = {'\''};
    const size_t have = end - at > 3 ? 3 : end - at;
    for (size_t i = 1; i < have; i++) {
        const char c = text[at + i];
        lower[i] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    return contraction(lower, 0, have);
}

/* ---- GPT-2 ---- */

static size_t next_gpt2(const char *text, size_t at, size_t end)
{
    if (text[at] == '\'') {
        const size_t length = contraction(text, at, end); /* 1 to 7: 's|'t|... */
        if (length > 0) {
            return at + length;
        }
    }
    unsigned bytes;
    size_t start = at;
    unsigned class = class_at(text, at, &bytes);
    if (text[at] == ' ' && at + 1 < end) {
        class = class_at(text, at + 1, &bytes);
        start = at + 1;
    }
    if (class != SPACE) {
        return run_end(text, start + bytes, end, class); /*  ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+ */
    }
    return space_word(text, at, run_end(text, start + bytes, end, SPACE), end);
}

/* ---- Llama 3 and Qwen ---- */

static bool is_newline(char c)
{
    return c == '\n' || c == '\r';
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ */
static size_t space_with_newlines(const char *text, size_t at, size_t end)
{
    const size_t space_end = run_end(text, at, end, SPACE);
    for (size_t i = space_end; i > at; i--) {
        if (is_newline(text[i - 1])) {
            return i;
        }
    }
    return space_word(text, at, space_end, end);
}

/* \p{N}{1,limit} */
static size_t number_end(const char *text, size_t at, size_t end, unsigned limit)
{
    for (unsigned i = 0; i < limit && at < end; i++) {
        unsigned bytes;
        if (class_at(text, at, &bytes) != NUMBER) {
            break;
        }
        at += bytes;
    }
    return at;
}

/*  ?[^\s\p{L}\p{N}]+[\r\n]*, with `slash` also / at the end; SIZE_MAX: no match. */
static size_t punctuation_end(const char *text, size_t at, size_t end, bool slash)
{
    const size_t start = at + (text[at] == ' ');
    size_t stop = run_end(text, start, end, OTHER);
    if (stop == start) {
        return SIZE_MAX;
    }
    while (stop < end && (is_newline(text[stop]) || (slash && text[stop] == '/'))) {
        stop++;
    }
    return stop;
}

static size_t next_cl100k(const char *text, size_t at, size_t end, unsigned digits)
{
    if (text[at] == '\'') {
        const size_t length = contraction_any_case(text, at, end);
        if (length > 0) {
            return at + length;
        }
    }
    unsigned bytes;
    const unsigned class = class_at(text, at, &bytes);
    if (class == LETTER) {
        return run_end(text, at + bytes, end, LETTER);
    }
    if (class == NUMBER) {
        return number_end(text, at, end, digits);
    }
    if (!is_newline(text[at]) && at + bytes < end) { /* [^\r\n\p{L}\p{N}]?\p{L}+ */
        const size_t stop = run_end(text, at + bytes, end, LETTER);
        if (stop > at + bytes) {
            return stop;
        }
    }
    const size_t stop = punctuation_end(text, at, end, false);
    return stop != SIZE_MAX ? stop : space_with_newlines(text, at, end);
}

/* ---- o200k ---- */

/* Marks and letters without case are both. */
enum { UPPER = 1, LOWER = 2 };

static unsigned case_of(const char *text, size_t at, unsigned *bytes_out)
{
    uint32_t c;
    *bytes_out = ls_utf8_valid_decode(text + at, &c);
    switch (ls_unicode_of(c) & LS_UNICODE_CATEGORY) {
    case LS_UNICODE_LU:
    case LS_UNICODE_LT:
        return UPPER;
    case LS_UNICODE_LL:
        return LOWER;
    case LS_UNICODE_LM:
    case LS_UNICODE_LO:
    case LS_UNICODE_MN:
    case LS_UNICODE_MC:
    case LS_UNICODE_ME:
        return UPPER | LOWER;
    default:
        return 0;
    }
}

static size_t case_run(const char *text, size_t at, size_t end, unsigned mask)
{
    while (at < end) {
        unsigned bytes;
        if (!(case_of(text, at, &bytes) & mask)) {
            break;
        }
        at += bytes;
    }
    return at;
}

/*
 * [upper]*[lower]+ at `at`: the first quantifier takes all it can and gives back only what the
 * second needs. So the word ends with the run of lower-case characters; without such a run it ends
 * after the last character of the upper-case run that is also lower case. SIZE_MAX: no match.
 */
static size_t upper_then_lower(const char *text, size_t at, size_t end)
{
    const size_t upper_end = case_run(text, at, end, UPPER);
    const size_t lower_end = case_run(text, upper_end, end, LOWER);
    if (lower_end > upper_end) {
        return lower_end;
    }
    for (size_t i = upper_end; i > at;) {
        const size_t previous = ls_utf8_previous(text, i - 1);
        unsigned bytes;
        if (case_of(text, previous, &bytes) & LOWER) {
            return case_run(text, previous, end, LOWER);
        }
        i = previous;
    }
    return SIZE_MAX;
}

/* [upper]+[lower]* */
static size_t upper_maybe_lower(const char *text, size_t at, size_t end)
{
    const size_t upper_end = case_run(text, at, end, UPPER);
    return upper_end == at ? SIZE_MAX : case_run(text, upper_end, end, LOWER);
}

typedef size_t (*case_word)(const char *text, size_t at, size_t end);

/* [^\r\n\p{L}\p{N}]?word(?i:'s|...)? : with the optional character before the word if that matches,
 * otherwise without it. */
static size_t cased_word(case_word word, const char *text, size_t at, size_t end)
{
    unsigned bytes;
    const unsigned class = class_at(text, at, &bytes);
    size_t stop = SIZE_MAX;
    if (class != LETTER && class != NUMBER && !is_newline(text[at])) {
        stop = word(text, at + bytes, end);
    }
    if (stop == SIZE_MAX) {
        stop = word(text, at, end);
    }
    if (stop != SIZE_MAX && stop < end && text[stop] == '\'') {
        stop += contraction_any_case(text, stop, end);
    }
    return stop;
}

static size_t next_o200k(const char *text, size_t at, size_t end)
{
    size_t stop = cased_word(upper_then_lower, text, at, end);
    if (stop == SIZE_MAX) {
        stop = cased_word(upper_maybe_lower, text, at, end);
    }
    if (stop != SIZE_MAX) {
        return stop;
    }
    stop = number_end(text, at, end, 3);
    if (stop > at) {
        return stop;
    }
    stop = punctuation_end(text, at, end, true);
    return stop != SIZE_MAX ? stop : space_with_newlines(text, at, end);
}

size_t ls_split_next(ls_split_pattern pattern, const char *text, size_t at, size_t end)
{
    LS_DCHECK(at < end);
    switch (pattern) {
    case LS_PATTERN_GPT2:
        return next_gpt2(text, at, end);
    case LS_PATTERN_CL100K:
        return next_cl100k(text, at, end, 3);
    case LS_PATTERN_QWEN:
        return next_cl100k(text, at, end, 1);
    case LS_PATTERN_O200K:
        return next_o200k(text, at, end);
    case LS_PATTERN_UNKNOWN:
        break;
    }
    return end;
}
