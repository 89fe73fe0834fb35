// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/money/failure.h"

#include <string.h>

static ls_failure_estimate llama3(int64_t gpus, double stall_s, double restart_s)
{
    const ls_failure_setting setting = {
        .gpus = gpus, .gpus_per_node = 8, .stall_s = stall_s, .restart_s = restart_s};
    ls_failure_estimate estimate;
    ls_failure_compute(&setting, &estimate);
    return estimate;
}

/* 419 in 54 days on 16,384 GPUs: 7.76 a day, 3.09 h apart, 50,677 h per GPU. */
static void failure_rate_is_that_of_llama3(void **state)
{
    (void)state;
    assert_float_equal(16384.0 * 54.0 * 24.0 / 419.0, LS_FAILURE_GPU_MTBF_S / 3600.0, 1.0);
    const ls_failure_estimate e = llama3(16384, 10.0, 600.0);
    assert_float_equal(e.mtbf_s / 3600.0, 3.09, 0.005);
    assert_float_equal(86400.0 / e.mtbf_s, 7.76, 0.005);
    assert_float_equal(llama3(64, 10.0, 600.0).mtbf_s / 3600.0, 792.0, 0.5);
}

static void failure_goodput_known_values(void **state)
{
    (void)state;
    const ls_failure_estimate big = llama3(16384, 10.0, 600.0);
    assert_float_equal(big.interval_s / 60.0, 7.9, 0.05);
    assert_float_equal(big.goodput, 0.904, 0.0005);
    assert_false(big.exact);
    const ls_failure_estimate slow = llama3(16384, 60.0, 900.0);
    assert_float_equal(slow.interval_s / 60.0, 19.3, 0.05);
    assert_float_equal(slow.goodput, 0.815, 0.0005);
    assert_float_equal(llama3(1024, 10.0, 600.0).goodput, 0.986, 0.0005);
    assert_float_equal(llama3(64, 10.0, 600.0).goodput, 0.997, 0.0005);
}

/* At 100,000 GPUs the first order loses everything; the exact form does not. */
static void failure_goodput_stays_positive(void **state)
{
    (void)state;
    const ls_failure_estimate e = llama3(131072, 60.0, 900.0);
    assert_true(e.exact);
    assert_true(e.goodput > 0.2 && e.goodput < 0.5);
    double before = 1.0;
    for (int64_t gpus = 8; gpus <= 1 << 20; gpus *= 8) {
        const double goodput = llama3(gpus, 60.0, 900.0).goodput;
        assert_true(goodput > 0.0 && goodput < before);
        before = goodput;
    }
}

static void failure_goodput_is_the_product(void **state)
{
    (void)state;
    ls_failure_setting setting = {.gpus = 64,
                                  .gpus_per_node = 8,
                                  .parameters = 70e9,
                                  .preemptions_per_day = 1.0,
                                  .wait_s = 600.0,
                                  .program = 0.95};
    ls_failure_estimate e;
    ls_failure_compute(&setting, &e);
    /* 8 nodes, each taken away once a day, and 64 GPUs: 8.03 events a day. */
    assert_float_equal(86400.0 / e.mtbf_s, 8.0 + 64.0 * 24.0 / 50677.0, 1e-9);
    assert_float_equal(e.scheduling, e.mtbf_s / (e.mtbf_s + 600.0), 1e-12);
    assert_float_equal(e.goodput, e.scheduling * e.runtime * 0.95, 1e-12);
    assert_float_equal(e.checkpoint_bytes, 980e9, 1.0);
    /* 15.3 GB at 25 GB/s are 0.61 s: the meeting counts */
    assert_float_equal(e.stall_s, 1.0, 1e-12);
    setting.storage_bytes_ps = 10e9;
    setting.synchronous = true;
    ls_failure_compute(&setting, &e);
    assert_float_equal(e.stall_s, 98.0, 1e-9);
}

static double goodput_at(ls_failure_setting setting, double interval_s)
{
    ls_failure_estimate e;
    setting.interval_s = interval_s;
    ls_failure_compute(&setting, &e);
    return e.goodput;
}

static void failure_goodput_against_interval_has_its_top_at_the_optimum(void **state)
{
    (void)state;
    const ls_failure_setting setting = {.gpus = 16384, .gpus_per_node = 8, .stall_s = 10.0};
    ls_failure_estimate e;
    ls_failure_compute(&setting, &e);
    assert_float_equal(goodput_at(setting, e.interval_s), e.goodput, 1e-12);
    assert_true(goodput_at(setting, 0.7 * e.interval_s) < e.goodput);
    assert_true(goodput_at(setting, 1.4 * e.interval_s) < e.goodput);
}

static void failure_explains_with_the_numbers_in(void **state)
{
    (void)state;
    const ls_failure_setting setting = {.gpus = 16384, .gpus_per_node = 8, .stall_s = 10.0};
    ls_text text = {0};
    ls_failure_explain(&setting, &text);
    assert_non_null(strstr(ls_text_string(&text), "16384 / 50677 h"));
    assert_non_null(strstr(ls_text_string(&text), "= 0.9037"));
    ls_text_clear(&text);
    const ls_failure_setting huge = {.gpus = 1 << 20, .gpus_per_node = 8, .stall_s = 10.0};
    ls_failure_explain(&huge, &text);
    assert_non_null(strstr(ls_text_string(&text), "exact"));
    ls_text_release(&text);
}

static void failure_names_what_was_assumed(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_assumptions list = {.arena = &arena};
    const ls_failure_setting spot = {
        .gpus = 8, .gpus_per_node = 8, .preemptions_per_day = 2.0, .wait_s = 300.0};
    ls_failure_assume(&spot, &list);
    assert_int_equal(list.count, 3);
    assert_non_null(strstr(list.items[0], "50677 h (Llama 3"));
    assert_non_null(strstr(list.items[1], "preempted 2 times a day and replaced after 300 s"));
    ls_failure_assume(&spot, &list); /* nothing twice */
    assert_int_equal(list.count, 3);
    for (int i = 0; i < 40; i++) {
        ls_assumptions_add(&list, "line %d", i);
    }
    assert_int_equal(list.count, 43);
    assert_string_equal(list.items[42], "line 39");
    ls_assumptions_add(NULL, "nobody listens");
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_rate_is_that_of_llama3),
        cmocka_unit_test(failure_goodput_known_values),
        cmocka_unit_test(failure_goodput_stays_positive),
        cmocka_unit_test(failure_goodput_is_the_product),
        cmocka_unit_test(failure_goodput_against_interval_has_its_top_at_the_optimum),
        cmocka_unit_test(failure_explains_with_the_numbers_in),
        cmocka_unit_test(failure_names_what_was_assumed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
