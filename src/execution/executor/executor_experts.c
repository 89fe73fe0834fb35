// SPDX-License-Identifier: Apache-2.0
/* Layers with experts. */
#include "base/assert.h"
#include "compute/kernels/experts.h"
#include "execution/executor/executor_internal.h"

static ls_routes routes_of(const ls_executor *e, const ls_op *op)
{
    const ls_model_config *c = &e->plan->config;
    float *memory = e->arena + ls_plan_offset(e->plan, op->routes, e->slot);
    LS_ASSERT(ls_routes_count(e->rows, c->experts, c->experts_per_token) <= e->plan->values[op->routes].cols);
    return ls_routes_in((int32_t *)(void *)memory, e->rows, c->experts, c->experts_per_token);
}

static ls_router router_of(const ls_executor *e)
{
    return (ls_router){.normalise = e->plan->config.normalise_experts,
                       .balance = e->plan->options.balance_loss,
                       .length = e->plan->options.length};
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

/* ---- expert linears ---- */

/* The matrices of all experts as one. */
static ls_tensor experts_view(const ls_executor *e, const ls_op *op, ls_flat from)
{
    const int64_t rows = e->plan->config.experts * op->out_features;
    return ls_executor_flat_view(e, from, op->weight, rows, op->in_features);
}

ls_status ls_executor_expert_linear_forward(ls_executor *e, const ls_op *op, const ls_executor_batch *batch)
{
    const ls_routes routes = routes_of(e, op);
    const ls_tensor weight = experts_view(e, op, ls_executor_weights(e, batch->weights));
    const ls_tensor x = ls_executor_value(e, op->in[0]), y = ls_executor_value(e, op->out[0]);
    return ls_expert_linear_forward(e->queue, &routes, &weight, &x, &y);
}

ls_status ls_executor_expert_linear_backward_input(ls_executor *e, const ls_op *op,
                                                   const ls_executor_batch *batch)
{
    const ls_routes routes = routes_of(e, op);
    const ls_tensor weight = experts_view(e, op, ls_executor_weights(e, batch->weights));
    const ls_tensor dy = ls_executor_value(e, op->dout[0]), dx = ls_executor_value(e, op->din[0]);
    return ls_expert_linear_backward_input(e->queue, &routes, &weight, &dy, &dx);
}

ls_status ls_executor_expert_linear_backward_weight(ls_executor *e, const ls_op *op,
                                                    const ls_executor_batch *batch)
{
    const ls_routes routes = routes_of(e, op);
    const ls_tensor dweight = experts_view(e, op, ls_executor_gradients(batch));
    const ls_tensor x = ls_executor_value(e, op->in[0]), dy = ls_executor_value(e, op->dout[0]);
    LS_ASSERT(!e->plan->layout->parameters[op->weight].frozen);
    return ls_expert_linear_backward_weight(e->queue, &routes, &x, &dy, &dweight, batch->accumulate);
}
