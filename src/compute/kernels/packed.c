// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/packed.h"

#include "base/assert.h"
#include "base/half.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { ALIGN = 64, MEAN_FLOATS = 2 };

/* -- where things lie -- */

static int64_t divide_up(int64_t value, int64_t by)
{
    return (value + by - 1) / by;
}

static int64_t aligned(int64_t bytes)
{
    return divide_up(bytes, ALIGN) * ALIGN;
}

static int64_t block_count(int64_t rows, int64_t cols)
{
    return divide_up(rows * cols, LS_NF4_BLOCK);
}

/* Bytes of the sections of the memory, in their order: codes, scales, scale codes, mean. */
typedef struct sections {
    int64_t codes, scales, scale_codes, mean;
} sections;

static sections sections_of(ls_packed_kind kind, int64_t rows, int64_t cols)
{
    LS_ASSERT(kind > LS_PACKED_NONE && kind < LS_PACKED_KINDS && rows >= 1 && cols >= 1);
    const int64_t padded = divide_up(rows, LS_PACKED_GROUP) * LS_PACKED_GROUP;
    const int64_t blocks = block_count(rows, cols), floats = (int64_t)sizeof(float);
    switch (kind) {
    case LS_PACKED_BF16:
        return (sections){.codes = aligned(padded * cols * (int64_t)sizeof(uint16_t))};
    case LS_PACKED_INT8:
        return (sections){.codes = aligned(padded * cols), .scales = aligned(padded * floats)};
    default:
        return (sections){.codes = aligned(padded * divide_up(cols, 2)),
                          .scales = aligned(divide_up(blocks, LS_NF4_NESTED_BLOCK) * floats),
                          .scale_codes = aligned(blocks),
                          .mean = aligned(MEAN_FLOATS * floats)};
    }
}

int64_t ls_packed_bytes(ls_packed_kind kind, int64_t rows, int64_t cols)
{
    const sections s = sections_of(kind, rows, cols);
    return s.codes + s.scales + s.scale_codes + s.mean;
}

ls_packed ls_packed_of(ls_packed_kind kind, int64_t rows, int64_t cols, void *memory)
{
    const sections s = sections_of(kind, rows, cols);
    uint8_t *at = memory;
    LS_ASSERT(at && (uintptr_t)at % ALIGN == 0);
    return (ls_packed){.kind = kind,
                       .rows = rows,
                       .cols = cols,
                       .codes = at,
                       .scales = (float *)(void *)(at + s.codes),
                       .scale_codes = at + s.codes + s.scales,
                       .mean = (float *)(void *)(at + s.codes + s.scales + s.scale_codes)};
}

/* Index of the code of (row, col) when it is one byte of its own, or the byte that it shares. */
static int64_t code_index(const ls_packed *p, int64_t row, int64_t col)
{
    const bool halves = p->kind == LS_PACKED_NF4;
    const int64_t columns = halves ? divide_up(p->cols, 2) : p->cols;
    return (row / LS_PACKED_GROUP * columns + (halves ? col / 2 : col)) * LS_PACKED_GROUP +
           row % LS_PACKED_GROUP;
}

/* -- values -- */

float ls_packed_value(const ls_packed *packed, int64_t row, int64_t col)
{
    const int64_t index = code_index(packed, row, col);
    if (packed->kind == LS_PACKED_BF16) {
        return ls_f32_from_bf16(((const uint16_t *)(const void *)packed->codes)[index]);
    }
    if (packed->kind == LS_PACKED_INT8) {
        return (float)(int8_t)packed->codes[index] * packed->scales[row] * ls_int8_unit;
    }
    const int code = packed->codes[index] >> (col % 2 == 0 ? 0 : 4) & 15;
    return ls_nf4_levels[code] * ls_packed_scale(packed, (row * packed->cols + col) / LS_NF4_BLOCK);
}

void ls_packed_unpack(const ls_packed *from, ls_weight_layout layout, const ls_tensor *weight_out)
{
    const bool out_in = layout == LS_WEIGHT_OUT_IN;
    LS_ASSERT(weight_out->dtype == LS_F32);
    LS_ASSERT(weight_out->rows == (out_in ? from->rows : from->cols));
    LS_ASSERT(weight_out->cols == (out_in ? from->cols : from->rows));
    for (int64_t row = 0; row < weight_out->rows; row++) {
        float *to = ls_tensor_row(weight_out, row);
        for (int64_t col = 0; col < weight_out->cols; col++) {
            to[col] = out_in ? ls_packed_value(from, row, col) : ls_packed_value(from, col, row);
        }
    }
}

/* -- packing -- */

/* The weights of a file in the order (out, in). */
typedef struct source {
    const ls_tensor *weight;
    ls_weight_layout layout;
    int64_t cols; /* of (out, in) */
} source;

