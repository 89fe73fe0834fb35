// SPDX-License-Identifier: Apache-2.0
/* Every number that a claim prints, against the value worked out by hand beside it. */
#include "test.h"

#include "claims.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static ls_arena arena;
static ls_claim claims[LS_CLAIMS_MOST];
static size_t claim_count;

static int set_up(void **state)
{
    (void)state;
    ls_arena_init(&arena);
    return ls_claims_compute(&arena, claims, &claim_count) == LS_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static const ls_claim *find(const char *name)
{
    for (size_t i = 0; i < claim_count; i++) {
        if (strcmp(claims[i].name, name) == 0) {
            return &claims[i];
        }
    }
    fail_msg("there is no claim %s", name);
    return NULL;
}

static double value_of(const char *name, const char *value)
{
    const ls_claim *claim = find(name);
    for (size_t i = 0; i < claim->value_count; i++) {
        if (strcmp(claim->values[i].name, value) == 0) {
            return claim->values[i].value;
        }
    }
    fail_msg("claim %s has no value %s", name, value);
    return NAN;
}

/* Figures as they are printed in the notes that collected the claims; `digits` is half of the last
 * one. */
static const struct {
    const char *claim, *value;
    double expected, digits;
} figures[] = {
    {"weights", "weights_GB", 140, 0.5},
    {"optimizer", "adamw_GB", 840, 0.5},
    {"optimizer", "moments_GB", 560, 0.5},
    {"optimizer", "master_GB", 280, 0.5},
    {"terabytes", "mixed", 8, 0.01},
    {"terabytes", "fp32_gradients", 9, 0.01},
    {"terabytes", "mixed_TB", 1.12, 0.005},
    {"terabytes", "fp32_gradients_TB", 1.26, 0.005},
    {"terabytes", "pure_bf16", 4, 0.01},
    {"terabytes", "8bit", 5, 0.01},
    {"data-parallel", "fits", 0, 0},
    {"tensor-parallel", "tensor_layers", 80, 0},
    {"tensor-parallel", "tensor_share", 0.125, 1e-9},
    {"tensor-parallel", "pipeline_layers", 10, 0},
    {"ring-volume", "2", 1.00, 1e-9},
    {"ring-volume", "8", 1.75, 1e-9},
    {"ring-volume", "64", 1.96875, 1e-9},
    {"ring-volume", "16384", 1.99988, 5e-6},
    {"ring-scale", "ring_ms", 163.87, 0.005}, /* 2 (16383 * 5 us + 20 us) */
    {"ring-scale", "tree_ms", 0.58, 0.005},   /* 2 * 14 * 20 us + 20 us */
    {"64-gpus", "flat_GBs", 203.2, 0.05},
    {"64-gpus", "hierarchical_GBs", 228.6, 0.05},
    {"64-gpus", "one_nic_GBs", 25.4, 0.05},
    {"nvlink", "h100_GBs", 450, 0},
    {"nvlink", "b200_GBs", 900, 0},
    {"infiniband", "node_GBs", 400, 0},
    {"infiniband", "gpu_GBs", 50, 0},
    {"pcie", "gen5_GBs", 64, 0},
    {"pcie", "gen4_GBs", 32, 0},
    {"h200", "TBs", 4.8, 1e-9},
    {"h200", "times_v100", 5.3, 0.05},
    {"h200", "h100_TBs", 3.35, 1e-9},
    {"h200", "year", 2024, 0},
    {"marginal", "perfect_percent", 0.0061, 5e-5},
    {"405b-hours", "flops", 3.79e25, 0.02e25},
    {"405b-hours", "hours", 29.6e6, 0.2e6},
    {"llama-goodput", "mtbf_hours", 3.09, 0.005},
    {"llama-goodput", "interval_min", 7.9, 0.05},
    {"llama-goodput", "goodput", 0.904, 5e-4},
    {"checkpoint-size", "said_TB", 12.6, 1e-9},
    {"checkpoint-size", "full_GB", 980, 1e-9},
    {"checkpoint-size", "full_TB", 29.4, 1e-9},
    {"checkpoint-size", "weights_TB", 4.2, 1e-9},
    {"storage-price", "said_usd", 252, 1e-9},
    {"storage-price", "full_usd", 588, 1e-9},
    {"storage-price", "runs_usd", 12600, 1e-6},
    {"storage-price", "full_runs_usd", 29400, 1e-6},
    {"rented-year", "said_usd", 470400, 0},
    {"rented-year", "launch_usd", 4.12e6, 0.02e6},
    {"rented-year", "cut_usd", 2.31e6, 0.005e6},
    {"rented-year", "block_usd", 1.65e6, 0.005e6},
    {"gpu-hour", "launch_usd", 12.29, 0.005},
    {"gpu-hour", "cut_usd", 6.88, 0.005},
    {"gpu-hour", "market_usd", 2.95, 0.005},
    {"own-hour", "own_usd", 2.78, 0.005},
    {"depreciation", "depreciation_usd", 625e3, 1e-6},
    {"depreciation", "energy_usd", 60e3, 100},
    {"depreciation", "years", 8, 1e-9},
    {"break-even", "own_numbers_months", INFINITY, 0},
    {"break-even", "lower_years", 35.5, 0.05},
    {"break-even", "launch_use", 0.28, 0.005},
    {"break-even", "cut_use", 0.51, 0.005},
    {"break-even", "block_use", 0.72, 0.005},
    {"break-even", "market_use", 1.23, 0.005},
    {"break-even", "launch_months", 7.8, 0.1},
    {"break-even", "cut_months", 15.0, 0.05},
    {"break-even", "block_months", 22.3, 0.05},
    {"many-runs", "node_hours", 57600, 0},
    {"many-runs", "use", 0.82, 0.005},
    {"many-runs", "launch_months", 5.6, 0.05},
    {"many-runs", "cut_months", 10.6, 0.05},
    {"70b-price", "a100_usd", 7.0e6, 0.06e6},
    {"70b-price", "h100_hours", 581e3,
     1e3}, /* 6 * 68.98e9 * 2e12 / (0.4 * 989.4e12) / 3600; with 70e9 590 k */
    {"70b-price", "launch_usd", 7.2e6, 0.1e6},
    {"70b-price", "cut_usd", 4.0e6, 0.1e6},
    {"70b-price", "block_usd", 2.9e6, 0.05e6},
    {"256-a100", "usd_per_hour", 0.64, 0.005},
    {"256-a100", "days", 280, 0.5},
    {"256-a100", "hours_at_1.5", 0.73e6, 0.005e6},
    {"256-a100", "tokens", 0.85e12, 0.005e12},
    {"256-a100", "days_at_1.5", 119, 0.5},
    {"256-a100", "implied_usd", 1.83e6, 0.005e6},
    {"128-gpus", "launch_hours", 318, 0.5},
    {"128-gpus", "cut_hours", 568, 0.5},
    {"128-gpus", "market_hours", 1324, 0.5},
    {"three-days", "nodes", 11.3, 0.05},
};

static void claims_numbers_are_those_of_the_notes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) {
        const double found = value_of(figures[i].claim, figures[i].value);
        const bool same = isinf(figures[i].expected) ? isinf(found)
                                                     : fabs(found - figures[i].expected) <= figures[i].digits;
        if (!same) {
            fail_msg("%s, %s: %.9g instead of %.9g", figures[i].claim, figures[i].value, found,
                     figures[i].expected);
        }
    }
}

