// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/checkasm.h"

#include "compute/kernels/norm.h"

typedef struct norm_case {
    ls_norm norm;
    int64_t rows, cols;
    bool residual, accumulate;
    ck_tensor a, b, weight, bias, sum, y, mean, rstd, dy, dx, dweight, dbias, workspace;
    double *x64, *w64, *b64, *dy64; /* float64 copies for the reference */
} norm_case;

static void case_init(norm_case *c, uint64_t seed, ls_norm_kind kind)
{
    const int64_t groups = seed % 3 == 0 ? ck_between(seed, 1, 2, 5) : 1;
    const int64_t width = seed % 4 == 0 ? 64 * ck_between(seed, 2, 1, 3) : ck_between(seed, 2, 1, 150);
    *c = (norm_case){.rows = ck_between(seed, 3, 1, 70), .cols = groups * width};
    c->residual = seed % 2 == 0;
    c->accumulate = seed % 5 < 2;
    const int64_t gap = ck_between(seed, 4, 0, 3) * 5, n = c->rows;
    c->a = ck_make(n, c->cols, gap, seed + 1000, 2.0);
    c->b = ck_make(n, c->cols, 3, seed + 2000, 1.0);
    c->weight = ck_make(1, width, 0, seed + 3000, 1.5);
    c->bias = ck_make(1, width, 0, seed + 4000, 1.0);
    c->sum = ck_make(n, c->cols, gap, 1, 0.0);
    c->y = ck_make(n, c->cols, gap, 1, 0.0);
    c->mean = ck_make(n, groups, 0, 1, 0.0);
    c->rstd = ck_make(n, groups, 0, 1, 0.0);
    c->dy = ck_make(n, c->cols, 1, seed + 5000, 1.0);
    c->dx = ck_make(n, c->cols, gap, seed + 6000, 1.0);
    c->dweight = ck_make(1, width, 0, seed + 7000, 1.0);
    c->dbias = ck_make(1, width, 0, seed + 8000, 1.0);
    c->workspace = ck_make(1, ls_norm_workspace_floats(NULL, n, c->cols, groups), 0, 1, 0.0);
    c->norm = (ls_norm){.kind = kind, .eps = 1e-5f, .groups = groups, .weight = c->weight.t};
    if (kind == LS_NORM_LAYER) {
        c->norm.bias = c->bias.t;
    }
    c->x64 = ck_initial(&c->a);
    c->w64 = ck_initial(&c->weight);
    c->b64 = ck_initial(&c->bias);
    c->dy64 = ck_initial(&c->dy);
    if (c->residual) {
        double *b = ck_initial(&c->b);
        for (int64_t i = 0; i < n * c->cols; i++) {
            c->x64[i] = (float)(c->x64[i] + b[i]); /* the kernel's sum is rounded to float32 */
        }
        free(b);
    }
}

static void case_release(norm_case *c)
{
    ck_tensor *all[] = {&c->a,    &c->b,  &c->weight, &c->bias,    &c->sum,   &c->y,        &c->mean,
                        &c->rstd, &c->dy, &c->dx,     &c->dweight, &c->dbias, &c->workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ck_free(all[i]);
    }
    free(c->x64);
    free(c->w64);
    free(c->b64);
    free(c->dy64);
}

static double mean64(const double *x, int64_t n)
{
    double s = 0.0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i];
    }
    return s / (double)n;
}

/* The definition, float64: one group. */
static void norm64(const norm_case *c, const double *x, double *y, double *mean_out, double *rstd_out)
{
    const int64_t n = c->cols / c->norm.groups;
    const bool layer = c->norm.kind == LS_NORM_LAYER;
    const double mean = layer ? mean64(x, n) : 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    const double rstd = 1.0 / sqrt(squares / (double)n + c->norm.eps);
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) * rstd * c->w64[i] + (layer ? c->b64[i] : 0.0);
    }
    *mean_out = mean;
    *rstd_out = rstd;
}

static void run_forward(ls_queue *queue, void *context)
{
    norm_case *c = context;
    const ls_tensor absent = {0};
    const ls_tensor *mean = c->norm.kind == LS_NORM_LAYER ? &c->mean.t : &absent;
    const ls_status status = c->residual
                                 ? ls_norm_forward_residual(queue, &c->norm, &c->a.t, &c->b.t, &c->sum.t,
                                                            &c->y.t, mean, &c->rstd.t)
                                 : ls_norm_forward(queue, &c->norm, &c->a.t, &c->y.t, mean, &c->rstd.t);
    assert_int_equal(status, LS_OK);
}

