// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the parameters of a model file one at a time, for programs that never hold the model:
 * memory is that of one parameter, plus blocks of a checkpoint. An adapter is merged on the way.
 *
 * For one thread.
 */
#ifndef LS_EXECUTION_TRAIN_MODEL_READER_H
#define LS_EXECUTION_TRAIN_MODEL_READER_H

#include "execution/train/model_file.h"

typedef struct ls_model_reader {
    ls_arena arena;
    const ls_model_file *file;
    const ls_model_file *weights; /* the file, or the base of its adapter */
    ls_safetensors *tensors;      /* NULL: a checkpoint */
    float *adapter;               /* A and B; NULL: no adapter */
} ls_model_reader;

/* `file` must outlive the reader; with an adapter, it has the layout of the merged model
 * (ls_model_file_merge). Errors: those of ls_adapter_merge_open, and those of ls_model_file_load
 * for missing tensors and other shapes of a Hugging Face directory. */
LS_MUST_CHECK ls_status ls_model_reader_open(const ls_model_file *file, ls_model_reader *reader_out);
void ls_model_reader_close(ls_model_reader *reader);

/* Reads the parameter number `index` of file->layout. values_out: rows * cols floats. Every block
 * is verified. Errors: those of ls_model_file_load. */
LS_MUST_CHECK ls_status ls_model_reader_read(const ls_model_reader *reader, uint32_t index,
                                             float *values_out);

#endif
