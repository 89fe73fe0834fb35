// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/norm.h"

/* Widths of a group: every way in which threads share a row (src/compute/cuda/norm.c), whole and odd. */
static const int64_t widths[] = {5,   8,   64,  100, 128,  200,  256,  264,
                                 512, 520, 768, 771, 1024, 1600, 2048, 4097};
enum { WIDTHS = sizeof widths / sizeof widths[0] };

typedef struct norm_case {
    ls_norm norm;
    ls_dtype dtype;
    int64_t rows, cols;
    bool residual, accumulate;
    cuda_matrix a, b, weight, bias, sum, y, mean, rstd, dy, dx, dweight, dbias, workspace;
    /* The input of the norm, and what dx, dweight and dbias held before, on the host. */
    double *x, *old_dx, *old_dweight, *old_dbias;
} norm_case;

static double *copy_of(const cuda_matrix *m)
{
    double *copy = cuda_doubles(m->t.rows * m->t.cols);
    memcpy(copy, m->x, (size_t)(m->t.rows * m->t.cols) * sizeof *copy);
    return copy;
}

static void case_shape(norm_case *c, uint64_t seed, ls_norm_kind kind)
{
    const int64_t width = widths[seed % WIDTHS];
    const int64_t groups = width <= 256 && seed % 3 == 0 ? cuda_between(seed, 1, 2, 5) : 1;
    /* Enough for several tiles of the narrow ones, few enough for the wide ones. */
    c->rows = cuda_between(seed, 2, 1, width <= 256 ? 150 : width <= 800 ? 70 : 12);
    c->cols = groups * width;
    c->residual = cuda_between(seed, 3, 0, 1) == 1;
    c->accumulate = cuda_between(seed, 4, 0, 1) == 1;
    c->norm = (ls_norm){.kind = kind, .eps = 1e-5f, .groups = groups};
}

static norm_case case_make(uint64_t seed, ls_norm_kind kind, ls_dtype dtype)
{
    norm_case c = {.dtype = dtype};
    case_shape(&c, seed, kind);
    static const int64_t gaps[] = {0, 8, 3};
    const int64_t n = c.rows, width = c.cols / c.norm.groups, gap = gaps[cuda_between(seed, 5, 0, 2)];
    const int64_t other = gap == 8 ? 16 : gap;
    c.a = cuda_matrix_make(dtype, n, c.cols, gap, seed + 1000, 2.0);
    c.b = cuda_matrix_make(dtype, n, c.cols, other, seed + 2000, 1.0);
    c.weight = cuda_matrix_make(dtype, 1, width, 0, seed + 3000, 1.5);
    c.bias = cuda_matrix_make(dtype, 1, width, 0, seed + 4000, 1.0);
    c.sum = cuda_matrix_make(dtype, n, c.cols, other, 0, 0.0);
    c.y = cuda_matrix_make(dtype, n, c.cols, gap, 0, 0.0);
    c.mean = cuda_matrix_make(LS_F32, n, c.norm.groups, 0, 0, 0.0);
    c.rstd = cuda_matrix_make(LS_F32, n, c.norm.groups, 1, 0, 0.0);
    c.dy = cuda_matrix_make(dtype, n, c.cols, other, seed + 5000, 1.0);
    c.dx = cuda_matrix_make(dtype, n, c.cols, gap, seed + 6000, c.accumulate ? 1.0 : 0.0);
    c.dweight = cuda_matrix_make(LS_F32, 1, width, 0, seed + 7000, c.accumulate ? 1.0 : 0.0);
    c.dbias = cuda_matrix_make(LS_F32, 1, width, 0, seed + 8000, c.accumulate ? 1.0 : 0.0);
    const int64_t floats = ls_norm_workspace_floats(cuda_queue(), n, c.cols, c.norm.groups);
    c.workspace = cuda_matrix_make(LS_F32, 1, floats, 0, 0, 0.0);
    c.norm.weight = c.weight.t;
    if (kind == LS_NORM_LAYER && cuda_between(seed, 6, 0, 3) > 0) {
        c.norm.bias = c.bias.t;
    }
    c.x = copy_of(&c.a);
    for (int64_t i = 0; c.residual && i < n * c.cols; i++) {
        c.x[i] = cuda_rounded(dtype, c.x[i] + c.b.x[i]);
    }
    c.old_dx = copy_of(&c.dx);
    c.old_dweight = copy_of(&c.dweight);
    c.old_dbias = copy_of(&c.dbias);
    return c;
}

static void case_free(norm_case *c)
{
    cuda_matrix *all[] = {&c->a,    &c->b,  &c->weight, &c->bias,    &c->sum,   &c->y,        &c->mean,
                          &c->rstd, &c->dy, &c->dx,     &c->dweight, &c->dbias, &c->workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cuda_matrix_free(all[i]);
    }
    free(c->x);
    free(c->old_dx);
    free(c->old_dweight);
    free(c->old_dbias);
}

