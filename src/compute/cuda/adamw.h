// SPDX-License-Identifier: Apache-2.0
/*
 * AdamW on a GPU (kernels/adamw.h): float32 results have the bits of the CPU's.
 *
 * Traffic per parameter is 28 bytes in both forms: 16 read, 12 written.
 */
#ifndef LS_COMPUTE_CUDA_ADAMW_H
#define LS_COMPUTE_CUDA_ADAMW_H

#include "compute/queue.h"

struct ls_adamw_factors;
struct ls_master;

/* Parameters have either form. Enqueued. */
LS_MUST_CHECK ls_status ls_cuda_adamw(ls_queue *queue, const struct ls_adamw_factors *factors, int64_t count,
                                      const struct ls_master *parameters, const float *gradients, float *m,
                                      float *v);

#endif
