// SPDX-License-Identifier: Apache-2.0
/*
 * Raw document: a record cut into its text and what surrounds it, so that the text can be replaced
 * and everything else (ids, addresses, dates) is kept byte for byte.
 *
 * Pure; one owner.
 */
#ifndef LS_DATA_PREPARATION_RAW_DOCUMENT_H
#define LS_DATA_PREPARATION_RAW_DOCUMENT_H

#include "base/status.h"
#include "base/text.h"
#include "data/preparation/pipeline.h"
#include "data/preparation/step.h"
#include "data/records.h"

typedef struct ls_raw_document {
    /* Line of its record in the file. */
    uint64_t line;
    /* The text, valid UTF-8: in the file, or in `decoded`. */
    const char *text;
    size_t bytes;
    /* The record up to the string of the text and from its end on: '{"id":3,"text":' and '}'. */
    const char *before, *after;
    size_t before_bytes, after_bytes;
    /* The record on one line with its text as it is now, or NULL when it must be put together. */
    const char *whole;
    size_t whole_bytes;
    /* `whole` is the record as it is in the file. */
    bool is_verbatim;
    /* Private: room that is used again for the next document. */
    ls_text decoded, record;
} ls_raw_document;

/*
 * Reads a record. removal_out: its reason is 0, or says why the record is left out; the line is
 * then valid, and the text if there is any. records: NULL for a text file, all of which is
 * `record`. Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_raw_document_read(ls_raw_document *raw, const ls_data_pipeline *pipeline,
                                             const ls_records *records, const ls_record *record,
                                             ls_removal *removal_out);

/* Appends the record with `text` in place of its own, and a line end. */
void ls_raw_document_append(const ls_raw_document *raw, const char *text, size_t bytes, ls_text *out);

void ls_raw_document_release(ls_raw_document *raw);

#endif
