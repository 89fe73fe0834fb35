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

typedef struct ls_step_scratch {
    /* Number of the document among those of all shards, for dedup_lines. */
    uint64_t document;
    /* The words of words_text, and its characters; NULL: not cut. */
    ls_words words;
    const char *words_text;
    size_t words_bytes, characters;
    /* Hashes of folded words and where they begin (data/preparation/folded_words.h). */
    uint64_t *folded;
    uint32_t *folded_at;
    size_t folded_count, folded_capacity;
    /* Tables: keys and counts; sums of prefixes. */
    uint64_t *keys, *sums;
    uint32_t *counts;
    size_t slot_capacity, sum_capacity;
    uint32_t *code_points;
    size_t code_point_capacity;
    /* The text before and after a step that changes it. */
    ls_text texts[2];
    ls_text folded_text;
} ls_step_scratch;

/* The words of a passage, cut once for all steps that follow without changing it; also sets
 * `characters`. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_scratch_words(ls_step_scratch *scratch, const ls_passage *passage);

/* An empty table of at least 2 * count slots (a power of two, *slots_out): counts are 0. Errors:
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_scratch_table(ls_step_scratch *scratch, size_t count, size_t *slots_out);

/* The slot of a key: its count is 0 if the key is new, and is then stored. */
size_t ls_scratch_slot(ls_step_scratch *scratch, size_t slots, uint64_t key);

/* The buffer that does not hold the passage, empty. */
ls_text *ls_scratch_spare(ls_step_scratch *scratch, const ls_passage *passage);
/* Takes a filled spare as the passage. */
void ls_scratch_take(ls_step_scratch *scratch, const ls_text *spare, ls_passage *passage);

void ls_scratch_release(ls_step_scratch *scratch);

#endif
