// SPDX-License-Identifier: Apache-2.0
/*
 * Recipe: turns a record into samples, which are tokens with a mark on those that are trained.
 *
 * Conversations are rendered with the model's chat template. Which part of the text is the answer
 * of turn i is not guessed but derived: `prompt` is messages [0, i) rendered with
 * add_generation_prompt, which is what a server sends to the model; `turn` is messages [0, i]. The
 * answer is what `turn` has after `prompt`: the content and the template's end of a turn.
 *
 *   prompt   <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n
 *   turn     <|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n
 *   trained                                                        ^^^^^^^^^^^^^^^^^^
 *
 * That `prompt` begins `turn` is checked for every answer of every record. Where they differ in
 * white space only, the answer begins with the first character after it that is none, and
 * ls_samples.is_loose says so. Any other difference is an error, because the model would be asked
 * in a form that it was not trained on.
 *
 * If every prompt and turn also begins the whole conversation, in characters and in tokens, the
 * conversation is one sample. If not, because the template rewrites earlier turns (Qwen 3 drops
 * their thinking), or because a token would lie across a boundary, each answer becomes a sample of
 * its own, `turn`, with only that answer trained. So each answer is trained after exactly the
 * tokens that the model sees when it is asked for it.
 *
 * A template that ends an answer only when a message follows it (Qwen 1.5) is found out with a
 * small conversation; the token that it writes there then ends every answer.
 *
 * The tokens are those of the whole text. If the tokens of `prompt` do not begin the tokens of
 * `turn`, both pieces are tokenised on their own, provided that together they decode to the same
 * text. Nothing is added: a template writes bos and the end of a turn itself. Every trained answer
 * must end with a token that ends a text.
 *
 * Prompt and completion that are strings are joined as they are: what the tokenizer puts before a
 * text (bos), the prompt, the completion, and the end-of-text token. Questions and Alpaca's records
 * are joined so too, with a line break between, if there is no template.
 *
 * A message of the assistant with `"weight": 0` (OpenAI's form) is not trained.
 *
 * Thread-safety: a recipe does not change; any number of threads may apply it, each with its own
 * scratch, samples and records.
 */
#ifndef LS_DATA_CONVERSATION_RECIPE_H
#define LS_DATA_CONVERSATION_RECIPE_H

#include "base/hash.h"
#include "base/text.h"
#include "data/conversation/conversation.h"
#include "data/conversation/samples.h"
#include "tokenizer/tokenizer.h"

/* data.loss_on: every answer, every token, or the last answer of each conversation. */
typedef enum ls_loss_on { LS_LOSS_ON_ASSISTANT, LS_LOSS_ON_ALL, LS_LOSS_ON_LAST } ls_loss_on;

typedef struct ls_recipe_options {
    ls_form_keys keys;
    ls_loss_on loss_on;
    /* Records that can't be used are left out instead of being an error. */
    bool skip_bad;
    /* The chat template's source and where it comes from. NULL: there is none. */
    const char *template_source, *template_name;
    /* YYYY-MM-DD, what strftime_now prints. "": unless the template uses it. */
    const char *template_date;
    /* bos_token, eos_token, ... as strings. NULL: none. */
    const json_t *special_tokens;
    /* Ids that end a text for the model. */
    const int32_t *stops;
    size_t stop_count;
    const ls_tokenizer *tokenizer;
} ls_recipe_options;

typedef struct ls_recipe ls_recipe;

/*
 * Compiles the template. Strings of the options are copied; the tokenizer and what keys point to
 * are borrowed. A template that can't be compiled is an error of ls_recipe_check_form, because
 * other records do not need it. Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_recipe_create(const ls_recipe_options *options, ls_recipe **recipe_out);
void ls_recipe_destroy(ls_recipe *recipe);

/* Whether a template's text changes with the date. */
bool ls_recipe_reads_date(const char *template_source);

/* The SHA-256 of all that decides about samples but the tokenizer. */
const char *ls_recipe_hash(const ls_recipe *recipe);

const ls_form_keys *ls_recipe_keys(const ls_recipe *recipe);
bool ls_recipe_skips_bad(const ls_recipe *recipe);

/*
 * The special token with which the template ends an answer, if it is none of options.stops: the
 * model must stop at it too, so it counts as one. -1: there is none.
 */
int32_t ls_recipe_turn_end(const ls_recipe *recipe);

/* Whether an id ends an answer: one of options.stops, ls_recipe_turn_end, or the tokenizer's
 * end-of-text token. */
bool ls_recipe_is_end(const ls_recipe *recipe, int32_t id);

/* Fails with the errors of ls_chat_template_open if there is a template that can't be used. */
LS_MUST_CHECK ls_status ls_recipe_check_template(const ls_recipe *recipe);

/* Fails if no record of a form can become samples, because they need a template. Errors:
 * LS_ERR_INVALID without one, saying what to set; those of ls_recipe_check_template. */
LS_MUST_CHECK ls_status ls_recipe_check_form(const ls_recipe *recipe, ls_record_form form);

/*
 * Appends the samples of a record, which is changed. On error nothing is appended. Errors:
 * LS_ERR_DATA: what ls_conversation_read refuses; the template refuses, or leaves out an answer or
 * its tool calls; an answer without an end; tokens across a boundary. LS_ERR_UNSUPPORTED,
 * LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_recipe_apply(const ls_recipe *recipe, ls_tokenizer_scratch *scratch,
                                        json_t *record, ls_record_form form, ls_samples *samples);

/* ---- asking a model as it was trained ---- */

/* What begins a text that no template wrote; -1: nothing. */
int32_t ls_recipe_bos(const ls_recipe *recipe);

/*
 * Renders the first `count` messages, with what else the record gives its template (from); with
 * with_prompt up to where the model answers. As in transformers, tools and documents that are not
 * given are none. The recipe must have a template (ls_recipe_has_template). Errors: those of
 * ls_chat_template_render.
 */
LS_MUST_CHECK ls_status ls_recipe_render(const ls_recipe *recipe, const ls_conversation *from,
                                         const json_t *messages, size_t count, bool with_prompt,
                                         ls_text *text_out);
bool ls_recipe_has_template(const ls_recipe *recipe);

/* Appends the tokens of the prompt for the answer to all `messages`. Errors: those of
 * ls_recipe_render, and LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_recipe_prompt(const ls_recipe *recipe, const ls_conversation *from,
                                         const json_t *messages, ls_token_buffer *ids);

#endif
