// SPDX-License-Identifier: Apache-2.0
/*
 * Softmax cross-entropy over a chunk of logits: the loss and its gradient in one call.
 *
 * The head of a model never stores all logits. It computes them for a chunk of tokens, calls
 * ls_cross_entropy, which replaces them by their gradient, and then computes the gradients of the
 * head's weight and input from that.
 */
#ifndef LS_COMPUTE_KERNELS_CROSS_ENTROPY_H
#define LS_COMPUTE_KERNELS_CROSS_ENTROPY_H

#include "compute/queue.h"

enum { LS_TARGET_IGNORED = -1 };

/*
 * logits is (n, vocab); its rows may be further apart. targets has n entries, each an id or
 * LS_TARGET_IGNORED. The n losses are float32. Targets and losses may be shared memory
 * (compute/queue.h).
 *
 *   losses[r] = log sum_j exp(logits[r][j]) - logits[r][target]        0 for an ignored row
 *
 * With with_gradient, logits become softmax - onehot, the gradient of the sum of the losses; an
 * ignored row becomes 0. Otherwise logits are unchanged. A target outside [0, vocab) is a bug
 * (asserted on the CPU). A NaN or +infinity among the logits makes the loss NaN, so the trainer's
 * check for finite numbers notices it. On the CPU, each row takes three passes while it is in
 * cache: maximum, exp and sum, scale.
 */
LS_MUST_CHECK ls_status ls_cross_entropy(ls_queue *queue, const ls_tensor *logits, const int32_t *targets,
                                         float *losses, bool with_gradient);

#endif
