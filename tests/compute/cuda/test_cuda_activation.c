// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/activation.h"

/* ---- the definitions, float64 ---- */

static double gelu(double x)
{
    const double u = sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);
    return x / (1.0 + exp(-2.0 * u));
}

static double gelu_slope(double x)
{
    const double root = sqrt(2.0 / M_PI), u = root * (x + 0.044715 * x * x * x);
    const double s = 1.0 / (1.0 + exp(-2.0 * u));
    return s + x * s * (1.0 / (1.0 + exp(2.0 * u))) * 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x);
}

static double silu(double g)
{
    return g / (1.0 + exp(-g));
}

static double silu_slope(double g)
{
    const double s = 1.0 / (1.0 + exp(-g));
    return s * (1.0 + g / (1.0 + exp(g)));
}

/* ---- cases ---- */

typedef struct activation_case {
    /* gelu: x. swiglu: gate_up. */
    cuda_matrix x, dy, y, dx;
} activation_case;

static activation_case case_make(uint64_t seed, ls_dtype dtype, int halves)
{
    static const int64_t gaps[] = {0, 8, 3}, widths[] = {1, 8, 40, 256, 13, 264};
    const int64_t rows = cuda_between(seed, 1, 1, 50), cols = widths[seed % 6], gap = gaps[seed % 3];
    activation_case c = {.x = cuda_matrix_make(dtype, rows, halves * cols, gap, seed + 100, 6.0),
                         .dy = cuda_matrix_make(dtype, rows, cols, gap, seed + 200, 1.0),
                         .y = cuda_matrix_make(dtype, rows, cols, gap, 0, 0.0),
                         .dx = cuda_matrix_make(dtype, rows, halves * cols, gap, 0, 0.0)};
    return c;
}

static void case_free(activation_case *c)
{
    cuda_matrix_free(&c->x);
    cuda_matrix_free(&c->dy);
    cuda_matrix_free(&c->y);
    cuda_matrix_free(&c->dx);
}

static void run_gelu_forward(void *context)
{
    activation_case *c = context;
    CUDA_OK(ls_gelu_forward(cuda_queue(), &c->x.t, &c->y.t));
}

static void run_gelu_backward(void *context)
{
    activation_case *c = context;
    CUDA_OK(ls_gelu_backward(cuda_queue(), &c->x.t, &c->dy.t, &c->dx.t));
}

static void run_swiglu_forward(void *context)
{
    activation_case *c = context;
    CUDA_OK(ls_swiglu_forward(cuda_queue(), &c->x.t, &c->y.t));
}

static void run_swiglu_backward(void *context)
{
    activation_case *c = context;
    CUDA_OK(ls_swiglu_backward(cuda_queue(), &c->x.t, &c->dy.t, &c->dx.t));
}

/* The kernel with its output in the place of an input must give the bits that c->dx has. */
static void check_in_place(activation_case *c, cuda_matrix *place)
{
    const int64_t count = c->dx.t.rows * c->dx.t.cols;
    assert_int_equal(place->t.rows * place->t.cols, count);
    cuda_matrix_read(place);
    assert_memory_equal(place->x, c->dx.x, (size_t)count * sizeof(double));
}

static void check_gelu(uint64_t seed, ls_dtype dtype)
{
    activation_case c = case_make(seed, dtype, 1);
    const int64_t count = c.x.t.rows * c.x.t.cols;
    double *y = cuda_doubles(count), *dx = cuda_doubles(count);
    for (int64_t i = 0; i < count; i++) {
        y[i] = gelu(c.x.x[i]);
        dx[i] = c.dy.x[i] * gelu_slope(c.x.x[i]);
    }
    cuda_same_bits(run_gelu_forward, &c, (cuda_matrix *const[]){&c.y}, 1);
    cuda_same_bits(run_gelu_backward, &c, (cuda_matrix *const[]){&c.dx}, 1);
    cuda_matrix_check(&c.y, y, cuda_tolerance(dtype), "y");
    cuda_matrix_check(&c.dx, dx, cuda_tolerance(dtype), "dx");
    CUDA_OK(ls_gelu_backward(cuda_queue(), &c.x.t, &c.dy.t, &c.dy.t));
    check_in_place(&c, &c.dy);
    free(y);
    free(dx);
    case_free(&c);
}

static void check_swiglu(uint64_t seed, ls_dtype dtype)
{
    activation_case c = case_make(seed, dtype, 2);
    const int64_t f = c.y.t.cols, count = c.y.t.rows * f;
    double *y = cuda_doubles(count), *dx = cuda_doubles(2 * count);
    for (int64_t i = 0; i < count; i++) {
        const int64_t gate = i / f * 2 * f + i % f;
        const double g = c.x.x[gate], u = c.x.x[gate + f];
        y[i] = silu(g) * u;
        dx[gate] = c.dy.x[i] * u * silu_slope(g);
        dx[gate + f] = c.dy.x[i] * silu(g);
    }
    cuda_same_bits(run_swiglu_forward, &c, (cuda_matrix *const[]){&c.y}, 1);
    cuda_same_bits(run_swiglu_backward, &c, (cuda_matrix *const[]){&c.dx}, 1);
    cuda_matrix_check(&c.y, y, cuda_tolerance(dtype), "y");
    cuda_matrix_check(&c.dx, dx, cuda_tolerance(dtype), "dgate_up");
    CUDA_OK(ls_swiglu_backward(cuda_queue(), &c.x.t, &c.dy.t, &c.x.t));
    check_in_place(&c, &c.x);
    free(y);
    free(dx);
    case_free(&c);
}

