// SPDX-License-Identifier: Apache-2.0
/*
 * Rotary position embedding on a GPU: compute/kernels/rotary.h for ls_backend.
 */
#ifndef LS_COMPUTE_CUDA_ROTARY_H
#define LS_COMPUTE_CUDA_ROTARY_H

#include "compute/kernels/rotary.h"

LS_MUST_CHECK ls_status ls_cuda_rotary(ls_queue *queue, const ls_tensor *x, int64_t heads, int64_t head_dim,
                                       const ls_positions *positions, const ls_tensor *cosine,
                                       const ls_tensor *sine, bool backward);

#endif
