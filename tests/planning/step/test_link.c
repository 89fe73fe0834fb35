// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/step/link.h"

#include <string.h>

/* Two hosts, 8,192 values: each sends half of its sums to the other, and its half of the result. */
static void link_bytes_exchange_adds_both_ways(void **state)
{
    (void)state;
    const ls_link_scheme *dense = &ls_link_schemes[0], *int8 = &ls_link_schemes[1],
                         *topk = &ls_link_schemes[2];
    const ls_compression sum = ls_compression_of_sum(topk->form, 4);
    assert_int_equal(ls_link_bytes_exchange(dense, 8192, NULL, 2, 2), 2 * 2 * 16384);
    assert_int_equal(ls_link_bytes_exchange(int8, 8192, NULL, 2, 2), 2 * 2 * (4096 + 16 * 4));
    /* two groups on each host: twice the sums, one result */
    assert_int_equal(ls_link_bytes_exchange(int8, 8192, NULL, 2, 4), 2 * 2 * 4160 + 2 * 4160);
    /* the last host owns what is left: 4,096 and 300 values */
    assert_int_equal(ls_link_bytes_exchange(int8, 4396, NULL, 2, 2), 2 * (4160 + 300 + 8));
    /* two of four hosts own 4,096 values each, receive three times and send three times, 41 and 164
     * of them: 2 bytes each, and l + 1 bits and a little */
    assert_int_equal(ls_link_bytes_exchange(topk, 8192, NULL, 4, 4), 2 * 3 * (128 + 464));
    /* of 60 groups more than half of the numbers, so all come back, in 2 bytes */
    assert_int_equal(ls_link_bytes_exchange(topk, 4096, NULL, 2, 60), 30 * 128 + 8192);
    /* two buckets end in blocks of their own; local steps do not know them */
    ls_bucket buckets[2] = {{.count = 5120}, {.offset = 5120, .count = 3072}};
    const ls_layout layout = {.buckets = buckets, .bucket_count = 2, .float_count = 8192};
    assert_int_equal(ls_link_bytes_exchange(topk, 8192, &layout, 4, 4),
                     3 * (ls_compressed_bytes(&topk->form, 5120) + ls_compressed_bytes(&topk->form, 3072)) +
                         3 * (464 + ls_compressed_bytes(&sum, 1024) + ls_compressed_bytes(&sum, 3072)));
    const ls_link_scheme local = {"local 10, int8", int8->form, 10};
    assert_int_equal(ls_link_bytes_exchange(&local, 8192, &layout, 2, 2), 2 * 2 * (4096 + 16 * 4));
    for (size_t i = 0; i < LS_LINK_SCHEMES; i++) {
        assert_int_equal(ls_link_bytes_exchange(&ls_link_schemes[i], 1000, NULL, 1, 1), 0);
    }
    /* fragments are exchanged one at a time, where they divide the steps of a round */
    ls_link_setting setting = {8192, 2, 1.0, 12.5e6, 0.0, &layout, .fragments = 2};
    ls_link_estimate estimate;
    ls_link_estimate_compute(&setting, &local, &estimate);
    assert_float_equal(estimate.peak_bytes, 5120 + 20 * 4, 0.0);
    assert_float_equal(estimate.bytes, 2 * (4096 + 16 * 4) / 10.0, 1e-9);
    setting.fragments = 3;
    ls_link_estimate_compute(&setting, &local, &estimate);
    assert_float_equal(estimate.peak_bytes, 2 * (4096 + 16 * 4), 0.0);
    ls_link_estimate_compute(&setting, dense, &estimate);
    assert_float_equal(estimate.peak_bytes, estimate.bytes, 0.0);
}

static ls_link_estimate estimate_of(const char *name, uint64_t hosts)
{
    const ls_link_setting setting = {25000000, hosts, 1.0, 12.5e6, 0.0, .pack_s = 1.5e-9};
    ls_link_estimate estimate = {0};
    for (size_t i = 0; i < LS_LINK_SCHEMES; i++) {
        if (strcmp(ls_link_schemes[i].name, name) == 0) {
            ls_link_estimate_compute(&setting, &ls_link_schemes[i], &estimate);
        }
    }
    assert_non_null(estimate.scheme.name);
    return estimate;
}

