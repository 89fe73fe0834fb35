// SPDX-License-Identifier: Apache-2.0
#include "data/encode_corpus.h"

#include "base/assert.h"
#include "base/text.h"
#include "data/detect.h"
#include "data/record_walk.h"
#include "data/records.h"
#include "data/text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum { UNIT_BYTES = 2 << 20, THREADS_MAX = 256, BAD_NAMED = 5 };

/* Records that can't be used. */
typedef struct bad_records {
    uint64_t count;
    /* What is wrong with the first BAD_NAMED of them, a line each. */
    ls_text text;
} bad_records;

/* A piece of the file that one thread encodes, and the result. */
typedef struct unit {
    const ls_encode_request *request;
    const ls_records *records;
    ls_record_cursor begin;
    /* Offset of its end. */
    size_t end;
    /* Text: the end-of-text token follows it. */
    bool ends_document;
    /* Text: it does not continue the unit before it. */
    bool begins_document;

    /* Kept for the next wave. */
    ls_tokenizer_scratch *scratch;
    ls_records_left left;
    /* Samples, or documents as such; and how many records of conversations there were. */
    ls_samples samples;
    uint64_t record_count;
    bad_records bad;
    ls_status status;
    /* The error text of the thread that failed. Owned. */
    char *error_text;
} unit;

static bool takes_any_bytes(const ls_tokenizer *tokenizer)
{
    return strcmp(ls_tokenizer_kind(tokenizer), "bytes") == 0;
}

/* ---- one unit -------------------------------------------------------------------------------- */

/* A document as a sample, none of whose tokens is marked. */
static ls_status encode_document(unit *u, const char *text, size_t bytes, bool with_end)
{
    const ls_tokenizer *tokenizer = u->request->tokenizer;
    const int32_t end_of_text = ls_tokenizer_eos(tokenizer);
    ls_token_buffer *ids = &u->samples.ids;
    LS_TRY(ls_tokenizer_encode(tokenizer, u->scratch, text, bytes, false, ids));
    if (with_end && end_of_text >= 0) {
        LS_TRY(ls_token_buffer_reserve(ids, 1));
        ids->ids[ids->count++] = end_of_text;
    }
    return ls_samples_end(&u->samples, bytes);
}

static ls_status encode_record(unit *u, const ls_record *record)
{
    ls_record_document found;
    LS_TRY(ls_records_read(u->records, record, &found));
    if (!found.text) {
        ls_records_left_add(&u->left, 1, record->line);
    }
    const ls_status status = found.bytes > 0 ? encode_document(u, found.text, found.bytes, true) : LS_OK;
    ls_record_document_release(&found);
    return status;
}

/* ---- one unit of conversations --------------------------------------------------------------- */

static ls_status apply_recipe(unit *u, const ls_record *record, json_t *object, bool *is_fatal_out)
{
    uint64_t rank = 0;
    ls_samples *samples = &u->samples;
    const size_t first = samples->count;
    const ls_form_keys *keys = ls_recipe_keys(u->request->recipe);
    LS_TRY(ls_corpus_check_form(u->request->file, keys, object, record->line, is_fatal_out));
    LS_TRY(ls_held_out_rank(&u->request->rule, object, record->data, record->bytes, &rank));
    LS_TRY(ls_recipe_apply(u->request->recipe, u->scratch, object, u->request->file->form, samples));
    for (size_t i = first; i < samples->count; i++) {
        samples->ends[i].rank = rank;
        samples->ends[i].line = record->line;
    }
    return LS_OK;
}

static void note_bad(bad_records *bad, const char *path, uint64_t line)
{
    if (bad->count++ < BAD_NAMED) {
        (void)ls_record_fail(LS_ERR_DATA, path, line);
        ls_text_printf(&bad->text, "\n  %.400s", ls_error_text());
    }
}

static ls_status encode_conversation(unit *u, const ls_record *record)
{
    json_t *object = NULL;
    bool is_fatal = false;
    ls_status status = ls_records_object(u->records, record, &object);
    if (status == LS_OK) {
        status = apply_recipe(u, record, object, &is_fatal);
    }
    json_decref(object);
    u->record_count++;
    if (status == LS_ERR_DATA && !is_fatal) {
        note_bad(&u->bad, u->request->file->path, record->line);
        return LS_OK;
    }
    return status == LS_OK || is_fatal
               ? status
               : ls_fail_within(status, "%s:%llu", u->request->file->path, (ull)record->line);
}