static void claims_verdicts_are_those_of_the_notes(void **state)
{
    (void)state;
    static const struct {
        const char *claim;
        ls_claim_verdict verdict;
    } verdicts[] = {
        {"weights", LS_CLAIM_HOLDS},
        {"optimizer", LS_CLAIM_DOES_NOT_HOLD},
        {"terabytes", LS_CLAIM_DOES_NOT_HOLD},
        {"data-parallel", LS_CLAIM_DOES_NOT_HOLD},
        {"tensor-parallel", LS_CLAIM_DOES_NOT_HOLD},
        {"ring-volume", LS_CLAIM_HOLDS},
        {"ring-scale", LS_CLAIM_DOES_NOT_HOLD},
        {"64-gpus", LS_CLAIM_HOLDS},
        {"nvlink", LS_CLAIM_DOES_NOT_HOLD},
        {"infiniband", LS_CLAIM_HOLDS},
        {"pcie", LS_CLAIM_HOLDS},
        {"h200", LS_CLAIM_DOES_NOT_HOLD},
        {"waiting", LS_CLAIM_DEPENDS},
        {"sync", LS_CLAIM_DOES_NOT_HOLD},
        {"marginal", LS_CLAIM_DEPENDS},
        {"405b-hours", LS_CLAIM_HOLDS},
        {"llama-goodput", LS_CLAIM_HOLDS},
        {"deadlocks", LS_CLAIM_NOT_VERIFIABLE},
        {"checkpoint-size", LS_CLAIM_DOES_NOT_HOLD},
        {"storage-price", LS_CLAIM_DEPENDS},
        {"rented-year", LS_CLAIM_DOES_NOT_HOLD},
        {"gpu-hour", LS_CLAIM_DOES_NOT_HOLD},
        {"own-hour", LS_CLAIM_DOES_NOT_HOLD},
        {"depreciation", LS_CLAIM_DOES_NOT_HOLD},
        {"break-even", LS_CLAIM_DOES_NOT_HOLD},
        {"many-runs", LS_CLAIM_HOLDS},
        {"70b-price", LS_CLAIM_DEPENDS},
        {"256-a100", LS_CLAIM_DOES_NOT_HOLD},
        {"128-gpus", LS_CLAIM_DEPENDS},
        {"three-days", LS_CLAIM_DEPENDS},
    };
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; i++) {
        const ls_claim *claim = find(verdicts[i].claim);
        if (claim->verdict != verdicts[i].verdict) {
            fail_msg("%s: %s: %s", claim->name, ls_claim_verdict_name(claim->verdict), claim->found);
        }
    }
}

