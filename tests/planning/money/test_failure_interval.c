// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/money/failure_interval.h"

#include <math.h>

/* Llama 3: 419 unexpected interruptions in 54 days of 16,384 GPUs. */
static const double llama3_s = 54.0 * 86400.0 / 419.0;

static void interval_young_and_daly_known_values(void **state)
{
    (void)state;
    assert_float_equal(llama3_s / 3600.0, 3.093, 0.001);
    assert_float_equal(ls_interval_young_s(10.0, llama3_s) / 60.0, 7.9, 0.05);
    assert_float_equal(ls_interval_young_s(60.0, llama3_s) / 60.0, 19.3, 0.05);
    /* By hand, C = 2, M = 100: sqrt(400) = 20, 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2. */
    assert_float_equal(ls_interval_young_s(2.0, 100.0), 20.0, 1e-12);
    assert_float_equal(ls_interval_daly_s(2.0, 100.0), 20.0 * (1.0 + 0.1 / 3.0 + 0.01 / 9.0) - 2.0, 1e-12);
    assert_float_equal(ls_interval_daly_s(200.0, 100.0), 100.0, 0.0);
    assert_float_equal(ls_interval_daly_s(500.0, 100.0), 100.0, 0.0);
}

static void interval_exact_known_values(void **state)
{
    (void)state;
    assert_float_equal(ls_interval_exact_s(1.0, 11138.0), 149.25, 0.7);
    assert_float_equal(ls_interval_exact_s(0.05, 11138.0), 33.37, 0.05);
    /* Lambert's W by hand: C = M gives (t - 1) e^t = -e^-1, t = 0.8414. */
    assert_float_equal(ls_interval_exact_s(1.0, 1.0), 0.8414, 1e-3);
    assert_float_equal(ls_interval_exact_s(30.0, 10.0), 10.0, 1e-9);
}

/* Whatever cost and mean: neighbours of the optimum lose more, with any time of recovery, and
 * Daly's second order is near it. */
static void interval_exact_is_a_minimum(void **state)
{
    (void)state;
    for (double cost_s = 1e-3; cost_s < 2000.0; cost_s *= 3.0) {
        for (double mtbf_s = 1000.0; mtbf_s < 1e7; mtbf_s *= 4.0) {
            if (cost_s >= 1.9 * mtbf_s) {
                continue;
            }
            const double best_s = ls_interval_exact_s(cost_s, mtbf_s);
            for (double restart_s = 0.0; restart_s <= 600.0; restart_s += 300.0) {
                const double least = ls_interval_lost_exact(best_s, cost_s, mtbf_s, restart_s);
                assert_true(least <= ls_interval_lost_exact(1.05 * best_s, cost_s, mtbf_s, restart_s));
                assert_true(least <= ls_interval_lost_exact(0.95 * best_s, cost_s, mtbf_s, restart_s));
            }
            if (cost_s < 0.1 * mtbf_s) {
                assert_float_equal(ls_interval_daly_s(cost_s, mtbf_s) / best_s, 1.0, 0.001);
            }
        }
    }
}

static void interval_lost_switches_to_the_exact_form(void **state)
{
    (void)state;
    /* 1/10 + (5 + 0)/100 = 0.15: first order. */
    assert_float_equal(ls_interval_lost(10.0, 1.0, 100.0, 0.0), 0.15, 1e-12);
    /* 0.1 + (5 + 50)/100 = 0.65: exact, 1 - 10 / (100 e^0.5 (e^0.11 - 1)). */
    const double exact = 1.0 - 10.0 / (100.0 * exp(0.5) * (exp(0.11) - 1.0));
    assert_float_equal(ls_interval_lost(10.0, 1.0, 100.0, 50.0), exact, 1e-12);
    /* Where the first order says that more than everything is lost, a little is left. */
    assert_true(ls_interval_lost_first(10.0, 1.0, 20.0, 60.0) > 1.0);
    const double lost = ls_interval_lost(10.0, 1.0, 20.0, 60.0);
    assert_true(lost > 0.9 && lost < 1.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interval_young_and_daly_known_values),
        cmocka_unit_test(interval_exact_known_values),
        cmocka_unit_test(interval_exact_is_a_minimum),
        cmocka_unit_test(interval_lost_switches_to_the_exact_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
