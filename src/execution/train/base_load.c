// SPDX-License-Identifier: Apache-2.0
/* Reads a model with an adapter: its frozen base, one parameter at a time, with its digest. */
#include "compute/kernels/packed.h"
#include "execution/train/adapter_file.h"
#include "execution/train/model_reader.h"

#include <stdlib.h>
#include <string.h>

typedef struct loader {
    ls_model_reader reader;
    const ls_layout *layout; /* the caller's */
    float *parameters;       /* NULL: only the digest is wanted */
    float *scratch;
    ls_sha256 digest;
} loader;

ls_status ls_base_packed(const ls_safetensors *tensors, const ls_parameter *p, ls_base_kind kind,
                         ls_bnb_matrix *matrix_out)
{
    ls_bnb_matrix matrix = {0};
    if (tensors) {
        LS_TRY(ls_hf_packed_parameter(tensors, p, &matrix));
    }
    const bool is_kind = matrix.nf4 ? kind == LS_BASE_NF4 && matrix.scale_codes : kind == LS_BASE_INT8;
    *matrix_out = is_kind ? matrix : (ls_bnb_matrix){0};
    return LS_OK;
}

/* Packs the values of `from` into `to`, unless its file has them packed so. */
static ls_status pack(const loader *l, const ls_parameter *from, const ls_parameter *to, float *values)
{
    ls_bnb_matrix as_stored;
    const ls_model_file *file = l->reader.weights;
    const bool in_out = file->config.family == LS_FAMILY_GPT2;
    const ls_packed packed = ls_packed_of((ls_packed_kind)l->layout->base, in_out ? to->cols : to->rows,
                                          in_out ? to->rows : to->cols, l->parameters + to->offset);
    LS_TRY(ls_base_packed(l->reader.tensors, from, l->layout->base, &as_stored));
    if (as_stored.codes) {
        ls_packed_take(&packed, &as_stored);
        return LS_OK;
    }
    const ls_tensor matrix = ls_tensor_f32(values, to->rows, to->cols);
    const ls_status status = ls_packed_pack(&packed, &matrix, in_out ? LS_WEIGHT_IN_OUT : LS_WEIGHT_OUT_IN);
    return status == LS_OK ? LS_OK : ls_fail_within(status, "%s: tensor %s", file->path, to->name);
}

static ls_status load_parameter(loader *l, uint32_t index)
{
    const ls_parameter *from = &l->reader.layout.parameters[index];
    const ls_parameter *to = ls_layout_find(l->layout, from->name);
    if (!to || to->rows != from->rows || to->cols != from->cols) {
        return ls_fail(LS_ERR_DATA,
                       "%s: tensor %s does not have the shape that the model's config.json gives it",
                       l->reader.weights->path, from->name);
    }
    const bool is_packed = l->parameters && to->packed;
    float *values = l->parameters && !is_packed ? l->parameters + to->offset : l->scratch;
    char hex[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_model_reader_read(&l->reader, index, values));
    ls_sha256_hex(values, (size_t)(from->rows * from->cols) * sizeof(float), hex);
    ls_sha256_update(&l->digest, hex, strlen(hex));
    return is_packed ? pack(l, from, to, values) : LS_OK;
}

static ls_status load_all(loader *l)
{
    const ls_layout *stored = &l->reader.layout;
    const uint32_t *order = ls_layout_by_name(&l->reader.arena, stored);
    int64_t largest = 1;
    for (uint32_t i = 0; i < stored->parameter_count; i++) {
        const ls_parameter *p = &stored->parameters[i], *to = ls_layout_find(l->layout, p->name);
        const bool in_scratch = !l->parameters || (to && to->packed);
        largest = in_scratch && p->rows * p->cols > largest ? p->rows * p->cols : largest;
    }
    l->scratch = malloc((size_t)largest * sizeof(float));
    if (!l->scratch) {
        return ls_fail(LS_ERR_MEMORY, "no memory to read %s", l->reader.weights->path);
    }
    for (uint32_t i = 0; i < stored->parameter_count; i++) {
        LS_TRY(load_parameter(l, order[i]));
    }
    return LS_OK;
}

ls_status ls_adapter_file_check_base(const ls_adapter_file *adapter, const char *base, const char *digest)
{
    const char *wanted = adapter ? ls_adapter_file_digest(adapter) : NULL;
    return !wanted || strcmp(wanted, digest) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "%s was trained on another base: one with digest %.16s, and %s has %.16s; give the "
                         "model that it was trained on",
                         ls_adapter_file_path(adapter), wanted, base, digest);
}

ls_status ls_base_load(const ls_model_file *file, const ls_layout *layout, float *parameters,
                       char *digest_out)
{
    loader l = {.layout = layout, .parameters = parameters};
    char digest[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_model_reader_open(file, false, &l.reader));
    ls_sha256_init(&l.digest);
    const ls_status status = load_all(&l);
    ls_sha256_finish(&l.digest, digest);
    ls_model_reader_close(&l.reader);
    free(l.scratch);
    LS_TRY(status);
    LS_TRY(ls_adapter_file_check_base(file->adapter, file->base ? file->base->path : file->path, digest));
    if (digest_out) {
        memcpy(digest_out, digest, sizeof digest);
    }
    return LS_OK;
}

static ls_status load_merged(const ls_model_file *file, const ls_layout *layout, float *parameters)
{
    ls_model_reader reader = {0};
    ls_status status = ls_model_reader_open(file, true, &reader);
    for (uint32_t i = 0; i < layout->parameter_count && status == LS_OK; i++) {
        status = ls_model_reader_read(&reader, i, parameters + layout->parameters[i].offset);
    }
    ls_model_reader_close(&reader);
    return status;
}

ls_status ls_adapter_load(const ls_model_file *file, const ls_layout *layout, float *parameters)
{
    if (!layout->adapter) {
        return load_merged(file, layout, parameters);
    }
    LS_TRY(file->adapter ? ls_adapter_file_read(file->adapter, layout, parameters) : LS_OK);
    return ls_base_load(file, layout, parameters, NULL);
}
