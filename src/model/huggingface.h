// SPDX-License-Identifier: Apache-2.0
/*
 * Hugging Face model folders, in and out: config.json and safetensors.
 *
 *   folder/
 *     config.json                      what kind of model, read and written here
 *     model.safetensors                the tensors; or model.safetensors.index.json and shards
 *     tokenizer.json, ...              carried along as they are
 *
 * Folders are written by model/huggingface_export.h.
 *
 * The layout of a model in memory is that of these files (model/layout.h), so loading and storing
 * are copies: a float32 model comes out of a round trip with the same bytes in every tensor.
 * float16 and bfloat16 become float32 exactly; float64 is rounded.
 *
 * What can't be computed exactly is refused, never approximated: an activation other than the
 * family's, rotary scaling of an unknown kind (longrope), weights quantised by others than
 * bitsandbytes, ... The message names
 * the file, the key, the value and what is supported. Keys that do not change what a model computes
 * are ignored (use_cache, architectures, ...); so is dropout, because training here uses none.
 *
 * Both spellings of the rotary numbers are read: rope_theta with rope_scaling (transformers 4) and
 * rope_parameters (transformers 5). The older one is written, which both read. A missing key takes
 * the default of the family's class in transformers.
 *
 * Thread-safety: pure but for the file system; any number of threads on different folders.
 */
#ifndef LS_MODEL_HUGGINGFACE_H
#define LS_MODEL_HUGGINGFACE_H

#include "base/bitsandbytes.h"
#include "base/json.h"
#include "model/config.h"
#include "model/layout.h"
#include "storage/safetensors/safetensors.h"

/* ---- config.json ---- */

/*
 * From the text of a config.json; messages show `name` for the file. eos_token_id may be a list;
 * bos_token_id and pad_token_id: the first of a list. An id that the vocabulary does not have
 * counts as none. With dynamic rotary scaling the context is factor times max_position_embeddings.
 * The result passes ls_model_config_check.
 *
 * Errors: LS_ERR_DATA (not JSON, wrong types, sizes that do not fit together), LS_ERR_UNSUPPORTED
 * (a model that can't be computed exactly); config_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_hf_config_parse(const char *text, size_t bytes, const char *name,
                                           ls_model_config *config_out);

/* From a file, or from config.json in a folder. Errors: as above, LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_hf_config_load(const char *path, ls_model_config *config_out);

/* Adds the ids of eos_token_id in a generation_config.json to those that end a text: models whose
 * config.json lists only some of them are published. Errors: LS_ERR_DATA, LS_ERR_UNSUPPORTED,
 * LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_hf_generation_config_load(const char *path, ls_model_config *config);

/* The object that config.json holds; dropped by the caller with json_decref. Parsing its text gives
 * `config` again. */
json_t *ls_hf_config_json(const ls_model_config *config);

/* ---- tensors ---- */

/*
 * Reads every parameter of `layout` from the safetensors of a folder (or from a file or index) into
 * `flat` (layout->parameter_floats floats); padding becomes zero.
 *
 * GPT-2 files exist with and without the "transformer." in front of names, llama-like ones of a
 * base model without "model."; both are read. Buffers that older versions saved are ignored
 * (rotary_emb.inv_freq, attn.bias, attn.masked_bias), and so is the head of a tied model when it
 * equals the table.
 *
 * Matrices that bitsandbytes packed (model/huggingface_packed.h) are read to the float32 values
 * that it computes with.
 *
 * Errors: LS_ERR_DATA for a tensor that is missing, has another shape, is not part of this model
 * or, tied, differs from the table; LS_ERR_UNSUPPORTED for other integer tensors or a folder that
 * only has pickled weights; LS_ERR_NOT_FOUND, LS_ERR_IO. The content of `flat` is then
 * undefined.
 */
LS_MUST_CHECK ls_status ls_hf_load_parameters(const char *path, const ls_model_config *config,
                                              const ls_layout *layout, float *flat);

/* The same, one parameter at a time, for models that are not held in memory. Opening checks all
 * that the errors above name, but for the types; close with ls_safetensors_close. values_out: as
 * many floats as the parameter has. */
LS_MUST_CHECK ls_status ls_hf_open_parameters(const char *path, const ls_model_config *config,
                                              const ls_layout *layout, ls_safetensors **file_out);
LS_MUST_CHECK ls_status ls_hf_read_parameter(const ls_safetensors *file, const ls_parameter *p,
                                             float *values_out);

/* The packed form of a parameter in an open file, if bitsandbytes packed it; else codes are NULL.
 * The result reads the file's memory. Errors: LS_ERR_DATA, LS_ERR_UNSUPPORTED. */
LS_MUST_CHECK ls_status ls_hf_packed_parameter(const ls_safetensors *file, const ls_parameter *p,
                                               ls_bnb_matrix *matrix_out);

/* A file to store with the model, typically a tokenizer. */
typedef struct ls_hf_file {
    const char *name; /* "tokenizer.json": a plain name, no slash */
    const void *data;
    size_t bytes;
} ls_hf_file;

#endif