static void check_forward(norm_case *c)
{
    ck_tensor *outputs[] = {&c->sum, &c->y, &c->mean, &c->rstd};
    ck_same_bits(run_forward, c, outputs, 4, "norm forward");
    const int64_t n = c->cols / c->norm.groups;
    double *y = ck_zeros(c->rows * c->cols), *mean = ck_zeros(c->rows * c->norm.groups);
    double *rstd = ck_zeros(c->rows * c->norm.groups);
    for (int64_t g = 0; g < c->rows * c->norm.groups; g++) {
        norm64(c, c->x64 + g * n, y + g * n, &mean[g], &rstd[g]);
    }
    /* A group of one element has variance 0 and hat ~ 0 / sqrt(eps): its rounding error is 316
     * times larger.
     */
    const double loose = n == 1 ? 1e-4 : 4e-6;
    ck_close(&c->y, y, loose, loose, "norm y");
    ck_close(&c->rstd, rstd, 0.0, 1e-6, "norm rstd");
    if (c->norm.kind == LS_NORM_LAYER) {
        ck_close(&c->mean, mean, 1e-6, 0.0, "norm mean");
    }
    if (c->residual) {
        ck_close(&c->sum, c->x64, 0.0, 0.0, "norm sum");
    }
    free(y);
    free(mean);
    free(rstd);
}

static void run_backward(ls_queue *queue, void *context)
{
    norm_case *c = context;
    const ls_tensor absent = {0};
    const bool layer = c->norm.kind == LS_NORM_LAYER;
    const ls_tensor *x = c->residual ? &c->sum.t : &c->a.t;
    assert_int_equal(ls_norm_backward(queue, &c->norm, x, &c->dy.t, layer ? &c->mean.t : &absent, &c->rstd.t,
                                      &c->dx.t, c->accumulate, &c->dweight.t, layer ? &c->dbias.t : &absent,
                                      c->accumulate, &c->workspace.t),
                     LS_OK);
}

/* Loss whose gradient is wanted: sum of dy . y, over one row for dx, over all for the weights. */
static int64_t loss_row_first, loss_row_count;

static double loss64(const void *context)
{
    const norm_case *c = context;
    const int64_t n = c->cols / c->norm.groups;
    double y[1024], mean, rstd, loss = 0.0;
    for (int64_t g = loss_row_first * c->norm.groups; g < (loss_row_first + loss_row_count) * c->norm.groups;
         g++) {
        norm64(c, c->x64 + g * n, y, &mean, &rstd);
        for (int64_t i = 0; i < n; i++) {
            loss += y[i] * c->dy64[g * n + i];
        }
    }
    return loss;
}

static void add_initial(const norm_case *c, const ck_tensor *t, double *gradient)
{
    double *initial = ck_initial(t);
    for (int64_t i = 0; i < t->t.rows * t->t.cols; i++) {
        gradient[i] += c->accumulate ? initial[i] : 0.0;
    }
    free(initial);
}

static void check_backward(norm_case *c)
{
    ck_tensor *outputs[] = {&c->dx, &c->dweight, &c->dbias};
    ck_same_bits(run_backward, c, outputs, 3, "norm backward");
    const int64_t n = c->cols / c->norm.groups;
    double *dx = ck_zeros(c->rows * c->cols), *dw = ck_zeros(n), *db = ck_zeros(n);
    loss_row_count = 1;
    for (int64_t r = 0; r < c->rows; r++) {
        loss_row_first = r;
        ck_gradient(loss64, c, c->x64 + r * c->cols, c->cols, dx + r * c->cols);
    }
    loss_row_first = 0;
    loss_row_count = c->rows;
    ck_gradient(loss64, c, c->w64, n, dw);
    ck_gradient(loss64, c, c->b64, n, db);
    add_initial(c, &c->dx, dx);
    add_initial(c, &c->dweight, dw);
    add_initial(c, &c->dbias, db);
    /* One and two elements: rstd is up to 316 and the terms of dx cancel. */
    const double loose = n <= 2 ? 2e-2 : 2e-5;
    ck_close(&c->dx, dx, loose, loose, "norm dx");
    ck_close(&c->dweight, dw, 2e-4, 1e-5, "norm dweight");
    if (c->norm.kind == LS_NORM_LAYER) {
        ck_close(&c->dbias, db, 1e-4, 1e-5, "norm dbias");
    }
    free(dx);
    free(dw);
    free(db);
}

static void norm_matches_float64_on_random_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 24; seed++) {
        norm_case c;
        case_init(&c, seed, (seed / 2) % 2 ? LS_NORM_LAYER : LS_NORM_RMS);
        check_forward(&c);
        check_backward(&c);
        case_release(&c);
    }
}

static void norm_forward_may_work_in_place(void **state)
{
    (void)state;
    norm_case c;
    case_init(&c, 7, LS_NORM_LAYER);
    c.residual = false;
    run_forward(ck_queue(0, 1), &c);
    assert_int_equal(ls_norm_forward(ck_queue(0, 1), &c.norm, &c.a.t, &c.a.t, &c.mean.t, &c.rstd.t), LS_OK);
    for (int64_t r = 0; r < c.rows; r++) {
        assert_memory_equal(ls_tensor_row(&c.a.t, r), ls_tensor_row(&c.y.t, r),
                            (size_t)c.cols * sizeof(float));
    }
    case_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_matches_float64_on_random_shapes),
        cmocka_unit_test(norm_forward_may_work_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
