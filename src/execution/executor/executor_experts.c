// SPDX-License-Identifier: Apache-2.0
/* Layers with experts. */
#include "base/assert.h"
#include "compute/kernels/experts.h"
#include "execution/executor/executor_internal.h"

static ls_routes routes_of(const ls_executor *e, const ls_op *op)
{
    const ls_model_config *c = &e->plan->config;
    LS_ASSERT(ls_routes_count(e->rows, c->experts, c->experts_per_token) <= e->plan->values[op->routes].cols);
    return ls_routes_in(ls_executor_value(e, op->routes).data, e->rows, c->experts, c->experts_per_token);
}

static ls_router router_of(const ls_executor *e)
{
    return (ls_router){.normalise = e->plan->config.normalise_experts,
                       .balance = e->plan->options.balance_loss,
                       .length = e->plan->options.length / e->plan->options.sequence_cut};
}

/* ---- route ---- */

ls_status ls_executor_route_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_router router = router_of(e);
    const ls_routes routes = routes_of(e, op);
    const ls_tensor scores = ls_executor_value(e, op->in[0]), weights = ls_executor_value(e, op->out[1]);
    return ls_route_forward(e->queue, &router, &scores, &weights, &routes);
}

ls_status ls_executor_route_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_router router = router_of(e);
    const ls_routes routes = routes_of(e, op);
    const ls_tensor probabilities = ls_executor_value(e, op->in[0]);
    const ls_tensor dweights = ls_executor_value(e, op->dout[1]), dlogits = ls_executor_value(e, op->din[0]);
    return ls_route_backward(e->queue, &router, &probabilities, &routes, &dweights, &dlogits);
}

/* ---- dispatch and combine ---- */

ls_status ls_executor_dispatch_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_routes routes = routes_of(e, op);
    const ls_tensor x = ls_executor_value(e, op->in[0]), rows = ls_executor_value(e, op->out[0]);
    return ls_dispatch_forward(e->queue, &routes, &x, &rows);
}

ls_status ls_executor_dispatch_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_routes routes = routes_of(e, op);
    const ls_tensor drows = ls_executor_value(e, op->dout[0]), dx = ls_executor_value(e, op->din[0]);
    return ls_dispatch_backward(e->queue, &routes, &drows, &dx);
}

ls_status ls_executor_combine_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_routes routes = routes_of(e, op);
    const ls_tensor rows = ls_executor_value(e, op->in[0]), weights = ls_executor_value(e, op->in[1]);
    const ls_tensor y = ls_executor_value(e, op->out[0]);
    return ls_combine_forward(e->queue, &routes, &rows, &weights, &y);
}

ls_status ls_executor_combine_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    (void)batch;
    const ls_routes routes = routes_of(e, op);
    const ls_tensor rows = ls_executor_value(e, op->in[0]), weights = ls_executor_value(e, op->in[1]);
    const ls_tensor dy = ls_executor_value(e, op->dout[0]);
    const ls_tensor drows = ls_executor_value(e, op->din[0]), dweights = ls_executor_value(e, op->din[1]);
    return ls_combine_backward(e->queue, &routes, &rows, &weights, &dy, &drows, &dweights);
}

/* ---- the expert group ---- */

static int64_t own_experts(const ls_executor *e)
{
    return e->plan->config.experts / e->plan->options.expert_degree;
}

/* Where the rows of member `of` begin at each expert, counted from its first row here; those of
 * this process's experts, and the end of the last. */
static int32_t *table_of(const ls_executor *e, const ls_op *op, uint32_t of)
{
    const ls_model_config *c = &e->plan->config;
    return (int32_t *)ls_executor_value(e, op->routes).data +
           ls_routes_count(e->rows, c->experts, c->experts_per_token) + of * (c->experts + 1);
}

/* The visits of one member's tokens to the experts of this process: rows [first, first + count) of
 * what has arrived. */
typedef struct visits {
    ls_routes routes;
    int64_t first, count;
} visits;

static visits visits_of(const ls_executor *e, const ls_op *op, uint32_t of)
{
    visits v = {.routes = routes_of(e, op)};
    if (e->plan->options.expert_degree == 1) {
        v.count = v.routes.tokens * v.routes.chosen;
        return v;
    }
    for (uint32_t before = 0; before < of; before++) {
        v.first += table_of(e, op, before)[own_experts(e)];
    }
    int32_t *table = table_of(e, op, of);
    v.count = table[own_experts(e)];
    v.routes = (ls_routes){.tokens = v.count, .experts = own_experts(e), .chosen = 1, .first = table};
    return v;
}

ls_tensor ls_executor_visited(const ls_executor *e, const ls_op *op, int32_t value)
{
    const ls_tensor all = ls_executor_value(e, value);
    if (op->routes == LS_NONE || e->plan->options.expert_degree == 1) {
        return all;
    }
    const visits last = visits_of(e, op, e->plan->options.expert_degree - 1);
    LS_ASSERT(last.first + last.count <= all.rows);
    return ls_tensor_rows(all, 0, last.first + last.count);
}

/* Tells the members how many rows of their experts this one's tokens visit, and learns it from
 * them. */
