// SPDX-License-Identifier: Apache-2.0
/* Norms of rows, and of the heads of queries and keys. */
#include "base/pieces.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/norm.h"
#include "execution/executor/executor_internal.h"

/* ---- sums over pieces ---- */

/* Adds up the gradients that each piece of the cut has made, in the tree over the pieces, then over
 * the members of the group. `sums` has a row for each piece: the gradients of `count` parameters of
 * equal size, of which LS_NONE are skipped. */
static ls_status add_pieces(ls_executor *e, const ls_executor_batch *batch, const ls_tensor *sums,
                            const int32_t *parameters, int count)
{
    const int64_t cols = sums->cols / count;
    for (int64_t step = 1; step < sums->rows; step *= 2) {
        for (int64_t i = 0; i + step < sums->rows; i += 2 * step) {
            const ls_tensor left = ls_tensor_rows(*sums, i, 1), right = ls_tensor_rows(*sums, i + step, 1);
            LS_TRY(ls_add(e->queue, &left, &right, &left));
        }
    }
    for (int k = 0; k < count; k++) {
        if (!ls_executor_gradient_view(e, batch, parameters[k]).data) {
            continue;
        }
        const ls_tensor sum = ls_tensor_columns(ls_tensor_rows(*sums, 0, 1), k * cols, cols);
        const ls_tensor gradient = ls_executor_common_gradient_view(e, batch, parameters[k]);
        LS_TRY(ls_executor_reduce(e, batch, LS_CREW_SUM, &sum));
        if (gradient.data && batch->accumulate) {
            LS_TRY(ls_add(e->queue, &gradient, &sum, &gradient));
        } else if (gradient.data) {
            LS_TRY(ls_copy(e->queue, &sum, &gradient));
        }
    }
    return LS_OK;
}

/* The rows of a workspace for add_pieces: at its end, after what kernels use. */
static ls_tensor piece_sums(const ls_executor *e, const ls_op *op, int64_t cols)
{
    const ls_tensor space = ls_executor_value(e, op->workspace);
    const int64_t pieces = op->backward_input_cut;
    return ls_tensor_of(ls_tensor_at(&space, 0, space.cols - pieces * cols), LS_F32, pieces, cols);
}

/* ---- norms ---- */

static ls_norm norm_of(const ls_executor *e, const void *weights, int32_t weight, int32_t bias,
                       int64_t groups)
{
    const ls_model_config *config = &e->plan->config;
    return (ls_norm){
        .kind = config->rms_norm ? LS_NORM_RMS : LS_NORM_LAYER,
        .eps = (float)config->norm_eps,
        .groups = groups,
        .weight = ls_executor_parameter_view(e, ls_executor_weights(e, weights), weight),
        .bias = ls_executor_parameter_view(e, ls_executor_weights(e, weights), bias),
    };
}

/* LS_OP_NORM, or LS_OP_ADD_NORM, which first adds two values. */
ls_status ls_executor_norm_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_norm norm = norm_of(e, batch->weights, op->weight, op->bias, 1);
    const ls_tensor a = ls_executor_value(e, op->in[0]), b = ls_executor_value(e, op->in[1]);
    const ls_tensor out = ls_executor_value(e, op->out[0]), y = ls_executor_value(e, op->out[1]);
    const ls_tensor mean = ls_executor_value(e, op->stats[0]), rstd = ls_executor_value(e, op->stats[1]);
    return op->kind == LS_OP_ADD_NORM
               ? ls_norm_forward_residual(e->queue, &norm, &a, &b, &out, &y, &mean, &rstd)
               : ls_norm_forward(e->queue, &norm, &a, &out, &mean, &rstd);
}

/* What the gradient of a norm reads and writes, row by row. */
typedef struct norm_rows {
    ls_tensor x, dy, mean, rstd, dx;
} norm_rows;

static norm_rows some_rows(const norm_rows *all, int64_t first, int64_t count)
{
    return (norm_rows){ls_tensor_rows(all->x, first, count), ls_tensor_rows(all->dy, first, count),
                       all->mean.data ? ls_tensor_rows(all->mean, first, count) : all->mean,
                       ls_tensor_rows(all->rstd, first, count), ls_tensor_rows(all->dx, first, count)};
}

/* With a canonical cut, the gradients of the weights are summed per piece of the rows. */
static ls_status norm_backward_pieces(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                                      const ls_norm *norm, const norm_rows *all)
{
    const int64_t width = all->x.cols;
    const uint32_t pieces = op->backward_input_cut;
    const int count = op->bias == LS_NONE ? 1 : 2;
    const int32_t parameters[2] = {op->weight, op->bias};
    const ls_tensor workspace = ls_executor_value(e, op->workspace), sums = piece_sums(e, op, count * width);
    for (uint32_t i = 0; i < pieces; i++) {
        const int64_t first = ls_piece_first(all->x.rows, pieces, i);
        const norm_rows r = some_rows(all, first, ls_piece_first(all->x.rows, pieces, i + 1) - first);
        const ls_tensor row = ls_tensor_rows(sums, i, 1), dweight = ls_tensor_columns(row, 0, width);
        const ls_tensor dbias = count > 1 ? ls_tensor_columns(row, width, width) : (ls_tensor){0};
        LS_TRY(ls_norm_backward(e->queue, norm, &r.x, &r.dy, &r.mean, &r.rstd, &r.dx, op->accumulate_din,
                                &dweight, &dbias, false, &workspace));
    }
    return add_pieces(e, batch, &sums, parameters, count);
}

