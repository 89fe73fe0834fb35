// SPDX-License-Identifier: Apache-2.0
/*
 * Checks of shapes and element types (compute/tensor.h) shared by the public kernel functions. A
 * wrong shape is a bug and is asserted.
 */
#ifndef LS_COMPUTE_KERNELS_SHAPE_H
#define LS_COMPUTE_KERNELS_SHAPE_H

#include "base/assert.h"
#include "compute/backend.h"
#include "compute/kernels/positions.h"

static inline bool ls_tensor_is_present(const ls_tensor *t)
{
    return t && t->data;
}

/* A view of exactly (rows, cols) of a type. */
static inline bool ls_tensor_is(const ls_tensor *t, ls_dtype dtype, int64_t rows, int64_t cols)
{
    return t && t->data && t->dtype == dtype && t->rows == rows && t->cols == cols && t->stride >= t->cols;
}

/* Absent, or a view of (rows, cols). */
static inline bool ls_tensor_is_or_absent(const ls_tensor *t, ls_dtype dtype, int64_t rows, int64_t cols)
{
    return !ls_tensor_is_present(t) || ls_tensor_is(t, dtype, rows, cols);
}

/* Float32 memory for at least `floats`. May be absent if that is 0. */
static inline bool ls_tensor_is_workspace(const ls_tensor *t, int64_t floats)
{
    return floats == 0 || (ls_tensor_is_present(t) && t->dtype == LS_F32 && t->rows * t->cols >= floats);
}

/* The element type of a call's activations, taken from one of them. The queue must be able to
 * compute with it, which is asserted. */
static inline ls_dtype ls_kernel_dtype(const ls_queue *queue, const ls_tensor *t)
{
    LS_ASSERT(t->dtype == LS_F32 || (t->dtype == LS_BF16 && queue->backend->device != LS_DEVICE_CPU));
    return t->dtype;
}

static inline bool ls_positions_are_valid(const ls_positions *p)
{
    return p->length >= 1 && p->past >= 0;
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

#endif
