// SPDX-License-Identifier: Apache-2.0
#include "telemetry/store/metric_line.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct cursor {
    const char *at, *end;
    ls_pairs *pairs;
    size_t depth;
} cursor;

/* ---- numbers ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* What is left to strtod: many digits, large exponents. */
static bool slow_number(const char *begin, const char *end, double *value_out)
{
    char text[64];
    const size_t bytes = (size_t)(end - begin);
    if (bytes >= sizeof text) {
        return false;
    }
    memcpy(text, begin, bytes);
    text[bytes] = '\0';
    char *stop = NULL;
    *value_out = strtod(text, &stop);
    return stop == text + bytes;
}

/*
 * A decimal number. Up to 15 digits and powers up to 10^22 are exact doubles, and so is the result
 * of one multiplication or division, rounded once (Clinger, "How to read floating point numbers
 * accurately", 1990).
 */
static bool take_number(cursor *c, double *value_out)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *begin = c->at, *at = begin;
    const bool negative = at < c->end && *at == '-';
    at += negative;
    uint64_t digits = 0;
    int count = 0, exponent = 0;
    for (; at < c->end && is_digit(*at); at++, count++) {
        digits = count < 18 ? 10 * digits + (uint64_t)(*at - '0') : digits;
    }
    if (at < c->end && *at == '.') {
        for (at++; at < c->end && is_digit(*at); at++, count++, exponent--) {
            digits = count < 18 ? 10 * digits + (uint64_t)(*at - '0') : digits;
        }
    }
    if (count == 0) {
        return false;
    }
    if (at < c->end && (*at == 'e' || *at == 'E')) {
        const char *mark = at++;
        const bool down = at < c->end && *at == '-';
        at += at < c->end && (*at == '-' || *at == '+');
        int power = 0;
        const char *first = at;
        for (; at < c->end && is_digit(*at); at++) {
            power = power < 10000 ? 10 * power + (*at - '0') : power;
        }
        at = at == first ? mark : at;
        exponent += at == mark ? 0 : down ? -power : power;
    }
    c->at = at;
    if (count > 15 || exponent < -22 || exponent > 22) {
        return slow_number(begin, at, value_out);
    }
    const double whole = (double)digits;
    const double value = exponent < 0 ? whole / powers[-exponent] : whole * powers[exponent];
    *value_out = negative ? -value : value;
    return true;
}

/* A word that is a value; the longer ones first. */
static bool take_word(cursor *c, double *value_out, bool *is_null_out)
{
    static const struct {
        const char *word;
        double value;
        bool is_null;
    } words[] = {{"null", NAN, true},
                 {"true", 1, false},
                 {"false", 0, false},
                 {"NaN", NAN, false},
                 {"Infinity", INFINITY, false},
                 {"-Infinity", -INFINITY, false},
                 {"-inf", -INFINITY, false},
                 {"inf", INFINITY, false},
                 {"nan", NAN, false}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        const size_t bytes = strlen(words[i].word);
        if ((size_t)(c->end - c->at) >= bytes && memcmp(c->at, words[i].word, bytes) == 0) {
            c->at += bytes;
            *value_out = words[i].value;
            *is_null_out = words[i].is_null;
            return true;
        }
    }
    return false;
}

static void add_pair(ls_pairs *pairs, const char *name, size_t bytes, double value, bool is_null)
{
    if (pairs->count == LS_LINE_PAIRS_MAX || bytes == 0 || bytes > LS_LINE_NAME_BYTES_MAX) {
        pairs->left_out++;
        return;
    }
    pairs->items[pairs->count++] =
        (ls_pair){.name = name, .name_bytes = bytes, .value = value, .is_null = is_null};
}

/* ---- JSON ---- */

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\r')) {
        c->at++;
    }
}

static bool take_char(cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at < c->end && *c->at == wanted) {
        c->at++;
        return true;
    }
    return false;
}

/* A text between quotes, escapes left as they are. */
static bool take_string(cursor *c, const char **text_out, size_t *bytes_out)
{
    if (!take_char(c, '"')) {
        return false;
    }
    const char *begin = c->at;
    while (c->at < c->end && *c->at != '"') {
        c->at += *c->at == '\\' ? 2 : 1;
    }
    if (c->at >= c->end) {
        return false;
    }
    *text_out = begin;
    *bytes_out = (size_t)(c->at++ - begin);
    return true;
}

static bool take_members(cursor *c, const char *prefix, size_t prefix_bytes);

/* "outer.inner", kept in the pairs; without room the inner name alone is kept. */
static void join_names(ls_pairs *pairs, const char *outer, size_t outer_bytes, const char **name,
                       size_t *bytes)
{
    const size_t all = outer_bytes + 1 + *bytes;
    if (outer_bytes == 0) {
        return;
    }
    if (all > sizeof pairs->names - pairs->name_bytes) {
        *bytes = 0; /* too long: left out */
        return;
    }
    char *joined = pairs->names + pairs->name_bytes;
    memcpy(joined, outer, outer_bytes);
    joined[outer_bytes] = '.';
    memcpy(joined + outer_bytes + 1, *name, *bytes);
    pairs->name_bytes += all;
    *name = joined;
    *bytes = all;
}

