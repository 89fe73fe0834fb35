// SPDX-License-Identifier: Apache-2.0
/* One row of softmax cross-entropy, or a piece of it. See compute/kernels/cross_entropy.h. */
#ifndef LS_COMPUTE_CPU_ISA_CROSS_ENTROPY_H
#define LS_COMPUTE_CPU_ISA_CROSS_ENTROPY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_cross_entropy_kernels {
    /* The largest of n >= 1 logits. */
    float (*top)(const float *x, int64_t n);
    /* The sum of exp(x - top). keep: the terms replace x. */
    float (*sum_exp)(float *x, int64_t n, float top, bool keep);
    /* log(sum) + top - target_logit. */
    float (*loss)(float sum, float top, float target_logit);
    /* x *= factor. */
    void (*scale)(float *x, int64_t n, float factor);
} ls_cross_entropy_kernels;

#endif
