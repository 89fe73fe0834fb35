// SPDX-License-Identifier: Apache-2.0
/* The part of a plan for layers with experts: from the second norm to the branch that joins the
 * stream. */
#include "model/plan_layer.h"

/* Visits of own tokens. */
static int64_t rows_of(const builder *b)
{
    return b->n * b->config->experts_per_token;
}

/* A token visits an expert once. */
int64_t ls_plan_expert_rows(const ls_plan *plan)
{
    const ls_model_config *c = &plan->config;
    const int64_t degree = plan->options.expert_degree, own = c->experts / degree;
    const int64_t most = c->experts_per_token < own ? c->experts_per_token : own;
    return degree * plan->rows * most;
}

static bool is_grouped(const builder *b)
{
    return b->plan->options.expert_degree > 1;
}

void ls_plan_expert_dispatch_again(builder *b, expert_values *v)
{
    const int64_t width = b->config->width;
    v->dispatched = add_value(b, "dispatched", rows_of(b), width);
    v->arrived = is_grouped(b) ? add_value(b, "arrived", ls_plan_expert_rows(b->plan), width) : v->dispatched;
}

expert_values ls_plan_expert_values(builder *b)
{
    const ls_model_config *c = b->config;
    if (c->experts == 0) {
        return (expert_values){LS_NONE, LS_NONE, LS_NONE, LS_NONE, LS_NONE, LS_NONE, LS_NONE};
    }
    const int64_t members = is_grouped(b) ? b->plan->options.expert_degree : 0;
    expert_values v = {
        .scores = add_value(b, "expert scores", b->n, c->experts),
        .weights = add_float_value(b, "expert weights", b->n, c->experts_per_token),
        .routes = add_value(b, "routes", 1, (1 + members) * (c->experts + 1) + 3 * rows_of(b)),
    };
    ls_plan_expert_dispatch_again(b, &v);
    v.returned = add_value(b, "returned", rows_of(b), c->width);
    v.given = is_grouped(b) ? add_value(b, "given", ls_plan_expert_rows(b->plan), c->width) : v.returned;
    b->plan->values[v.routes].dtype = LS_I32;
    return v;
}

enum { PAGE_FLOATS = (2 << 20) / sizeof(float) };

uint64_t ls_plan_unvisited_bytes(ls_arena *arena, const ls_plan *plan)
{
    const int64_t most = ls_plan_expert_rows(plan), even = plan->rows * plan->config.experts_per_token;
    const int64_t pages = plan->arena_floats / PAGE_FLOATS; /* whole ones */
    bool *used = ls_arena_new(arena, bool, (size_t)pages + 1);
    uint64_t bytes = 0;
    if (plan->options.expert_degree == 1) {
        return 0;
    }
    for (uint32_t i = 0; i < plan->value_count * plan->options.slots * plan->pieces; i++) {
        const int32_t index = (int32_t)(i % plan->value_count);
        const uint32_t slot = i / plan->value_count % plan->options.slots;
        const uint32_t piece = i / plan->value_count / plan->options.slots;
        ls_value value = plan->values[index];
        value.rows = value.rows == most ? even : value.rows;
        const int64_t first = piece * plan->piece_floats + ls_plan_offset(plan, index, slot);
        const int64_t past = value.first_step < 0 ? first : first + ls_value_span(&value);
        for (int64_t page = first / PAGE_FLOATS; page * PAGE_FLOATS < past; page++) {
            used[page] = true;
        }
    }
    /* beyond the pieces: keys and values of all tokens */
    for (int64_t page = 0; page < pages && (page + 1) * PAGE_FLOATS <= plan->pieces * plan->piece_floats;
         page++) {
        bytes += used[page] ? 0 : PAGE_FLOATS * sizeof(float);
    }
    return bytes;
}

uint64_t ls_plan_visit_floats(const ls_plan *plan, uint32_t step, uint64_t crossing)
{
    LS_ASSERT(step < plan->step_count);
    const ls_op_kind kind = plan->ops[plan->steps[step].op].kind;
    const uint64_t degree = plan->options.expert_degree;
    const bool tells = kind == LS_OP_TO_EXPERTS && plan->steps[step].phase == LS_PHASE_FORWARD;
    if (kind != LS_OP_TO_EXPERTS && kind != LS_OP_FROM_EXPERTS) {
        return 0;
    }
    return plan->pieces * (crossing * (uint64_t)plan->config.width +
                           (degree - 1) * (2 * degree + (tells ? (uint64_t)plan->config.experts + 1 : 0)));
}

