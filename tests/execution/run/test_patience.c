// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/run/patience.h"

#include <math.h>

static void patience_is_over_after_so_many_without_improvement(void **state)
{
    (void)state;
    static const struct {
        double min_delta, losses[8];
        uint64_t limit;
        int over_at; /* index of the last evaluation; -1: never */
        uint64_t best_step;
    } cases[] = {
        {0.0, {4.0, 3.0, 3.5, 2.9, 2.9, 2.95, 2.0, 1.0}, 2, 5, 40},
        {0.0, {4.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 0.5}, 2, -1, 80},
        /* many small steps down are no improvement until they add up */
        {0.5, {4.0, 3.75, 3.5, 3.25, 3.0, 2.75, 2.75, 2.75}, 3, 7, 50},
        {0.5, {4.0, 3.75, 3.5625, 3.51, 1.0, 1.0, 1.0, 1.0}, 3, 3, 10},
        {0.0, {NAN, 2.0, NAN, INFINITY, 1.0, 1.0, 1.0, 1.0}, 2, 3, 20},
        {0.0, {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0}, 0, -1, 10},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        ls_patience p = {.limit = cases[c].limit, .min_delta = cases[c].min_delta};
        int over_at = -1;
        for (int i = 0; i < 8 && over_at < 0; i++) {
            (void)ls_patience_add(&p, (uint64_t)(i + 1) * 10, cases[c].losses[i]);
            over_at = ls_patience_is_over(&p) ? i : -1;
        }
        assert_int_equal(over_at, cases[c].over_at);
        assert_int_equal(p.best_step, cases[c].best_step);
    }
}

/* An evaluation that is read from the log and made again after a resume is one evaluation. */
static void patience_counts_a_step_once(void **state)
{
    (void)state;
    ls_patience p = {.limit = 2};
    assert_true(ls_patience_add(&p, 10, 3.0));
    for (int i = 0; i < 5; i++) {
        assert_false(ls_patience_add(&p, 20, NAN));
        assert_false(ls_patience_add(&p, 10, 2.0));
    }
    assert_int_equal(p.waited, 1);
    assert_int_equal(p.best_step, 10);
    assert_false(ls_patience_is_over(&p));
    assert_true(ls_patience_add(&p, 30, 2.0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patience_is_over_after_so_many_without_improvement),
        cmocka_unit_test(patience_counts_a_step_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
