// SPDX-License-Identifier: Apache-2.0
/* Words that the general rules would cut wrongly: "don't", "Mr.", "a.m.", ":-)". Inside of words.
 * */
#ifndef LS_DATA_PREPARATION_WORD_EXCEPTIONS_H
#define LS_DATA_PREPARATION_WORD_EXCEPTIONS_H

#include <stddef.h>
#include <stdint.h>

/* The lengths in bytes of the pieces that a chunk with this ls_xxh3 hash is cut into, up to three;
 * 0 after the last. NULL: it is no exception. Thread-safe. */
typedef struct ls_word_exception {
    uint64_t hash;
    uint8_t pieces[4];
} ls_word_exception;
const ls_word_exception *ls_word_exception_find(uint64_t hash);

#endif
