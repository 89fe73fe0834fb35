// SPDX-License-Identifier: Apache-2.0
/* Words that the general rules would cut wrongly: "don't", "Mr.", "a.m.", ":-)". Inside of words.
 * */
#ifndef LS_DATA_PREPARATION_WORD_EXCEPTIONS_H
#define LS_DATA_PREPARATION_WORD_EXCEPTIONS_H

#include "base/hash.h"
#include "base/octets.h"

/* The lengths in bytes of the pieces that a chunk is cut into, up to three; 0 after the last. */
typedef struct ls_word_exception {
    uint64_t hash;
    uint8_t pieces[4];
} ls_word_exception;

enum { LS_EXCEPTION_SLOTS = 4096, LS_EXCEPTION_BITS = 16384 };

/* A table by hash, and a bit for each hash that it may have. */
typedef struct ls_word_exceptions {
    uint64_t filter[LS_EXCEPTION_BITS / 64];
    ls_word_exception slots[LS_EXCEPTION_SLOTS];
} ls_word_exceptions;

/* The table of English. Thread-safe. */
const ls_word_exceptions *ls_word_exceptions_get(void);

/* The hash of a word of up to 16 bytes, zeros after its end. */
static inline uint64_t ls_short_word_hash(uint64_t octets, uint64_t more, size_t bytes)
{
    const uint64_t sum =
        (octets + bytes * 0xD6E8FEB86659FD93) * 0x9E3779B97F4A7C15 ^ more * 0x9FB21C651E98DF25;
    return (sum ^ sum >> 32) * 0xBF58476D1CE4E5B9;
}

/* The hash of any word. */
static inline uint64_t ls_word_hash(const char *word, size_t bytes)
{
    return bytes > 16 ? ls_xxh3(word, bytes, 0)
                      : ls_short_word_hash(ls_octets_load(word, bytes),
                                           bytes > 8 ? ls_octets_load(word + 8, bytes - 8) : 0, bytes);
}

/* How a word with this hash is cut; NULL: it is no exception. */
static inline const ls_word_exception *ls_word_exception_find(const ls_word_exceptions *table, uint64_t hash)
{
    if (!(table->filter[hash >> 56] >> (hash >> 50 & 63) & 1)) {
        return NULL;
    }
    for (size_t slot = hash % LS_EXCEPTION_SLOTS; table->slots[slot].pieces[0];
         slot = (slot + 1) % LS_EXCEPTION_SLOTS) {
        if (table->slots[slot].hash == hash) {
            return &table->slots[slot];
        }
    }
    return NULL;
}

#endif