static bool skip_value(cursor *c);

static bool skip_list(cursor *c)
{
    if (take_char(c, ']')) {
        return true;
    }
    do {
        if (!skip_value(c)) {
            return false;
        }
    } while (take_char(c, ','));
    return take_char(c, ']');
}

static bool is_word_text(const char *text, size_t bytes, double *value_out)
{
    cursor c = {.at = text, .end = text + bytes};
    bool is_null = false;
    return bytes > 0 && strchr("NI-", text[0]) && take_word(&c, value_out, &is_null) && c.at == c.end;
}

/* A value with the name it has. NULL: in a list, and nothing is kept. */
static bool take_value(cursor *c, const char *name, size_t name_bytes)
{
    skip_blanks(c);
    if (c->at >= c->end) {
        return false;
    }
    double value = 0;
    bool is_null = false;
    const char *text;
    size_t bytes;
    switch (*c->at) {
    case '{':
    case '[': {
        if (c->depth == LS_LINE_DEPTH_MAX) {
            return false;
        }
        const bool is_list = *c->at++ == '[';
        c->depth++;
        const size_t count = c->pairs->count;
        const bool good = is_list ? skip_list(c) : take_members(c, name ? name : "", name_bytes);
        c->pairs->count = name ? c->pairs->count : count; /* of objects in lists, nothing is kept */
        c->depth--;
        return good;
    }
    case '"':
        if (!take_string(c, &text, &bytes)) {
            return false;
        }
        if (name && is_word_text(text, bytes, &value)) {
            add_pair(c->pairs, name, name_bytes, value, false);
        }
        return true;
    default:
        if (!take_word(c, &value, &is_null) && !take_number(c, &value)) {
            return false;
        }
        if (name) {
            add_pair(c->pairs, name, name_bytes, value, is_null);
        }
        return true;
    }
}

static bool skip_value(cursor *c)
{
    return take_value(c, NULL, 0);
}

/* After the opening brace. */
static bool take_members(cursor *c, const char *prefix, size_t prefix_bytes)
{
    if (take_char(c, '}')) {
        return true;
    }
    do {
        const char *name = NULL;
        size_t bytes = 0;
        if (!take_string(c, &name, &bytes) || !take_char(c, ':')) {
            return false;
        }
        join_names(c->pairs, prefix, prefix_bytes, &name, &bytes);
        if (!take_value(c, name, bytes)) {
            return false;
        }
    } while (take_char(c, ','));
    return take_char(c, '}');
}

bool ls_metric_line_json(const char *line, size_t bytes, ls_pairs *pairs)
{
    cursor c = {.at = line, .end = line + bytes, .pairs = pairs};
    pairs->count = pairs->left_out = pairs->name_bytes = 0;
    if (!take_char(&c, '{') || !take_members(&c, "", 0)) {
        return false;
    }
    skip_blanks(&c);
    return c.at == c.end;
}

/* ---- text ---- */

static bool is_name_char(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '.' || c == '/' || c == '-';
}

static bool needs_no_sign(const char *name, size_t bytes)
{
    static const char *const words[] = {"step", "Step", "epoch", "Epoch", "iteration", "iter"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strlen(words[i]) == bytes && memcmp(words[i], name, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* The number after a name, if there is one: "=1.5", ": 1.5", " 7/100". */
static void take_pair(cursor *c, const char *name, size_t bytes)
{
    const char *before = c->at;
    skip_blanks(c);
    const bool has_sign = c->at < c->end && (*c->at == '=' || *c->at == ':');
    c->at += has_sign;
    skip_blanks(c);
    double value = 0;
    bool is_null = false;
    const char *at = c->at;
    const bool is_value = take_word(c, &value, &is_null) || take_number(c, &value);
    /* "12:30", "1.5b" and "1.2.3" are no numbers of a pair. */
    const char next = (char)(c->at < c->end ? *c->at : ' ');
    const bool is_part = next == '.' && c->at + 1 < c->end && is_digit(c->at[1]);
    const bool ends = !isalnum((unsigned char)next) && next != ':' && !is_part;
    if (is_value && ends && (has_sign || (c->at > at && needs_no_sign(name, bytes)))) {
        add_pair(c->pairs, name, bytes, value, is_null);
    } else {
        c->at = before;
    }
}

void ls_metric_line_text(const char *line, size_t bytes, ls_pairs *pairs)
{
    cursor c = {.at = line, .end = line + bytes, .pairs = pairs};
    pairs->count = pairs->left_out = pairs->name_bytes = 0;
    while (c.at < c.end) {
        if (!isalpha((unsigned char)*c.at)) {
            c.at++;
            continue;
        }
        const char *name = c.at;
        while (c.at < c.end && is_name_char(*c.at)) {
            c.at++;
        }
        take_pair(&c, name, (size_t)(c.at - name));
    }
}
