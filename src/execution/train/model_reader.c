// SPDX-License-Identifier: Apache-2.0
#include "execution/train/model_reader.h"

ls_status ls_model_reader_open(const ls_model_file *file, ls_model_reader *reader_out)
{
    ls_model_reader reader = {.file = file};
    if (!file->checkpoint) {
        LS_TRY(ls_hf_open_parameters(file->path, &file->config, &file->layout, &reader.tensors));
    }
    *reader_out = reader;
    return LS_OK;
}

void ls_model_reader_close(ls_model_reader *reader)
{
    ls_safetensors_close(reader->tensors);
    *reader = (ls_model_reader){0};
}

ls_status ls_model_reader_read(const ls_model_reader *reader, uint32_t index, float *values_out)
{
    const ls_parameter *p = &reader->file->layout.parameters[index];
    if (reader->tensors) {
        return ls_hf_read_parameter(reader->tensors, p, values_out);
    }
    const ls_checkpoint_tensor tensor = {
        .name = p->name,
        .rank = (uint32_t)p->shape_rank,
        .shape = {(uint64_t)(p->shape_rank == 2 ? p->rows : p->cols),
                  (uint64_t)(p->shape_rank == 2 ? p->cols : 0)},
        .value = values_out,
    };
    const ls_checkpoint_load_options options = {.allow_partial = true, .threads = 2};
    return ls_checkpoint_load(reader->file->checkpoint, &tensor, 1, &options);
}
