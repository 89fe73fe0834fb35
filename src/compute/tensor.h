// SPDX-License-Identifier: Apache-2.0
/*
 * Tensor views, the arguments of every kernel.
 *
 * A view is a row-major matrix in the memory of a device: `rows` rows of `cols` elements, `stride`
 * elements apart. Activations are (tokens, features), a weight is (out, in), a vector is one row. A
 * view never owns its memory. Kernels assert their shapes, so a wrong shape stops at the call.
 */
#ifndef LS_COMPUTE_TENSOR_H
#define LS_COMPUTE_TENSOR_H

#include "lockstep/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ls_device_kind { LS_DEVICE_CPU, LS_DEVICE_CUDA } ls_device_kind;

typedef struct ls_tensor {
    /* Device memory. NULL: an optional argument is absent. */
    void *data;
    ls_dtype dtype;
    ls_device_kind device;
    int64_t rows, cols;
    /* Elements from one row to the next, at least cols. */
    int64_t stride;
} ls_tensor;

/* A float32 view in CPU memory with stride == cols. */
static inline ls_tensor ls_tensor_f32(float *data, int64_t rows, int64_t cols)
{
    return (ls_tensor){.data = data, .dtype = LS_F32, .rows = rows, .cols = cols, .stride = cols};
}

/* Columns [first, first + count) of a float32 view. */
static inline ls_tensor ls_tensor_columns(ls_tensor t, int64_t first, int64_t count)
{
    t.data = (float *)t.data + first;
    t.cols = count;
    return t;
}

/* Rows [first, first + count) of a float32 view. */
static inline ls_tensor ls_tensor_rows(ls_tensor t, int64_t first, int64_t count)
{
    t.data = (float *)t.data + first * t.stride;
    t.rows = count;
    return t;
}

static inline float *ls_tensor_row(const ls_tensor *t, int64_t row)
{
    return (float *)t->data + row * t->stride;
}

#endif
