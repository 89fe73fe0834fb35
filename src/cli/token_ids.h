// SPDX-License-Identifier: Apache-2.0
/*
 * Token ids written as text, as `tokenize encode` prints them and `tokenize decode` and `eval
 * --tokens` read them.
 */
#ifndef LS_CLI_TOKEN_IDS_H
#define LS_CLI_TOKEN_IDS_H

#include "tokenizer/tokenizer.h"

/*
 * Appends the ids in `text` to `ids`: whole numbers from 0 to 2^31 - 1, separated by spaces, tabs
 * and line ends.
 *
 * text: `bytes` long, followed by a zero byte; a zero byte inside is an error like any other
 * character. name: the source named in messages, a file or "standard input". Errors: LS_ERR_DATA
 * with the wrong word and its position, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_token_ids_parse(const char *text, size_t bytes, const char *name,
                                           ls_token_buffer *ids);

#endif
