// SPDX-License-Identifier: Apache-2.0
/* Every figure about money that the planning notes check is here, to the digits they print. */
#include "test.h"

#include "planning/money/cost.h"

#include <math.h>
#include <string.h>

/* 64 H100 for 2.5 M USD, 8 nodes of 10.2 kW, 4 years, 250,000 USD of staff a year, PUE 1.4, 0.10
 * USD a kWh. */
static const ls_ownership cluster = {.gpus = 64,
                                     .capex_usd = 2.5e6,
                                     .life_years = 4.0,
                                     .staff_usd_year = 250e3,
                                     .it_kw = 81.6,
                                     .pue = 1.4,
                                     .energy_usd_kwh = 0.10};

/* p5 per node and hour: at launch, after June 2025, capacity block. */
static const double launch = 98.32, cut = 55.04, block = 39.33;

static double months_at(double utilization, double usd_per_gpu_hour)
{
    ls_ownership_year year;
    ls_ownership_compute(&cluster, utilization, &year);
    return ls_cost_break_even_months(cluster.capex_usd,
                                     ls_cost_rent_usd_year(64, utilization, usd_per_gpu_hour), year.running);
}

static void ownership_of_64_h100(void **state)
{
    (void)state;
    ls_ownership_year year;
    ls_ownership_compute(&cluster, 0.6, &year);
    assert_float_equal(year.depreciation, 625e3, 1e-6);
    assert_float_equal(year.energy, 60e3, 100.0); /* 60,042 */
    assert_float_equal(year.running, 310e3, 100.0);
    assert_float_equal(year.usd_per_gpu_hour, 2.78, 0.005);
    ls_ownership_compute(&cluster, 0.0, &year);
    assert_true(isinf(year.usd_per_gpu_hour));
}

/* 312,500 a year are 2.5 M over 8 years, without power. */
static void ownership_over_eight_years(void **state)
{
    (void)state;
    ls_ownership eight = cluster;
    eight.life_years = 8.0;
    ls_ownership_year year;
    ls_ownership_compute(&eight, 0.6, &year);
    assert_float_equal(year.depreciation, 312500.0, 1e-6);
}

/* What the claims leave out: interest, resale, maintenance, place, power while idle. By hand. */
static void ownership_counts_what_is_left_out(void **state)
{
    (void)state;
    const ls_ownership o = {.gpus = 8,
                            .capex_usd = 400e3,
                            .life_years = 4.0,
                            .resale_share = 0.1,
                            .capital_share = 0.06,
                            .maintenance_share = 0.03,
                            .staff_usd_year = 50e3,
                            .it_kw = 10.0,
                            .idle_share = 0.25,
                            .pue = 1.5,
                            .energy_usd_kwh = 0.2,
                            .colo_usd_kw_month = 150.0,
                            .colo_kw = 12.0};
    ls_ownership_year y;
    ls_ownership_compute(&o, 0.5, &y);
    assert_float_equal(y.depreciation, 90e3, 1e-6);
    assert_float_equal(y.capital, 0.06 * 220e3, 1e-6);
    assert_float_equal(y.maintenance, 12e3, 1e-6);
    assert_float_equal(y.colo, 21600.0, 1e-6);
    assert_float_equal(y.energy, 10.0 * 1.5 * 8760.0 * 0.625 * 0.2, 1e-6);
    assert_float_equal(y.total, y.depreciation + y.running, 1e-6);
    assert_float_equal(y.running, y.capital + y.staff + y.maintenance + y.colo + y.energy, 1e-6);
}

/* $98/h, 100 x 48 h: arithmetic true for one node; like for like at 60 % eight nodes are 42,048
 * node-hours. */
static void cost_rent_like_for_like(void **state)
{
    (void)state;
    assert_float_equal(98.0 * 4800.0, 470400.0, 1e-6);
    assert_float_equal(8.0 * LS_HOURS_PER_YEAR * 0.6, 42048.0, 1e-6);
    assert_float_equal(ls_cost_rent_usd_year(64, 0.6, 98.0 / 8.0), 4.12e6, 0.005e6);
    assert_float_equal(ls_cost_rent_usd_year(64, 0.6, cut / 8.0), 2.31e6, 0.005e6);
    assert_float_equal(ls_cost_rent_usd_year(64, 0.6, block / 8.0), 1.65e6, 0.005e6);
    assert_float_equal(98.0 / 8.0, 12.25, 1e-9);
    assert_float_equal(cut / 8.0, 6.88, 0.001);
}

