// SPDX-License-Identifier: Apache-2.0
/* A layer with experts, forward and backward, against its definition in float64. */
#include "compute/cpu/checkasm.h"

#include "compute/kernels/experts.h"

typedef struct layer {
    int64_t tokens, experts, chosen, width, out;
    ls_router router;
    ck_tensor scores, weights, x, rows, matrices, results, y; /* forward */
    ck_tensor dy, dresults, dweights, drows, dmatrices, dscores, dx;
    int32_t *memory;
    double *score_values, *x_values, *matrix_values; /* what the definition reads */
} layer;

static layer layer_make(uint64_t seed, bool normalise)
{
    const int64_t length = ck_between(seed, 1, 1, 9);
    layer l = {.tokens = 3 * length,
               .experts = ck_between(seed, 2, 2, 21),
               .width = ck_between(seed, 3, 1, 40),
               .out = ck_between(seed, 4, 1, 40),
               .router = {.normalise = normalise, .balance = 0.3, .length = length}};
    l.chosen = ck_between(seed, 5, 1, l.experts < 5 ? l.experts : 5);
    const int64_t visits = l.tokens * l.chosen;
    l.scores = ck_make(l.tokens, l.experts, 3, seed + 20, 3.0);
    l.weights = ck_make(l.tokens, l.chosen, 0, 1, 0.0);
    l.x = ck_make(l.tokens, l.width, 5, seed + 21, 1.0);
    l.rows = ck_make(visits, l.width, 0, 1, 0.0);
    l.matrices = ck_make(l.experts * l.out, l.width, 0, seed + 22, 1.0);
    l.results = ck_make(visits, l.out, 2, 1, 0.0);
    l.y = ck_make(l.tokens, l.out, 1, 1, 0.0);
    l.dy = ck_make(l.tokens, l.out, 0, seed + 23, 1.0);
    l.dresults = ck_make(visits, l.out, 0, 1, 0.0);
    l.dweights = ck_make(l.tokens, l.chosen, 0, 1, 0.0);
    l.drows = ck_make(visits, l.width, 0, 1, 0.0);
    l.dmatrices = ck_make(l.experts * l.out, l.width, 0, seed + 24, 1.0);
    l.dscores = ck_make(l.tokens, l.experts, 0, 1, 0.0);
    l.dx = ck_make(l.tokens, l.width, 0, 1, 0.0);
    l.memory = malloc((size_t)ls_routes_count(l.tokens, l.experts, l.chosen) * sizeof *l.memory);
    for (int64_t t = 0; t < l.tokens; t++) { /* the last expert is never chosen */
        ls_tensor_row(&l.scores.t, t)[l.experts - 1] = l.chosen < l.experts ? -9.0f : 1.0f;
    }
    memcpy(l.scores.initial, l.scores.block, l.scores.floats * sizeof(float));
    l.score_values = ck_initial(&l.scores);
    l.x_values = ck_initial(&l.x);
    l.matrix_values = ck_initial(&l.matrices);
    return l;
}

static void layer_free(layer *l)
{
    ck_tensor *tensors[] = {&l->scores,  &l->weights, &l->x,  &l->rows,     &l->matrices,
                            &l->results, &l->y,       &l->dy, &l->dresults, &l->dweights,
                            &l->drows,   &l->dscores, &l->dx, &l->dmatrices};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        ck_free(tensors[i]);
    }
    free(l->memory);
    free(l->score_values);
    free(l->x_values);
    free(l->matrix_values);
}

static void ok(ls_status status)
{
    assert_int_equal(status, LS_OK);
}

/* The linear of the first of `experts`, whose matrices are the rows of `all`. */
static ls_linear linear_of(ls_tensor all, int64_t experts)
{
    const int64_t out = all.rows / experts;
    return (ls_linear){.weight = ls_tensor_rows(all, 0, out),
                       .layout = LS_WEIGHT_OUT_IN,
                       .forward_cut = 1,
                       .backward_input_cut = 1,
                       .segment_count = 1,
                       .segment = {out}};
}