static float source_value(const source *from, int64_t row, int64_t col)
{
    return from->layout == LS_WEIGHT_OUT_IN ? ls_tensor_row(from->weight, row)[col]
                                            : ls_tensor_row(from->weight, col)[row];
}

static ls_status refuse(const source *from, int64_t row, int64_t col, const char *kind)
{
    const bool out_in = from->layout == LS_WEIGHT_OUT_IN;
    return ls_fail(LS_ERR_DATA,
                   "the weight in row %lld, column %lld is %g, which %s cannot hold; allowed are finite "
                   "values: check the file, or set adapter.base: fp32",
                   (long long)(out_in ? row : col), (long long)(out_in ? col : row),
                   (double)source_value(from, row, col), kind);
}

/* Reads `count` weights from flat index `first` on. */
static ls_status read_block(const source *from, int64_t first, int64_t count, float *values,
                            float *largest_out)
{
    int64_t row = first / from->cols, col = first % from->cols;
    *largest_out = 0.0f;
    for (int64_t i = 0; i < count; i++) {
        values[i] = source_value(from, row, col);
        const float size = fabsf(values[i]);
        if (!(size <= FLT_MAX)) {
            return refuse(from, row, col, "nf4");
        }
        *largest_out = size > *largest_out ? size : *largest_out;
        if (++col == from->cols) {
            col = 0;
            row++;
        }
    }
    return LS_OK;
}

static ls_status pack_bf16(const ls_packed *to, const source *from)
{
    uint16_t *codes = (uint16_t *)(void *)to->codes;
    for (int64_t row = 0; row < to->rows; row++) {
        for (int64_t col = 0; col < to->cols; col++) {
            const uint16_t code = ls_bf16_from_f32(source_value(from, row, col));
            if (!(fabsf(ls_f32_from_bf16(code)) <= FLT_MAX)) {
                return refuse(from, row, col, "bf16");
            }
            codes[code_index(to, row, col)] = code;
        }
    }
    return LS_OK;
}

/* round(127 w / scale), in the float32 arithmetic of bitsandbytes unless 1 / scale overflows. */
static int8_t int8_code(float value, float scale)
{
    if (scale == 0.0f) {
        return 0;
    }
    const float unit = 1.0f / scale * 127.0f;
    const double code = unit <= FLT_MAX ? (double)(value * unit) : (double)value * 127.0 / (double)scale;
    return (int8_t)lrint(fmax(-127.0, fmin(127.0, code)));
}

static ls_status pack_int8(const ls_packed *to, const source *from)
{
    for (int64_t row = 0; row < to->rows; row++) {
        float scale = 0.0f;
        for (int64_t col = 0; col < to->cols; col++) {
            const float size = fabsf(source_value(from, row, col));
            if (!(size <= FLT_MAX)) {
                return refuse(from, row, col, "int8");
            }
            scale = size > scale ? size : scale;
        }
        to->scales[row] = scale;
        for (int64_t col = 0; col < to->cols; col++) {
            to->codes[code_index(to, row, col)] = (uint8_t)int8_code(source_value(from, row, col), scale);
        }
    }
    return LS_OK;
}

static float at_least_tiny(float scale)
{
    static const float tiny = 1e-38f;
    return scale > tiny ? scale : tiny;
}

/* The nearest of the 256 levels of scales; the lower one in the middle. */
static uint8_t nearest_scale_level(float value)
{
    int low = 0;
    for (int step = 128; step >= 1; step /= 2) {
        const float *at = ls_nf4_scale_levels + low + step - 1;
        low += value > (at[0] + at[1]) / 2.0f ? step : 0;
    }
    return (uint8_t)low;
}

/* The nearest levels of a block, the lower one in the middle: how many middles are below a value.
 * Like bitsandbytes, a whole block is multiplied by the reciprocal, a short one divided. */
static void nearest_levels(float values[LS_NF4_BLOCK], int64_t count, float scale, int32_t *levels_out)
{
    const float by = at_least_tiny(scale), unit = 1.0f / by;
    memset(levels_out, 0, LS_NF4_BLOCK * sizeof *levels_out);
    for (int i = 0; i < LS_NF4_BLOCK; i++) {
        values[i] = count == LS_NF4_BLOCK ? values[i] * unit : values[i] / by;
    }
    for (int level = 0; level < 15; level++) {
        const float middle = (ls_nf4_levels[level] + ls_nf4_levels[level + 1]) / 2.0f;
        for (int i = 0; i < LS_NF4_BLOCK; i++) {
            levels_out[i] += values[i] > middle;
        }
    }
}

