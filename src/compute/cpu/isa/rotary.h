// SPDX-License-Identifier: Apache-2.0
/* One row of rotary position embedding. See compute/kernels/rotary.h. */
#ifndef LS_COMPUTE_CPU_ISA_ROTARY_H
#define LS_COMPUTE_CPU_ISA_ROTARY_H

#include <stdint.h>

typedef struct ls_rotary_kernels {
    /* Rotates `heads` heads of 2 * half floats by the angles whose cosine and sine are given (half
     * of each). direction is 1 or -1. */
    void (*rotate)(float *x, int64_t heads, int64_t half, const float *cosine, const float *sine,
                   float direction);
} ls_rotary_kernels;

#endif