static void cost_break_even_at_sixty_percent(void **state)
{
    (void)state;
    assert_float_equal(months_at(0.6, launch / 8.0), 7.8, 0.05);
    assert_float_equal(months_at(0.6, cut / 8.0), 15.0, 0.05);
    assert_float_equal(months_at(0.6, block / 8.0), 22.3, 0.05);
    assert_float_equal(ls_cost_break_even_months(2.5e6, 4.0e6, 0.0), 7.5, 1e-12);
    assert_true(isinf(ls_cost_break_even_months(2.5e6, 1e6, 1e6)));
}

/* 18 months need 28, 51, 72 % use; against 2.95 USD per GPU 123 %: never. */
static void cost_break_even_utilization_for_18_months(void **state)
{
    (void)state;
    assert_float_equal(ls_cost_break_even_utilization(&cluster, launch / 8.0, 18.0), 0.28, 0.005);
    assert_float_equal(ls_cost_break_even_utilization(&cluster, cut / 8.0, 18.0), 0.51, 0.005);
    assert_float_equal(ls_cost_break_even_utilization(&cluster, block / 8.0, 18.0), 0.72, 0.005);
    assert_float_equal(ls_cost_break_even_utilization(&cluster, 2.95, 18.0), 1.23, 0.005);
    assert_true(isinf(ls_cost_break_even_utilization(&cluster, 0.1, 18.0)));
    /* And back: at that use it does take 18 months. */
    const double u = ls_cost_break_even_utilization(&cluster, cut / 8.0, 18.0);
    assert_float_equal(months_at(u, cut / 8.0), 18.0, 1e-9);
    assert_float_equal(ls_cost_break_even_rate(&cluster, u, 18.0), cut / 8.0, 1e-9);
}

/* From the claim's own numbers: 470.4 k of cloud are less than 562.5 k of owning; with 150 + 250 k
 * running it takes 35.5 years. */
static void cost_break_even_of_the_claim(void **state)
{
    (void)state;
    assert_true(isinf(ls_cost_break_even_months(2.5e6, 470.4e3, 312.5e3 + 250e3)));
    assert_float_equal(ls_cost_break_even_months(2.5e6, 470.4e3, 150e3 + 250e3) / 12.0, 35.5, 0.05);
}

/* "100+ runs a month": 57,600 node-hours a year are 82 % of 8 nodes. */
static void cost_break_even_of_a_hundred_runs(void **state)
{
    (void)state;
    const double u = 57600.0 / (8.0 * LS_HOURS_PER_YEAR);
    assert_float_equal(u, 0.82, 0.005);
    assert_float_equal(months_at(u, launch / 8.0), 5.6, 0.05);
    assert_float_equal(months_at(u, cut / 8.0), 10.6, 0.05);
}

static void cost_storage_of_thirty_checkpoints(void **state)
{
    (void)state;
    const double claimed = 30.0 * (140e9 + 280e9), full = 30.0 * 14.0 * 70e9, weights = 30.0 * 2.0 * 70e9;
    assert_float_equal(claimed, 12.6e12, 1.0);
    assert_float_equal(full, 29.4e12, 1.0);
    assert_float_equal(weights, 4.2e12, 1.0);
    assert_float_equal(ls_cost_storage_usd(claimed, 0.02, 1.0), 252.0, 1e-9);
    assert_float_equal(ls_cost_storage_usd(full, 0.02, 1.0), 588.0, 1e-9);
    assert_float_equal(50.0 * ls_cost_storage_usd(claimed, 0.02, 1.0), 12600.0, 1e-6);
    assert_float_equal(50.0 * ls_cost_storage_usd(full, 0.02, 1.0), 29400.0, 1e-6);
    assert_float_equal(ls_cost_egress_usd(140e9, 90.0), 12.6, 1e-9);
}

