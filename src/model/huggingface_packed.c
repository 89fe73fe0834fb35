// SPDX-License-Identifier: Apache-2.0
#include "model/huggingface_packed.h"

#include "base/file.h"

#include <math.h>
#include <string.h>

#define QUANT_STATE ".quant_state.bitsandbytes__nf4"

static bool is_true(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

ls_status ls_hf_check_quantization(const json_t *quantization, ls_family family, const char *name)
{
    const char *method = json_string_value(json_object_get(quantization, "quant_method"));
    const char *type = json_string_value(json_object_get(quantization, "bnb_4bit_quant_type"));
    const bool int8 = is_true(quantization, "load_in_8bit");
    const bool nf4 = is_true(quantization, "load_in_4bit") && type && strcmp(type, "nf4") == 0;
    if (method && strcmp(method, "bitsandbytes") == 0 && (int8 || nf4) && family != LS_FAMILY_GPT2 &&
        !ls_family_has_experts(family)) {
        return LS_OK;
    }
    return ls_fail(
        LS_ERR_UNSUPPORTED,
        "%s: quantization_config is set (%s%s%s) for a %s model: of quantised weights, only nf4 and "
        "int8 of bitsandbytes can be read, and not for gpt2, mixtral and qwen3_moe; use the original model, "
        "before "
        "quantisation",
        name, method ? method : "without quant_method", type && !int8 ? ", " : "", type && !int8 ? type : "",
        ls_family_name(family));
}

bool ls_hf_is_packing(const char *name)
{
    static const char *const endings[] = {
        ".weight.absmax",    ".weight.nested_absmax", ".weight.nested_quant_map",
        ".weight.quant_map", (".weight" QUANT_STATE), ".SCB",
        ".weight_format"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        if (ls_path_has_suffix(name, endings[i])) {
            return true;
        }
    }
    return false;
}

/* What is being read, for messages and names. */
typedef struct reader {
    ls_arena arena;
    const ls_safetensors *file;
    const ls_safetensor *weight;
} reader;

/* The tensor with this name, type and number of elements. */
static ls_status find_part(const reader *r, const char *name, ls_st_dtype dtype, int64_t count,
                           const ls_safetensor **part_out)
{
    const ls_safetensor *part = ls_safetensors_find(r->file, name);
    if (!part) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s is missing; %s is packed and needs it", r->weight->path,
                       name, r->weight->name);
    }
    if (part->dtype != dtype || part->bytes != (uint64_t)count * ls_st_dtype_bytes(dtype)) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s has %llu bytes of %s, but %s needs %lld elements of %s",
                       part->path, name, (unsigned long long)part->bytes, ls_st_dtype_name(part->dtype),
                       r->weight->name, (long long)count, ls_st_dtype_name(dtype));
    }
    *part_out = part;
    return LS_OK;
}

static float float_at(const ls_safetensor *tensor, int64_t index)
{
    float value;
    memcpy(&value, (const char *)tensor->data + index * (int64_t)sizeof value, sizeof value);
    return value;
}

static ls_status find_scales(const reader *r, const char *name, int64_t count, const void **scales_out)
{
    const ls_safetensor *part = NULL;
    LS_TRY(find_part(r, name, LS_ST_F32, count, &part));
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(float_at(part, i))) {
            return ls_fail(LS_ERR_DATA, "%s: element %lld of tensor %s is %g; a scale must be finite",
                           part->path, (long long)i, name, (double)float_at(part, i));
        }
    }
    *scales_out = part->data;
    return LS_OK;
}

/* The levels must be the usual ones; the first may be -1 (base/bitsandbytes.h). */
static ls_status check_levels(reader *r, const char *ending, const float *levels, int64_t count,
                              float *lowest_out)
{
    const char *name = ls_arena_printf(&r->arena, "%s%s", r->weight->name, ending);
    const ls_safetensor *part = NULL;
    LS_TRY(find_part(r, name, LS_ST_F32, count, &part));
    *lowest_out = float_at(part, 0);
    for (int64_t i = 0; i < count; i++) {
        const float level = float_at(part, i);
        if (level != levels[i] && (i > 0 || level != -1.0f)) {
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "%s: element %lld of tensor %s is %.9g, but in the levels of bitsandbytes it is "
                           "%.9g: other levels can't be read",
                           part->path, (long long)i, name, (double)level, (double)levels[i]);
        }
    }
    return LS_OK;
}

static ls_status read_int8(reader *r, ls_bnb_matrix *matrix)
{
    const ls_safetensor *w = r->weight;
    const int stem = (int)(strlen(w->name) - strlen("weight"));
    if (w->rank != 2 || !ls_path_has_suffix(w->name, ".weight")) {
        return ls_fail(LS_ERR_UNSUPPORTED, "%s: tensor %s has integers, but is not a packed matrix", w->path,
                       w->name);
    }
    const char *format = ls_arena_printf(&r->arena, "%.*sweight_format", stem, w->name);
    if (ls_safetensors_find(r->file, format)) {
        const ls_safetensor *order = NULL;
        LS_TRY(find_part(r, format, LS_ST_U8, 1, &order));
        if (*(const uint8_t *)order->data != 0) {
            return ls_fail(LS_ERR_UNSUPPORTED,
                           "%s: tensor %s is %u: only 0, weights in rows, can be read; load and save the "
                           "model with a newer bitsandbytes",
                           order->path, format, *(const uint8_t *)order->data);
        }
    }
    matrix->rows = (int64_t)w->shape[0];
    matrix->cols = (int64_t)w->shape[1];
    return find_scales(r, ls_arena_printf(&r->arena, "%.*sSCB", stem, w->name), matrix->rows,
                       &matrix->scales);
}

