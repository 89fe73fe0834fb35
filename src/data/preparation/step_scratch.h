// SPDX-License-Identifier: Apache-2.0
/* What one thread needs to apply steps: room that is used again for each document. */
#ifndef LS_DATA_PREPARATION_STEP_SCRATCH_H
#define LS_DATA_PREPARATION_STEP_SCRATCH_H

#include "base/text.h"
#include "data/preparation/words.h"

#include <stdint.h>

/* A document on its way through the steps. */
typedef struct ls_passage {
    /* Valid UTF-8; of the record, or in a buffer of the scratch. */
    const char *text;
    size_t bytes;
} ls_passage;

enum { LS_SCRATCH_TEXTS = 3 };

typedef struct ls_step_scratch {
    /* Number of the document among those of all shards, for dedup_lines. */
    uint64_t document;
    /* The words of words_text, and its characters; NULL: not cut. */
    ls_words words;
    const char *words_text;
    size_t words_bytes, characters;
    /* Hashes of the folded words of folded_from (data/preparation/folded_words.h); NULL: none. */
    uint64_t *folded;
    const char *folded_from;
    size_t folded_count, folded_capacity, folded_bytes;
    /* A table: keys and counts. */
    uint64_t *keys;
    uint32_t *counts;
    size_t slot_capacity;
    uint32_t *code_points;
    size_t code_point_capacity;
    /* The text before, within and after a step that changes it. */
    ls_text texts[LS_SCRATCH_TEXTS];
} ls_step_scratch;

/* Begins a document: what is known of the one before, by the address of its text, is forgotten. */
void ls_scratch_begin(ls_step_scratch *scratch, uint64_t document);

/* The words of a passage, cut once for all steps that follow without changing it; also sets
 * `characters`. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_scratch_words(ls_step_scratch *scratch, const ls_passage *passage);

/* An empty table of at least 2 * count slots (a power of two, *slots_out): counts are 0. Errors:
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_scratch_table(ls_step_scratch *scratch, size_t count, size_t *slots_out);

/* The slot of a key: its count is 0 if the key is new, and is then stored. */
static inline size_t ls_scratch_slot(ls_step_scratch *scratch, size_t slots, uint64_t key)
{
    size_t slot = (size_t)(key ^ key >> 32) & (slots - 1);
    while (scratch->counts[slot] > 0 && scratch->keys[slot] != key) {
        slot = (slot + 1) & (slots - 1);
    }
    scratch->keys[slot] = key;
    return slot;
}

/* A buffer that holds neither the passage nor the text that it was made of, empty. */
ls_text *ls_scratch_spare(ls_step_scratch *scratch, const ls_passage *passage);
/* Takes a filled spare as the passage. */
void ls_scratch_take(ls_step_scratch *scratch, const ls_text *spare, ls_passage *passage);

void ls_scratch_release(ls_step_scratch *scratch);

#endif
