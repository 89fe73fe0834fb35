// SPDX-License-Identifier: Apache-2.0
/* The head: logits, losses and their gradients. */
#include "base/assert.h"
#include "compute/kernels/cross_entropy.h"
#include "compute/kernels/linear.h"
#include "execution/executor/executor_internal.h"

/* The columns of a row of logits that there is room for. */
static int64_t padded_vocab(const ls_executor *e)
{
    const int64_t align = e->plan->options.logits_align > 0 ? e->plan->options.logits_align : 1;
    return (e->plan->config.vocab + align - 1) / align * align;
}

static ls_linear head_linear(const ls_executor *e, int32_t weight, const void *weights)
{
    const ls_tensor all = ls_executor_parameter_view(e, ls_executor_weights(e, weights), weight);
    return (ls_linear){
        .weight = ls_executor_vocabulary_rows(e, all),
        .layout = LS_WEIGHT_OUT_IN,
        .forward_cut = 1,
        .backward_input_cut = 1,
        .segment_count = 1,
        .segment = {e->plan->config.vocab},
        .padded_out = padded_vocab(e),
    };
}

/* Losses and gradients of a chunk of logits. The members of a tensor group have some columns each
 * and agree on the maximum and the sums of every row. */
static ls_status chunk_losses(ls_executor *e, const ls_op *op, const ls_executor_batch *batch, int64_t first,
                              const ls_tensor *logits)
{
    const bool training = e->plan->options.training;
    const int32_t *targets =
        ls_executor_local_ids(e, batch->targets + first, logits->rows, LS_TARGET_ELSEWHERE);
    float *losses = batch->losses + first;
    ls_vocabulary_cut cut = {.pieces = op->backward_input_cut};
    if (op->stats[0] == LS_NONE) {
        return ls_cross_entropy(e->queue, &cut, logits, targets, losses, training);
    }
    cut.statistics = ls_tensor_columns(ls_executor_value(e, op->stats[0]), 0, logits->rows);
    const ls_tensor tops = ls_tensor_rows(cut.statistics, 0, 1), sums = ls_tensor_rows(cut.statistics, 1, 2);
    cut.stage = LS_LOSS_TOPS;
    LS_TRY(ls_cross_entropy(e->queue, &cut, logits, targets, losses, training));
    LS_TRY(ls_executor_reduce(e, batch, LS_CREW_MAX, &tops));
    cut.stage = LS_LOSS_SUMS;
    LS_TRY(ls_cross_entropy(e->queue, &cut, logits, targets, losses, training));
    LS_TRY(ls_executor_reduce(e, batch, LS_CREW_SUM, &sums));
    cut.stage = LS_LOSS_END;
    return ls_cross_entropy(e->queue, &cut, logits, targets, losses, training);
}

/* Where the weight's gradient is summed up; absent if it is not wanted. */
static ls_tensor gradient_of(const ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    if (!e->plan->options.training) {
        return (ls_tensor){0};
    }
    return op->dweight != LS_NONE
               ? ls_executor_value(e, op->dweight)
               : ls_executor_vocabulary_rows(e, ls_executor_gradient_view(e, batch, op->weight));
}

/* Logits exist for chunk_rows tokens at a time: each chunk is computed, replaced by its own
 * gradient and consumed before the next one. */
static ls_status run_chunks(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    ls_linear linear = head_linear(e, op->weight, batch->weights);
    const ls_tensor hidden = ls_executor_value(e, op->in[0]), dhidden = ls_executor_value(e, op->din[0]);
    const ls_tensor all_logits = ls_executor_value(e, op->workspace), none = {0};
    const ls_tensor dweight = gradient_of(e, op, batch);
    LS_ASSERT(!(batch->accumulate && e->has_ended) && "the batch before was the last of its leaf");
    e->has_ended = false;
    linear.backward_input_cut = op->backward_input_cut;
    linear.workspace = ls_executor_value(e, op->stats[1]);
    for (int64_t first = 0; first < e->rows; first += op->chunk_rows) {
        const int64_t count = e->rows - first < op->chunk_rows ? e->rows - first : op->chunk_rows;
        const ls_tensor x = ls_tensor_rows(hidden, first, count);
        const ls_tensor logits = ls_tensor_rows(all_logits, 0, count);
        LS_TRY(ls_linear_forward(e->queue, &linear, &x, &logits));
        LS_TRY(chunk_losses(e, op, batch, first, &logits));
        if (dhidden.data) {
            const ls_tensor dx = ls_tensor_rows(dhidden, first, count);
            LS_TRY(ls_linear_backward_input(e->queue, &linear, &logits, &dx, false));
        }
        if (dweight.data) {
            LS_TRY(ls_linear_backward_weight(e->queue, &linear, &x, &logits, &dweight, &none,
                                             batch->accumulate || first > 0));
        }
    }
    return LS_OK;
}

/* The targets of a piece are brought into the order of its rows, its losses into that of tokens. */
ls_status ls_executor_head_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    if (e->plan->options.sequence_cut == 1) {
        return run_chunks(e, op, batch);
    }
    ls_executor_batch own = *batch;
    own.targets = e->targets;
    own.losses = (float *)(void *)(e->targets + e->rows);
    for (int64_t row = 0; row < e->rows; row++) {
        e->targets[row] = batch->targets[ls_plan_token(e->plan, e->piece, row)];
    }
    LS_TRY(run_chunks(e, op, &own));
    for (int64_t row = 0; row < e->rows; row++) {
        batch->losses[ls_plan_token(e->plan, e->piece, row)] = own.losses[row];
    }
    return LS_OK;
}

ls_status ls_executor_logits(ls_executor *e, const void *weights, const ls_tensor *hidden,
                             const ls_tensor *logits)
{
    const ls_layout *layout = e->plan->layout;
    const char *name = e->plan->config.tied ? NULL : "lm_head.weight";
    const ls_parameter *head = name ? ls_layout_find(layout, name) : &layout->parameters[layout->table];
    LS_ASSERT(head && head->rows == e->plan->config.vocab);
    const ls_linear linear = head_linear(e, (int32_t)(head - layout->parameters), weights);
    return ls_linear_forward(e->queue, &linear, hidden, logits);
}
