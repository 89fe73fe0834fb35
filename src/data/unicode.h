// SPDX-License-Identifier: Apache-2.0
/*
 * Unicode, as much of it as tokenizers need: UTF-8, general categories, White_Space, canonical normalisation.
 *
 * Version 16, the one that Hugging Face's tokenizers split by. The tables are written by
 * cmake/unicode_tables.py. Pure and thread-safe.
 */
#ifndef LS_DATA_UNICODE_H
#define LS_DATA_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories in the order of the tables. */
enum {
    LS_UNICODE_CN,
    LS_UNICODE_LU,
    LS_UNICODE_LL,
    LS_UNICODE_LT,
    LS_UNICODE_LM,
    LS_UNICODE_LO,
    LS_UNICODE_MN,
    LS_UNICODE_MC,
    LS_UNICODE_ME,
    LS_UNICODE_ND,
    LS_UNICODE_NL,
    LS_UNICODE_NO,
    LS_UNICODE_PC,
    LS_UNICODE_CATEGORY = 0x1f, /* mask */
    LS_UNICODE_SPACE = 0x20,    /* White_Space */
    LS_UNICODE_WORD = 0x40,     /* \w of the Rust regex crate */
    LS_UNICODE_UNSTABLE = 0x80, /* may change under NFC, alone or after another character */
};

enum { LS_UNICODE_BLOCK = 256, LS_UNICODE_REPLACEMENT = 0xFFFD };

typedef struct ls_unicode_mark {
    uint32_t first, last, combining_class;
} ls_unicode_mark;

typedef struct ls_unicode_pair {
    uint32_t key, a, b;
} ls_unicode_pair;

extern const uint8_t ls_unicode_index[];
extern const uint8_t ls_unicode_blocks[][LS_UNICODE_BLOCK];
extern const ls_unicode_mark ls_unicode_marks[];
extern const unsigned ls_unicode_mark_count;
extern const ls_unicode_pair ls_unicode_decompositions[]; /* key = a b */
extern const unsigned ls_unicode_decomposition_count;
extern const ls_unicode_pair ls_unicode_compositions[]; /* key a = b */
extern const unsigned ls_unicode_composition_count;

/* Category and flags of a code point. c <= 0x10FFFF. */
static inline uint8_t ls_unicode_of(uint32_t c)
{
    return ls_unicode_blocks[ls_unicode_index[c / LS_UNICODE_BLOCK]][c % LS_UNICODE_BLOCK];
}

static inline bool ls_unicode_is_letter(uint8_t properties)
{
    const uint8_t category = properties & LS_UNICODE_CATEGORY;
    return category >= LS_UNICODE_LU && category <= LS_UNICODE_LO;
}

static inline bool ls_unicode_is_number(uint8_t properties)
{
    const uint8_t category = properties & LS_UNICODE_CATEGORY;
    return category >= LS_UNICODE_ND && category <= LS_UNICODE_NO;
}

/*
 * Decodes the character at `text`, `bytes` >= 1 left. Returns its length, 1 to 4, with the code point in
 * *c_out. Invalid: *c_out is U+FFFD and the length is minus that of the maximal invalid part (Unicode 3.9,
 * "substitution of maximal subparts", which is what Python's errors="replace" does).
 */
int ls_utf8_decode(const char *text, size_t bytes, uint32_t *c_out);

/* The same for text known to be valid: the length. */
static inline unsigned ls_utf8_valid_decode(const char *text, uint32_t *c_out)
{
    const unsigned char *b = (const unsigned char *)text;
    if (b[0] < 0x80) {
        *c_out = b[0];
        return 1;
    }
    if (b[0] < 0xe0) {
        *c_out = (uint32_t)(b[0] & 0x1f) << 6 | (b[1] & 0x3f);
        return 2;
    }
    if (b[0] < 0xf0) {
        *c_out = (uint32_t)(b[0] & 0x0f) << 12 | (uint32_t)(b[1] & 0x3f) << 6 | (b[2] & 0x3f);
        return 3;
    }
    *c_out = (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3f) << 12 | (uint32_t)(b[2] & 0x3f) << 6 |
             (b[3] & 0x3f);
    return 4;
}

/* Writes c as UTF-8: 1 to 4 bytes, the count is returned. */
unsigned ls_utf8_encode(uint32_t c, char out[4]);

/* The first byte of valid UTF-8 text at or before `text + at`: steps back over continuation bytes. */
size_t ls_utf8_previous(const char *text, size_t at);

/* Offset of the first invalid byte, or `bytes`. */
size_t ls_utf8_valid_prefix(const char *text, size_t bytes);

/* True when no character of the valid text can change under NFC (quick check; false means perhaps). */
bool ls_unicode_is_stable(const char *text, size_t bytes);

/*
 * Canonical normalisation of code points. `c` holds `count` of them and has room for `capacity` >= count *
 * LS_UNICODE_ROOM; it is rewritten in place, decomposed (NFD) or composed (NFC). Returns the new count, at
 * most count * LS_UNICODE_EXPANSION.
 */
enum { LS_UNICODE_EXPANSION = 4, LS_UNICODE_ROOM = 2 * LS_UNICODE_EXPANSION };
size_t ls_unicode_normalise(uint32_t *c, size_t count, size_t capacity, bool compose);

#endif
