// SPDX-License-Identifier: Apache-2.0
/*
 * Is this text? Finds the first NUL byte and the first broken UTF-8 sequence, with what to do about each.
 *
 * Pure and thread-safe, no allocation. ASCII goes eight bytes at a time.
 */
#ifndef LS_DATA_TEXT_H
#define LS_DATA_TEXT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * The offset of the first byte that does not begin or continue a valid UTF-8 sequence (RFC 3629: no overlong
 * forms, no surrogates, at most U+10FFFF), or `bytes` when all are valid. For a sequence cut off or broken in
 * the middle it is the offset of its first byte.
 */
size_t ls_text_utf8_valid_bytes(const char *text, size_t bytes);

/*
 * Checks a file's content. need_utf8: false when the tokenizer takes any bytes; NUL is refused all the same,
 * because a file with NUL bytes is not text. Errors: LS_ERR_DATA with the path, offset and a remedy (UTF-16
 * and compressed files are recognised).
 */
LS_MUST_CHECK ls_status ls_text_check(const char *text, size_t bytes, const char *path, bool need_utf8);

#endif
