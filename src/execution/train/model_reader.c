// SPDX-License-Identifier: Apache-2.0
#include "execution/train/model_reader.h"

#include "base/file.h"
#include "compute/kernels/packed.h"
#include "execution/train/adapter_file.h"

#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

static ls_status open_adapter(ls_model_reader *reader)
{
    const ls_layout *layout = ls_adapter_file_layout(reader->file->adapter);
    reader->adapter = ls_arena_new(&reader->arena, float, (size_t)layout->float_count);
    LS_TRY(ls_adapter_file_read(reader->file->adapter, layout, reader->adapter));
    return ls_base_load(reader->file, layout, NULL, NULL);
}

static ls_status open_weights(ls_model_reader *reader, bool merges)
{
    const ls_model_file *weights = reader->weights;
    if (weights->adapter && weights != reader->file) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s is an adapter itself; merge it first with 'lockstep export'",
                       weights->path);
    }
    ls_layout_build(&reader->arena, &weights->config, &reader->layout);
    LS_TRY(merges && reader->file->adapter ? open_adapter(reader) : LS_OK);
    return weights->checkpoint
               ? LS_OK
               : ls_hf_open_parameters(weights->path, &weights->config, &reader->layout, &reader->tensors);
}

ls_status ls_model_reader_open(const ls_model_file *file, bool merges, ls_model_reader *reader_out)
{
    ls_model_reader reader = {.file = file, .weights = file->base ? file->base : file};
    const ls_status status = open_weights(&reader, merges);
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

/* ---- merging ---- */

/* weight (out, in), or transposed, += scale * B A, each element summed in float64. */
static ls_status add_product(const ls_parameter *weight, bool in_out, const ls_parameter *a,
                             const float *values, const float *b_values, double scale, float *out)
{
    const int64_t rank = a->rows, in = a->cols, outs = in_out ? weight->cols : weight->rows;
    double *row = malloc((size_t)in * sizeof *row);
    if (!row) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to merge the adapter into %s", weight->name);
    }
    for (int64_t o = 0; o < outs; o++) {
        memset(row, 0, (size_t)in * sizeof *row);
        for (int64_t r = 0; r < rank; r++) {
            const double factor = scale * (double)b_values[o * rank + r];
            for (int64_t i = 0; i < in; i++) {
                row[i] += factor * (double)values[r * in + i];
            }
        }
        for (int64_t i = 0; i < in; i++) {
            float *w = in_out ? &out[i * outs + o] : &out[o * in + i];
            *w = (float)((double)*w + row[i]);
        }
    }
    free(row);
    return LS_OK;
}

/* Rounds a matrix to what it is read as from its packed form. */
static ls_status round_to_base(ls_base_kind kind, const ls_parameter *p, bool in_out, float *values)
{
    const int64_t out = in_out ? p->cols : p->rows, in = in_out ? p->rows : p->cols;
    const ls_weight_layout layout = in_out ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN;
    void *memory = aligned_alloc(64, (size_t)ls_packed_bytes((ls_packed_kind)kind, out, in));
    if (!memory) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the packed form of %s", p->name);
    }
    const ls_packed packed = ls_packed_of((ls_packed_kind)kind, out, in, memory);
    const ls_tensor matrix = ls_tensor_f32(values, p->rows, p->cols);
    const ls_status status = ls_packed_pack(&packed, &matrix, layout);
    if (status == LS_OK) {
        ls_packed_unpack(&packed, layout, &matrix);
    }
    free(memory);
    return status;
}

static ls_status merge(const ls_model_reader *reader, const ls_parameter *p, float *values)
{
    const bool in_out = reader->file->config.family == LS_FAMILY_GPT2;
    const ls_layout *from = ls_adapter_file_layout(reader->file->adapter);
    const ls_parameter *base = ls_layout_find(from, p->name);
    if (base && base->packed && !reader->file->merges_original) {
        ls_bnb_matrix as_stored;
        LS_TRY(ls_base_packed(reader->tensors, p, from->base, &as_stored));
        LS_TRY(as_stored.codes ? LS_OK : round_to_base(from->base, p, in_out, values));
    }
    if (!ls_path_has_suffix(p->name, ".weight")) {
        return LS_OK;
    }
    ls_arena arena = {0};
    const ls_parameter *a = ls_layout_find(from, ls_adapter_name(&arena, p->name, 'A'));
    const ls_parameter *b = ls_layout_find(from, ls_adapter_name(&arena, p->name, 'B'));
    ls_arena_release(&arena);
    return a && b ? add_product(p, in_out, a, reader->adapter + a->offset, reader->adapter + b->offset,
                                (double)ls_adapter_scale(from->adapter), values)
                  : LS_OK;
}

/* ---- reading ---- */

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
    const ls_parameter *p = &reader->layout.parameters[index];
    LS_TRY(read_weights(reader, p, values_out));
    return reader->adapter ? merge(reader, p, values_out) : LS_OK;
}

ls_status ls_model_reader_digest(const ls_model_reader *reader, char hex_out[LS_SHA256_HEX_BYTES])
{
    const ls_layout *layout = &reader->layout;
    ls_arena arena = {0};
    ls_sha256 digest;
    const uint32_t *order = ls_layout_by_name(&arena, layout);
    int64_t largest = 1;
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        const int64_t elements = layout->parameters[i].rows * layout->parameters[i].cols;
        largest = elements > largest ? elements : largest;
    }
    float *values = malloc((size_t)largest * sizeof *values);
    ls_status status = values ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory to read %s", reader->file->path);
    ls_sha256_init(&digest);
    for (uint32_t i = 0; i < layout->parameter_count && status == LS_OK; i++) {
        const ls_parameter *p = &layout->parameters[order[i]];
        char hex[LS_SHA256_HEX_BYTES];
        status = ls_model_reader_read(reader, order[i], values);
        if (status == LS_OK) {
            ls_sha256_hex(values, (size_t)(p->rows * p->cols) * sizeof *values, hex);
            ls_sha256_update(&digest, hex, strlen(hex));
        }
    }
    ls_sha256_finish(&digest, hex_out);
    free(values);
    ls_arena_release(&arena);
    return status;
}
