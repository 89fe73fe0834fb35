// SPDX-License-Identifier: Apache-2.0
/*
 * Sums of the columns of a matrix on a GPU: the gradient of a bias, and the last step of other sums
 * over rows. Rows are cut into tiles that depend on the shape only, and the sums of the tiles are
 * added in order.
 */
#ifndef LS_COMPUTE_CUDA_COLUMN_SUMS_H
#define LS_COMPUTE_CUDA_COLUMN_SUMS_H

#include "compute/cuda/device/column_sums.h"
#include "compute/cuda/queue_cuda.h"

/* sum (1, cols), float32 = the sums of the columns of dy (n, cols), or += with accumulate. Uses
 * ls_cuda_scratch. */
LS_MUST_CHECK ls_status ls_cuda_column_sums(ls_queue_cuda *queue, const ls_tensor *dy, const ls_tensor *sum,
                                            bool accumulate);

/* Adds parts that other kernels wrote; see device/column_sums.h. */
LS_MUST_CHECK ls_status ls_cuda_combine_parts(ls_queue_cuda *queue, const ls_combine_parts_args *args);

#endif