/* Scales of blocks as float32, or as codes of nested blocks. */
static ls_status read_nf4_scales(reader *r, const json_t *state, ls_bnb_matrix *matrix)
{
    const char *absmax = ls_arena_printf(&r->arena, "%s.absmax", r->weight->name);
    const char *nested = ls_arena_printf(&r->arena, "%s.nested_absmax", r->weight->name);
    const int64_t blocks = (matrix->rows * matrix->cols + LS_NF4_BLOCK - 1) / LS_NF4_BLOCK;
    if (!ls_safetensors_find(r->file, nested)) {
        return find_scales(r, absmax, blocks, &matrix->scales);
    }
    const ls_safetensor *codes = NULL;
    double mean = 0.0;
    uint64_t size = 0;
    LS_TRY(find_part(r, absmax, LS_ST_U8, blocks, &codes));
    LS_TRY(find_scales(r, nested, (blocks + LS_NF4_NESTED_BLOCK - 1) / LS_NF4_NESTED_BLOCK, &matrix->scales));
    LS_TRY(ls_json_get_u64(state, r->weight->name, "nested_blocksize", LS_NF4_NESTED_BLOCK,
                           LS_NF4_NESTED_BLOCK, 0, &size));
    LS_TRY(ls_json_get_f64(state, r->weight->name, "nested_offset", -1e38, 1e38, 0.0, &mean));
    matrix->scale_codes = codes->data;
    matrix->mean = (float)mean;
    return check_levels(r, ".nested_quant_map", ls_nf4_scale_levels, 256, &matrix->lowest);
}

static ls_status read_nf4_state(reader *r, const json_t *state, ls_bnb_matrix *matrix)
{
    const char *name = r->weight->name;
    const json_t *shape = json_object_get(state, "shape");
    const char *type = NULL;
    uint64_t block = 0;
    float lowest = 0.0f;
    LS_TRY(ls_json_get_string(state, name, "quant_type", "", &type));
    LS_TRY(ls_json_get_u64(state, name, "blocksize", 1, 1u << 20, 0, &block));
    if (strcmp(type, "nf4") != 0 || block != LS_NF4_BLOCK) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s: tensor %s is %s in blocks of %llu: only nf4 in blocks of %d "
                       "can be read",
                       r->weight->path, name, type, (unsigned long long)block, LS_NF4_BLOCK);
    }
    matrix->rows = json_integer_value(json_array_get(shape, 0));
    matrix->cols = json_integer_value(json_array_get(shape, 1));
    const int64_t most = (int64_t)1 << 31;
    if (json_array_size(shape) != 2 || matrix->rows < 1 || matrix->rows > most || matrix->cols < 1 ||
        matrix->cols > most || r->weight->bytes != (uint64_t)(matrix->rows * matrix->cols + 1) / 2) {
        return ls_fail(LS_ERR_DATA, "%s: tensor %s has %llu bytes, which do not fit the shape in its %s",
                       r->weight->path, name, (unsigned long long)r->weight->bytes, QUANT_STATE);
    }
    LS_TRY(check_levels(r, ".quant_map", ls_nf4_levels, 16, &lowest));
    return read_nf4_scales(r, state, matrix);
}

static ls_status read_nf4(reader *r, ls_bnb_matrix *matrix)
{
    const char *name = ls_arena_printf(&r->arena, "%s" QUANT_STATE, r->weight->name);
    const ls_safetensor *text = ls_safetensors_find(r->file, name);
    json_t *state = NULL;
    if (!text) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "%s: tensor %s has bytes, but there is no tensor %s: only nf4 of bitsandbytes can be read",
            r->weight->path, r->weight->name, name);
    }
    LS_TRY(ls_json_parse(text->data ? text->data : "", (size_t)text->bytes, name, &state));
    const ls_status status = read_nf4_state(r, state, matrix);
    json_decref(state);
    return status;
}

ls_status ls_hf_packed_matrix(const ls_safetensors *file, const ls_safetensor *weight,
                              ls_bnb_matrix *matrix_out)
{
    reader r = {.file = file, .weight = weight};
    ls_bnb_matrix matrix = {.nf4 = weight->dtype == LS_ST_U8, .codes = weight->data};
    if (weight->dtype != LS_ST_U8 && weight->dtype != LS_ST_I8) {
        *matrix_out = (ls_bnb_matrix){0};
        return LS_OK;
    }
    const ls_status status = matrix.nf4 ? read_nf4(&r, &matrix) : read_int8(&r, &matrix);
    ls_arena_release(&r.arena);
    if (status == LS_OK) {
        *matrix_out = matrix;
    }
    return status;
}
