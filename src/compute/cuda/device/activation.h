// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of the kernels of activation.cu: gelu_forward, gelu_backward, swiglu_forward and
 * swiglu_backward, each with _f32 or _bf16. A thread takes LS_ACTIVATION_OCTETS octets of y.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ACTIVATION_H
#define LS_COMPUTE_CUDA_DEVICE_ACTIVATION_H

#include <stdint.h>

enum { LS_ACTIVATION_THREADS = 256, LS_ACTIVATION_OCTETS = 2 };

typedef struct ls_activation_args {
    /* gelu: x. swiglu: gate_up, whose row is gate (cols) and then up (cols). */
    const void *x;
    /* backward only */
    const void *dy;
    /* forward: y. gelu backward: dx. swiglu backward: dgate_up. */
    void *out;
    int64_t x_stride, dy_stride, out_stride;
    /* Columns of y; octets in a row of it, and in all rows. */
    int32_t cols;
    uint32_t row_octets, octets;
    int32_t vector;
} ls_activation_args;

#endif
