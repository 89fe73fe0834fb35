// SPDX-License-Identifier: Apache-2.0
/*
 * Copy, fill, add and scale; the first number that is not finite; the block of the gradient norm.
 * The tensors of a call have one element type.
 */
#ifndef LS_COMPUTE_KERNELS_ELEMENTWISE_H
#define LS_COMPUTE_KERNELS_ELEMENTWISE_H

#include "compute/queue.h"

/* out = a + b, element by element; a single row b is added to every row of a. out may be a or b. */
LS_MUST_CHECK ls_status ls_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b, const ls_tensor *out);

LS_MUST_CHECK ls_status ls_fill(ls_queue *queue, const ls_tensor *out, float value);

/* x *= factor. */
LS_MUST_CHECK ls_status ls_scale(ls_queue *queue, const ls_tensor *x, float factor);

/* On a GPU, the two may have different types. Numbers are then converted, to nearest, ties to
 * even. */
LS_MUST_CHECK ls_status ls_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to);

/* Elements per block of the gradient norm. Part of the determinism class. Ranks own whole blocks
 * (execution/parallel/slices.h). */
enum { LS_NORM_BLOCK = 4096 };

/* Finds the index of the first element that is not finite, or -1. x is contiguous, and the index
 * counts its elements from the first. Waits for the queue. */
LS_MUST_CHECK ls_status ls_find_nonfinite(ls_queue *queue, const ls_tensor *x, int64_t *index_out);

#endif
