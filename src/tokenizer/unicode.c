// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.h"

#include "base/assert.h"

#include <string.h>

enum {
    HANGUL_S = 0xAC00,
    HANGUL_L = 0x1100,
    HANGUL_V = 0x1161,
    HANGUL_T = 0x11A7,
    HANGUL_L_COUNT = 19,
    HANGUL_V_COUNT = 21,
    HANGUL_T_COUNT = 28,
    HANGUL_S_COUNT = HANGUL_L_COUNT * HANGUL_V_COUNT * HANGUL_T_COUNT,
};

/* The length of the sequence that a lead byte begins (0: not a lead byte), and the range of the
 * byte after it. */
static int lead_byte(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead >= 0xc2 && lead <= 0xdf) {
        return 2;
    }
    if (lead >= 0xe0 && lead <= 0xef) {
        *low = lead == 0xe0 ? 0xa0 : 0x80;
        *high = lead == 0xed ? 0x9f : 0xbf;
        return 3;
    }
    if (lead >= 0xf0 && lead <= 0xf4) {
        *low = lead == 0xf0 ? 0x90 : 0x80;
        *high = lead == 0xf4 ? 0x8f : 0xbf;
        return 4;
    }
    return 0;
}

int ls_utf8_decode(const char *text, size_t bytes, uint32_t *c_out)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        *c_out = b[0];
        return 1;
    }
    *c_out = LS_UNICODE_REPLACEMENT;
    unsigned char low, high;
    const int length = lead_byte(b[0], &low, &high);
    for (int i = 1; i < length; i++) {
        if ((size_t)i >= bytes || b[i] < low || b[i] > high) {
            return -i;
        }
        low = 0x80;
        high = 0xbf;
    }
    return length == 0 ? -1 : (int)ls_utf8_valid_decode(text, c_out);
}

unsigned ls_utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 0x3f));
        out[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 0x3f));
    out[2] = (char)(0x80 | (c >> 6 & 0x3f));
    out[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

size_t ls_utf8_previous(const char *text, size_t at)
{
    while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80) {
        at--;
    }
    return at;
}

/* The number of ASCII bytes at the beginning, checked eight at a time. */
static size_t ascii_prefix(const char *text, size_t bytes)
{
    size_t at = 0;
    for (; at + 8 <= bytes; at += 8) {
        uint64_t word;
        memcpy(&word, text + at, 8);
        if (word & UINT64_C(0x8080808080808080)) {
            break;
        }
    }
    while (at < bytes && (unsigned char)text[at] < 0x80) {
        at++;
    }
    return at;
}

size_t ls_utf8_valid_prefix(const char *text, size_t bytes)
{
    size_t at = 0;
    for (;;) {
        at += ascii_prefix(text + at, bytes - at);
        if (at == bytes) {
            return at;
        }
        while (at < bytes && (unsigned char)text[at] >= 0x80) {
            uint32_t c;
            const int length = ls_utf8_decode(text + at, bytes - at, &c);
            if (length < 0) {
                return at;
            }
            at += (size_t)length;
        }
    }
}

bool ls_unicode_is_stable(const char *text, size_t bytes)
{
    size_t at = 0;
    for (;;) {
        at += ascii_prefix(text + at, bytes - at);
        if (at == bytes) {
            return true;
        }
        while (at < bytes && (unsigned char)text[at] >= 0x80) {
            uint32_t c;
            at += ls_utf8_valid_decode(text + at, &c);
            if (ls_unicode_of(c) & LS_UNICODE_UNSTABLE) {
                return false;
            }
        }
    }
}

