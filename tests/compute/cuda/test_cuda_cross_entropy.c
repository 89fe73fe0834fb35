// SPDX-License-Identifier: Apache-2.0
/*
 * Cross-entropy on a GPU against float64: losses, gradients, padding, and numbers at the limits.
 */
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/cross_entropy.h"

typedef struct loss_case {
    int64_t rows, vocab, gap;
    ls_dtype dtype;
    double scale;
} loss_case;

static const loss_case cases[] = {
    {3, 1, 0, LS_F32, 1.0},      {5, 7, 1, LS_BF16, 4.0},     {4, 257, 0, LS_F32, 6.0},
    {4, 257, 0, LS_BF16, 6.0},   {3, 2053, 3, LS_F32, 20.0},  {3, 5001, 55, LS_BF16, 8.0},
    {2, 16385, 15, LS_F32, 4.0}, {2, 33000, 24, LS_F32, 2.0}, {1, 60001, 31, LS_BF16, 2.0},
    {3, 100, 1, LS_BF16, 300.0}, {2, 4104, 0, LS_BF16, 3.0},
};

/* Logits, targets and losses of one call. */
typedef struct loss_call {
    cuda_matrix logits;
    int32_t *targets;
    float *losses;
    bool with_gradient;
} loss_call;

/* Targets at random, but the last of several rows is ignored. */
static loss_call call_make(const loss_case *c)
{
    loss_call call = {.logits = cuda_matrix_make(c->dtype, c->rows, c->vocab, c->gap, 1, c->scale),
                      .targets = cuda_shared((size_t)c->rows * sizeof(int32_t)),
                      .losses = cuda_shared((size_t)c->rows * sizeof(float))};
    for (int64_t r = 0; r < c->rows; r++) {
        const bool is_ignored = r > 0 && r + 1 == c->rows;
        call.targets[r] =
            is_ignored ? LS_TARGET_IGNORED : (int32_t)cuda_between(2, (uint64_t)r, 0, c->vocab - 1);
    }
    return call;
}

static void call_free(loss_call *call)
{
    const size_t bytes = (size_t)call->logits.t.rows * sizeof(float);
    ls_shared_free(cuda_queue(), call->targets, bytes);
    ls_shared_free(cuda_queue(), call->losses, bytes);
    cuda_matrix_free(&call->logits);
}

static void run(void *context)
{
    const loss_call *call = context;
    memset(call->losses, 0xff, (size_t)call->logits.t.rows * sizeof *call->losses);
    CUDA_OK(ls_cross_entropy(cuda_queue(), NULL, &call->logits.t, call->targets, call->losses,
                             call->with_gradient));
    CUDA_OK(ls_queue_wait(cuda_queue()));
}

/* losses and (rows, vocab) gradients by the definition. */
static void plain_losses(const loss_call *call, double *losses, double *gradient)
{
    const int64_t vocab = call->logits.t.cols;
    for (int64_t r = 0; r < call->logits.t.rows; r++) {
        const double *x = call->logits.x + r * vocab;
        double top = x[0], sum = 0.0;
        for (int64_t j = 0; j < vocab; j++) {
            top = fmax(top, x[j]);
        }
        for (int64_t j = 0; j < vocab; j++) {
            sum += exp(x[j] - top);
        }
        const int32_t target = call->targets[r];
        const bool is_ignored = target == LS_TARGET_IGNORED;
        losses[r] = is_ignored ? 0.0 : top + log(sum) - x[target];
        for (int64_t j = 0; j < vocab; j++) {
            gradient[r * vocab + j] = is_ignored ? 0.0 : exp(x[j] - top) / sum - (j == target);
        }
    }
}

static void check_losses(const loss_call *call, const double *wanted)
{
    double losses[16];
    for (int64_t r = 0; r < call->logits.t.rows; r++) {
        losses[r] = call->losses[r];
        assert_true(call->targets[r] != LS_TARGET_IGNORED || losses[r] == 0.0);
    }
    assert_true(cuda_relative_error(losses, wanted, call->logits.t.rows) < 1e-5);
}

