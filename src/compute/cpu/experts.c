// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/experts.h"

#include "compute/cpu/isa/elementwise.h"
#include "compute/cpu/isa/experts.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/queue_cpu.h"
#include "compute/cpu/shape.h"

#include <string.h>

/* What the tiles of one call need; the tensors are those of the public function. */
typedef struct experts_job {
    const ls_experts_kernels *kernels;
    const ls_elementwise_kernels *elementwise;
    const ls_router *router;
    const ls_routes *routes;
    const ls_tensor *rows, *tokens, *weights; /* (n k, width), (n, width), (n, k) */
    const ls_tensor *drows, *dweights;
    const ls_tensor *scores, *dscores; /* (n, E) */
    int64_t tile_tokens;
    void (*token)(const struct experts_job *job, int64_t token);
} experts_job;

static void tile_tokens(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const experts_job *job = context;
    const int64_t begin = tile * job->tile_tokens;
    const int64_t end = ls_min64(begin + job->tile_tokens, job->routes->tokens);
    for (int64_t t = begin; t < end; t++) {
        job->token(job, t);
    }
}

/* Runs job->token for each token, which handles `elements` elements. */
static ls_status run_tokens(ls_queue *queue, experts_job *job, int64_t elements)
{
    job->kernels = ls_queue_kernels(queue)->experts;
    job->elementwise = ls_queue_kernels(queue)->elementwise;
    job->tile_tokens = ls_tile_rows(elements);
    ls_queue_run_tiles(queue, ls_ceil_div(job->routes->tokens, job->tile_tokens), tile_tokens, job);
    return LS_OK;
}

/* ---- route ---- */

/* The chosen experts, ascending; also where scores have no order (NaN). */
static void choose(const float *scores, int64_t experts, int64_t chosen, int32_t *expert)
{
    for (int32_t e = 0; e < experts; e++) {
        /* The best come first; of a full list the last one may go. */
        int64_t at = ls_min64(e, chosen - 1);
        if (e >= chosen && !(scores[e] > scores[expert[at]])) {
            continue;
        }
        for (; at > 0 && scores[e] > scores[expert[at - 1]]; at--) {
            expert[at] = expert[at - 1];
        }
        expert[at] = e;
    }
    for (int64_t i = 1; i < chosen; i++) {
        const int32_t e = expert[i];
        int64_t at = i;
        for (; at > 0 && expert[at - 1] > e; at--) {
            expert[at] = expert[at - 1];
        }
        expert[at] = e;
    }
}

static void token_route(const experts_job *job, int64_t token)
{
    const int64_t experts = job->routes->experts, chosen = job->routes->chosen;
    float *scores = ls_tensor_row(job->scores, token), *weights = ls_tensor_row(job->weights, token);
    int32_t *expert = job->routes->expert + token * chosen;
    job->kernels->softmax(scores, experts);
    choose(scores, experts, chosen, expert);
    float sum = 0.0f;
    for (int64_t i = 0; i < chosen; i++) {
        weights[i] = scores[expert[i]];
        sum += weights[i];
    }
    for (int64_t i = 0; job->router->normalise && i < chosen; i++) {
        weights[i] /= sum;
    }
}

/* Numbers the rows: expert by expert, and for each in the order of the tokens. */
static void number_rows(const ls_routes *routes)
{
    const int64_t pairs = routes->tokens * routes->chosen;
    int32_t *next = routes->first + 1; /* of expert e at e, and at the end where e + 1 begins */
    memset(routes->first, 0, (size_t)(routes->experts + 1) * sizeof *routes->first);
    for (int64_t i = 0; i < pairs; i++) {
        next[routes->expert[i]]++;
    }
    int32_t begin = 0;
    for (int64_t e = 0; e < routes->experts; e++) {
        const int32_t count = next[e];
        next[e] = begin;
        begin += count;
    }
    for (int64_t i = 0; i < pairs; i++) {
        const int32_t row = next[routes->expert[i]]++;
        routes->row[i] = row;
        routes->source[row] = (int32_t)i;
    }
}

static ls_status route_forward(ls_queue *queue, const ls_router *router, const ls_tensor *scores,
                               const ls_tensor *weights, const ls_routes *routes)
{
    experts_job job = {
        .router = router, .routes = routes, .scores = scores, .weights = weights, .token = token_route};
    LS_TRY(run_tokens(queue, &job, routes->experts * (1 + routes->chosen)));
    number_rows(routes);
    return LS_OK;
}

/* dlogits of one token. In dlogits are the gradients of the probabilities that the balance loss
 * makes. */
