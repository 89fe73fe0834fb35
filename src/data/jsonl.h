// SPDX-License-Identifier: Apache-2.0
/*
 * JSON objects that hold a document under one key. Other keys are ignored.
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

/* The key of the document unless another one is named. */
#define LS_FIELD_DEFAULT "text"

/* One object of a file: a line of JSON lines, or an element of an array. */
typedef struct ls_jsonl_line {
    /* For error texts. */
    const char *path;
    /* For error texts. The first line is 1. */
    uint64_t number;
    /* The key of the document. NULL: LS_FIELD_DEFAULT. */
    const char *field;
    /* Line of the file's first record, for error texts. 0: not known. */
    uint64_t first;
    /* The object, without the \n of a line. */
    const char *data;
    size_t bytes;
} ls_jsonl_line;

/* The document of a line. */
typedef struct ls_jsonl_document {
    /* Owns the text; the caller drops it with json_decref. */
    json_t *root;
    /* UTF-8. NULL: the record has no document and is to be left out. */
    const char *text;
    size_t bytes;
} ls_jsonl_document;

/* True if the line holds only spaces, tabs and carriage returns. */
bool ls_jsonl_is_blank(const char *line, size_t bytes);

/* Refuses bytes that are not text: errors as below. */
LS_MUST_CHECK ls_status ls_jsonl_check(const ls_jsonl_line *line);

/*
 * Reads a line that is not blank. document_out is written only on success.
 *
 * Programs write records that JSON or Unicode does not allow, and one of them must not stop a
 * corpus. A document that is null, or that has half of a surrogate pair or a NUL character
 * (\ud83d, \u0000), is left out. The same under another key, and numbers such as NaN and
 * Infinity, have no effect.
 *
 * Errors: LS_ERR_DATA, with a text that begins with "path:line", for a line that is not JSON, is
 * not an object, is not valid UTF-8, or has no string under `field`. Records of conversations
 * (`messages`, `prompt`, `instruction`, ...) are refused by name: they are not plain text.
 */
LS_MUST_CHECK ls_status ls_jsonl_read(const ls_jsonl_line *line, ls_jsonl_document *document_out);

/*
 * Parses a line that is not blank, with whole numbers as such; the caller drops *root_out with
 * json_decref. Numbers that JSON does not have are read as 0. Errors: LS_ERR_DATA as above, and for
 * characters that are not Unicode.
 */
LS_MUST_CHECK ls_status ls_jsonl_parse(const ls_jsonl_line *line, json_t **root_out);

#endif
