// SPDX-License-Identifier: Apache-2.0
#include "execution/train/model_reader.h"

#include "execution/train/adapter_file.h"

static ls_status open_weights(ls_model_reader *reader)
{
    if (reader->file->adapter) {
        LS_TRY(ls_adapter_merge_open(reader->file, &reader->arena, &reader->adapter));
    }
    const ls_model_file *weights = reader->weights;
    return weights->checkpoint ? LS_OK
                               : ls_hf_open_parameters(weights->path, &weights->config, &reader->file->layout,
                                                       &reader->tensors);
}

ls_status ls_model_reader_open(const ls_model_file *file, ls_model_reader *reader_out)
{
    ls_model_reader reader = {.file = file, .weights = file->adapter && file->base ? file->base : file};
    const ls_status status = open_weights(&reader);
    if (status != LS_OK) {
        ls_arena_release(&reader.arena);
        return status;
    }
    *reader_out = reader;
    return LS_OK;
}

void ls_model_reader_close(ls_model_reader *reader)
{
    ls_safetensors_close(reader->tensors);
    ls_arena_release(&reader->arena);
    *reader = (ls_model_reader){0};
}

static ls_status read_weights(const ls_model_reader *reader, const ls_parameter *p, float *values_out)
{
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
    return ls_checkpoint_load(reader->weights->checkpoint, &tensor, 1, &options);
}

ls_status ls_model_reader_read(const ls_model_reader *reader, uint32_t index, float *values_out)
{
    const ls_parameter *p = &reader->file->layout.parameters[index];
    LS_TRY(read_weights(reader, p, values_out));
    return reader->adapter ? ls_adapter_merge_parameter(reader->file, reader->adapter, p, values_out) : LS_OK;
}
