// SPDX-License-Identifier: Apache-2.0
/* What a verdict may not do: spend beyond a budget, outlive its machines, book idle hours to work
 * that does not exist. */
#include "planning/money/verdict_world.h"

/* A budget is held against the slow end of the band, as a deadline is; what can be lost is what one
 * run in ten costs. */
static void verdict_budget_is_held_by_one_run_in_ten_too(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    const double tokens_ps = 64.0 * 10e3;
    const ls_path_size size = {
        .gpus = 64, .tokens_ps = &tokens_ps, .count = 1, .slow = 1.25, .parameters = 8e9};
    ls_path_add_point(add(LS_PATH_RENTED, "h100", false), &arena, &size);
    decide();
    const ls_path_outcome *o = &w.verdict.outcomes[0];
    const double run_usd = o->run_usd, slow_usd = o->run_usd + 0.25 * o->compute_usd;
    assert_float_equal(o->run_usd_slow, slow_usd, 1e-9 * slow_usd);
    assert_float_equal(o->max_loss_usd, slow_usd, 1e-9 * slow_usd);
    w.question.budget_usd = 1.01 * slow_usd;
    assert_int_equal(decide(), LS_VERDICT_RENT);
    w.question.budget_usd = 0.5 * (run_usd + slow_usd);
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_non_null(strstr(w.verdict.reason, "are expected, but one run in ten costs more than"));
    w.question.budget_usd = 0.9 * run_usd;
    assert_int_equal(decide(), LS_VERDICT_DONT);
    assert_null(strstr(w.verdict.reason, "one run in ten"));
}

/* Nobody rents, or owns, for longer than machines are used: 160e9 tokens at 800 a second are 6.3
 * years. */
static void verdict_no_run_is_longer_than_machines_are_used(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_one_size(8, 100.0);
    assert_int_equal(decide(), LS_VERDICT_DONT);
    for (size_t i = 0; i < w.verdict.outcome_count; i++) {
        assert_int_equal(w.verdict.outcomes[i].obstacle, LS_OBSTACLE_LIFE);
        assert_non_null(
            strstr(w.verdict.outcomes[i].why_not, "with 8 GPUs, longer than the life of the machines"));
    }
    w.workload.tokens = 80e9;
    assert_int_equal(decide(), LS_VERDICT_RENT);
}

/* A stated use is no work: the runs that there are pay for all of the machines. */
static void verdict_own_machines_are_paid_by_the_runs_there_are(void **state)
{
    (void)state;
    begin(8e9, 160e9);
    add_one_size(64, 10e3);
    w.question.runs_per_month = 4.0;
    decide();
    const ls_path_outcome plain = *outcome(LS_PATH_OWNED);
    assert_true(plain.utilization > 0.3 && plain.utilization < 0.6 && plain.copies == 1);
    const double year_usd = 48.0 * plain.run_usd;
    assert_float_equal(year_usd, 12.0 * (plain.month_usd + plain.upfront_usd * 0.9 / 48.0), 1e-6 * year_usd);
    assert_false(is_assumed("would need other work"));
    w.question.utilization = 0.9;
    decide();
    assert_float_equal(outcome(LS_PATH_OWNED)->run_usd, plain.run_usd, 1e-9 * plain.run_usd);
    assert_float_equal(outcome(LS_PATH_OWNED)->break_even_months, plain.break_even_months, 1e-6);
    assert_true(is_assumed("would need other work"));
    w.question.utilization = 0.2; /* more of them, and it is said */
    decide();
    const ls_path_outcome *o = outcome(LS_PATH_OWNED);
    assert_true(o->copies > 1 && o->utilization <= 0.2 && o->upfront_usd > plain.upfront_usd);
    assert_true(is_assumed("so that none is in use more than 20 %"));
}

/* One machine under a desk is no hundred: where the runs need more of them, all are paid. */
static void verdict_local_counts_the_machines_that_runs_need(void **state)
{
    (void)state;
    begin(1e9, 20e9);
    add_sizes(add(LS_PATH_LOCAL, "RTX-4090-24GB", false), 1, 1, 10e3);
    w.question.runs_per_month = 0.5;
    decide();
    const ls_path_outcome one = w.verdict.outcomes[0];
    w.question.runs_per_month = 20.0; /* 23 days each */
    decide();
    const ls_path_outcome *o = &w.verdict.outcomes[0];
    assert_int_equal(o->obstacle, LS_OBSTACLE_USE);
    assert_true(o->machines >= 15 && o->copies == o->machines);
    assert_float_equal(o->upfront_usd, (double)o->machines * one.upfront_usd, 1e-6);
    assert_float_equal(o->depreciation_usd * 20.0, (double)o->machines * one.depreciation_usd * 0.5,
                       1e-6 * o->upfront_usd);
}

/* A month of storage is not the rent of a minute. */
static void verdict_buying_is_not_set_against_a_month_of_storage(void **state)
{
    (void)state;
    begin(124e6, 2.5e9);
    add_one_size(8, 1e6);
    decide();
    const ls_path_outcome *rented = outcome(LS_PATH_RENTED), *own = outcome(LS_PATH_OWNED);
    assert_int_equal(w.verdict.rented, 0);
    assert_true(rented->storage_usd > 0.1 * rented->compute_usd);
    assert_true(own->rent_usd_per_gpu_hour > rented->usd_per_gpu_hour);
    assert_true(own->rent_usd_per_gpu_hour < 1.02 * rented->usd_per_gpu_hour);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(verdict_budget_is_held_by_one_run_in_ten_too),
        cmocka_unit_test(verdict_no_run_is_longer_than_machines_are_used),
        cmocka_unit_test(verdict_own_machines_are_paid_by_the_runs_there_are),
        cmocka_unit_test(verdict_local_counts_the_machines_that_runs_need),
        cmocka_unit_test(verdict_buying_is_not_set_against_a_month_of_storage),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
