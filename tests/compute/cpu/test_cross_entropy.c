// SPDX-License-Identifier: Apache-2.0
#include "compute/cpu/checkasm.h"

#include "compute/kernels/cross_entropy.h"

typedef struct loss_case {
    ck_tensor logits, losses;
    int32_t *targets;
    bool with_gradient;
    uint32_t pieces;
} loss_case;

static void run(ls_queue *queue, void *context)
{
    loss_case *c = context;
    const ls_vocabulary_cut cut = {.pieces = c->pieces};
    assert_int_equal(ls_cross_entropy(queue, c->pieces > 1 ? &cut : NULL, &c->logits.t, c->targets,
                                      ls_tensor_row(&c->losses.t, 0), c->with_gradient),
                     LS_OK);
}

static void check(loss_case *c)
{
    const int64_t rows = c->logits.t.rows, vocab = c->logits.t.cols;
    double *want = ck_initial(&c->logits), *losses = ck_zeros(rows);
    for (int64_t r = 0; r < rows; r++) {
        double *x = want + r * vocab, top = x[0], sum = 0.0;
        for (int64_t j = 0; j < vocab; j++) {
            top = fmax(top, x[j]);
        }
        for (int64_t j = 0; j < vocab; j++) {
            sum += exp(x[j] - top);
        }
        const bool ignored = c->targets[r] == LS_TARGET_IGNORED;
        losses[r] = ignored ? 0.0 : log(sum) + top - x[c->targets[r]];
        for (int64_t j = 0; c->with_gradient && j < vocab; j++) {
            x[j] = ignored ? 0.0 : exp(x[j] - top) / sum - (j == c->targets[r]);
        }
    }
    ck_close(&c->losses, losses, 4e-6, 1e-6, "loss");
    ck_close(&c->logits, want, c->with_gradient ? 2e-7 : 0.0, c->with_gradient ? 4e-6 : 0.0, "loss gradient");
    free(want);
    free(losses);
}

static void cross_entropy_matches_float64(void **state)
{
    (void)state;
    const int64_t vocabs[] = {1, 2, 15, 16, 17, 256, 257, 1023, 1056, 2049, 50257};
    for (uint64_t seed = 0; seed < 22; seed++) {
        const int64_t vocab = vocabs[seed / 2], rows = vocab > 10000 ? 3 : ck_between(seed, 1, 1, 40);
        loss_case c = {.logits =
                           ck_make(rows, vocab, ck_between(seed, 2, 0, 7), seed + 10, seed % 3 ? 5.0 : 60.0),
                       .losses = ck_make(1, rows, 0, 1, 0.0),
                       .targets = malloc((size_t)rows * sizeof(int32_t)),
                       .with_gradient = seed % 2,
                       .pieces = (uint32_t)ck_between(seed, 3, 1, vocab < 7 ? vocab : 7)};
        for (int64_t r = 0; r < rows; r++) {
            c.targets[r] = (int32_t)ck_between(seed, (uint64_t)(r + 100), -1, vocab - 1);
        }
        ck_same_bits(run, &c, (ck_tensor *[]){&c.logits, &c.losses}, 2, "cross entropy");
        c.losses.t.rows = rows; /* as a column for check */
        c.losses.t.cols = c.losses.t.stride = 1;
        check(&c);
        ck_free(&c.logits);
        ck_free(&c.losses);
        free(c.targets);
    }
}

/* A logit that is not a number must not give a loss that looks fine. */
static void cross_entropy_of_nan_is_nan(void **state)
{
    (void)state;
    for (int isa = 0; isa < 3 && ck_queue(isa, 1); isa++) {
        for (int at = 0; at < 40; at += 13) {
            float x[40] = {0}, loss = 0.0f;
            x[at] = NAN;
            const int32_t target = 3;
            const ls_tensor t = ls_tensor_f32(x, 1, 40);
            assert_int_equal(ls_cross_entropy(ck_queue(isa, 1), NULL, &t, &target, &loss, true), LS_OK);
            assert_true(isnan(loss));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_matches_float64),
        cmocka_unit_test(cross_entropy_of_nan_is_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
