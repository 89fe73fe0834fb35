// SPDX-License-Identifier: Apache-2.0
/* Matrix products by our own kernels (compute/cuda/device/matmul.cu), for compute/cuda/matmul.c. */
#ifndef LS_COMPUTE_CUDA_MATMUL_OWN_H
#define LS_COMPUTE_CUDA_MATMUL_OWN_H

#include "compute/cuda/matmul_pieces.h"

/* How our own kernels cut the inner dimension. */
ls_matmul_cut ls_matmul_own_cut(const ls_matmul *product);

LS_MUST_CHECK ls_status ls_matmul_own(ls_queue_cuda *queue, const ls_matmul *product);

#endif
