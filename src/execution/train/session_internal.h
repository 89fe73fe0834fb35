// SPDX-License-Identifier: Apache-2.0
/* Parts of opening a session; for session*.c only. */
#ifndef LS_EXECUTION_TRAIN_SESSION_INTERNAL_H
#define LS_EXECUTION_TRAIN_SESSION_INTERNAL_H

#include "execution/train/run_recipe.h"
#include "execution/train/session.h"

/* All items of a list of files as one source. In the session's arena. */
ls_dataset_source ls_session_items(const ls_session *session, const ls_option_weighted_list *list);

/* Opens the tokenizer that the run file asks for. It stays NULL if that is the model's and the
 * model has none. Errors: those of ls_tokenizer_load and ls_tokenizer_train_on. */
LS_MUST_CHECK ls_status ls_session_open_tokenizer(ls_session *session, const ls_session_options *options);

/* A new run that starts from a trained model must read its ids as the model did. Errors:
 * LS_ERR_INVALID naming an id with two meanings. */
LS_MUST_CHECK ls_status ls_session_check_meanings(const ls_session *session);

/* Opens the recipe; without a tokenizer *recipe_out stays as it is. The caller destroys
 * recipe_out->recipe. Errors: those of ls_run_recipe_open. */
LS_MUST_CHECK ls_status ls_session_open_recipe(ls_session *session, ls_run_recipe *recipe_out);

/* After the dataset is open: if it has records, the model carries the template, and stops where the
 * template ends an answer. */
void ls_session_adopt_recipe(ls_session *session, const ls_session_options *options,
                             const ls_run_recipe *recipe);

/* Makes the layout of a run with an adapter, from the run file or, unless the run has begun, from
 * adapter.from. */
LS_MUST_CHECK ls_status ls_session_adapt(ls_session *session, bool has_begun);

/* ls_session_begin_weights of such a run. */
LS_MUST_CHECK ls_status ls_session_begin_adapter(ls_session *session, ls_state *state);

/* Sets ranks and is_gang from the run file. */
void ls_session_set_ranks(ls_session *session);
/* What depends on how ranks divide the model, after `plan`: plans, memory, snapshot. */
LS_MUST_CHECK ls_status ls_session_plan_ranks(ls_session *session, uint32_t member);

/* The line of the mesh, if there is one. */
void ls_session_describe_mesh(const ls_session *session, ls_text *text);

#endif
