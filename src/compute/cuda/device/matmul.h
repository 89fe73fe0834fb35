// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the matrix products of matmul.cu: C (m, n) = A (m, k) B (k, n), row-major.
 *
 * Kernels of matmul.cu:
 *
 *   matmul_bf16_AB_C   tensor cores. A and B are n or t (in memory as (m, k) and (k, n), or transposed),
 *                      C is f32 or bf16. 16-byte aligned operands, strides multiples of 8.
 *   matmul_plain_T_C   any stride and alignment, plain multiplications; T and C are f32 or bf16.
 *   matmul_combine_C   adds the pieces of a cut product.
 *   matmul_compare     counts the words in which two results differ, for tests of repeatability.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_MATMUL_H
#define LS_COMPUTE_CUDA_DEVICE_MATMUL_H

#include <stdint.h>

enum {
    /* Of C per block of the tensor-core kernels, and the step along k. */
    LS_MATMUL_TILE_M = 128,
    LS_MATMUL_TILE_N = 128,
    LS_MATMUL_TILE_K = 32,
    LS_MATMUL_STAGES = 4,
    /* Lengths of pieces are multiples of this, which is one of LS_MATMUL_TILE_K. */
    LS_MATMUL_PIECE_GRAIN = 64,
    LS_MATMUL_THREADS = 128,
    /* Rows of tiles whose blocks follow one another, so that they share B in the L2 cache. */
    LS_MATMUL_TILE_ROWS = 8,
    LS_MATMUL_SHARED_BYTES = LS_MATMUL_STAGES * (LS_MATMUL_TILE_M + LS_MATMUL_TILE_N) * LS_MATMUL_TILE_K * 2,

    LS_MATMUL_PLAIN_TILE = 64,
    LS_MATMUL_PLAIN_THREADS = 256,
    LS_MATMUL_PLAIN_SHARED_BYTES = 2 * 16 * (LS_MATMUL_PLAIN_TILE + 4) * 4,
    LS_MATMUL_COMBINE_THREADS = 256,
    LS_MATMUL_COMPARE_THREADS = 256,
};

typedef struct ls_matmul_arguments {
    const void *a, *b;
    void *c;
    /* (n) of C's type, or NULL. */
    const void *bias;
    int64_t a_stride, b_stride, c_stride;
    int64_t m, n, k;
    /* In memory (k, m) and (n, k). For the plain kernels; the others have it in their names. */
    int32_t a_transposed, b_transposed;
    /* C += A B. */
    int32_t accumulate;
    /* C, its stride and the bias allow 16-byte accesses. */
    int32_t c_aligned;
    /* Length of k that block z of the grid takes: [z * k_piece, (z + 1) * k_piece). It writes to C
     * + z * m * c_stride. A multiple of LS_MATMUL_TILE_K, or all of k. */
    int64_t k_piece;
} ls_matmul_arguments;

/* C (m, n) = or += piece[0] + piece[1] + ..., + bias. */
typedef struct ls_matmul_combine_arguments {
    /* (pieces, m, n) */
    const float *pieces;
    void *c;
    const void *bias;
    int64_t c_stride;
    int64_t m, n;
    int32_t piece_count;
    int32_t accumulate;
} ls_matmul_combine_arguments;

/* *differences += words of 4 bytes that differ. */
typedef struct ls_matmul_compare_arguments {
    const uint32_t *a, *b;
    int64_t count;
    uint32_t *differences;
} ls_matmul_compare_arguments;

#endif
