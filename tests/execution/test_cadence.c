// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/train/cadence.h"

#include <math.h>
#include <string.h>

/* Llama 3's failures: 419 in 54 days. Young's formula gives 149 s for a checkpoint of one second; the exact form is a third of it less. */
static void cadence_optimum_known_values(void **state)
{
    (void)state;
    assert_float_equal(ls_cadence_optimum_s(1.0, 11138.0), 149.25, 0.7);
    assert_float_equal(ls_cadence_optimum_s(0.05, 11138.0), 33.37, 0.05);
    /* Lambert's W by hand: C = M gives (t - 1) e^t = -e^-1, t = 0.8414. */
    assert_float_equal(ls_cadence_optimum_s(1.0, 1.0), 0.8414, 1e-3);
    assert_float_equal(ls_cadence_optimum_s(30.0, 10.0), 10.0, 1e-9);
}

/* Whatever cost and mean: neighbours of the optimum lose more, with any time of recovery. */
static void cadence_optimum_is_a_minimum(void **state)
{
    (void)state;
    for (double cost_s = 1e-3; cost_s < 2000.0; cost_s *= 3.0) {
        for (double mean_s = 1000.0; mean_s < 1e7; mean_s *= 4.0) {
            if (cost_s >= 1.9 * mean_s) {
                continue;
            }
            const double best_s = ls_cadence_optimum_s(cost_s, mean_s);
            for (double recovery_s = 0.0; recovery_s <= 600.0; recovery_s += 300.0) {
                const double least = ls_cadence_lost_fraction(best_s, cost_s, mean_s, recovery_s);
                assert_true(least <= ls_cadence_lost_fraction(1.05 * best_s, cost_s, mean_s, recovery_s));
                assert_true(least <= ls_cadence_lost_fraction(0.95 * best_s, cost_s, mean_s, recovery_s));
            }
        }
    }
}

static void cadence_update_follows_the_record(void **state)
{
    (void)state;
    ls_cadence c = {.stall_s = 0.2, .write_s = 2.0};
    ls_cadence_update(&c);
    assert_float_equal(c.failure_every_s, 86400.0, 1e-9); /* the prior alone */
    assert_float_equal(c.interval_s, sqrt(2 * 0.2 * 86400.0), 1.0);
    c.failures = 9;
    c.trained_s = 13600.0;
    ls_cadence_update(&c);
    assert_float_equal(c.failure_every_s, 10000.0, 1e-9);
    assert_float_equal(c.interval_s, sqrt(2 * 0.2 * 10000.0), 1.0);
    c.write_s = 30.0; /* the disk would never rest */
    ls_cadence_update(&c);
    assert_float_equal(c.interval_s, 300.0, 1e-9);
    c = (ls_cadence){.stall_s = 0.0};
    ls_cadence_update(&c);
    assert_true(c.interval_s >= LS_CADENCE_INTERVAL_S);
    c = (ls_cadence){.stall_s = 1e4};
    ls_cadence_update(&c);
    assert_float_equal(c.interval_s, LS_CADENCE_LONGEST_S, 1e-9);
}

static void cadence_steps_and_words(void **state)
{
    (void)state;
    ls_cadence c = {.stall_s = 0.2, .failures = 6, .trained_s = 0.0};
    ls_cadence_update(&c);
    assert_int_equal(ls_cadence_steps(&c, 1e9), 1);
    assert_int_equal(ls_cadence_steps(&c, c.interval_s / 100.5), 100);
    char text[256];
    ls_cadence_describe(&c, c.interval_s / 100.5, text, sizeof text);
    assert_string_equal(
        text, "a checkpoint every 70 s (100 steps): it stalls 0.2 s, a failure every 3.4 h, 0.57 % of "
              "the time lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cadence_optimum_known_values),
        cmocka_unit_test(cadence_optimum_is_a_minimum),
        cmocka_unit_test(cadence_update_follows_the_record),
        cmocka_unit_test(cadence_steps_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
