// SPDX-License-Identifier: Apache-2.0
/*
 * One object of a file of JSON, as programs write them.
 *
 * Thread-safe.
 */
#ifndef LS_DATA_JSONL_H
#define LS_DATA_JSONL_H

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One object of a file: a line of JSON lines, an element of an array, or a row of a table. */
typedef struct ls_jsonl_line {
    /* For error texts. */
    const char *path;
    /* For error texts. The first line is 1. */
    uint64_t number;
    /* The object, without the \n of a line. */
    const char *data;
    size_t bytes;
} ls_jsonl_line;

/* True if the line holds only spaces, tabs and carriage returns. */
bool ls_jsonl_is_blank(const char *line, size_t bytes);

/* Refuses bytes that are not text. Errors: LS_ERR_DATA with path and line. */
LS_MUST_CHECK ls_status ls_jsonl_check(const ls_jsonl_line *line);

/* U+FFFD, which takes the place of what is no character. */
#define LS_JSONL_REPLACEMENT "\xef\xbf\xbd"

/*
 * Parses a line that is not blank; the caller drops *root_out with json_decref.
 *
 * Programs write what JSON or Unicode does not allow, and one record must not stop a corpus: half
 * of a surrogate pair and a NUL character (\ud83d, \u0000) become LS_JSONL_REPLACEMENT, numbers
 * such as NaN and Infinity 0, and *is_mended_out is set. Whole numbers of more than 64 bits are
 * reals.
 *
 * Errors: LS_ERR_DATA, with a text that begins with "path:line", for a line that is not JSON, or
 * not valid UTF-8.
 */
LS_MUST_CHECK ls_status ls_jsonl_parse(const ls_jsonl_line *line, json_t **root_out, bool *is_mended_out);

#endif
