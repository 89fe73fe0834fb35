// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the parameters of a model file one at a time: memory is that of one parameter, plus blocks
 * of a checkpoint. An adapter is merged on the way, or left out.
 *
 * For one thread.
 */
#ifndef LS_EXECUTION_TRAIN_MODEL_READER_H
#define LS_EXECUTION_TRAIN_MODEL_READER_H

#include "base/hash.h"
#include "execution/train/model_file.h"

typedef struct ls_model_reader {
    ls_arena arena;
    const ls_model_file *file;
    const ls_model_file *weights; /* the file, or the base of its adapter */
    ls_layout layout;             /* of the weights */
    ls_safetensors *tensors;      /* NULL: a checkpoint */
    float *adapter;               /* A and B; NULL: nothing is merged */
} ls_model_reader;

/*
 * `file` must outlive the reader. merges: with an adapter, what is read are the parameters of the
 * merged model; its base is then read once to check its digest. Otherwise, those of the base.
 * Errors: LS_ERR_DATA for another base than the adapter's; LS_ERR_UNSUPPORTED for a base that is
 * an adapter itself; those of ls_model_file_load for missing tensors and other shapes of a Hugging
 * Face directory; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_model_reader_open(const ls_model_file *file, bool merges,
                                             ls_model_reader *reader_out);
void ls_model_reader_close(ls_model_reader *reader);

/* Reads the parameter number `index` of reader->layout. values_out: rows * cols floats. Every block
 * is verified. Errors: those of ls_model_file_load. */
LS_MUST_CHECK ls_status ls_model_reader_read(const ls_model_reader *reader, uint32_t index,
                                             float *values_out);

/* SHA-256 over the SHA-256 (64 digits) of each parameter that the reader gives, float32 little-
 * endian, in the byte order of their names; of a model without an adapter this is the digest of a
 * base (train/adapter_file.h). Errors: those of ls_model_file_load. */
LS_MUST_CHECK ls_status ls_model_reader_digest(const ls_model_reader *reader,
                                               char hex_out[LS_SHA256_HEX_BYTES]);

#endif
