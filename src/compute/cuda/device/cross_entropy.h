// SPDX-License-Identifier: Apache-2.0
/*
 * Arguments of cross-entropy. A block has one row of logits, in units of 16 bytes.
 */
#ifndef LS_COMPUTE_CUDA_DEVICE_CROSS_ENTROPY_H
#define LS_COMPUTE_CUDA_DEVICE_CROSS_ENTROPY_H

#include <stdint.h>

enum { LS_CROSS_ENTROPY_THREADS = 512 };

typedef struct ls_cross_entropy_args {
    void *logits;
    int64_t cols, stride;
    const int32_t *targets;
    float *losses;
    /* Units that a block keeps in shared memory between its two passes: a multiple of the threads.
     * 0 unless `aligned`. */
    int64_t kept_units;
    /* Every row begins at a multiple of 16 bytes. */
    int32_t aligned;
    int32_t with_gradient;
} ls_cross_entropy_args;

#endif
