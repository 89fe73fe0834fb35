// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/step_scratch.h"

#include <stdlib.h>
#include <string.h>

void ls_scratch_begin(ls_step_scratch *scratch, uint64_t document)
{
    scratch->document = document;
    scratch->words_text = scratch->folded_from = NULL;
}

ls_status ls_scratch_words(ls_step_scratch *scratch, const ls_passage *passage)
{
    if (scratch->words_text == passage->text && scratch->words_bytes == passage->bytes) {
        return LS_OK;
    }
    scratch->words_text = NULL;
    LS_TRY(ls_words_cut(&scratch->words, passage->text, passage->bytes));
    scratch->characters = ls_count_characters(passage->text, passage->bytes);
    scratch->words_text = passage->text;
    scratch->words_bytes = passage->bytes;
    return LS_OK;
}

ls_status ls_scratch_table(ls_step_scratch *scratch, size_t count, size_t *slots_out)
{
    size_t slots = 64;
    while (slots < 2 * count) {
        slots *= 2;
    }
    if (slots > scratch->slot_capacity) {
        free(scratch->keys);
        free(scratch->counts);
        scratch->slot_capacity = 0;
        scratch->keys = malloc(slots * sizeof *scratch->keys);
        scratch->counts = malloc(slots * sizeof *scratch->counts);
        if (!scratch->keys || !scratch->counts) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for a document of %zu words", count);
        }
        scratch->slot_capacity = slots;
    }
    memset(scratch->counts, 0, slots * sizeof *scratch->counts);
    *slots_out = slots;
    return LS_OK;
}

ls_text *ls_scratch_spare(ls_step_scratch *scratch, const ls_passage *passage)
{
    size_t spare = 0;
    for (size_t i = 0; i < LS_SCRATCH_TEXTS; i++) {
        const ls_text *text = &scratch->texts[i];
        if (text->data && passage->text >= text->data && passage->text <= text->data + text->capacity_bytes) {
            spare = (i + 1) % LS_SCRATCH_TEXTS;
        }
    }
    ls_text_clear(&scratch->texts[spare]);
    return &scratch->texts[spare];
}

void ls_scratch_take(ls_step_scratch *scratch, const ls_text *spare, ls_passage *passage)
{
    scratch->words_text = scratch->folded_from = NULL;
    passage->text = ls_text_string(spare);
    passage->bytes = spare->bytes;
}

void ls_scratch_release(ls_step_scratch *scratch)
{
    ls_words_release(&scratch->words);
    free(scratch->folded);
    free(scratch->keys);
    free(scratch->counts);
    free(scratch->code_points);
    for (size_t i = 0; i < LS_SCRATCH_TEXTS; i++) {
        ls_text_release(&scratch->texts[i]);
    }
    *scratch = (ls_step_scratch){0};
}
