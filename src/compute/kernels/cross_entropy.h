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

enum {
    LS_TARGET_IGNORED = -1,
    LS_TARGET_ELSEWHERE = -2 /* with a part of the vocabulary: another part has the target */
};

/*
 * How a vocabulary is cut. Sums of exponentials are taken per piece (base/pieces.h) and added in
 * the tree over the pieces. The maximum of a row is exact, so it is the same for every cut.
 *
 * Members of a group that have a part of the vocabulary each, a node of that tree, make three calls
 * with the group's work between them, and get the bits of one call for all columns:
 *
 *   LS_LOSS_TOPS   statistics row 0 = the largest logit of each row        group: the maximum
 *   LS_LOSS_SUMS   row 1 = sums of exponentials; row 2 = the target's
 *                  logit, -0 if it is elsewhere                            group: the sums of both
 *   LS_LOSS_END    losses and gradients
 */
typedef enum ls_loss_stage { LS_LOSS_WHOLE, LS_LOSS_TOPS, LS_LOSS_SUMS, LS_LOSS_END } ls_loss_stage;

typedef struct ls_vocabulary_cut {
    uint32_t pieces; /* of the columns of logits, 1 to LS_PIECES_MAX; on a GPU: 1 */
    ls_loss_stage stage;
    ls_tensor statistics; /* (3, n) float32; absent with LS_LOSS_WHOLE */
} ls_vocabulary_cut;

/*
 * logits is (n, vocab); its rows may be further apart. targets has n entries, each an id or
 * LS_TARGET_IGNORED. cut NULL: one piece, all in one call. The n losses are float32. Targets and
 * losses may be shared memory (compute/queue.h).
 *
 *   losses[r] = log sum_j exp(logits[r][j]) - logits[r][target]        0 for an ignored row
 *
 * With with_gradient, logits become softmax - onehot, the gradient of the sum of the losses; an
 * ignored row becomes 0. Otherwise logits are unchanged. A target outside [0, vocab) is a bug
 * (asserted on the CPU). A NaN or +infinity among the logits makes the loss NaN, so the trainer's
 * check for finite numbers notices it. On the CPU, each row takes three passes while it is in
 * cache: maximum, exp and sum, scale.
 */
LS_MUST_CHECK ls_status ls_cross_entropy(ls_queue *queue, const ls_vocabulary_cut *cut,
                                         const ls_tensor *logits, const int32_t *targets, float *losses,
                                         bool with_gradient);

#endif
