// SPDX-License-Identifier: Apache-2.0
/*
 * Parquet: the rows of a file as lines of JSON, so that a row is the same record as a JSON object
 * with the same fields.
 *
 *   group, list    object, array; to any depth up to 32. A map is an array of its key and value
 *   BYTE_ARRAY     string; null if it is not UTF-8 in a column that is not declared as text
 *   INT32, INT64   number; times and dates too, as they are stored
 *   FLOAT, DOUBLE  number with as many digits as are needed; null if it is infinite or not a number
 *   BOOLEAN        true, false
 *   others         left out: INT96, FIXED_LEN_BYTE_ARRAY, decimals (ls_parquet_tell)
 *
 * Read are the encodings PLAIN, dictionary, RLE, DELTA_BINARY_PACKED, DELTA_LENGTH_BYTE_ARRAY,
 * DELTA_BYTE_ARRAY and BYTE_STREAM_SPLIT, pages of version 1 and 2, and pages that are not
 * compressed or with Snappy, gzip or zstd. Checked are the checksums of pages where they are there,
 * and the counts of rows, values and nulls. Memory: of each column one page and its dictionary, and
 * one row.
 *
 * Errors name the file, and column and row group where the mistake is in one: LS_ERR_DATA for what
 * is damaged; LS_ERR_UNSUPPORTED for another codec or encoding, encryption, and columns in other
 * files; LS_ERR_MEMORY.
 *
 * The same file gives the same lines, always: they are part of the identity of data sets.
 *
 * Source of the format: github.com/apache/parquet-format, README.md, Encodings.md and
 * LogicalTypes.md.
 *
 * Not thread-safe: one owner.
 */
#ifndef LS_DATA_PARQUET_PARQUET_H
#define LS_DATA_PARQUET_PARQUET_H

#include "base/file.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

typedef struct ls_parquet ls_parquet;

/* Whether bytes that begin a file are those of Parquet, rather than of a text. */
bool ls_parquet_has_magic(const void *data, size_t bytes);

/* Opens the content of file `path`, a name for messages. Both are borrowed. */
LS_MUST_CHECK ls_status ls_parquet_open(const char *path, ls_file_map content, ls_parquet **parquet_out);
void ls_parquet_close(ls_parquet *parquet); /* NULL is allowed */

/* Appends lines for the next rows, until `lines` has at least `enough_bytes` or all rows are
 * read. done_out: all are. After an error the file must be closed. */
LS_MUST_CHECK ls_status ls_parquet_read(ls_parquet *parquet, size_t enough_bytes, ls_text *lines,
                                        bool *done_out);

/* Logs a warning for columns, and for values, that were left out; nothing if there were none. */
void ls_parquet_tell(const ls_parquet *parquet);

#endif
