// SPDX-License-Identifier: Apache-2.0
/*
 * A model with its weights in memory, for the commands that use one: sample, eval, import, export.
 *
 * One thread. What init filled is given back with release.
 */
#ifndef LS_CLI_LOADED_MODEL_H
#define LS_CLI_LOADED_MODEL_H

#include "compute/queue.h"
#include "execution/model_file.h"

typedef struct ls_loaded_model {
    ls_queue *queue;
    ls_model_file *file; /* configuration, layout, tokenizer */
    ls_state state;      /* parameters, without moments */
} ls_loaded_model;

/*
 * Opens `path` (a checkpoint, a run directory or a Hugging Face directory) and reads its weights. threads: 0 is one per core.
 *
 * Errors: LS_ERR_MEMORY when the parameters do not fit in what the machine has left, found out before anything is loaded; those of
 * ls_model_file_open and ls_model_file_load. *model is then empty and needs no release.
 */
LS_MUST_CHECK ls_status ls_loaded_model_init(ls_loaded_model *model, const char *path, uint64_t threads);
void ls_loaded_model_release(ls_loaded_model *model);

/*
 * Sees that model->file has a tokenizer: the one `name` names (ls_tokenizer_open), or with "" the model's own.
 * Errors: LS_ERR_INVALID when `name` is "" and the model has none; those of ls_tokenizer_open.
 */
LS_MUST_CHECK ls_status ls_loaded_model_choose_tokenizer(ls_loaded_model *model, const char *name);

#endif
