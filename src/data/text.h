// SPDX-License-Identifier: Apache-2.0
/*
 * Checks that a file's content is text.
 *
 * Pure and thread-safe; allocates nothing.
 */
#ifndef LS_DATA_TEXT_H
#define LS_DATA_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Refuses content whose first bytes are those of a known format that is not plain text: PDF,
 * images, programs, archives, databases and so on. Formats whose first bytes could begin a text
 * are refused only if a NUL byte follows within 4 KiB.
 *
 * Errors: LS_ERR_DATA with the path, the format and a remedy.
 */
LS_MUST_CHECK ls_status ls_text_check_format(const void *data, size_t bytes, const char *path);

/* Bytes of the byte order mark that the content begins with, which is not part of the text: 3, or 0
 * without one. */
size_t ls_text_mark_bytes(const void *data, size_t bytes);

/*
 * Refuses content with a NUL byte and, if need_utf8 is set, content that is not valid UTF-8
 * (ls_utf8_valid_prefix in tokenizer/unicode.h). need_utf8 is false for a tokenizer that takes any
 * bytes.
 *
 * Errors: LS_ERR_DATA with the path, the offset and a remedy.
 */
LS_MUST_CHECK ls_status ls_text_check(const char *text, size_t bytes, const char *path, bool need_utf8);

#endif
