// SPDX-License-Identifier: Apache-2.0
/* Rows of layers with experts. See compute/kernels/experts.h. */
#ifndef LS_COMPUTE_CPU_ISA_EXPERTS_H
#define LS_COMPUTE_CPU_ISA_EXPERTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_experts_kernels {
    /* x becomes softmax(x). */
    void (*softmax)(float *x, int64_t count);
    /* out = factor x, or with add out += factor x by fused multiply-add. */
    void (*scaled)(const float *x, float factor, bool add, float *out, int64_t count);
    /* Sum of a b: lane l of 16 takes elements l, l + 16, ... */
    float (*dot)(const float *a, const float *b, int64_t count);
} ls_experts_kernels;

#endif
