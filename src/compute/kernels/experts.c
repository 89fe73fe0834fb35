// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/experts.h"

#include "compute/kernels/shape.h"

int64_t ls_routes_count(int64_t tokens, int64_t experts, int64_t chosen)
{
    return experts + 1 + 3 * tokens * chosen;
}

ls_routes ls_routes_in(int32_t *memory, int64_t tokens, int64_t experts, int64_t chosen)
{
    int32_t *pairs = memory + experts + 1;
    return (ls_routes){.tokens = tokens,
                       .experts = experts,
                       .chosen = chosen,
                       .first = memory,
                       .expert = pairs,
                       .row = pairs + tokens * chosen,
                       .source = pairs + 2 * tokens * chosen};
}

static ls_status check_device(const ls_queue *queue)
{
    return queue->backend->experts
               ? LS_OK
               : ls_fail(LS_ERR_UNSUPPORTED, "models with experts run on the CPU only in this version");
}

static bool is_rows(const ls_routes *routes, const ls_tensor *t, int64_t cols)
{
    return ls_tensor_is(t, LS_F32, routes->tokens * routes->chosen, cols);
}

static bool is_per_token(const ls_routes *routes, const ls_tensor *t, int64_t cols)
{
    return ls_tensor_is(t, LS_F32, routes->tokens, cols);
}

ls_status ls_route_forward(ls_queue *queue, const ls_router *router, const ls_tensor *scores,
                           const ls_tensor *weights, const ls_routes *routes)
{
    LS_TRY(check_device(queue));
    LS_ASSERT(routes->chosen >= 1 && routes->chosen <= routes->experts);
    LS_ASSERT(is_per_token(routes, scores, routes->experts) && is_per_token(routes, weights, routes->chosen));
    return queue->backend->experts->route_forward(queue, router, scores, weights, routes);
}

ls_status ls_route_backward(ls_queue *queue, const ls_router *router, const ls_tensor *probabilities,
                            const ls_routes *routes, const ls_tensor *dweights, const ls_tensor *dlogits)
{
    LS_TRY(check_device(queue));
    LS_ASSERT(router->length >= 1 && routes->tokens % router->length == 0);
    LS_ASSERT(is_per_token(routes, probabilities, routes->experts));
    LS_ASSERT(is_per_token(routes, dlogits, routes->experts) &&
              is_per_token(routes, dweights, routes->chosen));
    return queue->backend->experts->route_backward(queue, router, probabilities, routes, dweights, dlogits);
}

ls_status ls_dispatch_forward(ls_queue *queue, const ls_routes *routes, const ls_tensor *x,
                              const ls_tensor *rows)
{
    LS_TRY(check_device(queue));
    LS_ASSERT(is_per_token(routes, x, x->cols) && is_rows(routes, rows, x->cols));
    return queue->backend->experts->dispatch_forward(queue, routes, x, rows);
}

ls_status ls_dispatch_backward(ls_queue *queue, const ls_routes *routes, const ls_tensor *drows,
                               const ls_tensor *dx)
{
    LS_TRY(check_device(queue));
    LS_ASSERT(is_per_token(routes, dx, dx->cols) && is_rows(routes, drows, dx->cols));
    return queue->backend->experts->dispatch_backward(queue, routes, drows, dx);
}

ls_status ls_combine_forward(ls_queue *queue, const ls_routes *routes, const ls_tensor *rows,
                             const ls_tensor *weights, const ls_tensor *y)
{
    LS_TRY(check_device(queue));
    LS_ASSERT(is_per_token(routes, y, y->cols) && is_rows(routes, rows, y->cols));
    LS_ASSERT(is_per_token(routes, weights, routes->chosen));
    return queue->backend->experts->combine_forward(queue, routes, rows, weights, y);
}

ls_status ls_combine_backward(ls_queue *queue, const ls_routes *routes, const ls_tensor *rows,
                              const ls_tensor *weights, const ls_tensor *dy, const ls_tensor *drows,
                              const ls_tensor *dweights)
{
    LS_TRY(check_device(queue));
    LS_ASSERT(is_per_token(routes, dy, dy->cols) && is_rows(routes, rows, dy->cols));
    LS_ASSERT(is_rows(routes, drows, dy->cols) && is_per_token(routes, weights, routes->chosen));
    LS_ASSERT(is_per_token(routes, dweights, routes->chosen));
    return queue->backend->experts->combine_backward(queue, routes, rows, weights, dy, drows, dweights);
}

/* weight (rows, in) of the first expert, x (n k, in), y (n k, out). */
static void check_linear(const ls_routes *routes, const ls_linear *linear, const ls_tensor *weight,
                         const ls_tensor *x, const ls_tensor *y)
{
    LS_ASSERT(linear->layout == LS_WEIGHT_OUT_IN && linear->packed_count == 0 && !linear->bias.data);
    LS_ASSERT(ls_tensor_is(weight, LS_F32, linear->weight.rows, x->cols));
    LS_ASSERT(is_rows(routes, x, x->cols) && is_rows(routes, y, ls_linear_out(linear)));
}

ls_status ls_expert_linear_forward(ls_queue *queue, const ls_routes *routes, const ls_linear *linear,
                                   const ls_tensor *x, const ls_tensor *y)
{
    LS_TRY(check_device(queue));
    check_linear(routes, linear, &linear->weight, x, y);
    return queue->backend->experts->linear_forward(queue, routes, linear, x, y);
}

ls_status ls_expert_linear_backward_input(ls_queue *queue, const ls_routes *routes, const ls_linear *linear,
                                          const ls_tensor *dy, const ls_tensor *dx)
{
    LS_TRY(check_device(queue));
    check_linear(routes, linear, &linear->weight, dx, dy);
    return queue->backend->experts->linear_backward_input(queue, routes, linear, dy, dx);
}

ls_status ls_expert_linear_backward_weight(ls_queue *queue, const ls_routes *routes, const ls_linear *linear,
                                           const ls_tensor *x, const ls_tensor *dy, const ls_tensor *dweight,
                                           bool accumulate)
{
    LS_TRY(check_device(queue));
    check_linear(routes, linear, dweight, x, dy);
    return queue->backend->experts->linear_backward_weight(queue, routes, linear, x, dy, dweight, accumulate);
}
