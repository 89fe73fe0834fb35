// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the matrix products of matmul_sm90.cu: C (m, n) = A (m, k) B (k, n), row-major,
 * bfloat16 operands, for compute capability 9.0. Kernels are named matmul_sm90_AB_C as those of
 * matmul.h.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_MATMUL_SM90_H
#define LS_COMPUTE_CUDA_DEVICE_MATMUL_SM90_H

#include "compute/cuda/device/tensor_map.h"

enum {
    /* Of C per block, and the step along k. */
    LS_MATMUL_SM90_TILE_M = 128,
    LS_MATMUL_SM90_TILE_N = 256,
    LS_MATMUL_SM90_TILE_K = 64,
    LS_MATMUL_SM90_STAGES = 4,
    /* A warp group that copies and two that multiply. */
    LS_MATMUL_SM90_THREADS = 384,
    /* Rows of tiles whose work items follow one another, so that they share B in the L2 cache. */
    LS_MATMUL_SM90_TILE_ROWS = 16,
    LS_MATMUL_SM90_SHARED_BYTES =
        LS_MATMUL_SM90_STAGES * (LS_MATMUL_SM90_TILE_M + LS_MATMUL_SM90_TILE_N) * LS_MATMUL_SM90_TILE_K * 2 +
        256,
};

typedef struct ls_matmul_sm90 {
    /* Boxes of 64 columns and: A 128 rows, B 256 rows; 64 rows where k runs down the rows. */
    ls_tensor_map a, b;
    void *c;
    /* (n) of C's type, or NULL. */
    const void *bias;
    int64_t c_stride;
    int32_t m, n, k;
    /* C += A B. */
    int32_t accumulate;
    /* C and its stride allow 16-byte accesses. */
    int32_t c_aligned;
    /* Piece z takes k from z * k_piece on and writes to C + z * m * c_stride; a multiple of
     * LS_MATMUL_SM90_TILE_K, or all of k. */
    int32_t k_piece, pieces;
} ls_matmul_sm90;

#endif
