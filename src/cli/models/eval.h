// SPDX-License-Identifier: Apache-2.0
/* The command eval: its settings, and the parts of it in files of their own. */
#ifndef LS_CLI_MODELS_EVAL_H
#define LS_CLI_MODELS_EVAL_H

#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "execution/judge/judge.h"

typedef struct eval_settings {
    ls_option_strings data;
    const char *tokens, *tokenizer, *adapter, *field;
    const char *records, *label, *prompt_field, *choices, *extract, *tasks, *prompt, *template,
        *template_date;
    uint64_t context, threads, shots, max_tokens, limit;
    bool side_by_side, json;
} eval_settings;

/*
 * The losses of models on the texts of settings->data, or on settings->tokens. losses_out:
 * {"models": [{"model", "losses": [{"data", "loss", "perplexity", "tokens", "loss_per_byte"}]}]};
 * the caller drops it. Errors: LS_ERR_INVALID, LS_ERR_FAILED for a loss that is not finite; those
 * of opening models and data.
 */
LS_MUST_CHECK ls_status ls_eval_losses(ls_arena *arena, const eval_settings *settings,
                                       const char *const *models, size_t count, json_t **losses_out);

/* Prints them: one loss as a line or an object, several as a table or the document above. */
void ls_eval_show_losses(ls_arena *arena, const json_t *losses, bool as_json);

/* eval --records and eval --tasks, for one model or two. */
LS_MUST_CHECK ls_status ls_eval_answers(const ls_invocation *invocation);

/* eval A B --side-by-side. */
LS_MUST_CHECK ls_status ls_eval_side_by_side(const ls_invocation *invocation);

/*
 * Adds what was measured of `model` to the registry (cli/registered.h). metrics: {name: number or
 * object of numbers}; what is no number is left out; dropped.
 */
void ls_eval_registered(const ls_invocation *invocation, const char *model, json_t *metrics);

/* Splits a list at its commas; empty parts count. */
size_t ls_eval_split(ls_arena *arena, const char *list, const char ***parts_out);

/*
 * Loads model `index` of the command's words and asks it; answers_out: one list for each of the
 * `count` quizzes, in the invocation's arena. Without --tasks the quiz is read here, from --records
 * or --prompt: the model's chat template makes its prompts, or the other model's where it has none.
 */
LS_MUST_CHECK ls_status ls_eval_ask(const ls_invocation *invocation, size_t index, ls_quiz *quizzes,
                                    size_t count, ls_quiz_answer **answers_out);

#endif
