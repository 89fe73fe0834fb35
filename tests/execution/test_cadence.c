// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/train/cadence.h"

#include <math.h>
#include <string.h>

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
        cmocka_unit_test(cadence_update_follows_the_record),
        cmocka_unit_test(cadence_steps_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
