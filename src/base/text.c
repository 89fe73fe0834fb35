// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include "base/assert.h"
#include "base/octets.h"

#include <ctype.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_START_BYTES = 256 };

void ls_text_release(ls_text *text)
{
    free(text->data);
    *text = (ls_text){0};
}

char *ls_text_keep(ls_text *text, ls_arena *arena)
{
    char *kept = ls_arena_strdup(arena, ls_text_string(text));
    ls_text_release(text);
    return kept;
}

void ls_text_clear(ls_text *text)
{
    text->bytes = 0;
    if (text->data) {
        text->data[0] = '\0';
    }
}

/* Makes room for `bytes` more and the terminating zero. */
static void reserve(ls_text *text, size_t bytes)
{
    size_t needed = 0;
    LS_ASSERT(!__builtin_add_overflow(text->bytes, bytes, &needed) && needed < SIZE_MAX / 2);
    needed += 1;
    if (needed <= text->capacity_bytes) {
        return;
    }
    size_t capacity_bytes = text->capacity_bytes ? text->capacity_bytes : TEXT_START_BYTES;
    while (capacity_bytes < needed) {
        capacity_bytes *= 2;
    }
    char *larger = realloc(text->data, capacity_bytes);
    LS_ASSERT(larger && "out of memory for text");
    text->data = larger;
    text->capacity_bytes = capacity_bytes;
}

void ls_text_append_bytes(ls_text *text, const void *data, size_t bytes)
{
    reserve(text, bytes);
    if (bytes > 0) {
        memcpy(text->data + text->bytes, data, bytes);
    }
    text->bytes += bytes;
    text->data[text->bytes] = '\0';
}

void ls_text_append(ls_text *text, const char *string)
{
    ls_text_append_bytes(text, string, strlen(string));
}

void ls_text_vprintf(ls_text *text, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int bytes = vsnprintf(NULL, 0, format, args);
    LS_ASSERT(bytes >= 0);
    reserve(text, (size_t)bytes);
    vsnprintf(text->data + text->bytes, (size_t)bytes + 1, format, again);
    va_end(again);
    text->bytes += (size_t)bytes;
}

void ls_text_printf(ls_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ls_text_vprintf(text, format, args);
    va_end(args);
}

void ls_text_repeat(ls_text *text, char c, size_t count)
{
    reserve(text, count);
    memset(text->data + text->bytes, c, count);
    text->bytes += count;
    text->data[text->bytes] = '\0';
}

const char *ls_text_string(const ls_text *text)
{
    return text->data ? text->data : "";
}

void ls_text_append_f64(ls_text *text, double value)
{
    LS_ASSERT(isfinite(value));
    char digits[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) {
            break;
        }
    }
    ls_text_append(text, digits);
}

void ls_text_append_quoted(ls_text *text, const char *string)
{
    ls_text_append(text, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at; at++) {
        switch (*at) {
        case '"':
            ls_text_append(text, "\\\"");
            break;
        case '\\':
            ls_text_append(text, "\\\\");
            break;
        case '\n':
            ls_text_append(text, "\\n");
            break;
        case '\t':
            ls_text_append(text, "\\t");
            break;
        default:
            if (*at < 0x20 || *at == 0x7f) {
                ls_text_printf(text, "\\u%04x", *at);
            } else {
                ls_text_append_bytes(text, at, 1);
            }
        }
    }
    ls_text_append(text, "\"");
}

size_t ls_json_plain_bytes(const char *at, const char *end)
{
    const char *from = at;
    for (unsigned run = 8; run == 8 && at < end; at += run) {
        const uint64_t octets = ls_octets_load(at, (size_t)(end - at));
        const uint64_t special = ls_octets_within(octets, '"', '"') | ls_octets_within(octets, '\\', '\\') |
                                 ls_octets_within(octets, 0, 0x1f);
        run = ls_octets_run(~special);
    }
    return (size_t)(at - from);
}