/* A nested block: up to 256 blocks of weights. */
typedef struct nested_block {
    int64_t first, count; /* blocks */
    float scales[LS_NF4_NESTED_BLOCK];
} nested_block;

static void pack_scales(const ls_packed *to, nested_block *nested)
{
    float largest = 0.0f;
    for (int64_t i = 0; i < nested->count; i++) {
        nested->scales[i] -= to->mean[0];
        largest = fmaxf(largest, fabsf(nested->scales[i]));
    }
    to->scales[nested->first / LS_NF4_NESTED_BLOCK] = largest;
    const float unit = 1.0f / at_least_tiny(largest);
    for (int64_t i = 0; i < nested->count; i++) {
        to->scale_codes[nested->first + i] = nearest_scale_level(nested->scales[i] * unit);
    }
}

static void pack_codes(const ls_packed *to, int64_t first, int64_t count, float *values, float scale)
{
    int32_t levels[LS_NF4_BLOCK];
    int64_t row = first / to->cols, col = first % to->cols;
    nearest_levels(values, count, scale, levels);
    for (int64_t i = 0; i < count; i++) {
        to->codes[code_index(to, row, col)] |= (uint8_t)(levels[i] << (col % 2 == 0 ? 0 : 4));
        if (++col == to->cols) {
            col = 0;
            row++;
        }
    }
}

static int64_t weights_of_block(const ls_packed *p, int64_t block)
{
    const int64_t left = p->rows * p->cols - block * LS_NF4_BLOCK;
    return left < LS_NF4_BLOCK ? left : LS_NF4_BLOCK;
}

static ls_status pack_nf4(const ls_packed *to, const source *from)
{
    const int64_t blocks = block_count(to->rows, to->cols);
    float values[LS_NF4_BLOCK] = {0}, scale = 0.0f;
    double sum = 0.0;
    for (int64_t block = 0; block < blocks; block++) {
        LS_TRY(read_block(from, block * LS_NF4_BLOCK, weights_of_block(to, block), values, &scale));
        sum += (double)scale;
    }
    to->mean[0] = (float)(sum / (double)blocks);
    to->mean[1] = ls_nf4_scale_levels[0];
    nested_block nested = {0};
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * LS_NF4_BLOCK, count = weights_of_block(to, block);
        LS_TRY(read_block(from, first, count, values, &scale));
        pack_codes(to, first, count, values, scale);
        nested.scales[nested.count++] = scale;
        if (nested.count == LS_NF4_NESTED_BLOCK || block + 1 == blocks) {
            pack_scales(to, &nested);
            nested = (nested_block){.first = block + 1};
        }
    }
    return LS_OK;
}

ls_status ls_packed_pack(const ls_packed *to, const ls_tensor *weight, ls_weight_layout layout)
{
    const bool out_in = layout == LS_WEIGHT_OUT_IN;
    LS_ASSERT(weight->data && weight->dtype == LS_F32);
    LS_ASSERT(weight->rows == (out_in ? to->rows : to->cols) &&
              weight->cols == (out_in ? to->cols : to->rows));
    const source from = {.weight = weight, .layout = layout, .cols = to->cols};
    memset(to->codes, 0, (size_t)ls_packed_bytes(to->kind, to->rows, to->cols));
    switch (to->kind) {
    case LS_PACKED_BF16:
        return pack_bf16(to, &from);
    case LS_PACKED_INT8:
        return pack_int8(to, &from);
    default:
        return pack_nf4(to, &from);
    }
}

void ls_packed_take(const ls_packed *to, const ls_bnb_matrix *from)
{
    const bool nf4 = to->kind == LS_PACKED_NF4;
    LS_ASSERT(to->rows == from->rows && to->cols == from->cols && nf4 == from->nf4);
    LS_ASSERT(nf4 ? from->scale_codes != NULL : to->kind == LS_PACKED_INT8);
    memset(to->codes, 0, (size_t)ls_packed_bytes(to->kind, to->rows, to->cols));
    for (int64_t row = 0; row < to->rows; row++) {
        for (int64_t col = 0; col < to->cols; col++) {
            const int code = ls_bnb_code(from, row, col);
            to->codes[code_index(to, row, col)] |= (uint8_t)(code << (nf4 && col % 2 != 0 ? 4 : 0));
        }
    }
    const int64_t blocks = block_count(to->rows, to->cols);
    const int64_t scales = nf4 ? divide_up(blocks, LS_NF4_NESTED_BLOCK) : to->rows;
    memcpy(to->scales, from->scales, (size_t)scales * sizeof(float));
    if (nf4) {
        memcpy(to->scale_codes, from->scale_codes, (size_t)blocks);
        to->mean[0] = from->mean;
        to->mean[1] = from->lowest;
    }
}