/* ---- the definition, float64 ---- */

static double mean_of(const double *x, int64_t n)
{
    double s = 0.0;
    for (int64_t i = 0; i < n; i++) {
        s += x[i];
    }
    return s / (double)n;
}

static void statistics(const norm_case *c, const double *x, double *mean_out, double *rstd_out)
{
    const int64_t n = c->cols / c->norm.groups;
    const double mean = c->norm.kind == LS_NORM_LAYER ? mean_of(x, n) : 0.0;
    double squares = 0.0;
    for (int64_t i = 0; i < n; i++) {
        squares += (x[i] - mean) * (x[i] - mean);
    }
    *mean_out = mean;
    *rstd_out = 1.0 / sqrt(squares / (double)n + c->norm.eps);
}

static void reference_forward(const norm_case *c, double *y, double *mean, double *rstd)
{
    const int64_t n = c->cols / c->norm.groups;
    for (int64_t g = 0; g < c->rows * c->norm.groups; g++) {
        statistics(c, c->x + g * n, &mean[g], &rstd[g]);
        for (int64_t i = 0; i < n; i++) {
            y[g * n + i] = (c->x[g * n + i] - mean[g]) * rstd[g] * c->weight.x[i] +
                           (c->norm.bias.data ? c->bias.x[i] : 0.0);
        }
    }
}

/* One group; dweight and dbias are added to. */
static void group_backward(const norm_case *c, const double *x, const double *dy, double *dx, double *dweight,
                           double *dbias)
{
    const int64_t n = c->cols / c->norm.groups;
    double mean, rstd, sum = 0.0, hat_sum = 0.0;
    statistics(c, x, &mean, &rstd);
    for (int64_t i = 0; i < n; i++) {
        const double hat = (x[i] - mean) * rstd, d = dy[i] * c->weight.x[i];
        sum += c->norm.kind == LS_NORM_LAYER ? d / (double)n : 0.0;
        hat_sum += d * hat / (double)n;
        dweight[i] += dy[i] * hat;
        dbias[i] += dy[i];
    }
    for (int64_t i = 0; i < n; i++) {
        const double hat = (x[i] - mean) * rstd;
        dx[i] = rstd * (dy[i] * c->weight.x[i] - sum - hat * hat_sum);
    }
}

/* ---- the kernels ---- */

static const ls_tensor absent = {0};

static const ls_tensor *mean_or_absent(const norm_case *c)
{
    return c->norm.kind == LS_NORM_LAYER ? &c->mean.t : &absent;
}

static void run_forward(void *context)
{
    norm_case *c = context;
    if (c->residual) {
        CUDA_OK(ls_norm_forward_residual(cuda_queue(), &c->norm, &c->a.t, &c->b.t, &c->sum.t, &c->y.t,
                                         mean_or_absent(c), &c->rstd.t));
    } else {
        CUDA_OK(ls_norm_forward(cuda_queue(), &c->norm, &c->a.t, &c->y.t, mean_or_absent(c), &c->rstd.t));
    }
}

static void run_backward(void *context)
{
    norm_case *c = context;
    CUDA_OK(ls_norm_backward(cuda_queue(), &c->norm, c->residual ? &c->sum.t : &c->a.t, &c->dy.t,
                             mean_or_absent(c), &c->rstd.t, &c->dx.t, c->accumulate, &c->dweight.t,
                             c->norm.kind == LS_NORM_LAYER ? &c->dbias.t : &absent, c->accumulate,
                             &c->workspace.t));
}

static void check_forward(norm_case *c)
{
    cuda_matrix *const outputs[] = {&c->sum, &c->y, &c->mean, &c->rstd};
    const int64_t units = c->rows * c->norm.groups;
    double *y = cuda_doubles(c->rows * c->cols), *mean = cuda_doubles(units), *rstd = cuda_doubles(units);
    cuda_same_bits(run_forward, c, outputs, 4);
    reference_forward(c, y, mean, rstd);
    if (c->residual) {
        cuda_matrix_check(&c->sum, c->x, 0.0, "sum");
    }
    cuda_matrix_check(&c->y, y, cuda_tolerance(c->dtype), "y");
    cuda_matrix_check(&c->rstd, rstd, 1e-5, "rstd");
    if (c->norm.kind == LS_NORM_LAYER) {
        cuda_matrix_check(&c->mean, mean, 1e-5, "mean");
    }
    free(y);
    free(mean);
    free(rstd);
}