void ls_text_append_json(ls_text *text, const void *data, size_t bytes)
{
    const char *at = data, *end = at + bytes;
    ls_text_append(text, "\"");
    while (at < end) {
        const size_t plain = ls_json_plain_bytes(at, end);
        ls_text_append_bytes(text, at, plain);
        at += plain;
        if (at < end) {
            const unsigned char c = (unsigned char)*at++;
            if (c < ' ' && c != '\n') {
                ls_text_printf(text, "\\u%04x", c);
            } else {
                ls_text_append_bytes(text, (char[]){'\\', c == '\n' ? 'n' : (char)c}, 2);
            }
        }
    }
    ls_text_append(text, "\"");
}

void ls_text_append_escaped(ls_text *text, const char *string)
{
    for (const char *at = string; *at; at++) {
        switch (*at) {
        case '&':
            ls_text_append(text, "&amp;");
            break;
        case '<':
            ls_text_append(text, "&lt;");
            break;
        case '>':
            ls_text_append(text, "&gt;");
            break;
        case '"':
            ls_text_append(text, "&quot;");
            break;
        case '\'':
            ls_text_append(text, "&#39;");
            break;
        default:
            ls_text_append_bytes(text, at, 1);
        }
    }
}

/* Length of the UTF-8 character at the start of `data`, and the character; 0: not valid UTF-8. */
static size_t decode_utf8(const unsigned char *data, size_t bytes, uint32_t *character_out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t count = data[0] < 0x80                      ? 1
                         : data[0] >= 0xC2 && data[0] < 0xE0 ? 2
                         : data[0] >= 0xE0 && data[0] < 0xF0 ? 3
                         : data[0] >= 0xF0 && data[0] < 0xF5 ? 4
                                                             : 0;
    if (count == 0 || count > bytes) {
        return 0;
    }
    uint32_t character = count == 1 ? data[0] : data[0] & (0x7Fu >> count);
    for (size_t i = 1; i < count; i++) {
        if ((data[i] & 0xC0) != 0x80) {
            return 0;
        }
        character = character << 6 | (data[i] & 0x3Fu);
    }
    const bool is_surrogate = character >= 0xD800 && character <= 0xDFFF;
    *character_out = character;
    return character < least[count] || character > 0x10FFFF || is_surrogate ? 0 : count;
}

static bool is_obeyed(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x200E || c == 0x200F ||
           (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069) || c == 0xFEFF;
}

void ls_text_append_printable(ls_text *text, const char *data, size_t bytes, const char *keep)
{
    for (size_t i = 0; i < bytes;) {
        uint32_t character = 0;
        const size_t count = decode_utf8((const unsigned char *)data + i, bytes - i, &character);
        const bool is_kept = count == 1 && data[i] != '\0' && strchr(keep, data[i]);
        if (count > 0 && (is_kept || !is_obeyed(character))) {
            ls_text_append_bytes(text, data + i, count);
        } else {
            for (size_t j = 0; j < (count > 0 ? count : 1); j++) {
                ls_text_printf(text, "\\x%02x", (unsigned char)data[i + j]);
            }
        }
        i += count > 0 ? count : 1;
    }
}

ls_quantity ls_quantity_of(double value)
{
    static const struct {
        /* a value that rounds up to 1000 of a unit is written as 1 of the next */
        double from, unit;
        const char *name;
    } scales[] = {
        {999.5e9, 1e12, "T"}, {999.5e6, 1e9, "B"}, {999.5e3, 1e6, "M"}, {999.5, 1e3, "k"}, {0.0, 1.0, ""}};
    size_t i = 0;
    while (fabs(value) < scales[i].from) {
        i++;
    }
    ls_quantity quantity;
    const double scaled = value / scales[i].unit;
    const bool is_long = i == 0 && fabs(scaled) >= 999.5 && fabs(scaled) < 1e15; /* more than T */
    snprintf(quantity.text, sizeof quantity.text, is_long ? "%.0f%s" : "%.3g%s", scaled, scales[i].name);
    return quantity;
}

/* 1 for "", 1e3 for k and K, ... 0 if it is not a unit. */
static double unit_of(const char *text)
{
    static const struct {
        char letter;
        double value;
    } units[] = {{'k', 1e3}, {'m', 1e6}, {'b', 1e9}, {'g', 1e9}, {'t', 1e12}};
    text += strspn(text, " ");
    if (!*text) {
        return 1.0;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (tolower((unsigned char)text[0]) == units[i].letter && !text[1]) {
            return units[i].value;
        }
    }
    return 0.0;
}

