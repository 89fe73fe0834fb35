// SPDX-License-Identifier: Apache-2.0
/*
 * Shape checks and fixed tiles shared by the public kernel functions. A wrong shape is a bug and is
 * asserted.
 */
#ifndef LS_COMPUTE_CPU_SHAPE_H
#define LS_COMPUTE_CPU_SHAPE_H

#include "base/assert.h"
#include "compute/tensor.h"

static inline bool ls_tensor_is_present(const ls_tensor *t)
{
    return t && t->data;
}

/* A float32 CPU view of exactly (rows, cols). */
static inline bool ls_tensor_is(const ls_tensor *t, int64_t rows, int64_t cols)
{
    return t && t->data && t->dtype == LS_F32 && t->device == LS_DEVICE_CPU && t->rows == rows &&
           t->cols == cols && t->stride >= t->cols;
}

/* Absent, or a float32 CPU view of (rows, cols). */
static inline bool ls_tensor_is_or_absent(const ls_tensor *t, int64_t rows, int64_t cols)
{
    return !ls_tensor_is_present(t) || ls_tensor_is(t, rows, cols);
}

static inline int64_t ls_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t ls_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t ls_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Rows of a tile of about 16k elements, which take a light kernel about 5 us; at least one row.
 * Depends only on the shape. */
static inline int64_t ls_tile_rows(int64_t cols)
{
    enum { TILE_ELEMENTS = 16384 };
    return ls_max64(1, TILE_ELEMENTS / ls_max64(1, cols));
}

#endif