/* The gradient, and zeros between the rows. */
static void check_gradient(const loss_call *call, const double *wanted)
{
    const ls_tensor *t = &call->logits.t;
    void *bytes = cuda_matrix_bytes(&call->logits);
    double *gradient = cuda_doubles(t->rows * t->cols);
    for (int64_t i = 0; i < t->rows * t->stride; i++) {
        const int64_t r = i / t->stride, col = i % t->stride;
        const double got = cuda_get(bytes, t->dtype, i);
        assert_true(col < t->cols || got == 0.0);
        if (col < t->cols) {
            gradient[r * t->cols + col] = got;
        }
    }
    assert_true(cuda_relative_error(gradient, wanted, t->rows * t->cols) < cuda_tolerance(t->dtype));
    free(gradient);
    free(bytes);
}

static void case_is_close(const loss_case *c)
{
    loss_call call = call_make(c);
    double *losses = cuda_doubles(c->rows), *gradient = cuda_doubles(c->rows * c->vocab);
    double *logits = cuda_doubles(c->rows * c->vocab);
    memcpy(logits, call.logits.x, (size_t)(c->rows * c->vocab) * sizeof *logits);
    plain_losses(&call, losses, gradient);

    run(&call);
    check_losses(&call, losses);
    cuda_matrix_check(&call.logits, logits, 0.0, "logits that no gradient was asked of");

    float first[16];
    memcpy(first, call.losses, (size_t)c->rows * sizeof *first);
    call.with_gradient = true;
    cuda_matrix *const outputs[] = {&call.logits};
    cuda_same_bits(run, &call, outputs, 1);
    assert_memory_equal(call.losses, first, (size_t)c->rows * sizeof *first);
    check_gradient(&call, gradient);

    free(losses);
    free(gradient);
    free(logits);
    call_free(&call);
}

static void cross_entropy_any_shape_is_close_and_repeats(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        case_is_close(&cases[i]);
    }
}

/* A sure prediction has a tiny loss, which must not drown in the size of the logits. */
static void cross_entropy_sure_prediction_keeps_its_digits(void **state)
{
    (void)state;
    loss_call call = call_make(&(loss_case){1, 1000, 0, LS_F32, 1.0});
    double *gradient = cuda_doubles(1000), loss;
    for (int i = 0; i < 1000; i++) {
        call.logits.x[i] = (float)(call.logits.x[i] + (i == call.targets[0] ? 1015.0 : 1000.0));
    }
    cuda_matrix_write(&call.logits);
    plain_losses(&call, &loss, gradient);
    call.with_gradient = true;
    run(&call);
    assert_true(fabs(call.losses[0] - loss) < 2e-7);
    cuda_matrix_check(&call.logits, gradient, 1e-3, "gradient");
    free(gradient);
    call_free(&call);
}

/* The loss of one row of which one logit has this value. The target is 1234. */
static float loss_with(int64_t at, double value)
{
    loss_call call = call_make(&(loss_case){1, 3000, 0, LS_F32, 3.0});
    call.targets[0] = 1234;
    call.logits.x[at] = value;
    cuda_matrix_write(&call.logits);
    call.with_gradient = true;
    run(&call);
    const float loss = call.losses[0];
    call_free(&call);
    return loss;
}

static void cross_entropy_numbers_at_the_limits(void **state)
{
    (void)state;
    const int64_t places[] = {0, 5, 1234, 2999};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        assert_true(isnan(loss_with(places[i], (double)NAN)));
        assert_true(isnan(loss_with(places[i], (double)INFINITY)));
    }
    assert_true(isfinite(loss_with(5, (double)-INFINITY)));
    assert_true(isfinite(loss_with(5, -3e38)));
    assert_true(loss_with(1234, 1e5) == 0.0f);
    assert_true(fabs((double)loss_with(6, 1e5) - 1e5) < 10.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_any_shape_is_close_and_repeats),
        cmocka_unit_test(cross_entropy_sure_prediction_keeps_its_digits),
        cmocka_unit_test(cross_entropy_numbers_at_the_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
