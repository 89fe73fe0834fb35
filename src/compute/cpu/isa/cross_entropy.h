// SPDX-License-Identifier: Apache-2.0
/* One row of softmax cross-entropy. See compute/kernels/cross_entropy.h. */
#ifndef LS_COMPUTE_CPU_ISA_CROSS_ENTROPY_H
#define LS_COMPUTE_CPU_ISA_CROSS_ENTROPY_H

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_cross_entropy_kernels {
    /* Loss of one row of `vocab` logits; with_gradient: logits become softmax - onehot(target). */
    float (*row)(float *logits, int64_t vocab, int32_t target, bool with_gradient);
} ls_cross_entropy_kernels;

#endif
