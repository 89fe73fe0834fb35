// SPDX-License-Identifier: Apache-2.0
/* How long a run will take, from its run file and a machine made by hand. */
#include "test.h"

#include "planning/calibrations.h"
#include "planning/step/forecast.h"
#include "planning/step/own_time.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static const char *const file =
    "model: {family: llama, layers: 2, heads: 4, kv_heads: 4, width: 64, ffn: 128, context: 32}\n"
    "tokenizer: {kind: bytes}\n"
    "data: {train: [x]}\n"
    "train: {steps: 100, global_batch: 16, micro_batch: 2, leaves: 4}\n"
    "eval: {every_steps: 30, batches: 3}\n";

static ls_run_file parse(const char *override)
{
    ls_run_file run;
    assert_int_equal(
        ls_run_file_parse(file, strlen(file), "run.yaml", &override, override ? 1 : 0, &arena, &run), LS_OK);
    return run;
}

static ls_calibration machine(void)
{
    ls_calibration_setting *settings = ls_arena_new(&arena, ls_calibration_setting, 1);
    settings[0] = power_setting(&arena, 1, 1, 1e-9);
    return (ls_calibration){
        .device = "paper", .date = "today", .cores = 8, .settings = settings, .setting_count = 1};
}

/* The same step that the trainer says before its first, at each number of ranks up to the leaves. */
static void forecast_is_the_trainers_prediction(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    const ls_run_file run = parse(NULL);
    ls_forecast f;
    assert_int_equal(ls_forecast_make(&arena, &run, &calibration, 1, 1, 8, &f), LS_OK);
    assert_int_equal(f.steps, 100);
    assert_int_equal(f.count, 4);
    ls_run_file own = run;
    assert_true(ls_run_file_adopt_own_vocab(&own));
    assert_int_equal(own.model.vocab, 256);
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
    assert_int_equal(ls_run_file_model_config(&own, &config), LS_OK);
    ls_layout_build(&arena, &config, &layout);
    const ls_plan_options options = {.sequences = 2,
                                     .length = 32,
                                     .training = true,
                                     .losses = true,
                                     .recompute = (ls_recompute)run.train.recompute,
                                     .tensor_cut = 1};
    assert_int_equal(ls_plan_build(&arena, &config, &layout, &options, &plan), LS_OK);
    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        const ls_own_run wanted = {
            .plan = &plan, .leaves = 4, .micro_batches = 2, .ranks = ranks, .threads = 1};
        ls_own_time time;
        ls_own_time_compute(&calibration, &wanted, &time);
        assert_true(time.step_s > 0.0);
        assert_float_equal(f.step_s[ranks - 1], time.step_s, 1e-12 * time.step_s);
        assert_float_equal(ls_forecast_run_s(&f, ranks), 100.0 * time.step_s + f.evaluations_s, 1e-9);
    }
    /* Four evaluations (30, 60, 90, 100) of three batches of eight micro-batches, of which each is a third of a step's at most. */
    assert_true(f.evaluations_s > 0.0);
    assert_true(f.evaluations_s < 4 * 3 * f.step_s[0]);
    assert_true(ls_forecast_run_s(&f, 5) == 0.0);
    assert_int_equal(ls_forecast_make(&arena, &run, &calibration, 1, 2, 3, &f), LS_OK);
    assert_int_equal(f.count, 2);
    assert_true(ls_forecast_run_s(&f, 1) == 0.0);
    assert_true(ls_forecast_run_s(&f, 3) > 0.0);
}

static void forecast_says_nothing_that_the_file_does_not(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    ls_forecast f;
    ls_run_file run = parse("train.steps=auto");
    run.train.steps = LS_AUTO_U64; /* passes over the data: known when it is read */
    run.train.epochs = 2.0;
    assert_int_equal(ls_forecast_make(&arena, &run, &calibration, 1, 1, 1, &f), LS_OK);
    assert_int_equal(f.steps, 0);
    assert_true(f.step_s[0] > 0.0);
    assert_true(ls_forecast_run_s(&f, 1) == 0.0);
    f.count = 77;
    run = parse(NULL);
    run.tokenizer.kind = LS_TOKENIZER_FILE;
    run.tokenizer.file = "tokenizer.json";
    assert_int_equal(ls_forecast_make(&arena, &run, &calibration, 1, 1, 1, &f), LS_ERR_UNSUPPORTED);
    run = parse(NULL);
    run.model.from = "elsewhere";
    assert_int_equal(ls_forecast_make(&arena, &run, &calibration, 1, 1, 1, &f), LS_ERR_UNSUPPORTED);
    assert_int_equal(f.count, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(forecast_is_the_trainers_prediction, release_arena),
        cmocka_unit_test_teardown(forecast_says_nothing_that_the_file_does_not, release_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
