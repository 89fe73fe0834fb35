// SPDX-License-Identifier: Apache-2.0
/*
 * Layers with experts: each token visits the k experts with the highest probabilities, and no token
 * is dropped.
 *
 *   route           probabilities p = softmax(logits) (n, E); the k highest are chosen, of equal
 *                   ones those of lower index; a token's experts are numbered 0..k-1 by index
 *   dispatch        a row for each token and expert: (n k, width). The rows of one expert are
 *                   adjacent and in the order of the tokens; the experts are in their order
 *   expert linears  a product for each expert with its own rows
 *   combine         a token's rows, each times its weight, added in the order of the experts
 *
 * So what a token gets does not depend on its neighbours, and an expert's weight gradient is a sum
 * over its tokens in their order. An expert without tokens has the gradient zero.
 *
 * The balance loss keeps the experts equally busy. For each sequence of T tokens it is
 *   balance E sum over e of f(e) P(e)
 * f(e): experts' visits by these tokens / T, P(e): mean of their p(e). The gradient of T times
 * that is added, because losses are sums over tokens. It is a function of the sequence alone.
 * Source: Fedus et al., "Switch Transformers", 2021, equations 4 to 6; per sequence as in
 * DeepSeek-AI, "DeepSeek-V2", 2024, section 2.2.3.
 *
 * Float32 on CPU queues. On others all functions return LS_ERR_UNSUPPORTED.
 */
#ifndef LS_COMPUTE_KERNELS_EXPERTS_H
#define LS_COMPUTE_KERNELS_EXPERTS_H

#include "compute/kernels/linear.h"

/* Which experts each of n tokens visits. Borrows its memory. */
typedef struct ls_routes {
    int64_t tokens, experts, chosen; /* n, E, k */
    int32_t *first;                  /* (E + 1): expert e has the rows [first[e], first[e + 1]) */
    int32_t *expert;                 /* (n, k): ascending for each token */
    int32_t *row;                    /* (n, k): the row of a token's expert */
    int32_t *source;                 /* (n k): of each row, its index in expert and row */
} ls_routes;

/* Integers of memory that routes need. */
int64_t ls_routes_count(int64_t tokens, int64_t experts, int64_t chosen);
ls_routes ls_routes_in(int32_t *memory, int64_t tokens, int64_t experts, int64_t chosen);

typedef struct ls_router {
    bool normalise; /* the weights of a token are divided by their sum */
    double balance; /* coefficient of the balance loss, 0: none; backward only */
    int64_t length; /* tokens of a sequence, which divides n; backward only */
} ls_router;

/* scores (n, E): logits, which become probabilities; weights (n, k); fills the routes. */
LS_MUST_CHECK ls_status ls_route_forward(ls_queue *queue, const ls_router *router, const ls_tensor *scores,
                                         const ls_tensor *weights, const ls_routes *routes);

/* probabilities (n, E) of forward; dweights (n, k) -> dlogits (n, E). */
LS_MUST_CHECK ls_status ls_route_backward(ls_queue *queue, const ls_router *router,
                                          const ls_tensor *probabilities, const ls_routes *routes,
                                          const ls_tensor *dweights, const ls_tensor *dlogits);

/* x (n, width) -> rows (n k, width); backward: drows -> dx, which is written. */
LS_MUST_CHECK ls_status ls_dispatch_forward(ls_queue *queue, const ls_routes *routes, const ls_tensor *x,
                                            const ls_tensor *rows);
LS_MUST_CHECK ls_status ls_dispatch_backward(ls_queue *queue, const ls_routes *routes, const ls_tensor *drows,
                                             const ls_tensor *dx);

/* rows (n k, width), weights (n, k) -> y (n, width). In backward drows may be rows. */
LS_MUST_CHECK ls_status ls_combine_forward(ls_queue *queue, const ls_routes *routes, const ls_tensor *rows,
                                           const ls_tensor *weights, const ls_tensor *y);
LS_MUST_CHECK ls_status ls_combine_backward(ls_queue *queue, const ls_routes *routes, const ls_tensor *rows,
                                            const ls_tensor *weights, const ls_tensor *dy,
                                            const ls_tensor *drows, const ls_tensor *dweights);

/* linear: that of the first expert, LS_WEIGHT_OUT_IN, neither packed nor with a bias; the weight of
 * each next one follows, weight.rows rows later. Cuts, segments and workspace are those of every
 * expert (compute/kernels/linear.h): the workspace is for as many rows as one expert has at most,
 * n. x (n k, in) and y (n k, out) have the rows of the routes. dweight, of the first expert and
 * the shape of its weight, is written, or added to with accumulate. */
LS_MUST_CHECK ls_status ls_expert_linear_forward(ls_queue *queue, const ls_routes *routes,
                                                 const ls_linear *linear, const ls_tensor *x,
                                                 const ls_tensor *y);
LS_MUST_CHECK ls_status ls_expert_linear_backward_input(ls_queue *queue, const ls_routes *routes,
                                                        const ls_linear *linear, const ls_tensor *dy,
                                                        const ls_tensor *dx);
LS_MUST_CHECK ls_status ls_expert_linear_backward_weight(ls_queue *queue, const ls_routes *routes,
                                                         const ls_linear *linear, const ls_tensor *x,
                                                         const ls_tensor *dy, const ls_tensor *dweight,
                                                         bool accumulate);

#endif
