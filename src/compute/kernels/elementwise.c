// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/elementwise.h"

#include "compute/kernels/shape.h"

ls_status ls_add(ls_queue *queue, const ls_tensor *a, const ls_tensor *b, const ls_tensor *out)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, out);
    LS_ASSERT(ls_tensor_is(a, dtype, out->rows, out->cols) && ls_tensor_is(b, dtype, b->rows, out->cols));
    LS_ASSERT(ls_tensor_is(out, dtype, out->rows, out->cols) && (b->rows == 1 || b->rows == out->rows));
    ls_tensor rows = *b;
    if (b->rows < out->rows) {
        rows.rows = out->rows;
        rows.stride = 0;
    }
    return queue->backend->add(queue, a, &rows, out);
}

ls_status ls_fill(ls_queue *queue, const ls_tensor *out, float value)
{
    LS_ASSERT(ls_tensor_is(out, ls_kernel_dtype(queue, out), out->rows, out->cols));
    return queue->backend->fill(queue, out, value);
}

ls_status ls_scale(ls_queue *queue, const ls_tensor *x, float factor)
{
    LS_ASSERT(ls_tensor_is(x, ls_kernel_dtype(queue, x), x->rows, x->cols));
    return queue->backend->scale(queue, x, factor);
}

ls_status ls_copy(ls_queue *queue, const ls_tensor *from, const ls_tensor *to)
{
    LS_ASSERT(ls_tensor_is(from, ls_kernel_dtype(queue, from), to->rows, to->cols));
    LS_ASSERT(ls_tensor_is(to, ls_kernel_dtype(queue, to), to->rows, to->cols));
    return queue->backend->copy(queue, from, to);
}

ls_status ls_find_nonfinite(ls_queue *queue, const ls_tensor *x, int64_t *index_out)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, x);
    LS_ASSERT(index_out && ls_tensor_is(x, dtype, x->rows, x->cols));
    LS_ASSERT(x->stride == x->cols || x->rows == 1);
    return queue->backend->find_nonfinite(queue, x, index_out);
}
