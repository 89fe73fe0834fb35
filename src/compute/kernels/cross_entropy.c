// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/cross_entropy.h"

#include "base/pieces.h"
#include "compute/kernels/shape.h"

ls_status ls_cross_entropy(ls_queue *queue, const ls_vocabulary_cut *cut, const ls_tensor *logits,
                           const int32_t *targets, float *losses, bool with_gradient)
{
    static const ls_vocabulary_cut whole = {.pieces = 1, .stage = LS_LOSS_WHOLE};
    const ls_vocabulary_cut *c = cut ? cut : &whole;
    const ls_dtype dtype = ls_kernel_dtype(queue, logits);
    LS_ASSERT(ls_tensor_is(logits, dtype, logits->rows, logits->cols));
    LS_ASSERT(c->pieces >= 1 && c->pieces <= LS_PIECES_MAX && logits->cols >= c->pieces);
    LS_ASSERT(c->stage == LS_LOSS_WHOLE || ls_tensor_is(&c->statistics, LS_F32, 3, logits->rows));
    LS_ASSERT(logits->rows == 0 || (targets && losses));
    return queue->backend->cross_entropy(queue, c, logits, targets, losses, with_gradient);
}
