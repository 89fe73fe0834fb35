// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the parameters of a model file one at a time, for programs that never hold the model:
 * memory is that of one parameter, plus blocks of a checkpoint.
 *
 * For one thread.
 */
#ifndef LS_EXECUTION_TRAIN_MODEL_READER_H
#define LS_EXECUTION_TRAIN_MODEL_READER_H

#include "execution/train/model_file.h"

typedef struct ls_model_reader {
    const ls_model_file *file;
    ls_safetensors *tensors; /* NULL: a checkpoint */
} ls_model_reader;

/* `file` must outlive the reader. Errors: those of ls_model_file_load for missing tensors and other
 * shapes of a Hugging Face directory. */
LS_MUST_CHECK ls_status ls_model_reader_open(const ls_model_file *file, ls_model_reader *reader_out);
void ls_model_reader_close(ls_model_reader *reader);

/* Reads the parameter number `index` of file->layout. values_out: rows * cols floats. Every block
 * is verified. Errors: those of ls_model_file_load. */
LS_MUST_CHECK ls_status ls_model_reader_read(const ls_model_reader *reader, uint32_t index,
                                             float *values_out);

#endif
