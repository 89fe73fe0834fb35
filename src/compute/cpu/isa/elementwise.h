// SPDX-License-Identifier: Apache-2.0
/* Kernels on flat spans; spans of one call must be equal or disjoint. See
 * compute/kernels/elementwise.h. */
#ifndef LS_COMPUTE_CPU_ISA_ELEMENTWISE_H
#define LS_COMPUTE_CPU_ISA_ELEMENTWISE_H

#include <stdint.h>

typedef struct ls_elementwise_kernels {
    void (*add)(const float *a, const float *b, float *out, int64_t count);
    void (*fill)(float *out, float value, int64_t count);
    /* Sum of squares in float64: lane l of 16 takes elements l, l + 16, ... */
    double (*square_sum)(const float *x, int64_t count);
    /* Index of the first NaN or infinity, or -1. */
    int64_t (*find_nonfinite)(const float *x, int64_t count);
} ls_elementwise_kernels;

#endif