static void gelu_matches_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 18; seed++) {
        check_gelu(seed, LS_F32);
        check_gelu(seed + 1000, LS_BF16);
    }
}

static void swiglu_matches_the_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 18; seed++) {
        check_swiglu(seed, LS_F32);
        check_swiglu(seed + 1000, LS_BF16);
    }
}

/* ---- far from zero ---- */

static const double far[] = {0.0,   -0.5, -5.0, -9.0,  9.0,  -30.0, 30.0, -100.0,
                             100.0, -1e4, 1e4,  -1e15, 1e15, -1e30, 1e30};
enum { FAR = sizeof far / sizeof far[0] };

/* Each number close to its own reference, not only their sum. */
static void check_each(cuda_matrix *m, const double *wanted, double relative)
{
    cuda_matrix_read(m);
    for (int i = 0; i < FAR; i++) {
        const double error = fabs(m->x[i] - wanted[i]);
        if (!(error <= relative * fabs(wanted[i]) + 1e-30)) {
            fail_msg("at %g: %.9g, wanted %.9g", far[i], m->x[i], wanted[i]);
        }
    }
}

static void check_limits(ls_dtype dtype)
{
    /* The argument of exp is rounded, and it is up to 60 here. */
    const double relative = dtype == LS_BF16 ? 1e-2 : 1e-5;
    cuda_matrix x = cuda_matrix_make(dtype, 1, FAR, 0, 1, 1.0),
                dy = cuda_matrix_make(dtype, 1, FAR, 0, 1, 1.0);
    cuda_matrix y = cuda_matrix_make(dtype, 1, FAR, 0, 0, 0.0),
                dx = cuda_matrix_make(dtype, 1, FAR, 0, 0, 0.0);
    double wanted[FAR], slope[FAR];
    for (int i = 0; i < FAR; i++) {
        x.x[i] = cuda_rounded(dtype, far[i]);
        dy.x[i] = 1.0;
        wanted[i] = fabs(far[i]) < 200.0 ? gelu(x.x[i]) : far[i] > 0.0 ? x.x[i] : 0.0;
        slope[i] = fabs(far[i]) < 200.0 ? gelu_slope(x.x[i]) : far[i] > 0.0 ? 1.0 : 0.0;
    }
    cuda_matrix_write(&x);
    cuda_matrix_write(&dy);
    CUDA_OK(ls_gelu_forward(cuda_queue(), &x.t, &y.t));
    CUDA_OK(ls_gelu_backward(cuda_queue(), &x.t, &dy.t, &dx.t));
    check_each(&y, wanted, relative);
    check_each(&dx, slope, relative);
    cuda_matrix_free(&x);
    cuda_matrix_free(&dy);
    cuda_matrix_free(&y);
    cuda_matrix_free(&dx);
}

static void check_swiglu_limits(ls_dtype dtype)
{
    cuda_matrix x = cuda_matrix_make(dtype, 1, 2 * FAR, 0, 1, 1.0),
                dy = cuda_matrix_make(dtype, 1, FAR, 0, 1, 1.0);
    cuda_matrix y = cuda_matrix_make(dtype, 1, FAR, 0, 0, 0.0),
                dx = cuda_matrix_make(dtype, 1, 2 * FAR, 0, 0, 0.0);
    double wanted[FAR], slopes[2 * FAR];
    for (int i = 0; i < FAR; i++) {
        x.x[i] = cuda_rounded(dtype, far[i]);
        x.x[FAR + i] = dy.x[i] = 1.0;
        const bool is_near = fabs(far[i]) < 200.0;
        wanted[i] = slopes[FAR + i] = is_near ? silu(x.x[i]) : far[i] > 0.0 ? x.x[i] : 0.0;
        slopes[i] = is_near ? silu_slope(x.x[i]) : far[i] > 0.0 ? 1.0 : 0.0;
    }
    cuda_matrix_write(&x);
    cuda_matrix_write(&dy);
    CUDA_OK(ls_swiglu_forward(cuda_queue(), &x.t, &y.t));
    CUDA_OK(ls_swiglu_backward(cuda_queue(), &x.t, &dy.t, &dx.t));
    const double relative = dtype == LS_BF16 ? 1e-2 : 2e-5;
    check_each(&y, wanted, relative);
    cuda_matrix_read(&dx);
    for (int i = 0; i < 2 * FAR; i++) {
        if (!(fabs(dx.x[i] - slopes[i]) <= relative * fabs(slopes[i]) + 1e-30)) {
            fail_msg("dgate_up %d at %g: %.9g, wanted %.9g", i / FAR, far[i % FAR], dx.x[i], slopes[i]);
        }
    }
    cuda_matrix_free(&x);
    cuda_matrix_free(&dy);
    cuda_matrix_free(&y);
    cuda_matrix_free(&dx);
}

static void gelu_has_limits_far_from_zero(void **state)
{
    (void)state;
    check_limits(LS_F32);
    check_limits(LS_BF16);
}

static void swiglu_has_limits_far_from_zero(void **state)
{
    (void)state;
    check_swiglu_limits(LS_F32);
    check_swiglu_limits(LS_BF16);
}

int main(void)
{
    (void)cuda_queue();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_matches_the_definition),
        cmocka_unit_test(swiglu_matches_the_definition),
        cmocka_unit_test(gelu_has_limits_far_from_zero),
        cmocka_unit_test(swiglu_has_limits_far_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
