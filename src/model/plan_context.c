// SPDX-License-Identifier: Apache-2.0
/* Pieces of sequences: which tokens they have, and what a context group exchanges. */
#include "base/assert.h"
#include "model/plan_internal.h"

void ls_plan_take_pieces(ls_plan *plan)
{
    ls_plan_options *o = &plan->options;
    o->sequence_cut = o->training && o->sequence_cut > 1 ? o->sequence_cut : 1;
    o->context_degree = o->context_degree > 1 ? o->context_degree : 1;
    plan->pieces = o->sequence_cut / o->context_degree;
    plan->rows = o->sequences * o->length / o->sequence_cut;
    plan->run = o->sequence_cut > 1 ? o->length / (2 * o->sequence_cut) : o->length;
}

int64_t ls_plan_token(const ls_plan *plan, uint32_t piece, int64_t row)
{
    const ls_plan_options *o = &plan->options;
    LS_DCHECK(piece < plan->pieces && row >= 0 && row < plan->rows);
    if (o->sequence_cut == 1) {
        return row;
    }
    const int64_t number = (int64_t)o->context_member * plan->pieces + piece, at = row / plan->run;
    const int64_t run = at % 2 == 0 ? number : 2 * (int64_t)o->sequence_cut - 1 - number;
    return at / 2 * o->length + run * plan->run + row % plan->run;
}

/* ---- memory ---- */

static int64_t take(ls_plan *plan, int64_t rows)
{
    enum { ALIGN = 64 };
    const int64_t offset = plan->arena_floats;
    plan->arena_floats += (rows * plan->context.cols + ALIGN - 1) / ALIGN * ALIGN;
    return offset;
}

void ls_plan_place_pieces(ls_plan *plan)
{
    const ls_plan_options *o = &plan->options;
    plan->piece_floats = plan->arena_floats;
    if (o->sequence_cut == 1) {
        return;
    }
    ls_plan_context *c = &plan->context;
    const int64_t tokens = o->sequences * o->length;
    c->cols = 2 * plan->config.kv_heads * plan->config.head_dim;
    plan->arena_floats *= plan->pieces;
    c->keys = take(plan, tokens);
    c->gradients = take(plan, tokens);
    /* the first sum of a sequence is where the gradients go */
    c->sum_count = 31 - __builtin_clz(plan->pieces);
    c->sums = take(plan, (c->sum_count + 1) * o->length);
    c->own = o->context_degree > 1 ? take(plan, tokens / o->context_degree) : 0;
    plan->live_floats = plan->live_floats * plan->pieces + plan->arena_floats - c->keys;
}

/* ---- bytes ---- */

uint64_t ls_plan_context_floats(const ls_plan *plan, uint32_t step)
{
    LS_ASSERT(step < plan->step_count);
    const bool is_shared = plan->options.context_degree > 1;
    const uint64_t row = (uint64_t)plan->context.cols, own = (uint64_t)plan->rows * plan->pieces * row;
    if (!is_shared || plan->ops[plan->steps[step].op].kind != LS_OP_ATTENTION) {
        return 0;
    }
    /* keys and values; backward brings them again and adds up their gradients */
    return plan->steps[step].phase == LS_PHASE_FORWARD ? own : own + own * plan->options.context_degree;
}

uint64_t ls_plan_context_floats_given(const ls_plan *plan, uint32_t step)
{
    return (plan->options.context_degree - 1) * ls_plan_context_floats(plan, step);
}
