// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor views, the arguments of every kernel.
 *
 * A view is a row-major matrix in the memory of a device: `rows` rows of `cols` elements, `stride`
 * elements apart. Activations are (tokens, features), a weight is (out, in), a vector is one row. A
 * view never owns its memory. Kernels assert their shapes, so a wrong shape stops at the call.
 *
 * Element types. Activations, their gradients, weights and biases of one call are all float32 or,
 * on a GPU, all bfloat16, which is computed with in float32. Everything else is always float32:
 * gradients of weights and biases, statistics, losses, tables of angles and workspace.
 */
#ifndef LS_COMPUTE_TENSOR_H
#define LS_COMPUTE_TENSOR_H

#include "lockstep/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ls_device_kind { LS_DEVICE_CPU, LS_DEVICE_CUDA } ls_device_kind;

typedef struct ls_tensor {
    /* Memory that the queue's device reads. NULL: an optional argument is absent. */
    void *data;
    ls_dtype dtype;
    int64_t rows, cols;
    /* Elements from one row to the next, at least cols. */
    int64_t stride;
} ls_tensor;

/* Bytes of an element: 4 for LS_F32 and LS_I32, 2 for LS_BF16 and LS_F16, 8 for LS_I64 and 1 for
 * LS_U8. */
static inline int64_t ls_dtype_bytes(ls_dtype dtype)
{
    return dtype == LS_I64 ? 8 : dtype == LS_U8 ? 1 : dtype == LS_BF16 || dtype == LS_F16 ? 2 : 4;
}

/* A view with stride == cols. */
static inline ls_tensor ls_tensor_of(void *data, ls_dtype dtype, int64_t rows, int64_t cols)
{
    return (ls_tensor){.data = data, .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
}

/* A float32 view with stride == cols. */
static inline ls_tensor ls_tensor_f32(float *data, int64_t rows, int64_t cols)
{
    return ls_tensor_of(data, LS_F32, rows, cols);
}

/* The address of element (row, col). */
static inline void *ls_tensor_at(const ls_tensor *t, int64_t row, int64_t col)
{
    return (char *)t->data + (row * t->stride + col) * ls_dtype_bytes(t->dtype);
}

/* Columns [first, first + count). */
static inline ls_tensor ls_tensor_columns(ls_tensor t, int64_t first, int64_t count)
{
    t.data = ls_tensor_at(&t, 0, first);
    t.cols = count;
    return t;
}

/* Rows [first, first + count). */
static inline ls_tensor ls_tensor_rows(ls_tensor t, int64_t first, int64_t count)
{
    t.data = ls_tensor_at(&t, first, 0);
    t.rows = count;
    return t;
}

/* A row of a float32 view. */
static inline float *ls_tensor_row(const ls_tensor *t, int64_t row)
{
    return (float *)t->data + row * t->stride;
}

#endif
