// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/run/checkpoint_interval.h"

#include <math.h>
#include <string.h>

static void interval_update_follows_the_record(void **state)
{
    (void)state;
    ls_checkpoint_interval c = {.stall_s = 0.2, .write_s = 2.0};
    ls_checkpoint_interval_update(&c);
    assert_float_equal(c.failure_every_s, 86400.0, 1e-9); /* only the prior */
    assert_float_equal(c.interval_s, sqrt(2 * 0.2 * 86400.0), 1.0);
    c.failures = 9;
    c.trained_s = 13600.0;
    ls_checkpoint_interval_update(&c);
    assert_float_equal(c.failure_every_s, 10000.0, 1e-9);
    assert_float_equal(c.interval_s, sqrt(2 * 0.2 * 10000.0), 1.0);
    c.write_s = 30.0; /* otherwise the disk would always be busy */
    ls_checkpoint_interval_update(&c);
    assert_float_equal(c.interval_s, 300.0, 1e-9);
    c = (ls_checkpoint_interval){.stall_s = 0.0};
    ls_checkpoint_interval_update(&c);
    assert_true(c.interval_s >= LS_CHECKPOINT_INTERVAL_SHORTEST_S);
    c = (ls_checkpoint_interval){.stall_s = 1e4};
    ls_checkpoint_interval_update(&c);
    assert_float_equal(c.interval_s, LS_CHECKPOINT_INTERVAL_LONGEST_S, 1e-9);
}

static void interval_steps_and_words(void **state)
{
    (void)state;
    ls_checkpoint_interval c = {.stall_s = 0.2, .failures = 6, .trained_s = 0.0};
    ls_checkpoint_interval_update(&c);
    assert_int_equal(ls_checkpoint_interval_steps(&c, 1e9), 1);
    assert_int_equal(ls_checkpoint_interval_steps(&c, c.interval_s / 100.5), 100);
    char text[256];
    ls_checkpoint_interval_describe(&c, c.interval_s / 100.5, text, sizeof text);
    assert_string_equal(
        text, "a checkpoint every 70 s (100 steps): each one stops training for 0.2 s; if a failure happens "
              "every 3.4 h, 0.57 % of the time is lost to saving and repeating");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interval_update_follows_the_record),
        cmocka_unit_test(interval_steps_and_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
