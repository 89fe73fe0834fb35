// SPDX-License-Identifier: Apache-2.0
/*
 * Chat format: how a model is talked to: its chat template, its special tokens, and the token that
 * ends a turn.
 *
 * Not thread-safe: one owner.
 */
#ifndef LS_EXECUTION_SERVE_CHAT_FORMAT_H
#define LS_EXECUTION_SERVE_CHAT_FORMAT_H

#include "base/json.h"
#include "execution/train/model_file.h"
#include "tokenizer/template/chat_template.h"

typedef struct ls_chat_format {
    const ls_tokenizer *tokenizer; /* borrowed */
    ls_chat_template *template;    /* NULL: the model has none */
    json_t *variables;             /* bos_token, eos_token, ...; template_date if it was given */
} ls_chat_format;

/*
 * Finds the template in `path` (a file, or a folder of a model), or in the files of the model
 * itself when `path` is "". file: with its tokenizer, which must outlive the format. date:
 * YYYY-MM-DD, the day that the template sees; "" for today.
 *
 * A model without a template gives template NULL. *format_out needs a release after LS_OK.
 * Errors: LS_ERR_INVALID for a `path` without a template, and those of ls_template_source_find and
 * ls_chat_template_open.
 */
LS_MUST_CHECK ls_status ls_chat_format_open(const ls_model_file *file, const char *path, const char *date,
                                            ls_chat_format *format_out);
void ls_chat_format_release(ls_chat_format *format);

/*
 * The prompt for the next answer. variables: one object with `messages`, and what else the template
 * reads; add_generation_prompt is true unless it is there. The ids are appended.
 * Errors: those of ls_chat_template_render and of the tokenizer.
 */
LS_MUST_CHECK ls_status ls_chat_format_prompt(const ls_chat_format *format, const json_t *variables,
                                              ls_token_buffer *ids);

/* The special token that the template puts after an answer; -1: it puts none there. */
int32_t ls_chat_format_end_of_turn(const ls_chat_format *format);

#endif