char *ls_text_trim(char *text)
{
    text += strspn(text, " \t");
    for (size_t bytes = strlen(text); bytes > 0 && strchr(" \t", text[bytes - 1]); bytes--) {
        text[bytes - 1] = 0;
    }
    return text;
}

bool ls_quantity_parse(const char *text, double *value_out)
{
    char *end = NULL;
    /* no words, no 0x1f */
    if (!text[0] || !strchr("+-.0123456789", text[0]) || strpbrk(text, "xX")) {
        return false;
    }
    const double number = strtod(text, &end);
    const double unit = end > text ? unit_of(end) : 0.0;
    if (unit == 0.0 || !isfinite(number * unit)) {
        return false;
    }
    *value_out = number * unit;
    return true;
}

ls_quantity ls_plain_of(double value)
{
    ls_quantity quantity;
    const double size = fabs(value);
    if (size >= 999.5 && size < 1e15) {
        snprintf(quantity.text, sizeof quantity.text, "%.0f", value);
    } else if (size == 0.0 || size >= 1e-4) { /* from 1e15 on, three digits are enough */
        snprintf(quantity.text, sizeof quantity.text, "%.3g", value);
    } else {
        snprintf(quantity.text, sizeof quantity.text, "%.6f", value);
    }
    return quantity;
}

size_t ls_edit_distance(const char *a, const char *b, size_t limit)
{
    enum { WORD_BYTES = 96 };
    const size_t a_bytes = strlen(a), b_bytes = strlen(b);
    if (a_bytes >= WORD_BYTES || b_bytes >= WORD_BYTES) {
        return limit;
    }
    size_t row[WORD_BYTES];
    for (size_t j = 0; j <= b_bytes; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            const size_t shorter = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < shorter ? replaced : shorter;
        }
    }
    return row[b_bytes] < limit ? row[b_bytes] : limit;
}

ls_quantity ls_duration_of(double seconds)
{
    ls_quantity out;
    const size_t bytes = sizeof out.text;
    if (!(seconds >= 0.0 && seconds < 1e11)) {
        snprintf(out.text, bytes, "?");
    } else if (seconds > 0.0 && seconds < 0.0995) {
        snprintf(out.text, bytes, "%.2g ms", 1e3 * seconds);
    } else if (seconds < 9.5) {
        snprintf(out.text, bytes, "%.2g s", seconds);
    } else if (seconds < 59.5) {
        snprintf(out.text, bytes, "%.0f s", seconds);
    } else if (seconds < 3599.5) {
        const int whole = (int)(seconds + 0.5);
        snprintf(out.text, bytes, "%d min %02d s", whole / 60, whole % 60);
    } else if (seconds < 86400.0) {
        snprintf(out.text, bytes, "%d h %02d min", (int)seconds / 3600, (int)seconds / 60 % 60);
    } else {
        snprintf(out.text, bytes, "%.0f d %d h", floor(seconds / 86400.0), (int)fmod(seconds / 3600.0, 24.0));
    }
    return out;
}

ls_quantity ls_time_of(double seconds)
{
    static const struct {
        double below, unit_s;
        const char *unit;
    } units[] = {{1e-3, 1e-6, "us"},    {1.0, 1e-3, "ms"},       {600.0, 1.0, "s"},
                 {7200.0, 60.0, "min"}, {172800.0, 3600.0, "h"}, {730.0 * 86400.0, 86400.0, "days"}};
    ls_quantity out;
    if (!(seconds >= 0.0) || seconds > 1e15) {
        snprintf(out.text, sizeof out.text, seconds > 0.0 ? "never" : "\u2013");
        return out;
    }
    size_t i = 0;
    while (i < sizeof units / sizeof units[0] && seconds >= units[i].below) {
        i++;
    }
    const bool is_years = i == sizeof units / sizeof units[0];
    const double unit_s = is_years ? 365.25 * 86400.0 : units[i].unit_s;
    snprintf(out.text, sizeof out.text, "%.12s %s", ls_plain_of(seconds / unit_s).text,
             is_years ? "years" : units[i].unit);
    return out;
}
