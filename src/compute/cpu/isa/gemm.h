// SPDX-License-Identifier: Apache-2.0
/* One tile of a matrix product on one thread. See compute/cpu/gemm.h for what is promised. */
#ifndef LS_COMPUTE_CPU_ISA_GEMM_H
#define LS_COMPUTE_CPU_ISA_GEMM_H

#include "compute/cpu/gemm.h"

/* Rows [row, row + rows) and columns [column, column + columns) of C. */
typedef struct ls_gemm_rect {
    int64_t row, rows, column, columns;
} ls_gemm_rect;

typedef struct ls_gemm_kernels {
    int64_t row_grain;    /* tiles waste nothing when their rows are a multiple of it */
    int64_t column_grain; /* likewise columns */
    /* Floats of scratch, 64-byte aligned, that `tile` needs for so many columns. */
    int64_t (*scratch_floats)(int64_t columns);
    void (*tile)(const ls_gemm *gemm, const ls_gemm_rect *rect, float *scratch);
    /* `rounds` times a registerful of independent multiply-adds and nothing else: what the processor can do.
     * Returns the FLOP done; *sink_out keeps the work from being optimised away. */
    double (*burst)(int64_t rounds, float *sink_out);
} ls_gemm_kernels;

#endif
