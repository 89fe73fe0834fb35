// SPDX-License-Identifier: Apache-2.0
/*
 * Add, fill, scale, copy and the search for a number that is not finite, on a GPU
 * (kernels/elementwise.h).
 */
#ifndef LS_COMPUTE_CUDA_ELEMENTWISE_H
#define LS_COMPUTE_CUDA_ELEMENTWISE_H

#include "compute/queue.h"

/* float32 or bfloat16, all three alike. */
LS_MUST_CHECK ls_status ls_cuda_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b,
                                    const ls_tensor *out);

/* float32 or bfloat16. */
LS_MUST_CHECK ls_status ls_cuda_fill(ls_queue *queue, const ls_tensor *out, float value);

/* float32 or bfloat16. */
LS_MUST_CHECK ls_status ls_cuda_scale(ls_queue *queue, const ls_tensor *x, float factor);

/* Any two types of equal size, whose bits are copied; and float32 to bfloat16 and back. */
LS_MUST_CHECK ls_status ls_cuda_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to);

/* float32 or bfloat16. Waits for the queue. *index_out is row * cols + col, or -1. */
LS_MUST_CHECK ls_status ls_cuda_find_nonfinite(ls_queue *queue, const ls_tensor *x, int64_t *index_out);

#endif
