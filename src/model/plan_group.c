// SPDX-License-Identifier: Apache-2.0
/* What a member of a tensor group computes, exchanges and contributes to gradients. */
#include "base/assert.h"
#include "base/pieces.h"
#include "model/plan_layer.h"

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
    plan->own_rows =
        ls_piece_first(plan->rows, degree, member + 1) - ls_piece_first(plan->rows, degree, member);
}

/* ---- exchanges ---- */

/* An op that exchanges `own`, of which members have some rows each, with a value of all rows, which
 * is the result; in a process alone, none. */
static int32_t add_exchange(builder *b, ls_op_kind kind, int32_t own, int32_t *op_out)
{
    *op_out = LS_NONE;
    if (b->plan->options.tensor_degree == 1) {
        return own;
    }
    const bool gathers = kind == LS_OP_GATHER;
    const int32_t all = add_value(b, gathers ? "gathered" : "partial", b->n, b->plan->values[own].cols);
    *op_out = add_op(b, kind);
    op_at(b, *op_out)->in[0] = gathers ? own : all;
    op_at(b, *op_out)->out[0] = gathers ? all : own;
    return all;
}

int32_t ls_plan_gather(builder *b, int32_t own, int32_t *op_out)
{
    return add_exchange(b, LS_OP_GATHER, own, op_out);
}

int32_t ls_plan_scatter(builder *b, int32_t own, int32_t bias, int32_t *op_out)
{
    const int32_t partial = add_exchange(b, LS_OP_SCATTER, own, op_out);
    if (*op_out != LS_NONE) {
        op_at(b, *op_out)->bias = bias;
    }
    return partial;
}

static uint64_t trained_columns(const ls_plan *plan, int32_t parameter)
{
    const ls_parameter *p = parameter == LS_NONE ? NULL : &plan->layout->parameters[parameter];
    return p && !p->frozen ? (uint64_t)p->cols : 0;
}

uint64_t ls_plan_exchanged_floats(const ls_plan *plan, uint32_t step)
{
    LS_ASSERT(step < plan->step_count);
    const ls_op *op = &plan->ops[plan->steps[step].op];
    const uint64_t n = (uint64_t)plan->rows * plan->pieces;
    if (plan->options.tensor_degree == 1) {
        return 0;
    }
    switch (op->kind) {
    case LS_OP_GATHER:
    case LS_OP_SCATTER:
        return n * (uint64_t)plan->values[op->out[0]].cols;
    case LS_OP_NORM:
    case LS_OP_ADD_NORM:
    case LS_OP_QK_NORM:
        return plan->steps[step].phase == LS_PHASE_BACKWARD_INPUT
                   ? (trained_columns(plan, op->weight) + trained_columns(plan, op->bias)) * plan->pieces
                   : 0;
    case LS_OP_HEAD_LOSS:
        return 3 * n; /* the statistics of the losses */
    default:
        return 0;
    }
}

uint64_t ls_plan_tensor_floats_given(const ls_plan *plan, uint32_t step)
{
    const uint64_t all = ls_plan_exchanged_floats(plan, step), others = plan->options.tensor_degree - 1;
    const ls_op_kind kind = plan->ops[plan->steps[step].op].kind;
    const bool is_forward = plan->steps[step].phase == LS_PHASE_FORWARD;
    const uint64_t own = all / (uint64_t)plan->rows * (uint64_t)plan->own_rows;
    return kind != LS_OP_GATHER && kind != LS_OP_SCATTER ? others * all
           : (kind == LS_OP_GATHER) == is_forward        ? others * own
                                                         : all - own;
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
