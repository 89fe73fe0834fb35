// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/rotary.h"

#include "compute/kernels/shape.h"

ls_status ls_rotary_apply(ls_queue *queue, const ls_tensor *x, int64_t heads, int64_t head_dim,
                          const ls_positions *positions, const ls_tensor *cosine, const ls_tensor *sine,
                          bool backward)
{
    LS_ASSERT(heads >= 1 && head_dim >= 2 && head_dim % 2 == 0);
    LS_ASSERT(ls_positions_are_valid(positions));
    LS_ASSERT(ls_tensor_is(x, ls_kernel_dtype(queue, x), x->rows, heads * head_dim));
    LS_ASSERT(ls_tensor_is(cosine, LS_F32, cosine->rows, head_dim / 2));
    LS_ASSERT(ls_tensor_is(sine, LS_F32, cosine->rows, head_dim / 2));
    LS_ASSERT(positions->past + ls_min64(x->rows, positions->length) <= cosine->rows);
    return queue->backend->rotary(queue, x, heads, head_dim, positions, cosine, sine, backward);
}