/* 25 million parameters on four hosts with 100 Mbit/s each. */
static void link_estimate_reaches_what_is_asked(void **state)
{
    (void)state;
    const ls_link_estimate dense = estimate_of("dense", 4);
    assert_float_equal(dense.step_s, 1.0 + 2.0 * 0.75 * 1e8 / 12.5e6, 1e-6);
    /* packs once and a quarter, and unpacks one and a half, each a seventh */
    assert_float_equal(dense.packing_s, 0.0, 0.0);
    assert_float_equal(estimate_of("int8", 4).packing_s, 0.0375 * (1.25 + 1.5 / 7.0), 1e-9);
    assert_float_equal(estimate_of("topk 1 %", 4).packing_s, 0.0375 * (2.5 + 1.5 / 7.0), 1e-9);
    assert_float_equal(estimate_of("local 10, int8", 4).packing_s, 0.00375 * (1.25 + 1.5 / 7.0), 1e-9);
    assert_true(estimate_of("int8", 4).times >= 3.9);
    assert_true(estimate_of("topk 1 %", 4).times >= 40.0);
    assert_true(estimate_of("local 100, int8", 4).times >= 390.0);
    assert_true(estimate_of("local 100, int4", 4).times >= 700.0);
    assert_true(dense.step_s / estimate_of("int8", 4).step_s >= 2.5);
    assert_true(dense.step_s / estimate_of("topk 1 %", 4).step_s >= 8.0);
    assert_true(estimate_of("local 100, int8", 4).computing >= 0.95);
    assert_float_equal(estimate_of("int8", 4).memory_bytes, 1e9, 1.0);
    assert_float_equal(estimate_of("topk 1 %", 4).checkpoint_bytes, 13e8, 1.0);
    assert_float_equal(estimate_of("local 50, int4", 4).checkpoint_bytes, 3e8 * 3.0 + 2e8, 1.0);
}

/* INTELLECT-1: 10.2 billion parameters, 14 nodes, H 100, int8; 38 minutes of work between syncs of
 * one to seven minutes, 83 to 96 % of the time computing. With 1 Gbit/s to 4 Gbit/s per node. */
static void link_estimate_agrees_with_intellect_1(void **state)
{
    (void)state;
    const ls_link_scheme *scheme = &ls_link_schemes[10];
    ls_link_setting setting = {10200000000, 14, 38.0 * 60.0 / 100.0, 4e9 / 8.0, 0.05};
    ls_link_estimate fast, slow;
    assert_string_equal(scheme->name, "local 100, int8");
    ls_link_estimate_compute(&setting, scheme, &fast);
    setting.link_bytes_ps = 0.5e9 / 8.0;
    ls_link_estimate_compute(&setting, scheme, &slow);
    assert_true(fast.computing > 0.96 && slow.computing > 0.83 && slow.computing < 0.9);
}

static void link_choose_takes_the_gentlest_that_suffices(void **state)
{
    (void)state;
    ls_link_setting setting = {25000000, 4, 1.0, 12.5e9, 0.0};
    assert_string_equal(ls_link_schemes[ls_link_choose(&setting)].name, "dense");
    setting.link_bytes_ps = 160e6;
    assert_string_equal(ls_link_schemes[ls_link_choose(&setting)].name, "int8");
    setting.link_bytes_ps = 12.5e6;
    assert_string_equal(ls_link_schemes[ls_link_choose(&setting)].name, "topk 1 %");
    setting.link_bytes_ps = 1.0;
    assert_string_equal(ls_link_schemes[ls_link_choose(&setting)].name, "local 500, int4");
}

static void link_parse_reads_rates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double bytes_ps;
    } good[] = {{"100Mbit", 12.5e6}, {"1Gbit", 125e6},     {"100 Mbit/s", 12.5e6},
                {"56kbps", 7e3},     {"12.5MB/s", 12.5e6}, {"1GB/s", 1e9}};
    static const char *const bad[] = {"",      "100",     "fast",     "100MB",  "-1Mbit",
                                      "0Mbit", "1e9Gbit", "100Mbits", "nanMbit"};
    double rate = 7.0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(ls_link_parse("--link", good[i].text, &rate), LS_OK);
        assert_float_equal(rate, good[i].bytes_ps, 1e-6);
    }
    rate = 7.0;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(ls_link_parse("--link", bad[i], &rate), LS_ERR_INVALID);
        assert_non_null(strstr(ls_error_text(), "--link is '"));
        assert_float_equal(rate, 7.0, 0.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_bytes_exchange_adds_both_ways),
        cmocka_unit_test(link_estimate_reaches_what_is_asked),
        cmocka_unit_test(link_estimate_agrees_with_intellect_1),
        cmocka_unit_test(link_choose_takes_the_gentlest_that_suffices),
        cmocka_unit_test(link_parse_reads_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
