// SPDX-License-Identifier: Apache-2.0
/*
 * Sums of many buffers in a given order, on a GPU (kernels/tree_sum.h).
 */
#ifndef LS_COMPUTE_CUDA_TREE_SUM_H
#define LS_COMPUTE_CUDA_TREE_SUM_H

#include "compute/queue.h"

struct ls_tree_sum;

/*
 * `inputs` is an array of the host with addresses of device memory, which may change as soon as the
 * call returns. square_sums is shared memory. With its only input as out, a call reads and adds
 * squares, but writes nothing to device memory.
 */
LS_MUST_CHECK ls_status ls_cuda_tree_sum(ls_queue *queue, const struct ls_tree_sum *sum,
                                         const float *const *inputs, int64_t count, float *out,
                                         double *square_sums);

#endif
