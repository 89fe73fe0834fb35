// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/linear.h"

#include "compute/cuda/column_sums.h"
#include "compute/cuda/matmul.h"

static ls_status check_cut(uint32_t pieces)
{
    if (pieces > 1) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "train.tensor_cut is %u: on a GPU it can only be 1, because the products of a linear layer "
            "cannot be cut there yet",
            pieces);
    }
    return LS_OK;
}

static ls_matmul_operand operand(const ls_tensor *t, bool transposed)
{
    return (ls_matmul_operand){.data = t->data, .stride = t->stride, .transposed = transposed};
}

ls_status ls_cuda_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                 const ls_tensor *y)
{
    LS_TRY(check_cut(linear->forward_cut));
    const ls_matmul product = {
        .m = x->rows,
        .n = y->cols,
        .k = x->cols,
        .a = operand(x, false),
        .b = operand(&linear->weight, linear->layout == LS_WEIGHT_OUT_IN),
        .dtype = x->dtype,
        .c = y->data,
        .c_stride = y->stride,
        .c_dtype = y->dtype,
        .bias = linear->bias.data,
    };
    return ls_cuda_matmul(ls_cuda_of(queue), &product);
}

ls_status ls_cuda_linear_backward_input(ls_queue *queue, const ls_linear *linear, const ls_tensor *dy,
                                        const ls_tensor *dx, bool accumulate)
{
    LS_TRY(check_cut(linear->backward_input_cut));
    const ls_matmul product = {
        .m = dy->rows,
        .n = dx->cols,
        .k = dy->cols,
        .a = operand(dy, false),
        .b = operand(&linear->weight, linear->layout == LS_WEIGHT_IN_OUT),
        .dtype = dy->dtype,
        .c = dx->data,
        .c_stride = dx->stride,
        .c_dtype = dx->dtype,
        .accumulate = accumulate,
    };
    return ls_cuda_matmul(ls_cuda_of(queue), &product);
}

ls_status ls_cuda_linear_backward_weight(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                         const ls_tensor *dy, const ls_tensor *dweight,
                                         const ls_tensor *dbias, bool accumulate)
{
    if (dweight && dweight->data) {
        const bool out_in = linear->layout == LS_WEIGHT_OUT_IN;
        const ls_matmul product = {
            .m = dweight->rows,
            .n = dweight->cols,
            .k = x->rows,
            .a = operand(out_in ? dy : x, true),
            .b = operand(out_in ? x : dy, false),
            .dtype = x->dtype,
            .c = dweight->data,
            .c_stride = dweight->stride,
            .c_dtype = dweight->dtype,
            .accumulate = accumulate,
        };
        LS_TRY(ls_cuda_matmul(ls_cuda_of(queue), &product));
    }
    if (dbias && dbias->data) {
        LS_TRY(ls_cuda_column_sums(ls_cuda_of(queue), dy, dbias, accumulate));
    }
    return LS_OK;
}
