// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/cross_entropy.h"

#include "compute/kernels/shape.h"

ls_status ls_cross_entropy(ls_queue *queue, const ls_tensor *logits, const int32_t *targets, float *losses,
                           bool with_gradient)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, logits);
    LS_ASSERT(ls_tensor_is(logits, dtype, logits->rows, logits->cols) && logits->cols >= 1);
    LS_ASSERT(logits->rows == 0 || (targets && losses));
    return queue->backend->cross_entropy(queue, logits, targets, losses, with_gradient);
}
