// SPDX-License-Identifier: Apache-2.0
/*
 * Writes weights that no run trained here as a checkpoint: of an import, or of a merge. Every
 * command that takes a checkpoint takes the folder, and `model.from` in a run file does.
 */
#ifndef LS_EXECUTION_CONVERT_NEW_CHECKPOINT_H
#define LS_EXECUTION_CONVERT_NEW_CHECKPOINT_H

#include "execution/train/model_file.h"

typedef struct ls_new_checkpoint {
    const char *output;        /* the checkpoint becomes OUTPUT/0 */
    const ls_model_file *file; /* whose tokenizer and other files the model carries */
    const ls_model_config *config;
    const ls_layout *layout; /* of `parameters`, nothing frozen */
    float *parameters;
    json_t *extra; /* where the model comes from, for the manifest; borrowed */
} ls_new_checkpoint;

/* Refuses a folder that holds a model already: a new one would replace its step 0, or would be
 * hidden by newer steps. Errors: LS_ERR_INVALID, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_new_checkpoint_check(ls_arena *arena, const char *output);

/* Writes the checkpoint, without moments, as step 0, and creates the folders above it. Errors:
 * those of ls_model_file_carried and ls_checkpoint_save. */
LS_MUST_CHECK ls_status ls_new_checkpoint_save(ls_arena *arena, const ls_new_checkpoint *checkpoint);

#endif
