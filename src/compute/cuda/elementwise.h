// SPDX-License-Identifier: Apache-2.0
/* The ops of compute/kernels/elementwise.h on NVIDIA GPUs. */
#ifndef LS_COMPUTE_CUDA_ELEMENTWISE_H
#define LS_COMPUTE_CUDA_ELEMENTWISE_H

#include "compute/queue.h"

LS_MUST_CHECK ls_status ls_cuda_fill(ls_queue *queue, const ls_tensor *out, float value);

#endif