/* ---- ops ---- */

/* An op that reads or writes the routes. */
static int32_t add_routed(builder *b, ls_op_kind kind, const layer_values *v, int32_t in, int32_t out)
{
    const int32_t index = add_op(b, kind);
    op_at(b, index)->in[0] = in;
    op_at(b, index)->out[0] = out;
    op_at(b, index)->routes = v->experts.routes;
    return index;
}

/* One that brings rows between members. */
static int32_t add_visit(builder *b, ls_op_kind kind, const layer_values *v, int32_t in, int32_t out)
{
    return is_grouped(b) ? add_routed(b, kind, v, in, out) : LS_NONE;
}

static linear_ops add_expert_linear(builder *b, const layer_values *v, int32_t in, int32_t out,
                                    int32_t weight)
{
    const int32_t index = add_linear(b, in, out, weight, LS_NONE);
    op_at(b, index)->kind = LS_OP_EXPERT_LINEAR;
    op_at(b, index)->routes = v->experts.routes;
    return linear_alone(index);
}

/* A gather or scatter of rows that all members of a tensor group have alike. */
static void set_alike(builder *b, int32_t index)
{
    if (index != LS_NONE) {
        op_at(b, index)->alike = true;
    }
}

static int32_t add_sum(builder *b, int32_t returned)
{
    if (b->plan->options.tensor_degree == 1) {
        return LS_NONE;
    }
    const int32_t index = add_op(b, LS_OP_SUM);
    const int64_t own = (rows_of(b) + b->plan->options.tensor_degree - 1) / b->plan->options.tensor_degree;
    const int32_t workspace = add_scratch(b, "own visits", own * b->config->width);
    op_at(b, index)->in[0] = op_at(b, index)->out[0] = returned;
    op_at(b, index)->workspace = workspace;
    return index;
}

void ls_plan_expert_ops(builder *b, const layer_values *v, const layer_parameters *p, layer_ops *ops)
{
    const expert_values *e = &v->experts;
    const int64_t ffn = b->config->expert_ffn;
    const int32_t normed = ls_plan_gather(b, v->normed_2, &ops->experts.gather);
    set_alike(b, ops->experts.gather);
    ops->experts.router = add_linear(b, normed, e->scores, p->router, LS_NONE);
    ops->experts.route = add_routed(b, LS_OP_ROUTE, v, e->scores, e->scores);
    op_at(b, ops->experts.route)->out[1] = e->weights;
    ops->experts.dispatch = add_routed(b, LS_OP_DISPATCH, v, normed, e->dispatched);
    ops->experts.to_experts = add_visit(b, LS_OP_TO_EXPERTS, v, e->dispatched, e->arrived);
    ops->linears[UP] = add_expert_linear(b, v, e->arrived, v->up, p->up);
    if (b->plan->options.tensor_cut > 1) { /* else the sums are those of one segment, as ever */
        set_segments(b, ops->linears[UP].linear, 2, (const int64_t[]){ffn, ffn});
    }
    ls_plan_set_cut(b, ops->linears[UP].linear, LS_LINEAR_SPLIT_OUT);
    ops->activate = add_op(b, LS_OP_SWIGLU);
    op_at(b, ops->activate)->in[0] = v->up;
    op_at(b, ops->activate)->out[0] = v->activated;
    op_at(b, ops->activate)->routes = is_grouped(b) ? e->routes : LS_NONE;
    ops->linears[DOWN] = add_expert_linear(b, v, v->activated, e->given, p->down);
    ls_plan_set_cut(b, ops->linears[DOWN].linear, LS_LINEAR_SPLIT_IN);
    ops->experts.from_experts = add_visit(b, LS_OP_FROM_EXPERTS, v, e->given, e->returned);
    ops->experts.sum = add_sum(b, e->returned);
    const int32_t branch = ls_plan_scatter(b, v->down, LS_NONE, &ops->experts.scatter);
    set_alike(b, ops->experts.scatter);
    ops->experts.combine = add_routed(b, LS_OP_COMBINE, v, e->returned, branch);
    op_at(b, ops->experts.combine)->in[1] = e->weights;
}

/* ---- gradients ---- */

/* Each takes the place of a value that is dead where it can: those of the experts' outputs and of
 * gate|up. */