/* What follows from the model of step time and moves with its constants: the order of things, not
 * digits. */
static void claims_of_step_times_have_the_right_order(void **state)
{
    (void)state;
    assert_true(value_of("waiting", "nvlink") < value_of("waiting", "pcie"));
    assert_true(value_of("waiting", "pcie") < value_of("waiting", "ethernet"));
    assert_true(value_of("waiting", "ethernet") > 0.4 && value_of("waiting", "nvlink") < 0.2);
    assert_true(value_of("sync", "8k_data") < 0.2);
    assert_true(value_of("sync", "8k") > value_of("sync", "16k"));
    assert_true(value_of("sync", "16k") > value_of("sync", "128k"));
    assert_true(value_of("data-parallel", "plain_GiB") > 1000.0);
    assert_true(value_of("data-parallel", "split_GiB") < 80.0);
}

/* Names are unique, each claim says something, and the page has all of them. */
static void claims_append_prints_each(void **state)
{
    (void)state;
    ls_text page = {0};
    ls_claims_append(claims, claim_count, &page);
    for (size_t i = 0; i < claim_count; i++) {
        assert_ptr_equal(find(claims[i].name), &claims[i]);
        assert_true(claims[i].found && claims[i].found[0]);
        assert_true(strstr(ls_text_string(&page), claims[i].said) != NULL);
        assert_true(strstr(ls_text_string(&page), claims[i].found) != NULL);
        assert_true((claims[i].verdict == LS_CLAIM_NOT_VERIFIABLE) == (claims[i].by[0] == '\0'));
    }
    ls_text_release(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_numbers_are_those_of_the_notes),
        cmocka_unit_test(claims_verdicts_are_those_of_the_notes),
        cmocka_unit_test(claims_of_step_times_have_the_right_order),
        cmocka_unit_test(claims_append_prints_each),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