static unsigned combining_class(uint32_t c)
{
    if (!(ls_unicode_of(c) & LS_UNICODE_UNSTABLE)) {
        return 0;
    }
    unsigned low = 0, high = ls_unicode_mark_count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (c > ls_unicode_marks[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low < ls_unicode_mark_count && c >= ls_unicode_marks[low].first;
    return found ? ls_unicode_marks[low].combining_class : 0;
}

static const ls_unicode_pair *find_decomposition(uint32_t c)
{
    unsigned low = 0, high = ls_unicode_decomposition_count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (c > ls_unicode_decompositions[middle].key) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low < ls_unicode_decomposition_count && ls_unicode_decompositions[low].key == c;
    return found ? &ls_unicode_decompositions[low] : NULL;
}

/* The full canonical decomposition of a code point: at most 4 code points. */
static size_t decompose(uint32_t c, uint32_t out[LS_UNICODE_EXPANSION])
{
    if (c >= HANGUL_S && c < HANGUL_S + HANGUL_S_COUNT) {
        const uint32_t s = c - HANGUL_S;
        out[0] = HANGUL_L + s / (HANGUL_V_COUNT * HANGUL_T_COUNT);
        out[1] = HANGUL_V + s % (HANGUL_V_COUNT * HANGUL_T_COUNT) / HANGUL_T_COUNT;
        out[2] = HANGUL_T + s % HANGUL_T_COUNT;
        return out[2] == HANGUL_T ? 2 : 3;
    }
    const ls_unicode_pair *found = c < 0xc0 ? NULL : find_decomposition(c);
    if (!found) {
        out[0] = c;
        return 1;
    }
    /* Only the first code point of a pair decomposes further. */
    size_t count = decompose(found->a, out);
    if (found->b) {
        LS_ASSERT(count < LS_UNICODE_EXPANSION);
        out[count++] = found->b;
    }
    return count;
}

/* Sorts each run of marks by combining class (a stable counting sort); starters keep their places.
 * `room` has space for `count` code points. */
static void order_marks(uint32_t *c, size_t count, uint32_t *room)
{
    for (size_t start = 0; start < count;) {
        if (combining_class(c[start]) == 0) {
            start++;
            continue;
        }
        size_t end = start;
        size_t before[257] = {0};
        while (end < count && combining_class(c[end]) != 0) {
            before[combining_class(c[end]) + 1]++;
            end++;
        }
        for (int class = 0; class < 256; class ++) {
            before[class + 1] += before[class];
        }
        for (size_t i = start; i < end; i++) {
            room[before[combining_class(c[i])]++] = c[i];
        }
        memcpy(c + start, room, (end - start) * sizeof *c);
        start = end;
    }
}

/* The primary composite of a and b; 0: none. */
static uint32_t compose_pair(uint32_t a, uint32_t b)
{
    if (a >= HANGUL_L && a < HANGUL_L + HANGUL_L_COUNT && b >= HANGUL_V && b < HANGUL_V + HANGUL_V_COUNT) {
        return HANGUL_S + ((a - HANGUL_L) * HANGUL_V_COUNT + (b - HANGUL_V)) * HANGUL_T_COUNT;
    }
    if (a >= HANGUL_S && a < HANGUL_S + HANGUL_S_COUNT && (a - HANGUL_S) % HANGUL_T_COUNT == 0 &&
        b > HANGUL_T && b < HANGUL_T + HANGUL_T_COUNT) {
        return a + (b - HANGUL_T);
    }
    unsigned low = 0, high = ls_unicode_composition_count;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        const ls_unicode_pair *pair = &ls_unicode_compositions[middle];
        if (pair->key < a || (pair->key == a && pair->a < b)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const bool found = low < ls_unicode_composition_count && ls_unicode_compositions[low].key == a &&
                       ls_unicode_compositions[low].a == b;
    return found ? ls_unicode_compositions[low].b : 0;
}

/* Unicode 3.11, D117: a character is composed with the last starter unless a character between them
 * blocks it. */
static size_t compose(uint32_t *c, size_t count)
{
    size_t written = 0, starter = SIZE_MAX;
    unsigned last_class = 0;
    for (size_t i = 0; i < count; i++) {
        const unsigned class = combining_class(c[i]);
        if (starter != SIZE_MAX) {
            const bool adjacent = starter + 1 == written;
            const bool blocked = !adjacent && (last_class == 0 || last_class >= class);
            const uint32_t composite = blocked ? 0 : compose_pair(c[starter], c[i]);
            if (composite) {
                c[starter] = composite;
                continue;
            }
        }
        if (class == 0) {
            starter = written;
        }
        last_class = class;
        c[written++] = c[i];
    }
    return written;
}

size_t ls_unicode_normalise(uint32_t *c, size_t count, size_t capacity, bool composed)
{
    LS_ASSERT(capacity / LS_UNICODE_ROOM >= count);
    /* The input is moved to the end of the first half, so that the output, written from the front,
     * never overtakes it. */
    uint32_t *source = c + capacity / 2 - count;
    memmove(source, c, count * sizeof *c);
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t parts[LS_UNICODE_EXPANSION];
        const size_t part_count = decompose(source[i], parts);
        memcpy(c + written, parts, part_count * sizeof *parts);
        written += part_count;
    }
    order_marks(c, written, c + capacity / 2);
    return composed ? compose(c, written) : written;
}