static void check_backward(norm_case *c)
{
    cuda_matrix *const outputs[] = {&c->dx, &c->dweight, &c->dbias};
    const int64_t n = c->cols / c->norm.groups, units = c->rows * c->norm.groups;
    double *dx = cuda_doubles(c->rows * c->cols), *dweight = cuda_doubles(n), *dbias = cuda_doubles(n);
    cuda_same_bits(run_backward, c, outputs, 3);
    for (int64_t g = 0; g < units; g++) {
        group_backward(c, c->x + g * n, c->dy.x + g * n, dx + g * n, dweight, dbias);
    }
    for (int64_t i = 0; c->accumulate && i < c->rows * c->cols; i++) {
        dx[i] += c->old_dx[i];
    }
    for (int64_t i = 0; c->accumulate && i < n; i++) {
        dweight[i] += c->old_dweight[i];
        dbias[i] += c->old_dbias[i];
    }
    cuda_matrix_check(&c->dx, dx, cuda_tolerance(c->dtype), "dx");
    cuda_matrix_check(&c->dweight, dweight, 1e-5, "dweight");
    if (c->norm.kind == LS_NORM_LAYER) {
        cuda_matrix_check(&c->dbias, dbias, 1e-5, "dbias");
    }
    free(dx);
    free(dweight);
    free(dbias);
}

static void check_case(uint64_t seed, ls_norm_kind kind, ls_dtype dtype)
{
    norm_case c = case_make(seed, kind, dtype);
    check_forward(&c);
    check_backward(&c);
    case_free(&c);
}

static void norm_layer_matches_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < WIDTHS; seed++) {
        check_case(seed, LS_NORM_LAYER, seed % 2 ? LS_BF16 : LS_F32);
        check_case(seed + 100 * WIDTHS, LS_NORM_LAYER, seed % 2 ? LS_F32 : LS_BF16);
    }
}

static void norm_rms_matches_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 200 * WIDTHS; seed < 201 * WIDTHS; seed++) {
        check_case(seed, LS_NORM_RMS, seed % 2 ? LS_BF16 : LS_F32);
        check_case(seed + 100 * WIDTHS, LS_NORM_RMS, seed % 2 ? LS_F32 : LS_BF16);
    }
}

/* ---- aliases ---- */

enum { ALIAS_ROWS = 37 };

/* The middle columns of a wider buffer, as q is in the fused q, k and v, normalised in place. */
static void norm_forward_of_heads_in_place(void **state)
{
    (void)state;
    enum { HEADS = 3, WIDTH = 64, BEFORE = 24, AFTER = 40, COLS = BEFORE + HEADS * WIDTH + AFTER };
    for (int k = 0; k < 2; k++) {
        const ls_dtype dtype = k ? LS_BF16 : LS_F32;
        cuda_matrix buffer = cuda_matrix_make(dtype, ALIAS_ROWS, COLS, 0, 11, 2.0);
        cuda_matrix weight = cuda_matrix_make(dtype, 1, WIDTH, 0, 12, 1.0);
        cuda_matrix rstd = cuda_matrix_make(LS_F32, ALIAS_ROWS, HEADS, 0, 0, 0.0);
        const ls_tensor heads = ls_tensor_columns(buffer.t, BEFORE, HEADS * WIDTH);
        const ls_norm norm = {.kind = LS_NORM_RMS, .eps = 1e-6f, .groups = HEADS, .weight = weight.t};
        double *wanted = copy_of(&buffer);
        for (int64_t g = 0; g < ALIAS_ROWS * HEADS; g++) {
            double *x = wanted + g / HEADS * COLS + BEFORE + g % HEADS * WIDTH, squares = 0.0;
            for (int i = 0; i < WIDTH; i++) {
                squares += x[i] * x[i];
            }
            for (int i = 0; i < WIDTH; i++) {
                x[i] *= weight.x[i] / sqrt(squares / WIDTH + 1e-6);
            }
        }
        CUDA_OK(ls_norm_forward(cuda_queue(), &norm, &heads, &heads, &absent, &rstd.t));
        cuda_matrix_check(&buffer, wanted, cuda_tolerance(dtype), "buffer");
        for (int64_t r = 0; r < ALIAS_ROWS; r++) {
            assert_memory_equal(buffer.x + r * COLS, wanted + r * COLS, BEFORE * sizeof(double));
            assert_memory_equal(buffer.x + (r + 1) * COLS - AFTER, wanted + (r + 1) * COLS - AFTER,
                                AFTER * sizeof(double));
        }
        free(wanted);
        cuda_matrix_free(&buffer);
        cuda_matrix_free(&weight);
        cuda_matrix_free(&rstd);
    }
}

