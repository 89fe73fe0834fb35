// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the kernels of column_sums.cu.
 *
 *   column_sums_{f32,bf16}   a block (x, y) adds the rows of tile y in 256 columns, and writes the sums
 *                            to row y of `parts`
 *   combine_parts            adds the rows of `parts`, in one order
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_COLUMN_SUMS_H
#define LS_COMPUTE_CUDA_DEVICE_COLUMN_SUMS_H

#include <stdint.h>

enum {
    /* Threads of column_sums: 32 octets of columns wide, 8 rows high. */
    LS_COLUMN_SUMS_COLUMNS = 256,
    LS_COLUMN_SUMS_LANES = 8,
    /* Threads of combine_parts: 32 columns wide, 32 parts high. */
    LS_COMBINE_COLUMNS = 32,
    LS_COMBINE_LANES = 32,
};

typedef struct ls_column_sums_args {
    const void *x;
    int64_t rows, cols, stride, tile_rows;
    float *parts; /* (tiles, cols) */
    int32_t vector;
} ls_column_sums_args;

/* out[y][c] = sum over p of parts[p * stride + y * cols + c], or += . A NULL out[y] is left out. */
typedef struct ls_combine_parts_args {
    const float *parts;
    int64_t count, cols, stride;
    float *out[2];
    int32_t accumulate;
} ls_combine_parts_args;

#endif