static void token_route_backward(const experts_job *job, int64_t token)
{
    const int64_t experts = job->routes->experts, chosen = job->routes->chosen;
    const float *p = ls_tensor_row(job->scores, token), *dweights = ls_tensor_row(job->dweights, token);
    const int32_t *expert = job->routes->expert + token * chosen;
    float *dlogits = ls_tensor_row(job->dscores, token);
    double sum = 0.0, inner = 0.0, total = 0.0;
    for (int64_t i = 0; i < chosen; i++) {
        sum += (double)p[expert[i]];
        inner += (double)dweights[i] * (double)p[expert[i]];
    }
    for (int64_t i = 0; i < chosen; i++) {
        const double d = (double)dweights[i];
        dlogits[expert[i]] += (float)(job->router->normalise ? (d - inner / sum) / sum : d);
    }
    for (int64_t e = 0; e < experts; e++) {
        total += (double)dlogits[e] * (double)p[e];
    }
    for (int64_t e = 0; e < experts; e++) {
        dlogits[e] = p[e] * (dlogits[e] - (float)total);
    }
}

/* One sequence: visits of each expert, then its tokens. */
static void tile_route_backward(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const experts_job *job = context;
    const ls_routes *routes = job->routes;
    const int64_t length = job->router->length, begin = tile * length;
    float *of_expert = ls_tensor_row(job->dscores, begin);
    memset(of_expert, 0, (size_t)routes->experts * sizeof *of_expert);
    for (int64_t i = begin * routes->chosen; i < (begin + length) * routes->chosen; i++) {
        of_expert[routes->expert[i]] += 1.0f;
    }
    const double factor = job->router->balance * (double)routes->experts / (double)length;
    for (int64_t e = 0; e < routes->experts; e++) {
        of_expert[e] = (float)(factor * (double)of_expert[e]);
    }
    for (int64_t t = begin + length; t-- > begin;) {
        memmove(ls_tensor_row(job->dscores, t), of_expert, (size_t)routes->experts * sizeof *of_expert);
        token_route_backward(job, t);
    }
}

static ls_status route_backward(ls_queue *queue, const ls_router *router, const ls_tensor *probabilities,
                                const ls_routes *routes, const ls_tensor *dweights, const ls_tensor *dlogits)
{
    experts_job job = {.router = router,
                       .routes = routes,
                       .scores = probabilities,
                       .dweights = dweights,
                       .dscores = dlogits};
    ls_queue_run_tiles(queue, routes->tokens / router->length, tile_route_backward, &job);
    return LS_OK;
}

/* ---- dispatch and combine ---- */

static void token_dispatch(const experts_job *job, int64_t token)
{
    const ls_routes *routes = job->routes;
    const float *x = ls_tensor_row(job->tokens, token);
    for (int64_t i = token * routes->chosen; i < (token + 1) * routes->chosen; i++) {
        memcpy(ls_tensor_row(job->rows, routes->row[i]), x, (size_t)job->tokens->cols * sizeof *x);
    }
}

static void token_dispatch_backward(const experts_job *job, int64_t token)
{
    const ls_routes *routes = job->routes;
    const int64_t first = token * routes->chosen, cols = job->tokens->cols;
    float *dx = ls_tensor_row(job->tokens, token);
    memcpy(dx, ls_tensor_row(job->rows, routes->row[first]), (size_t)cols * sizeof *dx);
    for (int64_t i = first + 1; i < first + routes->chosen; i++) {
        job->elementwise->add(dx, ls_tensor_row(job->rows, routes->row[i]), dx, cols);
    }
}

static void token_combine(const experts_job *job, int64_t token)
{
    const ls_routes *routes = job->routes;
    const float *weights = ls_tensor_row(job->weights, token);
    float *y = ls_tensor_row(job->tokens, token);
    for (int64_t i = 0; i < routes->chosen; i++) {
        const float *row = ls_tensor_row(job->rows, routes->row[token * routes->chosen + i]);
        job->kernels->scaled(row, weights[i], i > 0, y, job->tokens->cols);
    }
}

static void token_combine_backward(const experts_job *job, int64_t token)
{
    const ls_routes *routes = job->routes;
    const int64_t cols = job->tokens->cols;
    const float *weights = ls_tensor_row(job->weights, token), *dy = ls_tensor_row(job->tokens, token);
    float *dweights = ls_tensor_row(job->dweights, token);
    for (int64_t i = 0; i < routes->chosen; i++) {
        const int64_t row = routes->row[token * routes->chosen + i];
        dweights[i] = job->kernels->dot(dy, ls_tensor_row(job->rows, row), cols);
        job->kernels->scaled(dy, weights[i], false, ls_tensor_row(job->drows, row), cols);
    }
}

static ls_status dispatch_forward(ls_queue *queue, const ls_routes *routes, const ls_tensor *x,
                                  const ls_tensor *rows)
{
    experts_job job = {.routes = routes, .tokens = x, .rows = rows, .token = token_dispatch};
    return run_tokens(queue, &job, x->cols * routes->chosen);
}

