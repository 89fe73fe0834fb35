// SPDX-License-Identifier: Apache-2.0
/*
 * Token ids written as text, as `tokenize encode` prints them and `tokenize decode` and `eval --tokens` read them.
 */
#ifndef LS_CLI_TOKEN_IDS_H
#define LS_CLI_TOKEN_IDS_H

#include "data/tokenizer.h"

/*
 * Appends the ids in `text` to `ids`: whole numbers from 0 to 2^31 - 1, separated by spaces, tabs and line ends.
 *
 * text: bytes long and zero-terminated behind that; a zero byte inside is an error like any other character. name: for messages, a file
 * or "standard input". Errors: LS_ERR_DATA naming what stands where, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_token_ids_parse(const char *text, size_t bytes, const char *name,
                                           ls_token_buffer *ids);

#endif
