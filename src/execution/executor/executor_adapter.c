// SPDX-License-Identifier: Apache-2.0
/* Adapters: the products beside a frozen linear. */
#include "base/assert.h"
#include "compute/kernels/dropout.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/linear.h"
#include "execution/executor/executor_internal.h"

/* The matrices A of an adapter's segments, which are one; (ranks, in). */
static ls_linear adapter_down(const ls_executor *e, const ls_op *op, ls_flat from)
{
    const int64_t ranks = e->plan->values[op->low].cols;
    return (ls_linear){
        .weight = ls_executor_flat_view(e, from, op->weight, ranks, op->in_features),
        .layout = LS_WEIGHT_OUT_IN,
        .forward_cut = 1,
        .backward_input_cut = 1,
        .segment_count = 1,
        .segment = {ranks},
    };
}

/* One segment of an adapter. */
typedef struct adapter_part {
    int64_t first, width;     /* columns of the linear's output */
    int64_t low_first, ranks; /* columns of low */
    int32_t weight;           /* B (width, ranks) */
} adapter_part;

/* Sets the parts of the segments that have an adapter; returns how many. */
static uint32_t adapter_parts(const ls_executor *e, const ls_op *op, adapter_part parts_out[3])
{
    const int64_t rank = e->plan->layout->adapter->rank;
    uint32_t count = 0;
    int64_t first = 0;
    for (uint32_t s = 0; s < op->segment_count; s++) {
        if (op->segment_adapted[s]) {
            parts_out[count] =
                (adapter_part){first, op->segment[s], count * rank, rank, op->bias + (int32_t)count};
            count++;
        }
        first += op->segment[s];
    }
    return count;
}

/* B as a linear from the columns of the output to those of low: its input gradient is low B^T, its
 * product dy B, and its weight gradient dy^T low. */
static ls_linear adapter_up(const ls_executor *e, const adapter_part *part, ls_flat from)
{
    return (ls_linear){
        .weight = ls_executor_parameter_view(e, from, part->weight),
        .layout = LS_WEIGHT_IN_OUT,
        .forward_cut = 1,
        .backward_input_cut = 1,
        .segment_count = 1,
        .segment = {part->ranks},
    };
}

ls_status ls_executor_adapter_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_flat weights = ls_executor_weights(e, batch->weights);
    const ls_linear down = adapter_down(e, op, weights);
    const ls_tensor x = ls_executor_value(e, op->in[0]), y = ls_executor_value(e, op->out[0]);
    const ls_tensor low = ls_executor_value(e, op->low);
    adapter_part parts[3];
    const uint32_t count = adapter_parts(e, op, parts);
    LS_TRY(ls_linear_forward(e->queue, &down, &x, &low));
    LS_TRY(ls_scale(e->queue, &low, ls_adapter_scale(e->plan->layout->adapter)));
    for (uint32_t i = 0; i < count; i++) {
        const ls_linear up = adapter_up(e, &parts[i], weights);
        const ls_tensor part_y = ls_tensor_columns(y, parts[i].first, parts[i].width);
        const ls_tensor part_low = ls_tensor_columns(low, parts[i].low_first, parts[i].ranks);
        LS_TRY(ls_linear_backward_input(e->queue, &up, &part_low, &part_y, true));
    }
    return LS_OK;
}

ls_status ls_executor_adapter_backward_weight(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_flat weights = ls_executor_weights(e, batch->weights), gradients = ls_executor_gradients(batch);
    const ls_linear down = adapter_down(e, op, weights), ddown = adapter_down(e, op, gradients);
    const ls_tensor x = ls_executor_value(e, op->in[0]), dy = ls_executor_value(e, op->dout[0]);
    const ls_tensor low = ls_executor_value(e, op->low), dlow = ls_executor_value(e, op->dlow), none = {0};
    adapter_part parts[3];
    const uint32_t count = adapter_parts(e, op, parts);
    for (uint32_t i = 0; i < count; i++) {
        const ls_linear up = adapter_up(e, &parts[i], weights), dup = adapter_up(e, &parts[i], gradients);
        const ls_tensor part_dy = ls_tensor_columns(dy, parts[i].first, parts[i].width);
        const ls_tensor part_low = ls_tensor_columns(low, parts[i].low_first, parts[i].ranks);
        const ls_tensor part_dlow = ls_tensor_columns(dlow, parts[i].low_first, parts[i].ranks);
        LS_TRY(ls_linear_backward_weight(e->queue, &up, &part_dy, &part_low, &dup.weight, &none,
                                         batch->accumulate));
        LS_TRY(ls_linear_forward(e->queue, &up, &part_dy, &part_dlow));
    }
    LS_TRY(ls_scale(e->queue, &dlow, ls_adapter_scale(e->plan->layout->adapter)));
    return ls_linear_backward_weight(e->queue, &down, &x, &dlow, &ddown.weight, &none, batch->accumulate);
}

ls_status ls_executor_adapter_backward_input(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_linear down = adapter_down(e, op, ls_executor_weights(e, batch->weights));
    const ls_tensor dlow = ls_executor_value(e, op->dlow), dx = ls_executor_value(e, op->din[0]);
    return ls_linear_backward_input(e->queue, &down, &dlow, &dx, op->accumulate_din);
}

/* ---- dropout ---- */

static ls_dropout dropout_of(const ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    LS_ASSERT(batch->record && batch->pass);
    return (ls_dropout){.key = ls_random_stream(batch->dropout_seed, LS_RANDOM_DROPOUT),
                        .probability = e->plan->layout->adapter->dropout,
                        .length = e->plan->options.length,
                        .record = batch->record,
                        .first = batch->first,
                        .pass = batch->pass,
                        .site = op->site};
}

ls_status ls_executor_dropout_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_dropout dropout = dropout_of(e, op, batch);
    const ls_tensor x = ls_executor_value(e, op->in[0]), y = ls_executor_value(e, op->out[0]);
    return ls_dropout_apply(e->queue, &dropout, &x, &y, false);
}

ls_status ls_executor_dropout_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_dropout dropout = dropout_of(e, op, batch);
    const ls_tensor dy = ls_executor_value(e, op->dout[0]), dx = ls_executor_value(e, op->din[0]);
    return ls_dropout_apply(e->queue, &dropout, &dy, &dx, true);
}
