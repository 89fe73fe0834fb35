// SPDX-License-Identifier: Apache-2.0
/*
 * Folded words: a text as a list of hashes of its words, without what line breaks, punctuation,
 * capitals and accents add. Near duplicates and contamination are found in them.
 *
 * A word is a run of letters and digits; capitals count as small letters (Latin, Greek, Cyrillic),
 * combining marks are left out, and each ideograph, kana and hangul syllable is a word of its own.
 *
 * Thread-safe for separate scratches.
 */
#ifndef LS_DATA_PREPARATION_FOLDED_WORDS_H
#define LS_DATA_PREPARATION_FOLDED_WORDS_H

#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

/* Sets folded and folded_count of the scratch, unless they are of this text already. Errors:
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_fold_words(ls_step_scratch *scratch, const char *text, size_t bytes);

/* Hashes of n words in a row, by rolling: gram = gram * LS_GRAM_BASE + word. */
typedef struct ls_gram {
    uint64_t sum, power;
} ls_gram;
ls_gram ls_gram_begin(uint64_t n);
#define LS_GRAM_BASE   UINT64_C(0xD6E8FEB86659FD93)
#define LS_LETTER_BASE UINT64_C(0x9FB21C651E98DF25)
/* Adds a word and removes the one n words before it (0: there is none); returns the hash. */
static inline uint64_t ls_gram_roll(ls_gram *gram, uint64_t word, uint64_t oldest)
{
    gram->sum = gram->sum * LS_GRAM_BASE + word - oldest * gram->power;
    const uint64_t mixed = (gram->sum ^ gram->sum >> 31) * LS_LETTER_BASE;
    return mixed ^ mixed >> 29;
}

/*
 * The keys of the bands of a document, or false if it has fewer words than a sequence.
 *
 * Each sequence of step->minhash.ngram words has a hash x of 32 bits; hash j of it is x * a[j] +
 * b[j] modulo 2^32 with fixed random numbers, a[j] odd. The signature is the least hash j of all
 * sequences, for each j; two documents agree in one with the probability of their Jaccard
 * similarity. A band's key is the hash of its `rows` entries.
 * Source: Broder, "On the resemblance and containment of documents", 1997.
 */
bool ls_minhash_keys(const ls_step *step, const ls_step_scratch *scratch, uint64_t *keys_out);

#endif