/* The normalised tensor is in[0] of a norm and out[0], the sum, of an add_norm; both put their
 * input gradient into din[0]. */
ls_status ls_executor_norm_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const bool joins = op->kind == LS_OP_ADD_NORM;
    const ls_norm norm = norm_of(e, batch->weights, op->weight, op->bias, 1);
    const ls_tensor dweight = ls_executor_common_gradient_view(e, batch, op->weight);
    const ls_tensor dbias = ls_executor_common_gradient_view(e, batch, op->bias);
    const norm_rows rows = {ls_executor_value(e, joins ? op->out[0] : op->in[0]),
                            ls_executor_value(e, op->dout[joins]), ls_executor_value(e, op->stats[0]),
                            ls_executor_value(e, op->stats[1]), ls_executor_value(e, op->din[0])};
    if (e->plan->options.tensor_cut > 1) {
        return norm_backward_pieces(e, op, batch, &norm, &rows);
    }
    const ls_tensor workspace = ls_executor_value(e, op->workspace);
    return ls_norm_backward(e->queue, &norm, &rows.x, &rows.dy, &rows.mean, &rows.rstd, &rows.dx,
                            op->accumulate_din, &dweight, &dbias, batch->accumulate, &workspace);
}

/* ---- query and key norm ---- */

/* Queries and keys are adjacent: query heads, then key heads. */
ls_status ls_executor_qk_norm_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_model_config *config = &e->plan->config;
    const int64_t first[2] = {0, config->heads}, count[2] = {config->heads, config->kv_heads};
    const int32_t weight[2] = {op->weight, op->bias};
    const int64_t dim = config->head_dim;
    const ls_tensor no_mean = {0};
    for (int part = 0; part < 2; part++) {
        const ls_norm norm = norm_of(e, batch->weights, weight[part], LS_NONE, count[part]);
        const ls_tensor x =
            ls_tensor_columns(ls_executor_value(e, op->in[0]), first[part] * dim, count[part] * dim);
        const ls_tensor y =
            ls_tensor_columns(ls_executor_value(e, op->out[0]), first[part] * dim, count[part] * dim);
        const ls_tensor rstd =
            ls_tensor_columns(ls_executor_value(e, op->stats[1]), first[part], count[part]);
        LS_TRY(ls_norm_forward(e->queue, &norm, &x, &y, &no_mean, &rstd));
    }
    return LS_OK;
}

/* Some heads: of the queries, or of the keys, which follow them. */
typedef struct head_range {
    int64_t first, count;
    int32_t weight;
} head_range;

static ls_status qk_norm_backward_heads(ls_executor *e, const ls_op *op, const ls_executor_batch *batch,
                                        head_range heads, const ls_tensor *dweight, bool accumulate)
{
    const int64_t dim = e->plan->config.head_dim, first = heads.first * dim, cols = heads.count * dim;
    const ls_norm norm = norm_of(e, batch->weights, heads.weight, LS_NONE, heads.count);
    const ls_tensor x = ls_tensor_columns(ls_executor_value(e, op->in[0]), first, cols);
    const ls_tensor dy = ls_tensor_columns(ls_executor_value(e, op->dout[0]), first, cols);
    const ls_tensor dx = ls_tensor_columns(ls_executor_value(e, op->din[0]), first, cols);
    const ls_tensor rstd = ls_tensor_columns(ls_executor_value(e, op->stats[1]), heads.first, heads.count);
    const ls_tensor workspace = ls_executor_value(e, op->workspace), none = {0};
    return ls_norm_backward(e->queue, &norm, &x, &dy, &none, &rstd, &dx, false, dweight, &none, accumulate,
                            &workspace);
}

/* With a canonical cut, the gradients of the weights are summed per piece of the heads. */
ls_status ls_executor_qk_norm_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_model_config *config = &e->plan->config;
    const int64_t dim = config->head_dim, pieces = op->backward_input_cut;
    const int64_t first[2] = {0, config->heads}, count[2] = {config->heads, config->kv_heads};
    const int32_t weight[2] = {op->weight, op->bias};
    const bool is_cut = e->plan->options.tensor_cut > 1;
    const ls_tensor sums = piece_sums(e, op, is_cut ? 2 * dim : 0);
    for (int part = 0; part < 2; part++) {
        const ls_tensor dweight = ls_executor_gradient_view(e, batch, weight[part]);
        for (int64_t piece = 0; piece < pieces; piece++) {
            const int64_t heads = count[part] / pieces;
            const head_range range = {first[part] + piece * heads, heads, weight[part]};
            const ls_tensor row = ls_tensor_columns(ls_tensor_rows(sums, piece, 1), part * dim, dim);
            LS_TRY(qk_norm_backward_heads(e, op, batch, range, is_cut ? &row : &dweight,
                                          !is_cut && batch->accumulate));
        }
    }
    return is_cut ? add_pieces(e, batch, &sums, weight, 2) : LS_OK;
}
