// SPDX-License-Identifier: Apache-2.0
#include "data/encode.h"

#include "base/assert.h"
#include "data/jsonl.h"
#include "data/text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = 2 << 20, THREADS_MAX = 256 };

/* A document inside a unit. */
typedef struct document {
    size_t ids_end; /* in the unit's ids */
    uint64_t text_bytes;
} document;

/* A piece of the file that one thread encodes, and what came out. */
typedef struct unit {
    const ls_encode_request *request;
    const char *data;
    size_t bytes;
    uint64_t first_line;  /* of the unit in the file, from 1 (JSON lines) */
    bool ends_document;   /* the end-of-text token belongs after it (text) */
    bool begins_document; /* it does not continue the unit before (text) */

    ls_tokenizer_scratch *scratch; /* kept from wave to wave */
    ls_token_buffer ids;
    document *documents;
    size_t document_count, document_capacity;
    ls_status status;
    char *error_text; /* of the thread that failed; owned */
} unit;

/* Where the next unit begins. */
typedef struct cursor {
    size_t at;
    uint64_t line;
} cursor;

static bool takes_any_bytes(const ls_tokenizer *tokenizer)
{
    return strcmp(ls_tokenizer_kind(tokenizer), "bytes") == 0;
}

/* ---- one unit ---------------------------------------------------------------------------------- */

static ls_status note_document(unit *u, uint64_t text_bytes)
{
    if (u->document_count == u->document_capacity) {
        const size_t capacity = u->document_capacity ? u->document_capacity * 2 : 64;
        document *documents = realloc(u->documents, capacity * sizeof *documents);
        if (!documents) {
            return ls_fail(LS_ERR_MEMORY, "%s: no memory for %zu documents", u->request->path, capacity);
        }
        u->documents = documents;
        u->document_capacity = capacity;
    }
    u->documents[u->document_count++] = (document){.ids_end = u->ids.count, .text_bytes = text_bytes};
    return LS_OK;
}

static ls_status encode_document(unit *u, const char *text, size_t bytes, bool with_end)
{
    const ls_tokenizer *tokenizer = u->request->tokenizer;
    const int32_t end_of_text = ls_tokenizer_eos(tokenizer);
    LS_TRY(ls_tokenizer_encode(tokenizer, u->scratch, text, bytes, false, &u->ids));
    if (with_end && end_of_text >= 0) {
        LS_TRY(ls_token_buffer_reserve(&u->ids, 1));
        u->ids.ids[u->ids.count++] = end_of_text;
    }
    return note_document(u, bytes);
}

static ls_status encode_line(unit *u, const char *line, size_t bytes, uint64_t number)
{
    json_t *root = NULL;
    const char *text = NULL;
    size_t text_bytes = 0;
    LS_TRY(ls_jsonl_read(line, bytes, u->request->path, number, &root, &text, &text_bytes));
    const ls_status status = text_bytes > 0 ? encode_document(u, text, text_bytes, true) : LS_OK;
    json_decref(root);
    return status;
}

static ls_status encode_lines(unit *u)
{
    const char *at = u->data, *end = u->data + u->bytes;
    for (uint64_t number = u->first_line; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const size_t bytes = (size_t)((newline ? newline : end) - at);
        if (!ls_jsonl_is_blank(at, bytes)) {
            LS_TRY(encode_line(u, at, bytes, number));
        }
        at += bytes + 1;
    }
    return LS_OK;
}

static ls_status encode_unit(unit *u)
{
    u->ids.count = 0;
    u->document_count = 0;
    if (!u->scratch) {
        LS_TRY(ls_tokenizer_scratch_create(u->request->tokenizer, &u->scratch));
    }
    return u->request->kind == LS_CORPUS_JSONL ? encode_lines(u)
                                               : encode_document(u, u->data, u->bytes, u->ends_document);
}

/* Runs on any thread: the error text is per thread, so it is carried back by hand. */
static void *run_unit(void *argument)
{
    unit *u = argument;
    u->status = encode_unit(u);
    if (u->status != LS_OK) {
        u->error_text = strdup(ls_error_text());
    }
    return NULL;
}

