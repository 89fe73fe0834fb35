// SPDX-License-Identifier: Apache-2.0
/*
 * Writes Hugging Face model folders that transformers loads: config.json, the weights as
 * safetensors, and files that belong to the model.
 *
 *   folder/
 *     config.json
 *     model.safetensors                or model-00001-of-00003.safetensors, ... and
 *                                      model.safetensors.index.json
 *     tokenizer.json, ...              the given files
 *
 * The folder appears whole or not at all: everything is written to a folder beside it, which is
 * then renamed. So nothing of an older model stays in it, and a failure loses nothing.
 *
 * Thread-safe for different folders.
 */
#ifndef LS_MODEL_HUGGINGFACE_EXPORT_H
#define LS_MODEL_HUGGINGFACE_EXPORT_H

#include "model/huggingface.h"
#include "storage/safetensors/safetensors.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_hf_export_options {
    const char *folder;
    const ls_model_config *config;
    const ls_layout *layout;
    /* layout->parameter_floats floats. */
    const float *flat;
    const ls_hf_file *files;
    size_t file_count;
    /* LS_ST_F32 (the same bits), LS_ST_BF16 or LS_ST_F16 (rounded to nearest, ties to even). */
    ls_st_dtype dtype;
    /* Largest size of a file with weights; a tensor that is larger has one of its own. 0: all in
     * one file. */
    uint64_t shard_bytes;
    /* A model that is in the folder is replaced. */
    bool replace;
} ls_hf_export_options;

/*
 * Exports a model.
 *
 * Errors: LS_ERR_INVALID for a folder that holds something, unless `replace` is set and what it
 * holds is a model: a config.json, no folders, no checkpoint; and, naming the tensor, for a finite
 * weight that is infinite in `dtype`. LS_ERR_DISK, LS_ERR_IO. The folder is then as it was.
 */
LS_MUST_CHECK ls_status ls_hf_export(const ls_hf_export_options *options);

/* Sets the type of the weights in the object of ls_hf_config_json, which says float32. */
void ls_hf_config_set_dtype(json_t *config, ls_st_dtype dtype);

#endif
