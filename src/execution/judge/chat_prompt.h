// SPDX-License-Identifier: Apache-2.0
/*
 * Prompts by a chat template: the text after which a model writes its answer to a conversation.
 *
 * Used by one thread at a time.
 */
#ifndef LS_EXECUTION_JUDGE_CHAT_PROMPT_H
#define LS_EXECUTION_JUDGE_CHAT_PROMPT_H

#include "execution/judge/questions.h"
#include "tokenizer/template/template_source.h"

typedef struct ls_chat_prompt ls_chat_prompt;

/* source: with a text; its tokens are variables of the template. date: YYYY-MM-DD, the day that the
 * template sees; "": today. Errors: those of ls_chat_template_open, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_chat_prompt_open(const ls_template_source *source, const char *date,
                                            ls_chat_prompt **prompt_out);
void ls_chat_prompt_close(ls_chat_prompt *prompt);

/* Renders messages with add_generation_prompt and the record's tools, documents and
 * chat_template_kwargs, as for training. A string is the user's message. The result borrows
 * `prompt`. */
ls_prompt_maker ls_chat_prompt_maker(ls_chat_prompt *prompt);

#endif
