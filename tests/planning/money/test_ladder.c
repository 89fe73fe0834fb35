// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/money/ladder.h"

#include <string.h>

static const ls_accelerator h100 = {.name = "H100"};
static const ls_node dgx = {.name = "DGX-H100", .accelerator = &h100, .count = 8};
static const ls_node nvl72 = {.name = "NVL72", .accelerator = &h100, .count = 72};
static const ls_node card = {.name = "card", .accelerator = &h100, .count = 1};

static void expect_tenths(const ls_node *node, int64_t gpus, size_t count, const int64_t *expected)
{
    int64_t sizes[LS_LADDER_TENTHS];
    assert_int_equal(ls_ladder_tenths(node, gpus, sizes), count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sizes[i], expected[i]);
    }
}

/* Whole nodes, at least two and a tenth, fewer than all. */
static void ladder_tenths(void **state)
{
    (void)state;
    expect_tenths(&dgx, 1024, 13,
                  (const int64_t[]){112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896});
    expect_tenths(&dgx, 64, 6, (const int64_t[]){16, 24, 32, 40, 48, 56});
    expect_tenths(&dgx, 16, 0, NULL);
    expect_tenths(&dgx, 17, 1, (const int64_t[]){16});
    expect_tenths(&nvl72, 216, 1, (const int64_t[]){144});
    expect_tenths(&card, 4, 2, (const int64_t[]){2, 3});
    int64_t sizes[LS_LADDER_TENTHS];
    for (int64_t gpus = 8; gpus <= 1000000; gpus = gpus * 5 / 3) {
        const size_t count = ls_ladder_tenths(&dgx, gpus, sizes);
        assert_true(count < LS_LADDER_TENTHS);
        for (size_t i = 0; i < count; i++) {
            assert_true(10 * sizes[i] >= gpus && sizes[i] < gpus && sizes[i] % 8 == 0);
            assert_true(i == 0 || sizes[i] > sizes[i - 1]);
        }
    }
}

static void expect_sizes(const ls_node *node, int64_t gpus, int64_t tenth, size_t count,
                         const int64_t *expected)
{
    const ls_ladder_setting setting = {
        .node = node, .gpus = gpus, .tenth_gpus = tenth, .step_s = 1.0, .run_days = 1.0};
    ls_ladder ladder;
    ls_ladder_compute(&setting, &ladder);
    assert_int_equal(ladder.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ladder.stages[i].gpus, expected[i]);
    }
}

static void ladder_sizes(void **state)
{
    (void)state;
    expect_sizes(&dgx, 1024, 128, 4, (const int64_t[]){8, 8, 128, 1024});
    expect_sizes(&dgx, 16, 0, 3, (const int64_t[]){8, 8, 16});
    expect_sizes(&dgx, 8, 0, 1, (const int64_t[]){8});
    expect_sizes(&nvl72, 1440, 144, 4, (const int64_t[]){8, 72, 144, 1440});
    expect_sizes(&card, 4, 2, 3, (const int64_t[]){1, 2, 4});
    expect_sizes(&card, 1, 0, 1, (const int64_t[]){1});
}

/* What is left out is said, and so is a size that is far from a tenth. */
static void ladder_says_how_the_tenth_came_about(void **state)
{
    (void)state;
    ls_ladder_setting setting = {
        .node = &dgx, .gpus = 64, .step_s = 1.0, .run_days = 10.0, .usd_per_gpu_hour = 1.0};
    ls_ladder ladder;
    ls_ladder_compute(&setting, &ladder);
    assert_int_equal(ladder.count, 3);
    assert_string_equal(ladder.stages[2].note,
                        "no stage at a tenth: the model fits on no fewer than 64 GPUs");
    setting.tenth_gpus = 32;
    setting.tenth_tokens_ps = 1000.0;
    setting.tenth_memory_gib = 50.0;
    setting.tenth_strategy = "TP 8 x PP 4";
    ls_ladder_compute(&setting, &ladder);
    assert_int_equal(ladder.count, 4);
    assert_string_equal(ladder.stages[2].note,
                        "the fewest GPUs, a tenth or more, that hold the model: TP 8 x PP 4");
    assert_non_null(strstr(ladder.stages[2].criteria[1], "at most 52.5 GiB"));
    assert_string_equal(ladder.stages[3].note, "");
    setting.tenth_gpus = 16;
    ls_ladder_compute(&setting, &ladder);
    assert_string_equal(ladder.stages[2].note, "TP 8 x PP 4");
}

static void ladder_costs_and_criteria(void **state)
{
    (void)state;
    const ls_ladder_setting setting = {.node = &dgx,
                                       .gpus = 1024,
                                       .step_s = 10.0,
                                       .step_band = {0.9, 1.2},
                                       .memory_gib = 60.0,
                                       .run_days = 20.0,
                                       .goodput = 0.98,
                                       .usd_per_gpu_hour = 3.0,
                                       .interval_s = 600.0,
                                       .restart_s = 300.0,
                                       .tenth_gpus = 128,
                                       .tenth_tokens_ps = 120e3};
    ls_ladder ladder;
    ls_ladder_compute(&setting, &ladder);
    assert_int_equal(ladder.count, 4);
    assert_float_equal(ladder.stages[0].usd, 24.0, 1e-9);
    assert_float_equal(ladder.stages[1].usd, 48.0, 1e-9);
    assert_float_equal(ladder.stages[2].usd, 128.0 * 24.0 * 3.0, 1e-9);
    assert_float_equal(ladder.stages[3].usd, 1024.0 * 480.0 * 3.0, 1e-6);
    assert_float_equal(ladder.stages[3].cumulated_usd, 24.0 + 48.0 + 9216.0 + 1474560.0, 1e-6);
    assert_string_equal(ladder.stages[2].criteria[0], "at least 100k tokens/s (predicted 120k)");
    assert_non_null(strstr(ladder.stages[3].criteria[0], "between 9 and 12 s"));
    for (size_t i = 0; i < ladder.count; i++) {
        assert_true(ladder.stages[i].criteria[0][0] != '\0');
        assert_true(ladder.stages[i].criteria[2][0] != '\0');
    }
    ls_text text = {0};
    ls_ladder_append(&ladder, &text);
    assert_non_null(strstr(ls_text_string(&text), "a tenth"));
    ls_text_release(&text);
}

/* Before a run of five hours nobody tries for a day. */
static void ladder_stages_are_shares_of_a_short_run(void **state)
{
    (void)state;
    const ls_ladder_setting setting = {.node = &dgx,
                                       .gpus = 64,
                                       .tenth_gpus = 16,
                                       .step_s = 1.0,
                                       .run_days = 5.0 / 24.0,
                                       .goodput = 0.99,
                                       .usd_per_gpu_hour = 1.0};
    ls_ladder ladder;
    ls_ladder_compute(&setting, &ladder);
    assert_float_equal(ladder.stages[0].hours, 0.1, 1e-12);
    assert_float_equal(ladder.stages[1].hours, 0.25, 1e-12);
    assert_float_equal(ladder.stages[2].hours, 1.0, 1e-12);
    assert_float_equal(ladder.stages[3].hours, 5.0, 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ladder_tenths),
        cmocka_unit_test(ladder_sizes),
        cmocka_unit_test(ladder_says_how_the_tenth_came_about),
        cmocka_unit_test(ladder_costs_and_criteria),
        cmocka_unit_test(ladder_stages_are_shares_of_a_short_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