static void run(ls_queue *queue, void *context)
{
    layer *l = context;
    const ls_routes routes = ls_routes_in(l->memory, l->tokens, l->experts, l->chosen);
    const ls_linear linear = linear_of(l->matrices.t, l->experts);
    const ls_tensor dweight = linear_of(l->dmatrices.t, l->experts).weight;
    ok(ls_route_forward(queue, &l->router, &l->scores.t, &l->weights.t, &routes));
    ok(ls_dispatch_forward(queue, &routes, &l->x.t, &l->rows.t));
    ok(ls_expert_linear_forward(queue, &routes, &linear, &l->rows.t, &l->results.t));
    ok(ls_combine_forward(queue, &routes, &l->results.t, &l->weights.t, &l->y.t));
    ok(ls_combine_backward(queue, &routes, &l->results.t, &l->weights.t, &l->dy.t, &l->dresults.t,
                           &l->dweights.t));
    ok(ls_expert_linear_backward_weight(queue, &routes, &linear, &l->rows.t, &l->dresults.t, &dweight, true));
    ok(ls_expert_linear_backward_input(queue, &routes, &linear, &l->dresults.t, &l->drows.t));
    ok(ls_dispatch_backward(queue, &routes, &l->drows.t, &l->dx.t));
    ok(ls_route_backward(queue, &l->router, &l->scores.t, &routes, &l->dweights.t, &l->dscores.t));
}

/* ---- the definition ---- */

static void softmax(const double *scores, int64_t count, double *p)
{
    double sum = 0.0;
    for (int64_t e = 0; e < count; e++) {
        p[e] = exp(scores[e]);
        sum += p[e];
    }
    for (int64_t e = 0; e < count; e++) {
        p[e] /= sum;
    }
}

/* How many experts come before expert e for a token. */
static int64_t place(const double *p, int64_t experts, int64_t e)
{
    int64_t before = 0;
    for (int64_t other = 0; other < experts; other++) {
        before += p[other] > p[e] || (p[other] == p[e] && other < e);
    }
    return before;
}

static double result_of(const layer *l, int64_t token, int64_t expert, int64_t column)
{
    const double *w = l->matrix_values + (expert * l->out + column) * l->width;
    double sum = 0.0;
    for (int64_t i = 0; i < l->width; i++) {
        sum += l->x_values[token * l->width + i] * w[i];
    }
    return sum;
}

/* y of one token, and its probabilities. */
static void define_token(const layer *l, int64_t token, double *y, double *p)
{
    double weight[32] = {0}, sum = 0.0;
    softmax(l->score_values + token * l->experts, l->experts, p);
    for (int64_t e = 0; e < l->experts; e++) {
        weight[e] = place(p, l->experts, e) < l->chosen ? p[e] : 0.0;
        sum += weight[e];
    }
    for (int64_t j = 0; j < l->out; j++) {
        y[j] = 0.0;
        for (int64_t e = 0; e < l->experts; e++) {
            y[j] += weight[e] == 0.0
                        ? 0.0
                        : weight[e] / (l->router.normalise ? sum : 1.0) * result_of(l, token, e, j);
        }
    }
}

static double loss(const void *context)
{
    const layer *l = context;
    const double length = (double)l->router.length;
    double total = 0.0, y[64], p[32];
    for (int64_t begin = 0; begin < l->tokens; begin += l->router.length) {
        double visits[32] = {0}, mean[32] = {0};
        for (int64_t t = begin; t < begin + l->router.length; t++) {
            define_token(l, t, y, p);
            for (int64_t j = 0; j < l->out; j++) {
                total += y[j] * (double)ck_at(&l->dy, t, j);
            }
            for (int64_t e = 0; e < l->experts; e++) {
                visits[e] += place(p, l->experts, e) < l->chosen;
                mean[e] += p[e] / length;
            }
        }
        for (int64_t e = 0; e < l->experts; e++) {
            total += length * l->router.balance * (double)l->experts * visits[e] / length * mean[e];
        }
    }
    return total;
}

static void check_gradient(layer *l, const ck_tensor *ours, double *values, const double *before,
                           const char *what)
{
    const int64_t count = ours->t.rows * ours->t.cols;
    double *want = ck_zeros(count);
    ck_gradient(loss, l, values, count, want);
    for (int64_t i = 0; before && i < count; i++) {
        want[i] += before[i];
    }
    ck_close(ours, want, 2e-5, 2e-5, what);
    free(want);
}

