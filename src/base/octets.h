// SPDX-License-Identifier: Apache-2.0
/*
 * Octets: eight bytes of a text in a number, looked at together. The first byte is the lowest.
 *
 * A test returns the highest bit of each byte that passes it. Most text is ASCII: what is not is
 * read character by character.
 */
#ifndef LS_BASE_OCTETS_H
#define LS_BASE_OCTETS_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LS_OCTETS(byte) ((uint64_t)(byte)*UINT64_C(0x0101010101010101))
#define LS_OCTETS_HIGH  LS_OCTETS(0x80)

/* The next eight bytes, zeros after the end of the text; left: bytes up to there, at least 1. */
static inline uint64_t ls_octets_load(const char *at, size_t left)
{
    uint64_t octets = 0;
    if (left >= 8) {
        memcpy(&octets, at, 8);
        return le64toh(octets);
    }
    for (size_t i = 0; i < left; i++) {
        octets |= (uint64_t)(unsigned char)at[i] << 8 * i;
    }
    return octets;
}

/* Those in [first, last], which are ASCII. */
static inline uint64_t ls_octets_within(uint64_t octets, unsigned char first, unsigned char last)
{
    const uint64_t low = octets & ~LS_OCTETS_HIGH;
    return (low + LS_OCTETS(0x80 - first)) & ~(low + LS_OCTETS(0x7f - last)) & ~octets & LS_OCTETS_HIGH;
}

/* ASCII letters. */
static inline uint64_t ls_octets_letters(uint64_t octets)
{
    return ls_octets_within(octets | LS_OCTETS(0x20), 'a', 'z');
}

/* How many pass from the first on. */
static inline unsigned ls_octets_run(uint64_t passed)
{
    const uint64_t failed = ~passed & LS_OCTETS_HIGH;
    return failed ? (unsigned)__builtin_ctzll(failed) / 8 : 8;
}

/* The first `count` of them, zeros for the others. */
static inline uint64_t ls_octets_first(uint64_t octets, unsigned count)
{
    return count < 8 ? octets & ((UINT64_C(1) << 8 * count) - 1) : octets;
}

/*
 * Whether text[at, at + 8) is printable ASCII without blanks but single spaces before a mark, a
 * digit or a letter: nothing that blanks of texts are tidied for. False near the end of the text.
 */
static inline bool ls_octets_are_tidy(const char *text, size_t at, size_t bytes)
{
    if (bytes - at < 9) {
        return false;
    }
    const uint64_t octets = ls_octets_load(text + at, 8), next = ls_octets_load(text + at + 1, 8);
    const uint64_t plain = ls_octets_within(octets, '!', '~'), after = ls_octets_within(next, '!', '~');
    return (plain | (ls_octets_within(octets, ' ', ' ') & after)) == LS_OCTETS_HIGH;
}

#endif
