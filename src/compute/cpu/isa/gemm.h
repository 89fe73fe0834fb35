// SPDX-License-Identifier: Apache-2.0
/* One tile of a matrix product on one thread. See compute/cpu/gemm.h for what is promised. */
#ifndef LS_COMPUTE_CPU_ISA_GEMM_H
#define LS_COMPUTE_CPU_ISA_GEMM_H

#include "compute/kernels/packed.h"

#include <stdbool.h>
#include <stdint.h>

/* One operand: element (row, column) is data[row * stride + column], or data[column * stride + row]
 * when `transposed`. B may instead be packed matrices, whose rows follow each other. */
typedef struct ls_gemm_operand {
    const float *data;
    int64_t stride;
    bool transposed;
    const ls_packed *packed;
    uint32_t packed_count;
} ls_gemm_operand;

/* Inner indices [first, first + count). */
typedef struct ls_gemm_range {
    int64_t first, count;
} ls_gemm_range;

enum { LS_GEMM_RANGES_MAX = 3 };

/*
 * C (m, n) = A (m, k) B (k, n) + bias, or += without the bias.
 *
 * The inner dimension is a list of ranges, the parts of a fused weight that one piece of a
 * canonical cut takes. They are added in this order, as if by one call per range.
 */
typedef struct ls_gemm {
    int64_t m, n;
    ls_gemm_range range[LS_GEMM_RANGES_MAX];
    /* 1 to LS_GEMM_RANGES_MAX. */
    uint32_t range_count;
    ls_gemm_operand a, b;
    /* Row-major. Must not overlap a, b or bias. */
    float *c;
    int64_t c_stride;
    /* n values that are added to every row at the end. NULL: none. */
    const float *bias;
    /* C += instead of C =. */
    bool accumulate;
} ls_gemm;

/* Rows [row, row + rows) and columns [column, column + columns) of C. */
typedef struct ls_gemm_rect {
    int64_t row, rows, column, columns;
} ls_gemm_rect;

typedef struct ls_gemm_kernels {
    /* A tile wastes no work if its rows and columns are multiples of these. */
    int64_t row_grain, column_grain;
    /* Floats of scratch, 64-byte aligned, that `tile` needs for that many columns. */
    int64_t (*scratch_floats)(int64_t columns);
    void (*tile)(const ls_gemm *gemm, const ls_gemm_rect *rect, float *scratch);
    /* Runs independent multiply-adds that fill the registers, `rounds` times, to measure what the
     * processor can do. Returns the number of FLOP. *sink_out keeps the compiler from removing the
     * work. */
    double (*burst)(int64_t rounds, float *sink_out);
} ls_gemm_kernels;

#endif
