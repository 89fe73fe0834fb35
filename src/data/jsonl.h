// SPDX-License-Identifier: Apache-2.0
/*
 * JSON lines: one object a line, its document under the key `text`. Other keys are ignored.
 *
 * Lines end with \n or \r\n; lines of nothing but white space are skipped. Thread-safe.
 */
#ifndef LS_DATA_JSONL_H
#define LS_DATA_JSONL_H

#include "base/json.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* True when the line has only spaces, tabs and carriage returns. */
bool ls_jsonl_is_blank(const char *line, size_t bytes);

/*
 * Reads one line, without its \n, that is not blank. path, line_number (from 1): for error texts.
 *
 * text_out, text_bytes_out: the document, UTF-8, inside *root_out, which the caller drops with json_decref.
 * Written only on success. Errors: LS_ERR_DATA, each beginning with "path:line": not JSON, not an object,
 * broken UTF-8, no `text`, `text` not a string. Lines made for instruction tuning (`messages`, `prompt`,
 * `completion`) are refused by name: their loss masks are not supported.
 */
LS_MUST_CHECK ls_status ls_jsonl_read(const char *line, size_t bytes, const char *path, uint64_t line_number,
                                      json_t **root_out, const char **text_out, size_t *text_bytes_out);

#endif
