// SPDX-License-Identifier: Apache-2.0
/* What a member of a tensor group computes and exchanges. */
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
    c->expert_ffn /= degree;
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
    const bool is_forward = plan->steps[step].phase == LS_PHASE_FORWARD;
    if (plan->options.tensor_degree == 1) {
        return 0;
    }
    switch (op->kind) {
    case LS_OP_GATHER:
    case LS_OP_SCATTER:
        return op->alike && (op->kind == LS_OP_GATHER) != is_forward
                   ? 0
                   : n * (uint64_t)plan->values[op->out[0]].cols;
    case LS_OP_SUM: /* scattered, then gathered */
        return 2 * n * (uint64_t)(plan->config.experts_per_token * plan->config.width);
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
    if (kind == LS_OP_SUM && others > 0) {
        const uint32_t degree = plan->options.tensor_degree, member = plan->options.tensor_member;
        const int64_t visits = plan->rows * plan->config.experts_per_token;
        const int64_t mine =
            ls_piece_first(visits, degree, member + 1) - ls_piece_first(visits, degree, member);
        const uint64_t row = all / 2 / (uint64_t)visits; /* of all pieces of the sequences */
        return row * ((uint64_t)(visits - mine) + others * (uint64_t)mine);
    }
    return kind != LS_OP_GATHER && kind != LS_OP_SCATTER ? others * all
           : (kind == LS_OP_GATHER) == is_forward        ? others * own
                                                         : all - own;
}