static ls_status exchange_tables(ls_executor *e, const ls_op *op, const ls_crew *crew)
{
    const ls_plan_options *o = &e->plan->options;
    const int64_t own = own_experts(e), before = o->expert_member * own;
    const ls_routes routes = routes_of(e, op);
    LS_ASSERT(crew && crew->expert_degree == o->expert_degree && crew->expert_member == o->expert_member);
    LS_TRY(ls_queue_wait(e->queue));
    LS_TRY(crew->gather(crew->context, LS_CREW_EXPERT, routes.first,
                        (size_t)(routes.experts + 1) * sizeof *routes.first, table_of(e, op, 0)));
    for (uint32_t of = 0; of < o->expert_degree; of++) {
        int32_t *table = table_of(e, op, of);
        const int32_t first = table[before];
        for (int64_t i = 0; i <= own; i++) {
            table[i] = table[before + i] - first;
        }
    }
    return LS_OK;
}

/* Brings rows of value `here`, of the visits of own tokens, and rows of value `there`, of the
 * visits to own experts, from one to the other. */
static ls_status exchange_rows(ls_executor *e, const ls_op *op, const ls_crew *crew, int32_t here,
                               int32_t there, bool to_experts)
{
    ls_crew_block own[LS_EXPERT_DEGREE_MAX], arrived[LS_EXPERT_DEGREE_MAX];
    const ls_tensor of_tokens = ls_executor_value(e, here), of_experts = ls_executor_visited(e, op, there);
    const ls_routes routes = routes_of(e, op);
    for (uint32_t i = 0; i < e->plan->options.expert_degree; i++) {
        const int32_t *first = routes.first + i * own_experts(e);
        const visits v = visits_of(e, op, i);
        own[i] = (ls_crew_block){(float *)of_tokens.data + first[0] * of_tokens.cols,
                                 (first[own_experts(e)] - first[0]) * of_tokens.cols};
        arrived[i] =
            (ls_crew_block){(float *)of_experts.data + v.first * of_experts.cols, v.count * of_experts.cols};
    }
    LS_TRY(ls_queue_wait(e->queue));
    return crew->exchange(crew->context, to_experts ? own : arrived, to_experts ? arrived : own);
}

ls_status ls_executor_to_experts_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    LS_TRY(exchange_tables(e, op, batch->crew));
    return exchange_rows(e, op, batch->crew, op->in[0], op->out[0], true);
}

ls_status ls_executor_to_experts_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return exchange_rows(e, op, batch->crew, op->din[0], op->dout[0], false);
}

ls_status ls_executor_from_experts_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return exchange_rows(e, op, batch->crew, op->out[0], op->in[0], false);
}

ls_status ls_executor_from_experts_backward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    return exchange_rows(e, op, batch->crew, op->dout[0], op->din[0], true);
}

/* ---- expert linears ---- */

/* Of the first expert of this process. */
static ls_tensor weight_of(const ls_executor *e, const ls_op *op, ls_flat from)
{
    ls_tensor weight = ls_executor_linear_weight(e, op, from);
    weight.data =
        (float *)weight.data + e->plan->options.expert_member * own_experts(e) * weight.rows * weight.stride;
    return weight;
}

static ls_linear linear_of(const ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    ls_packed none[LS_LINEAR_SEGMENTS_MAX];
    ls_linear linear = ls_executor_linear(e, op, batch->weights, none);
    linear.packed = NULL;
    linear.weight = weight_of(e, op, ls_executor_weights(e, batch->weights));
    return linear;
}

/* The rows of one member's visits. */
static ls_tensor rows_of(const ls_executor *e, int32_t value, const visits *v)
{
    return ls_tensor_rows(ls_executor_value(e, value), v->first, v->count);
}

/* A product per member and expert, as each member would make it alone. */
ls_status ls_executor_expert_linear_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_linear linear = linear_of(e, op, batch);
    for (uint32_t of = 0; of < e->plan->options.expert_degree; of++) {
        const visits v = visits_of(e, op, of);
        const ls_tensor x = rows_of(e, op->in[0], &v), y = rows_of(e, op->out[0], &v);
        LS_TRY(ls_expert_linear_forward(e->queue, &v.routes, &linear, &x, &y));
    }
    return LS_OK;
}

ls_status ls_executor_expert_linear_backward_input(ls_executor *e, const ls_op *op,
                                                   const ls_executor_batch *batch)
{
    const ls_linear linear = linear_of(e, op, batch);
    for (uint32_t of = 0; of < e->plan->options.expert_degree; of++) {
        const visits v = visits_of(e, op, of);
        const ls_tensor dy = rows_of(e, op->dout[0], &v), dx = rows_of(e, op->din[0], &v);
        LS_TRY(ls_expert_linear_backward_input(e->queue, &v.routes, &linear, &dy, &dx));
    }
    return LS_OK;
}

ls_status ls_executor_expert_linear_backward_weight(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch)
{
    const ls_linear linear = linear_of(e, op, batch);
    LS_ASSERT(!e->plan->layout->parameters[op->weight].frozen);
    for (uint32_t of = 0; of < e->plan->options.expert_degree; of++) {
        const visits v = visits_of(e, op, of);
        float *const *of_member = batch->member_gradients + of * e->plan->options.sequence_cut;
        const ls_flat gradients = {batch->member_gradients ? *of_member : batch->gradients, LS_F32};
        const ls_tensor dweight = weight_of(e, op, gradients);
        const ls_tensor x = rows_of(e, op->in[0], &v), dy = rows_of(e, op->dout[0], &v);
        LS_TRY(ls_expert_linear_backward_weight(e->queue, &v.routes, &linear, &x, &dy, &dweight,
                                                batch->accumulate));
    }
    return LS_OK;
}
