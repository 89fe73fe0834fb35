// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/activation.h"

#include "compute/kernels/shape.h"

ls_status ls_gelu_forward(ls_queue *queue, const ls_tensor *x, const ls_tensor *y)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, y);
    LS_ASSERT(ls_tensor_is(x, dtype, y->rows, y->cols) && ls_tensor_is(y, dtype, y->rows, y->cols));
    return queue->backend->gelu_forward(queue, x, y);
}

ls_status ls_gelu_backward(ls_queue *queue, const ls_tensor *x, const ls_tensor *dy, const ls_tensor *dx)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, dx);
    LS_ASSERT(ls_tensor_is(x, dtype, dx->rows, dx->cols) && ls_tensor_is(dy, dtype, dx->rows, dx->cols));
    LS_ASSERT(ls_tensor_is(dx, dtype, dx->rows, dx->cols));
    return queue->backend->gelu_backward(queue, x, dy, dx);
}

ls_status ls_swiglu_forward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *y)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, y);
    LS_ASSERT(ls_tensor_is(y, dtype, y->rows, y->cols));
    LS_ASSERT(ls_tensor_is(gate_up, dtype, y->rows, 2 * y->cols));
    return queue->backend->swiglu_forward(queue, gate_up, y);
}

ls_status ls_swiglu_backward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *dy,
                             const ls_tensor *dgate_up)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, dy);
    LS_ASSERT(ls_tensor_is(dy, dtype, dy->rows, dy->cols));
    LS_ASSERT(ls_tensor_is(gate_up, dtype, dy->rows, 2 * dy->cols));
    LS_ASSERT(ls_tensor_is(dgate_up, dtype, dy->rows, 2 * dy->cols));
    return queue->backend->swiglu_backward(queue, gate_up, dy, dgate_up);
}
