// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/norm.h"

#include "compute/kernels/shape.h"

static void check_norm(const ls_norm *norm, ls_dtype dtype, int64_t cols)
{
    LS_ASSERT(norm->groups >= 1 && cols >= 1 && cols % norm->groups == 0);
    const int64_t width = cols / norm->groups;
    LS_ASSERT(ls_tensor_is(&norm->weight, dtype, 1, width));
    LS_ASSERT(ls_tensor_is_or_absent(&norm->bias, dtype, 1, width));
    LS_ASSERT(norm->kind == LS_NORM_LAYER || !norm->bias.data);
}

static void check_statistics(const ls_norm *norm, int64_t rows, const ls_tensor *mean, const ls_tensor *rstd)
{
    LS_ASSERT(ls_tensor_is(rstd, LS_F32, rows, norm->groups));
    LS_ASSERT(norm->kind == LS_NORM_RMS ? !ls_tensor_is_present(mean)
                                        : ls_tensor_is(mean, LS_F32, rows, norm->groups));
}

ls_status ls_norm_forward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x, const ls_tensor *y,
                          const ls_tensor *mean, const ls_tensor *rstd)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, y);
    const int64_t n = y->rows, cols = y->cols;
    check_norm(norm, dtype, cols);
    check_statistics(norm, n, mean, rstd);
    LS_ASSERT(ls_tensor_is(x, dtype, n, cols) && ls_tensor_is(y, dtype, n, cols));
    return queue->backend->norm_forward(queue, norm, x, y, mean, rstd);
}

ls_status ls_norm_forward_residual(ls_queue *queue, const ls_norm *norm, const ls_tensor *a,
                                   const ls_tensor *b, const ls_tensor *sum, const ls_tensor *y,
                                   const ls_tensor *mean, const ls_tensor *rstd)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, y);
    const int64_t n = y->rows, cols = y->cols;
    check_norm(norm, dtype, cols);
    check_statistics(norm, n, mean, rstd);
    LS_ASSERT(ls_tensor_is(a, dtype, n, cols) && ls_tensor_is(b, dtype, n, cols));
    LS_ASSERT(ls_tensor_is(sum, dtype, n, cols) && ls_tensor_is(y, dtype, n, cols));
    return queue->backend->norm_forward_residual(queue, norm, a, b, sum, y, mean, rstd);
}

ls_status ls_norm_backward(ls_queue *queue, const ls_norm *norm, const ls_tensor *x, const ls_tensor *dy,
                           const ls_tensor *mean, const ls_tensor *rstd, const ls_tensor *dx,
                           bool accumulate_input, const ls_tensor *dweight, const ls_tensor *dbias,
                           bool accumulate_weight, const ls_tensor *workspace)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, x);
    const int64_t n = x->rows, cols = x->cols;
    check_norm(norm, dtype, cols);
    check_statistics(norm, n, mean, rstd);
    LS_ASSERT(ls_tensor_is(x, dtype, n, cols) && ls_tensor_is(dy, dtype, n, cols));
    LS_ASSERT(ls_tensor_is(dx, dtype, n, cols) && (!accumulate_input || dx->data != dy->data));
    LS_ASSERT(ls_tensor_is_or_absent(dweight, LS_F32, 1, cols / norm->groups));
    LS_ASSERT(ls_tensor_is_or_absent(dbias, LS_F32, 1, cols / norm->groups));
    LS_ASSERT(ls_tensor_is_workspace(workspace, queue->backend->norm_workspace(n, cols, norm->groups)));
    return queue->backend->norm_backward(queue, norm, x, dy, mean, rstd, dx, accumulate_input, dweight, dbias,
                                         accumulate_weight, workspace);
}

int64_t ls_norm_workspace_floats(const ls_queue *queue, int64_t n, int64_t cols, int64_t groups)
{
    return (queue ? queue->backend : &ls_cpu_backend)->norm_workspace(n, cols, groups);
}
