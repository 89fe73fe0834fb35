// SPDX-License-Identifier: Apache-2.0
/*
 * Answer text: the text of the tokens of an answer, as far as it can be shown.
 *
 * It consists of whole characters, ends before the first of the texts that stop it, and never shows
 * a part of one: what could still become a stop is held back.
 *
 *     "The answer is 4.\nUse"      stop "\nUser:"
 *      shown            held
 *
 * One owner.
 */
#ifndef LS_EXECUTION_SERVE_ANSWER_TEXT_H
#define LS_EXECUTION_SERVE_ANSWER_TEXT_H

#include "base/text.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_answer_text {
    const ls_tokenizer *tokenizer; /* borrowed, as are the stops */
    const char *const *stops;      /* none is empty */
    size_t stop_count;
    ls_tokenizer_stream stream;
    ls_text_buffer text; /* all of it, what is held back included */
    size_t shown_bytes;  /* of `text` */
    bool is_stopped;     /* one of the stops came; `text` ends before it */
} ls_answer_text;

/* For an answer that continues a prompt: the blank before its first word is part of the answer.
 * Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_answer_text_follow(ls_answer_text *answer, const int32_t *prompt, size_t count);

/* Adds a token; special ones have no text. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_answer_text_add(ls_answer_text *answer, int32_t token);

/* No more tokens come: what was held back is shown. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_answer_text_end(ls_answer_text *answer);

void ls_answer_text_release(ls_answer_text *answer);

/* Appends the text of a single token as a name: "bytes:\xe2\x80" where it is no whole character. */
void ls_answer_token_name(const ls_tokenizer *tokenizer, int32_t token, ls_text *name);

#endif