static ls_status encode_records(unit *u)
{
    const bool is_text = u->request->file->form == LS_RECORD_TEXT;
    ls_record_cursor cursor = u->begin;
    ls_record record;
    while (cursor.at < u->end) {
        LS_TRY(ls_records_next(u->records, &cursor, &record));
        if (record.data) {
            LS_TRY(is_text ? encode_record(u, &record) : encode_conversation(u, &record));
        }
    }
    return LS_OK;
}

static ls_status encode_unit(unit *u)
{
    u->left = (ls_records_left){0};
    ls_samples_clear(&u->samples);
    u->record_count = 0;
    u->bad.count = 0;
    ls_text_clear(&u->bad.text);
    if (!u->scratch) {
        LS_TRY(ls_tokenizer_scratch_create(u->request->tokenizer, &u->scratch));
    }
    const char *data = u->request->data + u->begin.at;
    return u->records ? encode_records(u) : encode_document(u, data, u->end - u->begin.at, u->ends_document);
}

/* Runs on any thread. The error text belongs to that thread, so it is copied into the unit. */
static void *run_unit(void *argument)
{
    unit *u = argument;
    u->status = encode_unit(u);
    if (u->status != LS_OK) {
        u->error_text = strdup(ls_error_text());
    }
    return NULL;
}

/* ---- waves ----------------------------------------------------------------------------------- */

/* Moves the cursor to the end of the unit that begins there. What can't be cut into records is one
 * unit: it is cut again when it is encoded, and its error is then reported in the order of the
 * file. */
static void find_unit_end(const ls_encode_request *request, const ls_records *records,
                          ls_record_cursor *cursor)
{
    const size_t begin = cursor->at;
    if (!records) {
        const bool cut = takes_any_bytes(request->tokenizer) && request->bytes - begin > UNIT_BYTES;
        cursor->at = cut ? begin + UNIT_BYTES : request->bytes;
        return;
    }
    ls_record record = {.data = request->data};
    while (record.data && cursor->at - begin < UNIT_BYTES && cursor->at < request->bytes) {
        if (ls_records_next(records, cursor, &record) != LS_OK) {
            record.data = NULL;
        }
    }
    if (!record.data) {
        cursor->at = request->bytes;
    }
}

/* Gives the units the next pieces of the file. Returns how many units got one. */
static uint32_t deal_units(const ls_encode_request *request, const ls_records *records,
                           ls_record_cursor *next, unit *units)
{
    uint32_t count = 0;
    while (count < request->threads && next->at < request->bytes) {
        unit *u = &units[count++];
        u->records = records;
        u->begin = *next;
        u->begins_document = next->at == 0;
        find_unit_end(request, records, next);
        u->end = next->at;
        u->ends_document = u->end == request->bytes;
    }
    return count;
}

/* Encodes the units in parallel, the first on this thread. If a thread can't be started, its unit
 * is encoded on this thread too. */
static void run_wave(unit *units, uint32_t count)
{
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    for (uint32_t i = 1; i < count; i++) {
        started[i] = pthread_create(&threads[i], NULL, run_unit, &units[i]) == 0;
    }
    run_unit(&units[0]);
    for (uint32_t i = 1; i < count; i++) {
        if (started[i]) {
            pthread_join(threads[i], NULL);
        } else {
            run_unit(&units[i]);
        }
    }
}

static ls_status write_unit(const unit *u, ls_token_writer *writer)
{
    const ls_samples *samples = &u->samples;
    const bool is_record = u->records && u->request->file->form != LS_RECORD_TEXT;
    const bool continues = !u->records && !u->begins_document;
    ls_sample_end begin = {0};
    if (u->status != LS_OK) {
        return ls_fail(u->status, "%s", u->error_text ? u->error_text : "out of memory");
    }
    for (size_t i = 0; i < samples->count; i++) {
        const ls_sample_end end = samples->ends[i];
        const int32_t *ids = samples->ids.ids + begin.ids;
        const size_t count = end.ids - begin.ids, text = end.text - begin.text;
        const ls_token_origin origin = {.rank = end.rank, .line = end.line};
        LS_TRY(is_record   ? ls_token_writer_add_sample(writer, ids, count, text, origin)
               : continues ? ls_token_writer_continue(writer, ids, count, text)
                           : ls_token_writer_add(writer, ids, count, text));
        begin = end;
    }
    writer->is_loose = writer->is_loose || samples->is_loose;
    return LS_OK;
}

