// SPDX-License-Identifier: Apache-2.0
/*
 * Records: the documents of a file of JSON lines, JSON, CSV or TSV.
 *
 *   JSON lines   one object per line; lines that hold only white space are skipped
 *   JSON         an array of objects, or objects one after another, over any number of lines
 *   CSV, TSV     RFC 4180: the first row names the columns; a cell that begins with a double quote
 *                ends with one and may hold delimiters, line ends and doubled quotes; every row has
 *                as many cells as the first; empty lines are skipped. Quotes inside a cell that
 *                does not begin with one are kept as they are. TSV: the delimiter is a
 *                tab; CSV whose first row has semicolons and no comma: a semicolon
 *
 * The document of a record is the value of one key or column, ls_corpus_file.field; records of
 * conversations (ls_corpus_file.form) are read as a whole. A byte order
 * mark is skipped. Lines end with \n or \r\n.
 *
 * Cutting a file into records is cheap and done in order; reading a record is the expensive part,
 * and threads can share it.
 *
 * Thread-safe: ls_records does not change once it is open.
 */
#ifndef LS_DATA_RECORDS_H
#define LS_DATA_RECORDS_H

#include "base/json.h"
#include "base/status.h"
#include "data/corpus.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A place between two records. */
typedef struct ls_record_cursor {
    /* Offset into the file. */
    size_t at;
    /* Line of that offset. The first line is 1. */
    uint64_t line;
} ls_record_cursor;

typedef struct ls_records {
    const ls_corpus_file *file;
    const char *data;
    size_t bytes;
    /* The first record. */
    ls_record_cursor first;
    /* Private. JSON: the objects are in an array. */
    bool in_array;
    /* Private. CSV: between cells; cells in each row; where the first row is. */
    char delimiter;
    uint32_t column_count;
    size_t header_at;
} ls_records;

/* One record as it stands in the file. */
typedef struct ls_record {
    /* NULL: there are no more. */
    const char *data;
    size_t bytes;
    /* Its first line. */
    uint64_t line;
} ls_record;

typedef struct ls_record_document {
    /* UTF-8, not zero-terminated. NULL: the record has no document and is to be left out. */
    const char *text;
    size_t bytes;
    /* Private: what owns the text. */
    json_t *root;
} ls_record_document;

/*
 * Opens the content of `file`. Both are borrowed. Errors: LS_ERR_DATA, with path and line, for a
 * JSON file that does not begin with [ or {, and a CSV file without the column of the document.
 */
LS_MUST_CHECK ls_status ls_records_open(const ls_corpus_file *file, const char *data, size_t bytes,
                                        ls_records *records_out);

/* Finds the next record and moves the cursor past it. Errors: LS_ERR_DATA, with path and line. */
LS_MUST_CHECK ls_status ls_records_next(const ls_records *records, ls_record_cursor *cursor,
                                        ls_record *record_out);

/*
 * Reads the document of a record; release it with ls_record_document_release. A document that is
 * null, or has characters that are not Unicode, is left out. Errors: LS_ERR_DATA, with path and
 * line; records of conversations (`messages`, `prompt`, ...) are refused by name.
 */
LS_MUST_CHECK ls_status ls_records_read(const ls_records *records, const ls_record *record,
                                        ls_record_document *document_out);
void ls_record_document_release(ls_record_document *document);

/* Reads a record as an object; of a table, a string under the name of each column. The caller drops
 * it with json_decref. Errors: as for ls_records_read, and for characters that are not Unicode. */
LS_MUST_CHECK ls_status ls_records_object(const ls_records *records, const ls_record *record,
                                          json_t **object_out);

/* The records of a file that were left out. */
typedef struct ls_records_left {
    uint64_t count;
    /* Line of the first; 0: none. */
    uint64_t first_line;
} ls_records_left;

void ls_records_left_add(ls_records_left *left, uint64_t count, uint64_t first_line);
/* Logs one warning that says how many were left out, and why; nothing if there were none. */
void ls_records_left_tell(const ls_records_left *left, const char *path);

#endif
