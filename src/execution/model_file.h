// SPDX-License-Identifier: Apache-2.0
/*
 * Model files: a model read from disk, wherever it lies.
 *
 * A path may be a checkpoint, a run directory (its newest good checkpoint) or a Hugging Face directory (config.json, safetensors, maybe a
 * tokenizer). A checkpoint carries the same: config.json, tokenizer.json or tokenizer.model as attachments.
 */
#ifndef LS_EXECUTION_MODEL_FILE_H
#define LS_EXECUTION_MODEL_FILE_H

#include "data/tokenizer.h"
#include "execution/state.h"
#include "model/layout.h"
#include "storage/checkpoint.h"

typedef struct ls_model_file {
    ls_arena arena;
    const char *path;          /* of the checkpoint or directory that was found */
    ls_checkpoint *checkpoint; /* NULL: a Hugging Face directory */
    ls_model_config config;
    ls_layout layout;
    ls_tokenizer *tokenizer; /* NULL when there is none */
    uint64_t step;           /* 0 for a Hugging Face directory */
} ls_model_file;

/* Reads configuration and tokenizer, not the weights. Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA, LS_ERR_UNSUPPORTED, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_model_file_open(const char *path, ls_model_file **file_out);
void ls_model_file_close(ls_model_file *file);

/* Reads the weights into `parameters` (flat, file->layout); moments are not read. Every block is checked. */
LS_MUST_CHECK ls_status ls_model_file_load(const ls_model_file *file, float *parameters);

/* Text of config.json for a model, as attached to checkpoints; malloc'ed. */
LS_MUST_CHECK ls_status ls_model_file_config_text(const ls_model_config *config, char **text_out);

#endif
