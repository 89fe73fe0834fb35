// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/contamination.h"

#include "base/list.h"
#include "base/log.h"
#include "data/preparation/first_table.h"
#include "data/preparation/folded_words.h"
#include "data/record_walk.h"
#include "data/text.h"

#include <stdlib.h>
#include <string.h>

/* A record of an evaluation file. */
typedef struct item {
    const char *path;
    uint64_t line;
} item;

struct ls_contamination {
    uint64_t ngram;
    item *items;
    size_t item_count, item_capacity;
    /* Hashes of sequences, each with the number of its first record plus 1. */
    ls_first_table grams;
    /* A bit for each gram that there may be; its size is a power of two. */
    uint64_t *filter;
    size_t filter_mask;
    uint64_t short_count;
    /* While it is opened. */
    ls_step_scratch scratch;
    ls_text text;
};

/* ---- the table ------------------------------------------------------------------------------- */

static uint64_t bit_of(const ls_contamination *c, uint64_t gram, uint64_t **word_out)
{
    *word_out = &c->filter[gram >> 32 & c->filter_mask];
    return UINT64_C(1) << (gram & 63);
}

/* Most words of a document need not look into the table, which is larger than the caches. */
static ls_status make_filter(ls_contamination *c)
{
    uint64_t *word;
    size_t words = 64;
    while (words < c->grams.used / 4) {
        words *= 2;
    }
    c->filter = calloc(words, sizeof *c->filter);
    if (!c->filter) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the evaluation files");
    }
    c->filter_mask = words - 1;
    for (size_t i = 0; i <= c->grams.mask; i++) {
        const uint64_t bit = bit_of(c, c->grams.slots[i].hash, &word);
        *word |= c->grams.slots[i].first ? bit : 0;
    }
    return LS_OK;
}

static ls_status add_item(ls_contamination *c, const char *path, uint64_t line, const char *text,
                          size_t bytes)
{
    ls_scratch_begin(&c->scratch, 0);
    LS_TRY(ls_fold_words(&c->scratch, text, bytes));
    const size_t count = c->scratch.folded_count;
    const uint64_t *words = c->scratch.folded;
    if (count < c->ngram) {
        c->short_count++;
        return LS_OK;
    }
    if (c->item_count == c->item_capacity) {
        LS_TRY(ls_list_grow(&c->items, c->item_count, &c->item_capacity, sizeof *c->items));
    }
    c->items[c->item_count++] = (item){path, line};
    ls_gram gram = ls_gram_begin(c->ngram);
    for (size_t i = 0; i < count; i++) {
        const uint64_t hash = ls_gram_roll(&gram, words[i], i >= c->ngram ? words[i - c->ngram] : 0);
        if (i + 1 >= c->ngram && (!c->grams.slots || !ls_first_table_find(&c->grams, hash)->first)) {
            LS_TRY(ls_first_table_put(&c->grams, (ls_first_place){hash, (uint32_t)c->item_count, false}));
        }
    }
    return LS_OK;
}

/* ---- evaluation files ------------------------------------------------------------------------ */

static void append_strings(const json_t *value, ls_text *text)
{
    const char *key;
    const json_t *member;
    size_t index;
    if (json_is_string(value)) {
        ls_text_append_bytes(text, json_string_value(value), json_string_length(value));
        ls_text_append(text, "\n");
    }
    json_array_foreach(value, index, member)
    {
        append_strings(member, text);
    }
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        append_strings(member, text);
    }
}

static ls_status add_record(void *context, const ls_walked *walked, ls_status read)
{
    ls_contamination *c = context;
    LS_TRY(read);
    ls_text_clear(&c->text);
    append_strings(walked->object, &c->text);
    return add_item(c, walked->file->path, walked->line, ls_text_string(&c->text), c->text.bytes);
}

static ls_status add_text_file(ls_contamination *c, const ls_corpus_file *file)
{
    ls_file_map map;
    LS_TRY(ls_corpus_map(file, &map));
    ls_status status = ls_corpus_unpack(file, &(ls_unpack_options){.folder = ""}, &map);
    status = status == LS_OK ? ls_text_check((const char *)map.data, map.bytes, file->path, true) : status;
    status = status == LS_OK ? add_item(c, file->path, 1, (const char *)map.data, map.bytes) : status;
    ls_file_map_close(&map);
    return status;
}

static ls_status add_files(ls_contamination *c, const ls_step *step)
{
    ls_corpus_file *files = step->decontaminate.files;
    for (size_t i = 0; i < step->decontaminate.file_count; i++) {
        ls_record_walk walk = {.on_record = add_record, .context = c};
        LS_TRY(files[i].kind == LS_CORPUS_TEXT ? add_text_file(c, &files[i])
                                               : ls_records_walk(&walk, &files[i], 1));
    }
    if (c->item_count == 0) {
        return ls_fail(LS_ERR_DATA, "%s: no record has %llu words, so that none could be found: lower ngram",
                       files[0].path, (unsigned long long)c->ngram);
    }
    if (c->short_count > 0) {
        ls_log_warn("data: %llu of %llu evaluation records have fewer than %llu words and cannot be found",
                    (unsigned long long)c->short_count, (unsigned long long)(c->short_count + c->item_count),
                    (unsigned long long)c->ngram);
    }
    return LS_OK;
}

ls_status ls_contamination_open(const ls_step *step, ls_contamination **out)
{
    ls_contamination *c = calloc(1, sizeof *c);
    if (!c) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the evaluation files");
    }
    c->ngram = step->decontaminate.ngram;
    ls_status status = add_files(c, step);
    status = status == LS_OK ? make_filter(c) : status;
    ls_scratch_release(&c->scratch);
    ls_text_release(&c->text);
    if (status != LS_OK) {
        ls_contamination_close(c);
        return status;
    }
    *out = c;
    return LS_OK;
}

void ls_contamination_close(ls_contamination *c)
{
    if (c) {
        free(c->items);
        free(c->grams.slots);
        free(c->filter);
        free(c);
    }
}

/* ---- documents ------------------------------------------------------------------------------- */

ls_status ls_contamination_judge(const ls_contamination *c, ls_step_scratch *scratch,
                                 const ls_passage *passage, ls_removal *removal_out)
{
    LS_TRY(ls_fold_words(scratch, passage->text, passage->bytes));
    const uint64_t *words = scratch->folded;
    ls_gram gram = ls_gram_begin(c->ngram);
    for (size_t i = 0; i < scratch->folded_count; i++) {
        uint64_t *word;
        const uint64_t hash = ls_gram_roll(&gram, words[i], i >= c->ngram ? words[i - c->ngram] : 0);
        const uint64_t bit = bit_of(c, hash, &word);
        if (!(*word & bit) || i + 1 < c->ngram) {
            continue;
        }
        const uint32_t first = ls_first_table_find(&c->grams, hash)->first;
        if (first) {
            *removal_out = (ls_removal){.reason = LS_CONTAMINATED, .detail = first - 1};
            return LS_OK;
        }
    }
    return LS_OK;
}

void ls_contamination_append_place(const ls_contamination *c, uint32_t number, ls_text *text)
{
    if (number < c->item_count) {
        ls_text_printf(text, "%s:%llu", c->items[number].path, (unsigned long long)c->items[number].line);
    }
}
