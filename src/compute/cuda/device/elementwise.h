// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the elementwise kernels.
 *
 * A matrix is cut into units of neighbouring columns: 16 bytes of its widest element type. A thread
 * has LS_ELEMENTWISE_UNITS units, so that several loads are under way, and neighbouring threads
 * have neighbouring units. Without gaps between the rows, a matrix counts as one long row.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ELEMENTWISE_H
#define LS_COMPUTE_CUDA_DEVICE_ELEMENTWISE_H

#include <stdint.h>

enum { LS_ELEMENTWISE_THREADS = 256, LS_ELEMENTWISE_UNITS = 4 };

typedef struct ls_elementwise_shape {
    int64_t rows, cols;
    /* ceil(cols / elements of a unit), and that times rows. */
    int64_t row_units, units;
    /* Every row of every operand begins where a unit can be read at once. */
    int32_t aligned;
} ls_elementwise_shape;

typedef struct ls_add_args {
    ls_elementwise_shape shape;
    const void *a, *b;
    void *out;
    int64_t a_stride, b_stride, out_stride;
} ls_add_args;

/* Of fill, and of scale, which reads `out` too. */
typedef struct ls_fill_args {
    ls_elementwise_shape shape;
    void *out;
    int64_t out_stride;
    float value;
} ls_fill_args;

typedef struct ls_copy_args {
    ls_elementwise_shape shape;
    const void *from;
    void *to;
    int64_t from_stride, to_stride;
} ls_copy_args;

typedef struct ls_find_args {
    ls_elementwise_shape shape;
    const void *x;
    int64_t stride;
    /* The lowest index found, row * cols + col. The caller sets it to all ones. */
    unsigned long long *lowest;
} ls_find_args;

#endif
