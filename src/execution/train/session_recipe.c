// SPDX-License-Identifier: Apache-2.0
#include "execution/train/session_internal.h"

#include <inttypes.h>
#include <stdio.h>

ls_status ls_session_open_recipe(ls_session *session, ls_run_recipe *recipe_out)
{
    const ls_run_recipe_options from = {.run = &session->run,
                                        .files = session->carried,
                                        .file_count = session->carried_count,
                                        .tokenizer = session->tokenizer,
                                        .config = &session->config};
    return session->tokenizer ? ls_run_recipe_open(session->arena, &from, recipe_out) : LS_OK;
}

void ls_session_adopt_recipe(ls_session *session, const ls_session_options *options,
                             const ls_run_recipe *recipe)
{
    char line[256];
    ls_model_config *config = &session->config;
    if (!recipe->recipe || !ls_dataset_has_records(session->dataset)) {
        return;
    }
    const int32_t end = ls_recipe_turn_end(recipe->recipe);
    ls_run_recipe_carry(session->arena, recipe, session->tokenizer, &session->carried,
                        &session->carried_count);
    if (options->tell && recipe->template_name) {
        snprintf(line, sizeof line, "chat template: %s", recipe->template_name);
        options->tell(options->context, line);
    }
    if (end < 0 || config->more_eos_count == LS_MORE_EOS_MAX) {
        return;
    }
    config->more_eos[config->more_eos_count++] = end;
    if (options->tell) {
        snprintf(line, sizeof line,
                 "chat template: an answer ends with %s (id %" PRId32 "), at which the model now stops too",
                 ls_tokenizer_piece(session->tokenizer, end), end);
        options->tell(options->context, line);
    }
}
