// SPDX-License-Identifier: Apache-2.0
/*
 * Hugging Face model folders, in and out: config.json and safetensors.
 *
 *   folder/
 *     config.json                      what kind of model, read and written here
 *     model.safetensors                the tensors; or model.safetensors.index.json and shards (read only)
 *     tokenizer.json, ...              carried along as they are
 *
 * The layout of a model in memory is that of these files (model/layout.h), so loading and storing are copies: a
 * float32 model comes out of a round trip with the same bytes in every tensor. float16 and bfloat16 become
 * float32 exactly; float64 is rounded.
 *
 * What can't be computed exactly is refused, never approximated: an activation other than the family's, rotary
 * scaling other than linear and llama3, quantised weights, ... The message names the file, the key, the value and
 * what is supported. Keys that do not change what a model computes are ignored (use_cache, architectures, ...);
 * so is dropout, because training here uses none.
 *
 * Both spellings of the rotary numbers are read: rope_theta with rope_scaling (transformers 4) and
 * rope_parameters (transformers 5). The older one is written, which both read. A missing key takes the default of the
 * family's class in transformers.
 *
 * Thread-safety: pure but for the file system; any number of threads on different folders.
 */
#ifndef LS_MODEL_HUGGINGFACE_H
#define LS_MODEL_HUGGINGFACE_H

#include "base/json.h"
#include "model/config.h"
#include "model/layout.h"

/* ---- config.json ---- */

/*
 * From the text of a config.json; `name` stands in messages for the file. bos_token_id and eos_token_id: the first of a
 * list; an id that the vocabulary does not have counts as none. The result passes ls_model_config_check.
 *
 * Errors: LS_ERR_DATA (not JSON, wrong types, sizes that do not fit together), LS_ERR_UNSUPPORTED (a model that
 * can't be computed exactly); config_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_hf_config_parse(const char *text, size_t bytes, const char *name,
                                           ls_model_config *config_out);

/* From a file, or from config.json in a folder. Errors: as above, LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_hf_config_load(const char *path, ls_model_config *config_out);

/* The object that config.json holds; dropped by the caller with json_decref. Parsing its text gives `config` again. */
json_t *ls_hf_config_json(const ls_model_config *config);

/* ---- tensors ---- */

/*
 * Reads every parameter of `layout` from the safetensors of a folder (or from a file or index) into `flat`
 * (layout->parameter_floats floats); padding becomes zero.
 *
 * GPT-2 files exist with and without the "transformer." in front of names, llama-like ones of a base model without
 * "model."; both are read. Buffers that older versions saved are ignored (rotary_emb.inv_freq, attn.bias,
 * attn.masked_bias), and so is the head of a tied model when it equals the table.
 *
 * Errors: LS_ERR_DATA for a tensor that is missing, has another shape, is not part of this model or, tied, differs from
 * the table; LS_ERR_UNSUPPORTED for integer (quantised) tensors or a folder that only has pickled
 * weights; LS_ERR_NOT_FOUND, LS_ERR_IO. `flat` then holds rubbish.
 */
LS_MUST_CHECK ls_status ls_hf_load_parameters(const char *path, const ls_model_config *config,
                                              const ls_layout *layout, float *flat);

/* A file to carry along, a tokenizer most of all. */
typedef struct ls_hf_file {
    const char *name; /* "tokenizer.json": a plain name, no slash */
    const void *data;
    size_t bytes;
} ls_hf_file;

/*
 * Writes a folder that transformers loads: model.safetensors (one file, float32), the given files, config.json last.
 * Each file is written atomically; the folder is made if needed, files of the same names in it are replaced.
 *
 * Errors: LS_ERR_INVALID when the folder has shards with an index, which readers might take for the model;
 * LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_hf_export(const char *folder, const ls_model_config *config,
                                     const ls_layout *layout, const float *flat, const ls_hf_file *files,
                                     size_t file_count);

#endif
