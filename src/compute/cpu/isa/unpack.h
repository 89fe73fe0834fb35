// SPDX-License-Identifier: Apache-2.0
/*
 * Reads packed weights (compute/kernels/packed.h) into vectors.
 *
 * A vector holds one column of a group of 16 rows. The values are those of ls_packed_value, bit for
 * bit.
 */
#ifndef LS_COMPUTE_CPU_ISA_UNPACK_H
#define LS_COMPUTE_CPU_ISA_UNPACK_H

#include "compute/cpu/simd/simd.h"
#include "compute/kernels/packed.h"

/* The codes of the group that begins with row `row`. */
LS_SIMD const uint8_t *unpack_codes(const ls_packed *p, int64_t row)
{
    const int64_t bytes = p->kind == LS_PACKED_BF16 ? 2 * p->cols : p->cols;
    return p->codes + row * (p->kind == LS_PACKED_NF4 ? (p->cols + 1) / 2 : bytes);
}

/* nf4: the scales of one column of the group that begins with row `row`; 0 for rows beyond the
 * last. A call of its own, because there is one in 64 columns and 72 micro tiles ask. */
static __attribute__((noinline)) vf unpack_scales(const ls_packed *p, int64_t row, int64_t column)
{
    float scale[LS_PACKED_GROUP] = {0};
    const int64_t rows = p->rows - row < LS_PACKED_GROUP ? p->rows - row : LS_PACKED_GROUP;
    int64_t index = row * p->cols + column;
    for (int64_t i = 0; i < rows; i++) {
        scale[i] = ls_packed_scale(p, index / LS_NF4_BLOCK);
        index += p->cols;
    }
    return vf_load(scale);
}

/* nf4: columns that share their scales: the largest power of two that divides both a block and a
 * row. */
LS_SIMD int64_t unpack_run(const ls_packed *p)
{
    const int64_t both = p->cols | LS_NF4_BLOCK;
    return both & -both;
}

/* Columns [first, end) of a group, `stride` floats apart. Two columns share the bytes of their
 * codes. */
LS_SIMD void unpack_nf4(const ls_packed *p, int64_t row, int64_t first, int64_t end, float *to,
                        int64_t stride)
{
    const uint8_t *codes = unpack_codes(p, row);
    const vf levels = vf_load(ls_nf4_levels);
    const int64_t run = unpack_run(p);
    for (int64_t k = first & ~(int64_t)1; k < end;) {
        const vf even = unpack_scales(p, row, k);
        const vf odd = run == 1 && k + 1 < p->cols ? unpack_scales(p, row, k + 1) : even;
        const int64_t next = run == 1 ? k + 2 : (k / run + 1) * run;
        for (; k < end && k < next; k += 2) {
            const vi index = vi_load_u8(codes + k / 2 * LS_PACKED_GROUP);
            if (k >= first) {
                vf_store(to + (k - first) * stride, vf_mul(vf_lookup(levels, index), even));
            }
            if (k + 1 < end) {
                vf_store(to + (k + 1 - first) * stride,
                         vf_mul(vf_lookup(levels, vi_shift_right_4(index)), odd));
            }
        }
    }
}

LS_SIMD void unpack_int8(const ls_packed *p, int64_t row, int64_t first, int64_t end, float *to,
                         int64_t stride)
{
    const uint8_t *codes = unpack_codes(p, row);
    const vf scale = vf_load(p->scales + row), unit = vf_set(ls_int8_unit);
    for (int64_t k = first; k < end; k++) {
        const vf code = vi_to_vf(vi_load_s8(codes + k * LS_PACKED_GROUP));
        vf_store(to + (k - first) * stride, vf_mul(vf_mul(code, scale), unit));
    }
}

LS_SIMD void unpack_bf16(const ls_packed *p, int64_t row, int64_t first, int64_t end, float *to,
                         int64_t stride)
{
    const uint16_t *codes = (const uint16_t *)(const void *)unpack_codes(p, row);
    for (int64_t k = first; k < end; k++) {
        const vi code = vi_load_u16(codes + k * LS_PACKED_GROUP);
        vf_store(to + (k - first) * stride, vf_from_bits(vi_shift_left_16(code)));
    }
}

/* Two columns of a group, the first an even one, of a matrix whose rows have an even length.
 * `scale` holds the scales of both; bf16 has none. */
LS_SIMD void unpack_pair(ls_packed_kind kind, const uint8_t *codes, int64_t k, vf scale, vf pair_out[2])
{
    if (kind == LS_PACKED_NF4) {
        const vf levels = vf_load(ls_nf4_levels);
        const vi index = vi_load_u8(codes + k / 2 * LS_PACKED_GROUP);
        pair_out[0] = vf_mul(vf_lookup(levels, index), scale);
        pair_out[1] = vf_mul(vf_lookup(levels, vi_shift_right_4(index)), scale);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const int64_t at = (k + i) * LS_PACKED_GROUP;
        if (kind == LS_PACKED_INT8) {
            const vf code = vi_to_vf(vi_load_s8(codes + at));
            pair_out[i] = vf_mul(vf_mul(code, scale), vf_set(ls_int8_unit));
        } else {
            const vi code = vi_load_u16((const uint16_t *)(const void *)codes + at);
            pair_out[i] = vf_from_bits(vi_shift_left_16(code));
        }
    }
}

/* Columns [first, end) of the group that begins with row `row`, a multiple of 16, as vectors that
 * are `stride` floats apart. */
LS_SIMD void unpack_group(const ls_packed *p, int64_t row, int64_t first, int64_t end, float *to,
                          int64_t stride)
{
    switch (p->kind) {
    case LS_PACKED_NF4:
        unpack_nf4(p, row, first, end, to, stride);
        break;
    case LS_PACKED_INT8:
        unpack_int8(p, row, first, end, to, stride);
        break;
    default:
        unpack_bf16(p, row, first, end, to, stride);
        break;
    }
}

#endif
