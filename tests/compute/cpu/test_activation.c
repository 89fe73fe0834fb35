// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/checkasm.h"

#include "compute/kernels/activation.h"

typedef struct activation_case {
    ck_tensor x, y, dy, dx;
    bool swiglu, in_place;
} activation_case;

static activation_case case_make(uint64_t seed, bool swiglu)
{
    const int64_t rows = ck_between(seed, 1, 1, 60), cols = ck_between(seed, 2, 1, 700);
    const int64_t wide = swiglu ? 2 * cols : cols, gap = ck_between(seed, 3, 0, 9);
    return (activation_case){.x = ck_make(rows, wide, gap, seed + 100, seed % 2 ? 4.0 : 30.0),
                             .y = ck_make(rows, cols, 2, 1, 0.0),
                             .dy = ck_make(rows, cols, gap, seed + 200, 1.0),
                             .dx = ck_make(rows, wide, 0, 1, 0.0),
                             .swiglu = swiglu};
}

static void case_release(activation_case *c)
{
    ck_free(&c->x);
    ck_free(&c->y);
    ck_free(&c->dy);
    ck_free(&c->dx);
}

static void run_forward(ls_queue *queue, void *context)
{
    activation_case *c = context;
    assert_int_equal((c->swiglu ? ls_swiglu_forward : ls_gelu_forward)(queue, &c->x.t, &c->y.t), LS_OK);
}

static void run_backward(ls_queue *queue, void *context)
{
    activation_case *c = context;
    assert_int_equal((c->swiglu ? ls_swiglu_backward : ls_gelu_backward)(queue, &c->x.t, &c->dy.t, &c->dx.t),
                     LS_OK);
}

static double gelu64(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double swiglu64(double gate, double up)
{
    return gate / (1.0 + exp(-gate)) * up;
}

static void check_gelu(activation_case *c)
{
    const int64_t count = c->x.t.rows * c->x.t.cols;
    double *x = ck_initial(&c->x), *dy = ck_initial(&c->dy), *y = ck_zeros(count), *dx = ck_zeros(count);
    for (int64_t i = 0; i < count; i++) {
        y[i] = gelu64(x[i]);
        dx[i] = dy[i] * (gelu64(x[i] + 1e-5) - gelu64(x[i] - 1e-5)) / 2e-5;
    }
    ck_close(&c->y, y, 1e-6, 1e-6, "gelu");
    ck_close(&c->dx, dx, 2e-6, 2e-6, "gelu backward");
    free(x);
    free(dy);
    free(y);
    free(dx);
}

static void check_swiglu(activation_case *c)
{
    const int64_t rows = c->y.t.rows, cols = c->y.t.cols;
    double *x = ck_initial(&c->x), *dy = ck_initial(&c->dy);
    double *y = ck_zeros(rows * cols), *dx = ck_zeros(2 * rows * cols);
    for (int64_t i = 0; i < rows * cols; i++) {
        const int64_t at = i / cols * 2 * cols + i % cols;
        const double gate = x[at], up = x[at + cols];
        y[i] = swiglu64(gate, up);
        dx[at] = dy[i] * (swiglu64(gate + 1e-5, up) - swiglu64(gate - 1e-5, up)) / 2e-5;
        dx[at + cols] = dy[i] * swiglu64(gate, 1.0);
    }
    ck_close(&c->y, y, 1e-6, 1e-6, "swiglu");
    ck_close(&c->dx, dx, 1e-5, 2e-6, "swiglu backward");
    free(x);
    free(dy);
    free(y);
    free(dx);
}

static void activation_matches_float64_on_random_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 16; seed++) {
        activation_case c = case_make(seed, seed / 2 % 2);
        ck_same_bits(run_forward, &c, (ck_tensor *[]){&c.y}, 1, "activation forward");
        ck_same_bits(run_backward, &c, (ck_tensor *[]){&c.dx}, 1, "activation backward");
        (c.swiglu ? check_swiglu : check_gelu)(&c);
        case_release(&c);
    }
}

/* dx may be dy, and dgate_up may be gate_up. */
static void activation_backward_may_work_in_place(void **state)
{
    (void)state;
    for (int isa = 0; isa < 3; isa++) {
        ls_queue *queue = ck_queue(isa, 2);
        if (!queue) {
            continue;
        }
        activation_case c = case_make(5, false);
        run_backward(queue, &c);
        assert_int_equal(ls_gelu_backward(queue, &c.x.t, &c.dy.t, &c.dy.t), LS_OK);
        for (int64_t r = 0; r < c.x.t.rows; r++) {
            assert_memory_equal(ls_tensor_row(&c.dy.t, r), ls_tensor_row(&c.dx.t, r), (size_t)c.x.t.cols * 4);
        }
        case_release(&c);
        c = case_make(6, true);
        run_backward(queue, &c);
        assert_int_equal(ls_swiglu_backward(queue, &c.x.t, &c.dy.t, &c.x.t), LS_OK);
        for (int64_t r = 0; r < c.x.t.rows; r++) {
            assert_memory_equal(ls_tensor_row(&c.x.t, r), ls_tensor_row(&c.dx.t, r), (size_t)c.x.t.cols * 4);
        }
        case_release(&c);
    }
}

static void activation_extremes_are_finite(void **state)
{
    (void)state;
    float x[] = {-1e4f, -200.0f, -88.0f, -0.0f, 0.0f, 88.0f, 200.0f, 1e4f}, y[8], dy[8], dx[8];
    for (int i = 0; i < 8; i++) {
        dy[i] = 1.0f;
    }
    const ls_tensor tx = ls_tensor_f32(x, 1, 8), ty = ls_tensor_f32(y, 1, 8);
    const ls_tensor tdy = ls_tensor_f32(dy, 1, 8), tdx = ls_tensor_f32(dx, 1, 8);
    assert_int_equal(ls_gelu_forward(ck_queue(0, 1), &tx, &ty), LS_OK);
    assert_int_equal(ls_gelu_backward(ck_queue(0, 1), &tx, &tdy, &tdx), LS_OK);
    for (int i = 0; i < 8; i++) {
        assert_float_equal(y[i], x[i] > 0.0f ? x[i] : 0.0f, 1e-6);
        assert_float_equal(dx[i], x[i] > 0.0f ? 1.0f : x[i] == 0.0f ? 0.5f : 0.0f, 1e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activation_matches_float64_on_random_shapes),
        cmocka_unit_test(activation_backward_may_work_in_place),
        cmocka_unit_test(activation_extremes_are_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
