// SPDX-License-Identifier: Apache-2.0
/* Matrix products by compute/cuda/device/matmul_sm90.cu, for compute/cuda/matmul_own.c. */
#ifndef LS_COMPUTE_CUDA_MATMUL_SM90_H
#define LS_COMPUTE_CUDA_MATMUL_SM90_H

#include "compute/cuda/matmul.h"

/* Sizes of a product are at most this. */
enum { LS_MATMUL_SM90_SIZE_MAX = 1 << 30 };

/* Enqueues a product of bf16 operands that are 16-byte aligned, as their rows are. Piece i of k,
 * k_piece long, is written to C + i * m * c_stride. */
LS_MUST_CHECK ls_status ls_matmul_sm90_launch(ls_queue_cuda *queue, const ls_matmul *product,
                                              int64_t k_piece);

#endif
