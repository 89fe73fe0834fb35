// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/ops_cuda.h"

#include "compute/cuda/column_sums.h"
#include "compute/cuda/matmul.h"

static ls_status check_supported(const ls_linear *linear, uint32_t pieces)
{
    if (linear->packed_count > 0) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "adapter.base asks for packed weights, which only a CPU computes with: set adapter.base: "
            "fp32");
    }
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

/* Columns of y that a product computes: the padded ones if y has room for them. */
static int64_t columns_of(const ls_linear *linear, const ls_tensor *y)
{
    const bool has_room = linear->padded_out > y->cols && y->stride >= linear->padded_out;
    return has_room && linear->layout == LS_WEIGHT_OUT_IN ? linear->padded_out : y->cols;
}

ls_status ls_cuda_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                 const ls_tensor *y)
{
    LS_TRY(check_supported(linear, linear->forward_cut));
    const ls_matmul product = {
        .m = x->rows,
        .n = columns_of(linear, y),
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
    LS_TRY(check_supported(linear, linear->backward_input_cut));
    const ls_matmul product = {
        .m = dy->rows,
        .n = dx->cols,
        .k = columns_of(linear, dy),
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

/* dweight = or += a^T b; the columns of a are the rows of dweight. */
static ls_status weight_rows(ls_queue_cuda *queue, const ls_tensor *a, const ls_tensor *b,
                             const ls_tensor *dweight, bool accumulate)
{
    const ls_matmul product = {
        .m = dweight->rows,
        .n = dweight->cols,
        .k = a->rows,
        .a = operand(a, true),
        .b = operand(b, false),
        .dtype = a->dtype,
        .c = dweight->data,
        .c_stride = dweight->stride,
        .c_dtype = dweight->dtype,
        .accumulate = accumulate,
    };
    return ls_cuda_matmul(queue, &product);
}

/* Products like rows that are a multiple of this; a vocabulary of 50,257 is not, so the rows beyond
 * are a product of their own. */
enum { WEIGHT_ROWS = 256, WEIGHT_ROWS_MANY = 16 * WEIGHT_ROWS };

static ls_status weight_gradient(ls_queue_cuda *queue, const ls_tensor *a, const ls_tensor *b,
                                 const ls_tensor *dweight, bool accumulate)
{
    const int64_t rest = dweight->rows % WEIGHT_ROWS, even = dweight->rows - rest;
    if (rest % 8 == 0 || even < WEIGHT_ROWS_MANY) {
        return weight_rows(queue, a, b, dweight, accumulate);
    }
    const ls_tensor first = ls_tensor_columns(*a, 0, even), second = ls_tensor_columns(*a, even, rest);
    const ls_tensor upper = ls_tensor_rows(*dweight, 0, even), lower = ls_tensor_rows(*dweight, even, rest);
    LS_TRY(weight_rows(queue, &first, b, &upper, accumulate));
    return weight_rows(queue, &second, b, &lower, accumulate);
}

ls_status ls_cuda_linear_backward_weight(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                         const ls_tensor *dy, const ls_tensor *dweight,
                                         const ls_tensor *dbias, bool accumulate)
{
    if (dweight && dweight->data) {
        const bool out_in = linear->layout == LS_WEIGHT_OUT_IN;
        LS_TRY(weight_gradient(ls_cuda_of(queue), out_in ? dy : x, out_in ? x : dy, dweight, accumulate));
    }
    if (dbias && dbias->data) {
        LS_TRY(ls_cuda_column_sums(ls_cuda_of(queue), dy, dbias, accumulate));
    }
    return LS_OK;
}
