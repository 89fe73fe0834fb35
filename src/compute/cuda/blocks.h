// SPDX-License-Identifier: Apache-2.0
/*
 * How many blocks a launch takes, and whether a view can be read 16 bytes at a time.
 */
#ifndef LS_COMPUTE_CUDA_BLOCKS_H
#define LS_COMPUTE_CUDA_BLOCKS_H

#include "compute/kernels/shape.h"

#include <stdint.h>

/* ceil(count / each), as the first dimension of a grid, which has 31 bits. */
static inline uint32_t ls_cuda_blocks(int64_t count, int64_t each)
{
    const int64_t blocks = ls_ceil_div(count, each);
    LS_ASSERT(blocks >= 0 && blocks <= INT32_MAX);
    return (uint32_t)blocks;
}

static inline bool ls_cuda_is_aligned(const void *data, uint32_t bytes)
{
    return (uintptr_t)data % bytes == 0;
}

/* Every row begins at a multiple of `bytes`. An absent view does too. */
static inline bool ls_cuda_rows_are_aligned(const ls_tensor *t, uint32_t bytes)
{
    const bool rows = t->rows <= 1 || t->stride * ls_dtype_bytes(t->dtype) % bytes == 0;
    return ls_cuda_is_aligned(t->data, bytes) && rows;
}

/* Nothing lies between the rows. */
static inline bool ls_cuda_is_flat(const ls_tensor *t)
{
    return t->rows <= 1 || t->stride == t->cols;
}

#endif