/* Adds the unit's bad records to those of the units before. */
static void add_bad(const unit *u, bad_records *bad)
{
    const char *line = ls_text_string(&u->bad.text);
    for (uint64_t i = 0; i < u->bad.count && i < BAD_NAMED && bad->count + i < BAD_NAMED; i++) {
        const char *end = strchrnul(line + 1, '\n');
        ls_text_append_bytes(&bad->text, line, (size_t)(end - line));
        line = end;
    }
    bad->count += u->bad.count;
}

static ls_status judge_bad(const ls_encode_request *request, const bad_records *bad, uint64_t record_count,
                           ls_token_writer *writer)
{
    writer->left_count = bad->count;
    if (bad->count == 0 || (ls_recipe_skips_bad(request->recipe) && bad->count < record_count)) {
        return LS_OK;
    }
    const bool is_one = bad->count == 1;
    return ls_fail(LS_ERR_DATA,
                   "%s: %llu of %llu record%s cannot be used:%s%s\nMend or remove %s, or set "
                   "data.bad_records: skip to leave %s out",
                   request->file->path, (ull)bad->count, (ull)record_count, record_count == 1 ? "" : "s",
                   ls_text_string(&bad->text), bad->count > BAD_NAMED ? "\n  ..." : "",
                   is_one ? "it" : "them", is_one ? "it" : "them");
}

static ls_status encode_waves(const ls_encode_request *request, const ls_records *records, unit *units,
                              ls_token_writer *writer)
{
    ls_records_left left = {0};
    bad_records bad = {0};
    uint64_t record_count = 0;
    ls_status status = LS_OK;
    ls_record_cursor next = records ? records->first : (ls_record_cursor){.line = 1};
    while (status == LS_OK && next.at < request->bytes) {
        const uint32_t count = deal_units(request, records, &next, units);
        status = request->stop ? request->stop(request->context) : LS_OK;
        if (status == LS_OK) {
            run_wave(units, count);
        }
        for (uint32_t i = 0; i < count && status == LS_OK; i++) {
            status = write_unit(&units[i], writer);
            ls_records_left_add(&left, units[i].left.count, units[i].left.first_line);
            add_bad(&units[i], &bad);
            record_count += units[i].record_count;
        }
        if (request->progress && status == LS_OK) {
            request->progress(request->context, request->file->path, next.at, request->bytes);
        }
    }
    status = status == LS_OK ? judge_bad(request, &bad, record_count, writer) : status;
    ls_text_release(&bad.text);
    LS_TRY(status);
    ls_records_left_tell(&left, request->file->path);
    return LS_OK;
}

static void release_units(unit *units, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ls_tokenizer_scratch_destroy(units[i].scratch);
        ls_samples_release(&units[i].samples);
        ls_text_release(&units[i].bad.text);
        free(units[i].error_text);
    }
    free(units);
}

static ls_status encode_content(const ls_encode_request *request, const ls_records *records,
                                ls_token_writer *writer)
{
    unit *units = calloc(request->threads, sizeof *units);
    if (!units) {
        return ls_fail(LS_ERR_MEMORY, "%s: not enough memory to read it", request->file->path);
    }
    for (uint32_t i = 0; i < request->threads; i++) {
        units[i].request = request;
    }
    const ls_status status = encode_waves(request, records, units, writer);
    release_units(units, request->threads);
    LS_TRY(status);
    if (writer->token_count == 0) {
        return ls_fail(LS_ERR_DATA, "%s has no text in it", request->file->path);
    }
    return LS_OK;
}

ls_status ls_encode_file(const ls_encode_request *request, ls_token_writer *writer)
{
    const ls_corpus_file *file = request->file;
    LS_ASSERT(file->kind != LS_CORPUS_TOKENS && request->threads >= 1 && request->threads <= THREADS_MAX);
    if (file->kind == LS_CORPUS_TEXT) {
        LS_TRY(
            ls_text_check(request->data, request->bytes, file->path, !takes_any_bytes(request->tokenizer)));
        return encode_content(request, NULL, writer);
    }
    ls_records records;
    LS_TRY(ls_records_open(file, request->data, request->bytes, &records));
    return encode_content(request, &records, writer);
}
