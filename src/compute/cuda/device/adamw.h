// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of AdamW (kernels/adamw.h). A thread has LS_ADAMW_RUNS runs of four parameters.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_ADAMW_H
#define LS_COMPUTE_CUDA_DEVICE_ADAMW_H

#include <stdint.h>

enum { LS_ADAMW_THREADS = 256, LS_ADAMW_RUNS = 2 };

typedef struct ls_adamw_args {
    int64_t count;
    /* Parameters in one of two forms: float32, or bfloat16 weights and what they lack. */
    float *values;
    uint16_t *weights;
    int16_t *rests;
    const float *gradients;
    float *m, *v;
    /* Runs of all buffers can be read at once. */
    int32_t aligned;
    /* ls_adamw_factors. */
    float gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
    float step_size, inverse_root_v, one_minus_decay;
} ls_adamw_args;

#endif
