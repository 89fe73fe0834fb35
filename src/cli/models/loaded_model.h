// SPDX-License-Identifier: Apache-2.0
/*
 * A model with its weights in memory, for the commands sample, eval, import and export.
 *
 * For one thread. Each successful init needs a release.
 */
#ifndef LS_CLI_MODELS_LOADED_MODEL_H
#define LS_CLI_MODELS_LOADED_MODEL_H

#include "compute/queue.h"
#include "execution/executor/executor.h"
#include "execution/train/model_file.h"

typedef struct ls_loaded_model {
    ls_queue *queue;
    /* configuration, layout, tokenizer */
    ls_model_file *file;
    /* parameters, without moments */
    ls_state state;
} ls_loaded_model;

typedef struct ls_loaded_model_options {
    const char *path;
    /* a directory of the PEFT library or a checkpoint of a run with an adapter; "" or NULL: none
     * but the model's own */
    const char *adapter;
    uint64_t threads; /* 0: one per core */
    /* without the model's own tokenizer (ls_model_file_open_bare) */
    bool is_bare;
    /* an adapter is merged into the weights (ls_model_file_merge) */
    bool is_merged, into_original;
} ls_loaded_model_options;

/*
 * Opens a model (a checkpoint, a run directory or a Hugging Face directory) and reads its weights.
 *
 * Errors: LS_ERR_MEMORY when the parameters do not fit into the available memory, before anything
 * is loaded; errors of ls_model_file_open, ls_adapter_file_open and ls_model_file_load. After an
 * error *model is empty and needs no release.
 */
LS_MUST_CHECK ls_status ls_loaded_model_open(ls_loaded_model *model, const ls_loaded_model_options *options);
void ls_loaded_model_release(ls_loaded_model *model);

/* For evaluating it and for generating text. */
ls_model_on_device ls_loaded_model_on_device(const ls_loaded_model *model);

/*
 * Makes sure that model->file has a tokenizer: the one called `name` (ls_tokenizer_open), or the
 * model's own when `name` is "". Errors: LS_ERR_INVALID when `name` is "" and the model has no
 * tokenizer; errors of ls_tokenizer_open.
 */
LS_MUST_CHECK ls_status ls_loaded_model_choose_tokenizer(ls_loaded_model *model, const char *name);

#endif