static void experts_match_their_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        layer l = layer_make(seed, seed % 2);
        ck_same_bits(run, &l, (ck_tensor *[]){&l.scores, &l.weights, &l.y, &l.dmatrices, &l.dx, &l.dscores},
                     6, "experts");
        double *y = ck_zeros(l.tokens * l.out), p[32], *before = ck_initial(&l.dmatrices);
        for (int64_t t = 0; t < l.tokens; t++) {
            define_token(&l, t, y + t * l.out, p);
        }
        ck_close(&l.y, y, 1e-5, 1e-5, "y");
        check_gradient(&l, &l.dscores, l.score_values, NULL, "gradient of the scores");
        check_gradient(&l, &l.dx, l.x_values, NULL, "gradient of the input");
        check_gradient(&l, &l.dmatrices, l.matrix_values, before, "gradient of the matrices");
        free(y);
        free(before);
        layer_free(&l);
    }
}

/* ---- routes by hand ---- */

enum { TOKENS = 3, EXPERTS = 4, CHOSEN = 2 };

static void route_numbers_rows_by_expert_and_token(void **state)
{
    (void)state;
    float scores[TOKENS][EXPERTS] = {{1, 1, 1, 1}, {0, 0, 2, 1}, {5, NAN, -1, 4}};
    float weights[TOKENS][CHOSEN];
    int32_t memory[EXPERTS + 1 + 3 * TOKENS * CHOSEN];
    const ls_routes routes = ls_routes_in(memory, TOKENS, EXPERTS, CHOSEN);
    const ls_router router = {.normalise = true};
    const ls_tensor s = ls_tensor_f32(&scores[0][0], TOKENS, EXPERTS);
    const ls_tensor w = ls_tensor_f32(&weights[0][0], TOKENS, CHOSEN);
    assert_int_equal(ls_routes_count(TOKENS, EXPERTS, CHOSEN), sizeof memory / sizeof *memory);
    ok(ls_route_forward(ck_queue(0, 1), &router, &s, &w, &routes));
    /* Equal scores: the lowest indices. NaN: two different experts, whichever. */
    assert_memory_equal(routes.expert, ((int32_t[]){0, 1, 2, 3}), 4 * sizeof(int32_t));
    assert_true(routes.expert[4] < routes.expert[5] && routes.expert[5] < EXPERTS);
    assert_true(weights[0][0] == 0.5f && isnan(weights[2][0]));
    for (int row = 0; row < TOKENS * CHOSEN; row++) {
        const int32_t visit = routes.source[row], expert = routes.expert[visit];
        assert_int_equal(routes.row[visit], row);
        assert_in_range(row, routes.first[expert], routes.first[expert + 1] - 1);
        if (row > routes.first[expert]) {
            assert_true(routes.source[row - 1] / CHOSEN < visit / CHOSEN);
        }
    }
    assert_int_equal(routes.first[0], 0);
    assert_int_equal(routes.first[EXPERTS], TOKENS * CHOSEN);
}

static void expert_without_tokens_has_gradient_zero(void **state)
{
    (void)state;
    float scores[2][2] = {{1, 0}, {1, 0}}, weights[2], rows[2][3] = {{1, 2, 3}, {4, 5, 6}}, dy[2] = {1, 10};
    float dmatrices[2][3] = {{NAN, NAN, NAN}, {NAN, NAN, NAN}};
    int32_t memory[2 + 1 + 3 * 2];
    const ls_routes routes = ls_routes_in(memory, 2, 2, 1);
    const ls_router router = {0};
    const ls_tensor s = ls_tensor_f32(&scores[0][0], 2, 2), w = ls_tensor_f32(weights, 2, 1);
    const ls_tensor x = ls_tensor_f32(&rows[0][0], 2, 3), d = ls_tensor_f32(dy, 2, 1);
    const ls_linear linear = linear_of(ls_tensor_f32(&dmatrices[0][0], 2, 3), 2);
    ok(ls_route_forward(ck_queue(0, 1), &router, &s, &w, &routes));
    ok(ls_expert_linear_backward_weight(ck_queue(0, 1), &routes, &linear, &x, &d, &linear.weight, false));
    assert_memory_equal(dmatrices, ((float[2][3]){{41, 52, 63}, {0, 0, 0}}), sizeof dmatrices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_match_their_definition),
        cmocka_unit_test(route_numbers_rows_by_expert_and_token),
        cmocka_unit_test(expert_without_tokens_has_gradient_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
