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
#include "model/huggingface.h"
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

/* Reads the weights into `parameters` (flat, as `layout` says, which may freeze what it likes of file->config); moments are not read. Every block
 * is checked. */
LS_MUST_CHECK ls_status ls_model_file_load(const ls_model_file *file, const ls_layout *layout,
                                           float *parameters);

/*
 * The files of the model that are not weights or configuration and travel unchanged through import, training and export: its tokenizer,
 * tokenizer_config.json, special_tokens_map.json, generation_config.json, chat_template.jinja, as far as they lie in the
 * checkpoint or directory. When it has a tokenizer that none of them holds (bytes; another vocabulary's names), the file that stands for
 * it (ls_tokenizer_source) is among them: file->tokenizer is needed for that, so call this before taking it away.
 *
 * files_out: names are static, data lie in `arena` and outlive `file`. Names differ; none is "config.json".
 * Errors: LS_ERR_DATA for a file above 64 MiB, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_model_file_carried(const ls_model_file *file, ls_arena *arena,
                                              ls_hf_file **files_out, size_t *count_out);

/* Text of config.json for a model, as attached to checkpoints; malloc'ed. */
LS_MUST_CHECK ls_status ls_model_file_config_text(const ls_model_config *config, char **text_out);

#endif
