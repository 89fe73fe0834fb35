// SPDX-License-Identifier: Apache-2.0
/* What a member of a tensor group contributes: sums over the group, and parts of gradients. */
#include "base/assert.h"
#include "base/pieces.h"
#include "model/plan_internal.h"

/* ---- the share of a member ---- */

void ls_plan_take_share(ls_plan *plan)
{
    ls_model_config *c = &plan->config;
    const uint32_t degree = plan->options.tensor_degree, member = plan->options.tensor_member;
    c->heads /= degree;
    c->kv_heads /= degree;
    c->ffn /= degree;
    plan->vocab_first = ls_piece_first(c->vocab, degree, member);
    c->vocab = ls_piece_first(c->vocab, degree, member + 1) - plan->vocab_first;
}

/* ---- sums over the group ---- */

static bool is_trained(const ls_plan *plan, int32_t parameter)
{
    return parameter != LS_NONE && !plan->layout->parameters[parameter].frozen;
}

/* The chunks' statistics, and the gradient of the last norm's output. */
static uint64_t head_floats(const ls_plan *plan, const ls_op *op, uint64_t n)
{
    const uint64_t dhidden = op->din[0] == LS_NONE ? 0 : n * (uint64_t)plan->config.width;
    return 3 * n + dhidden;
}

uint64_t ls_plan_reduced_floats(const ls_plan *plan, uint32_t step)
{
    LS_ASSERT(step < plan->step_count);
    const ls_op *op = &plan->ops[plan->steps[step].op];
    const ls_phase phase = plan->steps[step].phase;
    const uint64_t n = (uint64_t)plan->rows * plan->pieces;
    if (plan->options.tensor_degree == 1) {
        return 0;
    }
    switch (op->kind) {
    case LS_OP_EMBEDDING:
        return phase == LS_PHASE_FORWARD ? n * (uint64_t)plan->config.width : 0;
    case LS_OP_LINEAR:
        if (phase == LS_PHASE_FORWARD && op->split == LS_LINEAR_SPLIT_IN) {
            return n * (uint64_t)op->out_features;
        }
        return phase == LS_PHASE_BACKWARD_INPUT && op->split == LS_LINEAR_SPLIT_OUT
                   ? n * (uint64_t)op->in_features
                   : 0;
    case LS_OP_QK_NORM:
        return phase == LS_PHASE_BACKWARD_INPUT &&
                       (is_trained(plan, op->weight) || is_trained(plan, op->bias))
                   ? 2 * (uint64_t)plan->config.head_dim * plan->pieces
                   : 0;
    case LS_OP_HEAD_LOSS:
        return head_floats(plan, op, n);
    default:
        return 0;
    }
}

/* ---- parts of gradients ---- */

static ls_gradient_part whole(const ls_parameter *p)
{
    return (ls_gradient_part){.rows = p->rows, .cols = p->cols, .blocks = 1, .block_cols = p->cols};
}

static ls_gradient_part some_rows(const ls_parameter *p, int64_t first, int64_t count)
{
    ls_gradient_part part = whole(p);
    part.row = first;
    part.rows = count;
    return part;
}

/* Part `member` of `degree` of each of `blocks` equal blocks of columns. */
static ls_gradient_part some_columns(const ls_parameter *p, uint32_t blocks, uint32_t degree, uint32_t member)
{
    ls_gradient_part part = whole(p);
    part.blocks = blocks;
    part.block_cols = p->cols / blocks;
    part.cols = part.block_cols / degree;
    part.col = member * part.cols;
    return part;
}

/* Of a linear's weight or bias, which is parameter `index`. */
static ls_gradient_part linear_part(const ls_plan *plan, const ls_op *op, uint32_t index, bool is_bias)
{
    const ls_parameter *p = &plan->layout->parameters[index];
    const uint32_t degree = plan->options.tensor_degree, member = plan->options.tensor_member;
    const uint32_t blocks = op->weight_in_out ? op->segment_count : 1;
    const bool by_columns = is_bias || op->weight_in_out == (op->split == LS_LINEAR_SPLIT_OUT);
    if (op->split == LS_LINEAR_SPLIT_NONE || (is_bias && op->split == LS_LINEAR_SPLIT_IN)) {
        return member == 0 ? whole(p) : (ls_gradient_part){0};
    }
    if (by_columns) {
        return some_columns(p, op->split == LS_LINEAR_SPLIT_OUT ? blocks : 1, degree, member);
    }
    const int64_t rows = p->rows / degree;
    return some_rows(p, member * rows, rows);
}

/* Whether parameter `index` is one of the tensors of a linear that begin with `first`. */
static bool is_among(const ls_op *op, int32_t first, int32_t index)
{
    const int32_t count = op->weight_in_out ? 1 : (int32_t)op->segment_count;
    return first != LS_NONE && index >= first && index < first + count;
}

/* What an op of the plan writes of the gradient of parameter `index`. */
static ls_gradient_part op_part(const ls_plan *plan, const ls_op *op, uint32_t index)
{
    const ls_parameter *p = &plan->layout->parameters[index];
    const int32_t parameter = (int32_t)index;
    const bool has_vocabulary = op->kind == LS_OP_EMBEDDING || op->kind == LS_OP_HEAD_LOSS;
    if (op->kind == LS_OP_HEAD_LOSS && op->dweight != LS_NONE) {
        return (ls_gradient_part){0}; /* it writes a value; the embedding adds that */
    }
    if (op->kind == LS_OP_LINEAR && is_among(op, op->weight, parameter)) {
        return linear_part(plan, op, index, false);
    }
    if (op->kind == LS_OP_LINEAR && is_among(op, op->bias, parameter)) {
        return linear_part(plan, op, index, true);
    }
    if (has_vocabulary && op->weight == parameter) {
        return some_rows(p, plan->vocab_first, plan->config.vocab);
    }
    const bool is_common = op->weight == parameter || op->bias == parameter || op->kind == LS_OP_ADAPTER;
    return is_common && plan->options.tensor_member == 0 ? whole(p) : (ls_gradient_part){0};
}

ls_gradient_part ls_plan_gradient_part(const ls_plan *plan, uint32_t parameter)
{
    LS_ASSERT(parameter < plan->layout->parameter_count);
    ls_gradient_part part = {0};
    const bool is_trained = !plan->layout->parameters[parameter].frozen;
    for (uint32_t i = 0; i < plan->op_count && is_trained && part.rows == 0; i++) {
        part = op_part(plan, &plan->ops[i], parameter);
    }
    return part;
}
