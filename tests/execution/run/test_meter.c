// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "execution/run/meter.h"

#include <stdlib.h>
#include <string.h>

static ls_run_job job_of(double cap, double price)
{
    return (ls_run_job){.max_cost_usd = cap, .price_usd = price};
}

/* 2 devices for 30 minutes, then 4 for an hour, at 3 USD: 3 and 12 USD, after 5 of earlier starts. */
static void costs_follow_the_devices(void **state)
{
    (void)state;
    const ls_run_job job = job_of(20.0, 3.0);
    ls_meter meter;
    assert_int_equal(ls_meter_open(&job, 2, 1000.0, 5.0, &meter), LS_OK);
    assert_float_equal(ls_meter_note(&meter, 4, 2800.0), 3.0, 1e-9);
    assert_float_equal(ls_meter_usd(&meter, 6400.0), 20.0, 1e-9);
    assert_false(ls_meter_is_over(&meter, 6399.0));
    assert_true(ls_meter_is_over(&meter, 6400.0));
    assert_float_equal(ls_meter_note(&meter, 4, 100.0), 3.0, 1e-9); /* clocks do not go back */
}

static void caps_need_a_price_and_room(void **state)
{
    (void)state;
    ls_meter meter;
    const ls_run_job blind = job_of(20.0, LS_AUTO_F64), spent = job_of(20.0, 3.0);
    const ls_run_job open = job_of(LS_AUTO_F64, LS_AUTO_F64);
    assert_int_equal(ls_meter_open(&blind, 1, 0.0, 0.0, &meter), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "job.price"));
    assert_int_equal(ls_meter_open(&spent, 1, 0.0, 20.0, &meter), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "raise the cap"));
    assert_int_equal(ls_meter_open(&open, 1, 0.0, 50.0, &meter), LS_OK);
    assert_false(ls_meter_is_over(&meter, 1e9));
}

/* The queue knows better: its price, and what the job has cost before. */
static void queues_tell_price_and_cost(void **state)
{
    (void)state;
    ls_meter meter;
    const ls_run_job job = job_of(20.0, 3.0);
    setenv("LOCKSTEP_PRICE", "3600", 1);
    setenv("LOCKSTEP_SPENT", "19", 1);
    assert_int_equal(ls_meter_open(&job, 1, 0.0, 500.0, &meter), LS_OK);
    assert_true(ls_meter_is_over(&meter, 1.0));
    setenv("LOCKSTEP_SPENT", "19 USD", 1); /* not ours */
    assert_int_equal(ls_meter_open(&job, 1, 0.0, 1.0, &meter), LS_OK);
    assert_float_equal(ls_meter_usd(&meter, 3600.0), 4.0, 1e-9);
    unsetenv("LOCKSTEP_PRICE");
    unsetenv("LOCKSTEP_SPENT");
}

/* 10 USD a month at 0.02 for a GB are 500 GB. */
static void budgets_of_checkpoints_are_bytes(void **state)
{
    (void)state;
    uint64_t bytes = 7;
    ls_run_checkpoint given = {.budget = 10.0, .price = 0.02};
    assert_int_equal(ls_meter_room(&given, &bytes), LS_OK);
    assert_int_equal(bytes, UINT64_C(500000000000));
    given.price = LS_AUTO_F64;
    assert_int_equal(ls_meter_room(&given, &bytes), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "checkpoint.price"));
    setenv("LOCKSTEP_STORAGE_PRICE", "0.01", 1);
    assert_int_equal(ls_meter_room(&given, &bytes), LS_OK);
    assert_int_equal(bytes, UINT64_C(1000000000000));
    unsetenv("LOCKSTEP_STORAGE_PRICE");
    given.budget = 0.0;
    assert_int_equal(ls_meter_room(&given, &bytes), LS_OK);
    assert_int_equal(bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_follow_the_devices),
        cmocka_unit_test(caps_need_a_price_and_room),
        cmocka_unit_test(queues_tell_price_and_cost),
        cmocka_unit_test(budgets_of_checkpoints_are_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
