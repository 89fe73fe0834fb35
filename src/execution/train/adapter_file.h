// SPDX-License-Identifier: Apache-2.0
/*
 * Adapters on disk, and loading them with their base (model/adapter.h).
 *
 * Two forms are read alike: a directory of the PEFT library,
 *
 *   adapter_config.json          rank, alpha, ...; base_model_name_or_path
 *   adapter_model.safetensors    A and B
 *   lockstep.json                written by us: the digest and the format of the base
 *
 * and a checkpoint of a run, which has adapter_config.json as an attachment, A and B as parameters,
 * and the rest in its manifest (meta.extra: base_digest, base). Which linear layers have an adapter
 * is taken from the tensors.
 *
 * The digest of a base is SHA-256 over the SHA-256 (64 digits) of each tensor, float32 little-
 * endian as in its file, in the byte order of their Hugging Face names. It does not depend on the
 * format of files, nor on adapter.base.
 */
#ifndef LS_EXECUTION_TRAIN_ADAPTER_FILE_H
#define LS_EXECUTION_TRAIN_ADAPTER_FILE_H

#include "execution/train/model_file.h"

#define LS_ADAPTER_CONFIG_NAME "adapter_config.json"

/* Errors: LS_ERR_NOT_FOUND, LS_ERR_DATA, LS_ERR_UNSUPPORTED, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_adapter_file_open(const char *path, ls_adapter_file **file_out);
void ls_adapter_file_close(ls_adapter_file *file); /* NULL is allowed */

/* The base that it names; "" if it names none. */
const char *ls_adapter_file_base(const ls_adapter_file *file);
/* Where it was found, and the digest of the base that it was trained on; NULL: not known. */
const char *ls_adapter_file_path(const ls_adapter_file *file);
const char *ls_adapter_file_digest(const ls_adapter_file *file);
/* Its settings and layers; valid as long as the file. */
const ls_adapter *ls_adapter_file_settings(const ls_adapter_file *file);
/* The layout of base and adapter, of a file that was taken (ls_model_file_take_adapter). */
const ls_layout *ls_adapter_file_layout(const ls_adapter_file *file);

/* Gives `file`, opened without an adapter, this one, which then belongs to it, and makes its
 * layout. On an error it belongs to nobody and is closed. Errors: LS_ERR_DATA for an adapter of
 * another base, naming what does not fit; LS_ERR_INVALID if the file has an adapter already. */
LS_MUST_CHECK ls_status ls_model_file_take_adapter(ls_model_file *file, ls_adapter_file *adapter);

/* Changes the layout of a file with an adapter to that of the merged model, into which
  * ls_model_file_load then reads it. into_original: a base that the adapter was trained on in
  * another format keeps its own values; otherwise they become those of that format. */
void ls_model_file_merge(ls_model_file *file, bool into_original);

/* Reads A and B into the trained parameters of `layout`. Errors: LS_ERR_DATA for a tensor that is
 * missing or has another shape, naming it; LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_adapter_file_read(const ls_adapter_file *file, const ls_layout *layout,
                                             float *parameters);

/* The packed form of a parameter in an open file, if it is that of `kind`; else codes are NULL.
 * tensors may be NULL. Errors: those of ls_hf_packed_parameter. */
LS_MUST_CHECK ls_status ls_base_packed(const ls_safetensors *tensors, const ls_parameter *p,
                                       ls_base_kind kind, ls_bnb_matrix *matrix_out);

/*
 * Reads the base of an adapter: the weights of `file` (without those of its adapter) into the
 * frozen parameters of `layout`. Packed matrices go through a buffer of the largest of them; those
 * that the file has in the same form keep their codes. parameters: NULL only checks the digest.
 * digest_out: NULL for none. Errors: those of ls_model_file_load; LS_ERR_DATA if the adapter of the
 * file was trained on another base.
 */
LS_MUST_CHECK ls_status ls_base_load(const ls_model_file *file, const ls_layout *layout, float *parameters,
                                     char *digest_out);

/* Fails with LS_ERR_DATA if the adapter was trained on another base than `base`, a path, which has
 * this digest. adapter: NULL, or one that names no digest, fits any. */
LS_MUST_CHECK ls_status ls_adapter_file_check_base(const ls_adapter_file *adapter, const char *base,
                                                   const char *digest);

/* ls_model_file_load if the file or the layout has an adapter. */
LS_MUST_CHECK ls_status ls_adapter_load(const ls_model_file *file, const ls_layout *layout,
                                        float *parameters);

/* The format in which a run keeps the base of its adapter. */
ls_base ls_base_of_kind(ls_base_kind kind);

/* adapter_config.json of the adapter of `layout`; the text is in `arena`. base: path of its base.
 * Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_adapter_config_text(ls_arena *arena, const ls_layout *layout,
                                               const ls_model_config *config, const char *base,
                                               const char **text_out);

/*
 * Writes the adapter of `file`, whose layout and parameters these are, as a directory of PEFT. The
 * folder must be new or empty. Errors: LS_ERR_INVALID, LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_adapter_export(const ls_model_file *file, const float *parameters,
                                          const char *folder);

#endif
