// SPDX-License-Identifier: Apache-2.0
/*
 * Softmax cross-entropy over a chunk of logits, forward and gradient in one visit.
 *
 * The head of a model never stores all logits: it computes them for a chunk of tokens, calls this, which
 * replaces them by their gradient, and uses that at once for the gradients of the head's weight and input.
 */
#ifndef LS_COMPUTE_KERNELS_CROSS_ENTROPY_H
#define LS_COMPUTE_KERNELS_CROSS_ENTROPY_H

#include "compute/queue.h"

enum { LS_TARGET_IGNORED = -1 };

/*
 * logits (n, vocab), targets: n ids or LS_TARGET_IGNORED. losses[r] = log sum_j exp(logits[r][j]) -
 * logits[r][target], 0 for ignored rows. with_gradient: logits become softmax - onehot (0 in ignored rows),
 * the gradient of the SUM of losses; else they are left as they are. Targets outside [0, vocab) are bugs (asserted).
 * A NaN or +infinity among the logits makes the loss NaN, so that the trainer's finiteness check sees it.
 * Three passes over a row while it is in cache: maximum, exp and sum, scale.
 */
LS_MUST_CHECK ls_status ls_cross_entropy(ls_queue *queue, const ls_tensor *logits, const int32_t *targets,
                                         float *losses, bool with_gradient);

#endif
