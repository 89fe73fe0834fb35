// SPDX-License-Identifier: Apache-2.0
/*
 * Dropout: each element is set to zero with probability p; the others are multiplied by
 * 1 / (1 - p).
 *
 * Which elements is a function of counters and not of the place in a batch: the seed, the pass over
 * the data, the record, the token within it, the site in the model, and the column. So a record
 * has the same bits alone and packed with others, on any rank, and in a backward pass that makes
 * them again. p is rounded to a multiple of 2^-16. For CPU queues.
 */
#ifndef LS_COMPUTE_KERNELS_DROPOUT_H
#define LS_COMPUTE_KERNELS_DROPOUT_H

#include "base/random.h"
#include "compute/queue.h"

typedef struct ls_dropout {
    ls_random_key key;
    double probability; /* 0 to below 1 */
    int64_t length;     /* rows are sequences of this length, one after the other */
    /* per row: the number of its record, and the index in its sequence of the record's first token;
     * NULL: 0 */
    const int32_t *record, *first;
    const uint32_t *pass; /* per sequence: source and epoch, below 2^24 */
    uint32_t site;        /* below 2^16 */
} ls_dropout;

/* y = dropped x, or y += it with accumulate; x and y are (rows, cols), cols below 2^27. The same
 * call with gradients in place of x and y is the backward pass. Errors: LS_ERR_UNSUPPORTED on a
 * GPU. */
LS_MUST_CHECK ls_status ls_dropout_apply(ls_queue *queue, const ls_dropout *dropout, const ls_tensor *x,
                                         const ls_tensor *y, bool accumulate);

#endif