static ls_status dispatch_backward(ls_queue *queue, const ls_routes *routes, const ls_tensor *drows,
                                   const ls_tensor *dx)
{
    experts_job job = {.routes = routes, .tokens = dx, .rows = drows, .token = token_dispatch_backward};
    return run_tokens(queue, &job, dx->cols * routes->chosen);
}

static ls_status combine_forward(ls_queue *queue, const ls_routes *routes, const ls_tensor *rows,
                                 const ls_tensor *weights, const ls_tensor *y)
{
    experts_job job = {
        .routes = routes, .tokens = y, .rows = rows, .weights = weights, .token = token_combine};
    return run_tokens(queue, &job, y->cols * routes->chosen);
}

static ls_status combine_backward(ls_queue *queue, const ls_routes *routes, const ls_tensor *rows,
                                  const ls_tensor *weights, const ls_tensor *dy, const ls_tensor *drows,
                                  const ls_tensor *dweights)
{
    experts_job job = {.routes = routes,
                       .tokens = dy,
                       .rows = rows,
                       .weights = weights,
                       .drows = drows,
                       .dweights = dweights,
                       .token = token_combine_backward};
    return run_tokens(queue, &job, dy->cols * routes->chosen);
}

/* ---- a linear per expert ---- */

typedef struct expert_part {
    ls_linear linear; /* of the expert */
    ls_tensor x, y;   /* its rows */
} expert_part;

/* The view of expert `e`, given that of the first. */
static ls_tensor of_expert(ls_tensor first, int64_t e)
{
    first.data = (float *)first.data + e * first.rows * first.stride;
    return first;
}

static expert_part part_of(const ls_routes *routes, const ls_linear *linear, const ls_tensor *x,
                           const ls_tensor *y, int64_t e)
{
    const int64_t begin = routes->first[e], count = routes->first[e + 1] - begin;
    expert_part part = {
        .linear = *linear, .x = ls_tensor_rows(*x, begin, count), .y = ls_tensor_rows(*y, begin, count)};
    part.linear.weight = of_expert(linear->weight, e);
    return part;
}

static ls_status linear_forward(ls_queue *queue, const ls_routes *routes, const ls_linear *linear,
                                const ls_tensor *x, const ls_tensor *y)
{
    for (int64_t e = 0; e < routes->experts; e++) {
        const expert_part part = part_of(routes, linear, x, y, e);
        LS_TRY(part.x.rows > 0 ? ls_cpu_linear_forward(queue, &part.linear, &part.x, &part.y) : LS_OK);
    }
    return LS_OK;
}

static ls_status linear_backward_input(ls_queue *queue, const ls_routes *routes, const ls_linear *linear,
                                       const ls_tensor *dy, const ls_tensor *dx)
{
    for (int64_t e = 0; e < routes->experts; e++) {
        const expert_part part = part_of(routes, linear, dx, dy, e);
        LS_TRY(part.x.rows > 0 ? ls_cpu_linear_backward_input(queue, &part.linear, &part.y, &part.x, false)
                               : LS_OK);
    }
    return LS_OK;
}

/* The gradient of an expert without rows: zero where the linear has outputs. */
static ls_status fill_zero(ls_queue *queue, const ls_linear *linear, ls_tensor dweight)
{
    int64_t at = 0;
    for (uint32_t i = 0; i < linear->segment_count; i++) {
        const ls_tensor rows = ls_tensor_rows(dweight, at + linear->skip[i], linear->segment[i]);
        LS_TRY(ls_cpu_fill(queue, &rows, 0.0f));
        at += linear->skip[i] + linear->segment[i];
    }
    return LS_OK;
}

static ls_status linear_backward_weight(ls_queue *queue, const ls_routes *routes, const ls_linear *linear,
                                        const ls_tensor *x, const ls_tensor *dy, const ls_tensor *dweight,
                                        bool accumulate)
{
    const ls_tensor none = {0};
    for (int64_t e = 0; e < routes->experts; e++) {
        const expert_part part = part_of(routes, linear, x, dy, e);
        const ls_tensor to = of_expert(*dweight, e);
        if (part.x.rows > 0) {
            LS_TRY(
                ls_cpu_linear_backward_weight(queue, &part.linear, &part.x, &part.y, &to, &none, accumulate));
        } else if (!accumulate) {
            LS_TRY(fill_zero(queue, linear, to));
        }
    }
    return LS_OK;
}

const ls_backend_experts ls_cpu_experts = {
    .route_forward = route_forward,
    .route_backward = route_backward,
    .dispatch_forward = dispatch_forward,
    .dispatch_backward = dispatch_backward,
    .combine_forward = combine_forward,
    .combine_backward = combine_backward,
    .linear_forward = linear_forward,
    .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
};
