// SPDX-License-Identifier: Apache-2.0
/*
 * Flat buffers: copy, fill, add, and the sums behind the gradient norm.
 */
#ifndef LS_COMPUTE_KERNELS_ELEMENTWISE_H
#define LS_COMPUTE_KERNELS_ELEMENTWISE_H

#include "compute/queue.h"

/* out = a + b elementwise; out may be a or b. One addition per element: this is the node of the tree of
 * leaves. */
LS_MUST_CHECK ls_status ls_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b, const ls_tensor *out);

LS_MUST_CHECK ls_status ls_fill(ls_queue *queue, const ls_tensor *out, float value);
LS_MUST_CHECK ls_status ls_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to);

/* Elements per block of the gradient norm: fixed, part of the determinism class. Ranks own whole blocks (execution/parallel/slices.h). */
enum { LS_NORM_BLOCK = 4096 };

/* sums_out[b] = sum of squares of block b of `x` (count floats, blocks of LS_NORM_BLOCK), in float64, in
 * fixed order. sums_out has ceil(count / LS_NORM_BLOCK) elements. */
LS_MUST_CHECK ls_status ls_square_sums(ls_queue *queue, const float *x, int64_t count, double *sums_out);

/* Index of the first element that is not finite, or -1. */
LS_MUST_CHECK ls_status ls_find_nonfinite(ls_queue *queue, const float *x, int64_t count, int64_t *index_out);

#endif