/* 70B on AWS, 256 A100, 128 GPUs for 500 k, 80 k for 3 days. */
static void cost_of_70b(void **state)
{
    (void)state;
    const double a100_h = 1720320.0; /* Llama 2 70B, model card */
    assert_float_equal(a100_h * 4.10, 7.0e6, 0.06e6);
    /* 2 T tokens at 0.40 of 989.4 TFLOP/s and Llama 2's own utilisation of 0.435 of 312 on A100. */
    const double h100_h = a100_h * 0.435 * 312.0 / (0.40 * 989.4);
    assert_float_equal(h100_h, 590e3, 1e3);
    assert_float_equal(h100_h * launch / 8.0, 7.2e6, 0.06e6);
    assert_float_equal(h100_h * cut / 8.0, 4.1e6, 0.06e6);
    assert_float_equal(h100_h * block / 8.0, 2.9e6, 0.06e6);
    assert_float_equal(1.1e6 / a100_h, 0.64, 0.005);
    assert_float_equal(a100_h / 256.0 / 24.0, 280.0, 0.5);
    assert_float_equal(1.1e6 / 1.5, 0.73e6, 0.005e6);
    assert_float_equal(1.1e6 / 1.5 / a100_h * 2.0, 0.85, 0.005); /* T tokens */
    assert_float_equal(1.1e6 / 1.5 / 256.0 / 24.0, 119.0, 0.5);
    assert_float_equal(1.1e6 / 0.6, 1.83e6, 0.005e6);
    assert_float_equal(500e3 / 128.0 / 12.29, 318.0, 0.5);
    assert_float_equal(500e3 / 128.0 / 6.88, 568.0, 0.5);
    assert_float_equal(500e3 / 128.0 / 2.95, 1324.0, 0.5);
    assert_float_equal(80e3 / (72.0 * launch), 11.3, 0.05);
}

static void cost_staff_grows_slower_than_nodes(void **state)
{
    (void)state;
    assert_float_equal(ls_cost_staff_usd_year(64), 250e3, 1e-6);
    assert_float_equal(ls_cost_staff_usd_year(8), 52556.0, 1.0);
    assert_float_equal(ls_cost_staff_usd_year(16384), 250e3 * pow(256.0, 0.75), 1.0);
}

static void cost_format_has_three_digits(void **state)
{
    (void)state;
    static const struct {
        double usd;
        const char *text;
    } cases[] = {{0.0, "$0"},         {3.014, "$3.01"},    {42.4, "$42"},     {940.0, "$940"},
                 {9999.0, "$9999"},   {12345.0, "$12.3k"}, {250e3, "$250k"},  {1.09e6, "$1.09M"},
                 {24.96e6, "$25.0M"}, {999.4e6, "$999M"},  {2.5e9, "$2.50B"}, {-1234.0, "-$1234"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[32];
        ls_cost_format(cases[i].usd, text, sizeof text);
        assert_string_equal(text, cases[i].text);
    }
}

static void cost_explains_with_the_numbers_in(void **state)
{
    (void)state;
    ls_text text = {0};
    ls_cost_explain_break_even(&cluster, 0.6, cut / 8.0, &text);
    assert_non_null(strstr(ls_text_string(&text), "= 15.0 months"));
    ls_text_clear(&text);
    ls_cost_explain_break_even(&cluster, 0.1, 0.5, &text);
    assert_non_null(strstr(ls_text_string(&text), "never"));
    ls_text_release(&text);
}

static void cost_span_says_one_without_an_s(void **state)
{
    (void)state;
    static const struct {
        double days;
        const char *text;
    } cases[] = {
        {9.1 * 365.0, "9.1 years"}, {4364.0, "12 years"},    {23.2, "23 days"},         {3.0, "3 days"},
        {1.0, "24 hours"},          {1.0 / 24.0, "1 hour"},  {0.082 / 24.0, "4.9 min"}, {0.00817, "12 min"},
        {1.0 / 1440.0, "1 min"},    {12.0 / 86400.0, "12 s"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(ls_span_of(cases[i].days).text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ownership_of_64_h100),
        cmocka_unit_test(ownership_over_eight_years),
        cmocka_unit_test(ownership_counts_what_is_left_out),
        cmocka_unit_test(cost_rent_like_for_like),
        cmocka_unit_test(cost_break_even_at_sixty_percent),
        cmocka_unit_test(cost_break_even_utilization_for_18_months),
        cmocka_unit_test(cost_break_even_of_the_claim),
        cmocka_unit_test(cost_break_even_of_a_hundred_runs),
        cmocka_unit_test(cost_storage_of_thirty_checkpoints),
        cmocka_unit_test(cost_of_70b),
        cmocka_unit_test(cost_staff_grows_slower_than_nodes),
        cmocka_unit_test(cost_format_has_three_digits),
        cmocka_unit_test(cost_span_says_one_without_an_s),
        cmocka_unit_test(cost_explains_with_the_numbers_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