/* ---- waves ------------------------------------------------------------------------------------- */

static uint64_t count_newlines(const char *data, size_t bytes)
{
    uint64_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        count += data[i] == '\n';
    }
    return count;
}

static size_t unit_end(const ls_encode_request *request, size_t begin)
{
    const size_t left = request->bytes - begin;
    if (left <= UNIT_BYTES) {
        return request->bytes;
    }
    if (request->kind == LS_CORPUS_TEXT) {
        return takes_any_bytes(request->tokenizer) ? begin + UNIT_BYTES : request->bytes;
    }
    const char *newline = memchr(request->data + begin + UNIT_BYTES, '\n', left - UNIT_BYTES);
    return newline ? (size_t)(newline - request->data) + 1 : request->bytes;
}

/* Gives units the next pieces of the file; returns how many got one. */
static uint32_t deal_units(const ls_encode_request *request, cursor *next, unit *units)
{
    uint32_t count = 0;
    while (count < request->threads && next->at < request->bytes) {
        const size_t end = unit_end(request, next->at);
        unit *u = &units[count++];
        u->data = request->data + next->at;
        u->bytes = end - next->at;
        u->first_line = next->line;
        u->begins_document = next->at == 0;
        u->ends_document = end == request->bytes;
        if (request->kind == LS_CORPUS_JSONL) {
            next->line += count_newlines(u->data, u->bytes);
        }
        next->at = end;
    }
    return count;
}

/* Encodes the units side by side, the first on this thread. A thread that can't be started costs time, not
 * the result. */
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
    if (u->status != LS_OK) {
        return ls_fail(u->status, "%s", u->error_text ? u->error_text : "out of memory");
    }
    size_t begin = 0;
    for (size_t i = 0; i < u->document_count; i++) {
        const document *d = &u->documents[i];
        const bool continues = u->request->kind == LS_CORPUS_TEXT && !u->begins_document;
        LS_TRY((continues ? ls_token_writer_continue : ls_token_writer_add)(
            writer, u->ids.ids + begin, d->ids_end - begin, d->text_bytes));
        begin = d->ids_end;
    }
    return LS_OK;
}

static ls_status encode_waves(const ls_encode_request *request, unit *units, ls_token_writer *writer)
{
    cursor next = {.at = 0, .line = 1};
    while (next.at < request->bytes) {
        LS_TRY(request->stop ? request->stop(request->context) : LS_OK);
        const uint32_t count = deal_units(request, &next, units);
        run_wave(units, count);
        for (uint32_t i = 0; i < count; i++) {
            LS_TRY(write_unit(&units[i], writer));
        }
        if (request->progress) {
            request->progress(request->context, request->path, next.at, request->bytes);
        }
    }
    return LS_OK;
}

static void release_units(unit *units, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ls_tokenizer_scratch_destroy(units[i].scratch);
        ls_token_buffer_release(&units[i].ids);
        free(units[i].documents);
        free(units[i].error_text);
    }
    free(units);
}

ls_status ls_encode_file(const ls_encode_request *request, ls_token_writer *writer)
{
    LS_ASSERT(request->kind != LS_CORPUS_TOKENS && request->threads >= 1 && request->threads <= THREADS_MAX);
    if (request->kind == LS_CORPUS_TEXT) {
        LS_TRY(ls_text_check(request->data, request->bytes, request->path,
                             !takes_any_bytes(request->tokenizer)));
    }
    unit *units = calloc(request->threads, sizeof *units);
    if (!units) {
        return ls_fail(LS_ERR_MEMORY, "%s: out of memory", request->path);
    }
    for (uint32_t i = 0; i < request->threads; i++) {
        units[i].request = request;
    }
    const ls_status status = encode_waves(request, units, writer);
    release_units(units, request->threads);
    LS_TRY(status);
    if (writer->token_count == 0) {
        return ls_fail(LS_ERR_DATA, "%s has no text in it", request->path);
    }
    return LS_OK;
}
