// SPDX-License-Identifier: Apache-2.0
/*
 * Long inner dimensions. A product with few tiles of C and a large k leaves most of a GPU idle: the
 * gradient of a (768, 768) weight over 65,536 tokens has 18 tiles of 128 x 256. So k is cut into
 * pieces that run side by side, each writes its sums in float32, and a second kernel adds them in
 * order.
 *
 *       k   |-- piece 0 --|-- piece 1 --| ... |-- piece p-1 --|- rest -|
 *
 * The cut is a function of the shape; it never looks at the device.
 */
#ifndef LS_COMPUTE_CUDA_MATMUL_PIECES_H
#define LS_COMPUTE_CUDA_MATMUL_PIECES_H

#include "compute/cuda/matmul.h"

/* How a kind of kernel fills a GPU. */
typedef struct ls_matmul_tiling {
    /* Of C per block. */
    int64_t tile_m, tile_n;
    /* Blocks that an H100 runs at once. */
    int64_t blocks;
    /* What writing and reading the sums of one tile costs, and a further launch, in the time of a
     * block's step of 1 along k. */
    int64_t tile_cost, launch_cost;
    /* A whole product may also have tiles of half the width, with steps that take this many percent
     * of the time. 0: not. */
    int64_t half_tile_percent;
} ls_matmul_tiling;

typedef struct ls_matmul_cut {
    /* 1: the product stays whole, and length is k. */
    int64_t pieces;
    /* Of a piece, a multiple of 64 if there are several. */
    int64_t length;
    /* Behind the last piece: k - pieces * length, below 64 per piece. */
    int64_t rest;
} ls_matmul_cut;

ls_matmul_cut ls_matmul_cut_of(const ls_matmul *product, const ls_matmul_tiling *tiling);

/* Enqueues the sum of the pieces: C = sums[0] + ... + bias, or C += . sums: (count, m, n). */
LS_MUST_CHECK ls_status ls_matmul_combine(ls_queue_cuda *queue, const ls_matmul *product, const float *sums,
                                          int64_t count);

#endif
