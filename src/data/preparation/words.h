// SPDX-License-Identifier: Apache-2.0
/*
 * Words of a text, for the rules of quality.
 *
 * The papers' rules count words as a tokenizer of English cuts them: punctuation is a word of its
 * own, "don't" is two words, "U.S." and "www.example.org/a" are one. The cuts are those of spaCy's
 * English tokenizer, which datatrove uses for these rules, so that thresholds mean the same.
 *
 * Thread-safe for separate lists.
 */
#ifndef LS_DATA_PREPARATION_WORDS_H
#define LS_DATA_PREPARATION_WORDS_H

#include "base/status.h"
#include "tokenizer/unicode.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_text_word {
    /* Of its bytes: equal words have equal hashes. */
    uint64_t hash;
    /* Where it is in the text. */
    uint32_t at, bytes;
    /* Unicode characters. */
    uint32_t chars;
    /* A character that is not punctuation; a letter. */
    bool has_content, has_letter;
} ls_text_word;

typedef struct ls_words {
    ls_text_word *items;
    size_t count, capacity;
    /* Private: the exceptions; the chunk that is being cut. */
    const struct ls_word_exceptions *exceptions;
    struct ls_character *chunk;
    size_t chunk_capacity;
} ls_words;

/* Replaces the list by the words of `text`: valid UTF-8, less than 4 GiB. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_words_cut(ls_words *words, const char *text, size_t bytes);
void ls_words_release(ls_words *words);

/* The sentences in text[0, bytes): they end after words that are one terminal mark (. ! ? and those
 * of other scripts). Uses the list. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_words_sentences(ls_words *words, const char *text, size_t bytes,
                                           uint64_t *count_out);

/* Number of Unicode characters in valid UTF-8. */
size_t ls_count_characters(const char *text, size_t bytes);

/* White space, as in Python's str.isspace. */
static inline bool ls_is_blank(uint32_t c)
{
    return c < 0x80 ? c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f)
                    : (ls_unicode_of(c) & LS_UNICODE_SPACE) != 0;
}
/* Punctuation and control characters that the rules of Gopher do not count as words. */
bool ls_is_punctuation(uint32_t c);
/* Marks that end a sentence, in many scripts. */
bool ls_is_terminal(uint32_t c);

#endif
