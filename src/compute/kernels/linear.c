// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/linear.h"

#include "compute/kernels/shape.h"

/* Levels of the tree over `pieces` leaves: partial sums that are alive at once beside the
 * result. */
static int64_t tree_levels(uint32_t pieces)
{
    int64_t levels = 0;
    for (uint32_t width = 1; width < pieces; width *= 2) {
        levels++;
    }
    return levels;
}

int64_t ls_linear_workspace_floats(int64_t n, int64_t in, int64_t out, uint32_t forward_cut,
                                   uint32_t backward_input_cut)
{
    const int64_t forward = forward_cut > 1 ? (tree_levels(forward_cut) + 1) * n * out : 0;
    const int64_t backward = backward_input_cut > 1 ? (tree_levels(backward_input_cut) + 1) * n * in : 0;
    return ls_max64(forward, backward);
}

static void check_weight(const ls_linear *linear, ls_dtype dtype)
{
    const ls_tensor *weight = &linear->weight;
    if (linear->packed_count == 0) {
        LS_ASSERT(ls_tensor_is(weight, dtype, weight->rows, weight->cols));
        return;
    }
    LS_ASSERT(!weight->data && linear->packed && linear->packed_count <= LS_LINEAR_SEGMENTS_MAX);
    int64_t out = 0;
    for (uint32_t i = 0; i < linear->packed_count; i++) {
        LS_ASSERT(linear->packed[i].kind != LS_PACKED_NONE && linear->packed[i].kind == linear->packed->kind);
        LS_ASSERT(linear->packed[i].cols == ls_linear_in(linear));
        out += linear->packed[i].rows;
    }
    LS_ASSERT(out == ls_linear_out(linear));
}

/* The outputs of the whole weight. */
static int64_t weight_out(const ls_linear *linear)
{
    return linear->layout == LS_WEIGHT_OUT_IN ? linear->weight.rows : linear->weight.cols;
}

static void check_linear(const ls_linear *linear, ls_dtype dtype)
{
    check_weight(linear, dtype);
    LS_ASSERT(ls_tensor_is_or_absent(&linear->bias, dtype, 1, weight_out(linear)));
    LS_ASSERT(linear->forward_cut >= 1 && ls_linear_in(linear) >= linear->forward_cut);
    LS_ASSERT(linear->backward_input_cut >= 1);
    LS_ASSERT(linear->segment_count >= 1 && linear->segment_count <= LS_LINEAR_SEGMENTS_MAX);
    int64_t end = 0;
    for (uint32_t s = 0; s < linear->segment_count; s++) {
        LS_ASSERT(linear->segment[s] >= linear->backward_input_cut && linear->skip[s] >= 0);
        end += linear->skip[s] + linear->segment[s];
    }
    LS_ASSERT(end == weight_out(linear) ||
              (end < weight_out(linear) && linear->packed_count == 0 && dtype == LS_F32));
}

ls_status ls_linear_forward(ls_queue *queue, const ls_linear *linear, const ls_tensor *x, const ls_tensor *y)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, x);
    const int64_t n = x->rows, in = ls_linear_in(linear), out = ls_linear_out(linear);
    check_linear(linear, dtype);
    LS_ASSERT(ls_tensor_is(x, dtype, n, in) && ls_tensor_is(y, dtype, n, out));
    LS_ASSERT(ls_tensor_is_workspace(&linear->workspace,
                                     ls_linear_workspace_floats(n, in, out, linear->forward_cut, 1)));
    return queue->backend->linear_forward(queue, linear, x, y);
}

ls_status ls_linear_backward_input(ls_queue *queue, const ls_linear *linear, const ls_tensor *dy,
                                   const ls_tensor *dx, bool accumulate)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, dy);
    const int64_t n = dy->rows, in = ls_linear_in(linear), out = ls_linear_out(linear);
    check_linear(linear, dtype);
    LS_ASSERT(ls_tensor_is(dy, dtype, n, out) && ls_tensor_is(dx, dtype, n, in));
    LS_ASSERT(ls_tensor_is_workspace(&linear->workspace,
                                     ls_linear_workspace_floats(n, in, out, 1, linear->backward_input_cut)));
    return queue->backend->linear_backward_input(queue, linear, dy, dx, accumulate);
}

ls_status ls_linear_backward_weight(ls_queue *queue, const ls_linear *linear, const ls_tensor *x,
                                    const ls_tensor *dy, const ls_tensor *dweight, const ls_tensor *dbias,
                                    bool accumulate)
{
    const ls_dtype dtype = ls_kernel_dtype(queue, x);
    const int64_t n = x->rows, out = ls_linear_out(linear);
    check_linear(linear, dtype);
    LS_ASSERT(ls_tensor_is(x, dtype, n, ls_linear_in(linear)) && ls_tensor_is(dy, dtype, n, out));
    LS_ASSERT(linear->packed_count == 0 || !ls_tensor_is_present(dweight));
    LS_ASSERT(ls_tensor_is_or_absent(dweight, LS_F32, linear->weight.rows, linear->weight.cols));
    LS_ASSERT(ls_tensor_is_or_absent(dbias, LS_F32, 1, weight_out(linear)));
    return queue->backend->linear_backward_weight(queue, linear, x, dy, dweight, dbias, accumulate);
}