/* sum in the place of a or of b, and dx in that of dy, give the bits of separate memory. */
static void check_aliases(int64_t width, ls_dtype dtype)
{
    ls_queue *queue = cuda_queue();
    cuda_matrix a = cuda_matrix_make(dtype, ALIAS_ROWS, width, 0, 21, 1.0);
    cuda_matrix b = cuda_matrix_make(dtype, ALIAS_ROWS, width, 0, 22, 1.0);
    cuda_matrix weight = cuda_matrix_make(dtype, 1, width, 0, 23, 1.0);
    cuda_matrix sum = cuda_matrix_make(dtype, ALIAS_ROWS, width, 0, 0, 0.0),
                y = cuda_matrix_make(dtype, ALIAS_ROWS, width, 0, 0, 0.0);
    cuda_matrix mean = cuda_matrix_make(LS_F32, ALIAS_ROWS, 1, 0, 0, 0.0),
                rstd = cuda_matrix_make(LS_F32, ALIAS_ROWS, 1, 0, 0, 0.0);
    cuda_matrix workspace =
        cuda_matrix_make(LS_F32, 1, ls_norm_workspace_floats(queue, ALIAS_ROWS, width, 1), 0, 0, 0.0);
    const ls_norm norm = {.kind = LS_NORM_LAYER, .eps = 1e-5f, .groups = 1, .weight = weight.t};
    CUDA_OK(ls_norm_forward_residual(queue, &norm, &a.t, &b.t, &sum.t, &y.t, &mean.t, &rstd.t));
    cuda_matrix_read(&sum);
    cuda_matrix_read(&y);
    const size_t bytes = (size_t)(ALIAS_ROWS * width) * sizeof(double);
    double *wanted = copy_of(&y);
    CUDA_OK(ls_norm_forward_residual(queue, &norm, &a.t, &b.t, &a.t, &y.t, &mean.t, &rstd.t));
    cuda_matrix_read(&a);
    cuda_matrix_read(&y);
    assert_memory_equal(a.x, sum.x, bytes);
    assert_memory_equal(y.x, wanted, bytes);

    /* dy is b, and no weight gradients are wanted. */
    CUDA_OK(ls_norm_backward(queue, &norm, &sum.t, &b.t, &mean.t, &rstd.t, &y.t, false, &absent, &absent,
                             false, &workspace.t));
    CUDA_OK(ls_norm_backward(queue, &norm, &sum.t, &b.t, &mean.t, &rstd.t, &b.t, false, &absent, &absent,
                             false, &workspace.t));
    cuda_matrix_read(&b);
    cuda_matrix_read(&y);
    assert_memory_equal(b.x, y.x, bytes);
    free(wanted);
    cuda_matrix *all[] = {&a, &b, &weight, &sum, &y, &mean, &rstd, &workspace};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cuda_matrix_free(all[i]);
    }
}

static void norm_aliases_change_no_bit(void **state)
{
    (void)state;
    static const int64_t some[] = {64, 100, 768, 1024};
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        check_aliases(some[i], LS_F32);
        check_aliases(some[i], LS_BF16);
    }
}

/* Rows that are far from zero keep their variance. */
static void norm_forward_of_a_large_mean(void **state)
{
    (void)state;
    enum { COLS = 768 };
    cuda_matrix x = cuda_matrix_make(LS_F32, 1, COLS, 0, 31, 1.0);
    for (int i = 0; i < COLS; i++) {
        x.x[i] = (double)(float)(x.x[i] + 1000.0);
    }
    cuda_matrix_write(&x);
    cuda_matrix weight = cuda_matrix_make(LS_F32, 1, COLS, 0, 32, 1.0);
    cuda_matrix y = cuda_matrix_make(LS_F32, 1, COLS, 0, 0, 0.0);
    cuda_matrix mean = cuda_matrix_make(LS_F32, 1, 1, 0, 0, 0.0),
                rstd = cuda_matrix_make(LS_F32, 1, 1, 0, 0, 0.0);
    const norm_case c = {.norm = {.kind = LS_NORM_LAYER, .eps = 1e-5f, .groups = 1, .weight = weight.t},
                         .cols = COLS};
    double mean64, rstd64;
    statistics(&c, x.x, &mean64, &rstd64);
    CUDA_OK(ls_norm_forward(cuda_queue(), &c.norm, &x.t, &y.t, &mean.t, &rstd.t));
    cuda_matrix_check(&mean, &mean64, 1e-6, "mean");
    cuda_matrix_check(&rstd, &rstd64, 1e-5, "rstd");
    cuda_matrix *all[] = {&x, &weight, &y, &mean, &rstd};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        cuda_matrix_free(all[i]);
    }
}

int main(void)
{
    (void)cuda_queue();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norm_layer_matches_the_definition),
        cmocka_unit_test(norm_rms_matches_the_definition),
        cmocka_unit_test(norm_forward_of_heads_in_place),
        cmocka_unit_test(norm_aliases_change_no_bit),
        cmocka_unit_test(norm_forward_of_a_large_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
