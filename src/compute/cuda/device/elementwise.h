// SPDX-License-Identifier: Apache-2.0
/* Arguments of the kernels of elementwise.cu. */
#ifndef LS_COMPUTE_CUDA_DEVICE_ELEMENTWISE_H
#define LS_COMPUTE_CUDA_DEVICE_ELEMENTWISE_H

#include <stdint.h>

/* out[row * stride + col] = value */
typedef struct ls_cuda_fill_args {
    void *out;
    int64_t rows, cols, stride;
    float value;
} ls_cuda_fill_args;

#endif