int32_t ls_plan_expert_gradients(builder *b, const layer_values *v, const layer_ops *ops)
{
    const ls_model_config *c = b->config;
    const expert_values *e = &v->experts;
    const int32_t dweights = add_float_value(b, "d expert weights", b->n, c->experts_per_token);
    const int64_t rows = ls_plan_expert_rows(b->plan);
    const int32_t dgiven = is_grouped(b) ? add_value(b, "d given", rows, c->width) : e->returned;
    const int32_t dactivated = add_value(b, "d activated", rows, c->expert_ffn);
    const int32_t ddispatched = add_value(b, "d dispatched", rows_of(b), c->width);
    const int32_t darrived = is_grouped(b) ? add_value(b, "d arrived", rows, c->width) : ddispatched;
    const int32_t dscores = add_value(b, "d expert scores", b->n, c->experts);
    const int32_t dnormed = add_value(b, "d normed 2", b->own, c->width);
    int32_t dall = b->dstream, dgathered = dnormed; /* of all rows */
    if (ops->experts.gather != LS_NONE) {
        dall = add_value(b, "d combined", b->n, c->width);
        dgathered = add_value(b, "d gathered", b->n, c->width);
        set_pair(b, ops->experts.scatter, dall, b->dstream);
        set_pair(b, ops->experts.gather, dnormed, dgathered);
        set_pair(b, ops->experts.sum, ddispatched, ddispatched);
    }
    set_pair(b, ops->experts.combine, e->returned, dall);
    op_at(b, ops->experts.combine)->din[1] = dweights;
    set_pair(b, ops->experts.from_experts, dgiven, e->returned);
    set_pair(b, ops->linears[DOWN].linear, dactivated, dgiven);
    set_pair(b, ops->activate, v->up, dactivated);
    set_pair(b, ops->linears[UP].linear, darrived, v->up);
    set_pair(b, ops->experts.to_experts, ddispatched, darrived);
    set_pair(b, ops->experts.dispatch, dgathered, ddispatched);
    op_at(b, ops->experts.route)->din[0] = dscores;
    op_at(b, ops->experts.route)->dout[1] = dweights;
    set_pair(b, ops->experts.router, dgathered, dscores);
    op_at(b, ops->experts.router)->accumulate_din = true;
    return dnormed;
}

/* ---- steps ---- */

void ls_plan_expert_forward(builder *b, const layer_ops *ops, bool with_branch)
{
    add_step(b, LS_PHASE_FORWARD, ops->experts.gather);
    add_step(b, LS_PHASE_FORWARD, ops->experts.router);
    add_step(b, LS_PHASE_FORWARD, ops->experts.route);
    add_step(b, LS_PHASE_FORWARD, ops->experts.dispatch);
    add_step(b, LS_PHASE_FORWARD, ops->experts.to_experts);
    add_step(b, LS_PHASE_FORWARD, ops->linears[UP].linear);
    add_step(b, LS_PHASE_FORWARD, ops->activate);
    add_step(b, LS_PHASE_FORWARD, ops->linears[DOWN].linear);
    add_step(b, LS_PHASE_FORWARD, ops->experts.from_experts);
    add_step(b, LS_PHASE_FORWARD, ops->experts.sum);
    add_step(b, LS_PHASE_FORWARD, with_branch ? ops->experts.combine : LS_NONE);
    add_step(b, LS_PHASE_FORWARD, with_branch ? ops->experts.scatter : LS_NONE);
}

void ls_plan_expert_backward(builder *b, const layer_ops *ops, bool lazily)
{
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.scatter);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.combine);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.from_experts);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->activate : LS_NONE);
    add_step(b, LS_PHASE_BACKWARD_WEIGHT, ops->linears[DOWN].linear);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->linears[DOWN].linear);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->activate);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->norm_2 : LS_NONE);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->experts.gather : LS_NONE);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->experts.dispatch : LS_NONE);
    add_step(b, LS_PHASE_FORWARD, lazily ? ops->experts.to_experts : LS_NONE);
    add_step(b, LS_PHASE_BACKWARD_WEIGHT, ops->linears[UP].linear);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->linears[UP].linear);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.to_experts);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.sum);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.dispatch);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.route);
    add_step(b, LS_PHASE_BACKWARD_WEIGHT, ops->experts.router);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.router);
    add_step(b, LS_PHASE_BACKWARD_INPUT, ops->experts.gather);
}
