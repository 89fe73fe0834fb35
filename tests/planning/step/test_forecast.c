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

/* The same step that the trainer says before its first, at each number of ranks up to the
 * leaves. */
static void forecast_is_the_trainers_prediction(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    const ls_run_file run = parse(NULL);
    ls_forecast_kept kept = {0};
    ls_forecast f;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 8}, &kept, &f),
                     LS_OK);
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
        const ls_own_run wanted = {.plan = &plan,
                                   .leaves = 4,
                                   .micro_batches = 2,
                                   .ranks = ranks,
                                   .threads = 1,
                                   .hash_every_steps = run.train.hash_every_steps};
        ls_own_time time;
        ls_own_time_compute(&calibration, &wanted, &time);
        assert_true(time.step_s > 0.0);
        assert_float_equal(f.step_s[ranks - 1], time.step_s, 1e-12 * time.step_s);
        assert_float_equal(ls_forecast_run_s(&f, ranks), 100.0 * time.step_s + f.evaluations_s, 1e-9);
    }
    /* Four evaluations (30, 60, 90, 100) of three batches of eight micro-batches, of which each is
     * a third of a step's at most. */
    assert_true(f.evaluations_s > 0.0);
    assert_true(f.evaluations_s < 4 * 3 * f.step_s[0]);
    assert_true(ls_forecast_run_s(&f, 5) == 0.0);
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 2, 3}, &kept, &f),
                     LS_OK);
    assert_int_equal(f.count, 2);
    assert_true(ls_forecast_run_s(&f, 1) == 0.0);
    assert_true(ls_forecast_run_s(&f, 3) > 0.0);
}

static void forecast_says_nothing_that_the_file_does_not(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    ls_forecast_kept kept = {0};
    ls_forecast f;
    ls_run_file run = parse("train.steps=auto");
    run.train.steps = LS_AUTO_U64; /* passes over the data: known when it is read */
    run.train.epochs = 2.0;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_OK);
    assert_int_equal(f.steps, 0);
    assert_true(f.step_s[0] > 0.0);
    assert_true(ls_forecast_run_s(&f, 1) == 0.0);
    f.count = 77;
    run = parse(NULL);
    run.tokenizer.kind = LS_TOKENIZER_FILE;
    run.tokenizer.file = "tokenizer.json";
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_ERR_UNSUPPORTED);
    run = parse(NULL);
    run.model.from = "elsewhere";
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_ERR_UNSUPPORTED);
    assert_int_equal(f.count, 77);
}

/* A model of many layers is not taken apart layer by layer, and comes out as if it were. */
static void forecast_takes_layers_together(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    static const char *const families[] = {"model.family=llama", "model.family=gpt2", "model.family=qwen3"};
    for (int i = 0; i < 9; i++) {
        ls_forecast_kept kept = {0};
        ls_forecast f;
        ls_run_file run = parse(families[i / 3]);
        run.model.layers = 9;
        run.model.vocab = 300;
        run.train.recompute = i % 3;
        run.train.leaves = 16;
        run.train.micro_batch = 1;
        assert_int_equal(
            ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 3, 4}, &kept, &f), LS_OK);
        ls_model_config config;
        ls_layout layout;
        ls_plan plan;
        assert_int_equal(ls_run_file_model_config(&run, &config), LS_OK);
        ls_layout_build(&arena, &config, &layout);
        const ls_plan_options options = {.sequences = 1,
                                         .length = 32,
                                         .training = true,
                                         .losses = true,
                                         .recompute = (ls_recompute)run.train.recompute,
                                         .tensor_cut = 1};
        assert_int_equal(ls_plan_build(&arena, &config, &layout, &options, &plan), LS_OK);
        const ls_own_run wanted = {.plan = &plan,
                                   .leaves = 16,
                                   .micro_batches = 1,
                                   .ranks = 4,
                                   .threads = 1,
                                   .hash_every_steps = run.train.hash_every_steps};
        ls_own_time time;
        ls_own_time_compute(&calibration, &wanted, &time);
        assert_float_equal(f.step_s[1], time.step_s, 1e-9 * time.step_s);
        double forward_s = 0.0;
        for (uint32_t k = 0; k < plan.forward_steps; k++) {
            ls_term term;
            forward_s += ls_own_plan_step_s(&calibration, &plan, k, 3, false, &term);
        }
        assert_float_equal(f.evaluations_s, 4 * 3 * 16 * forward_s, 1e-9 * f.evaluations_s);
    }
}

/* Whatever the file asks for: what grew with its numbers would not come to an end here, or take
 * memory. */
static void forecast_is_bounded(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    ls_forecast_kept kept = {0};
    ls_forecast f = {.count = 77};
    ls_run_file run = parse(NULL);
    run.model.vocab = 1 << 24; /* chunks of 64 rows: 2^25 of them */
    run.model.context = 1 << 24;
    run.model.layers = 1024;
    run.train.global_batch = run.train.micro_batch = 64;
    run.train.leaves = 1;
    assert_int_equal(
        ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 64}, &kept, &f), LS_OK);
    assert_int_equal(f.count, 1);
    assert_true(f.step_s[0] > 0.0);
    assert_int_equal(kept.made, 1);
    /* As many leaves as there may be. */
    run = parse(NULL);
    run.model.layers = 1024;
    run.train.global_batch = run.train.leaves = 1 << 20;
    run.train.micro_batch = 1;
    ls_arena few = {0}, many = {0};
    assert_int_equal(ls_forecast_make(&many, &run, &(ls_forecast_request){&calibration, 1, 1, 64}, &kept, &f),
                     LS_OK);
    assert_int_equal(f.count, 64);
    run.model.layers = 3;
    assert_int_equal(ls_forecast_make(&few, &run, &(ls_forecast_request){&calibration, 1, 1, 64}, &kept, &f),
                     LS_OK);
    /* buckets are all that is there of each layer */
    assert_true(many.allocated_bytes < few.allocated_bytes + (1 << 17));
    ls_arena_release(&few);
    ls_arena_release(&many);
    /* Beyond: nothing is said. */
    f.count = 77;
    run = parse(NULL);
    run.model.context = 1 << 24;
    run.train.global_batch = run.train.micro_batch = 1 << 20;
    run.train.leaves = 1;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_ERR_UNSUPPORTED);
    const char *items[] = {"layers.0"};
    run = parse(NULL);
    run.train.freeze = (ls_option_strings){.items = items, .count = 1};
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_OK);
    assert_int_equal(f.count, 1);
    f.count = 77;
    run.model.layers = LS_FORECAST_FROZEN_LAYERS_MAX + 1;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_ERR_UNSUPPORTED);
    run.model.layers = 2;
    items[0] = "*a*a*a*a*a*a*";
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 1}, &kept, &f),
                     LS_ERR_UNSUPPORTED);
    assert_int_equal(f.count, 77);
}

/* The points of a sweep whose step is the same are forecast once, each with its own steps. */
static void forecast_is_kept(void **state)
{
    (void)state;
    const ls_calibration calibration = machine();
    ls_forecast_kept kept = {0};
    ls_forecast a, b;
    ls_run_file run = parse(NULL);
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 4}, &kept, &a),
                     LS_OK);
    run.train.optimizer.lr *= 3.0;
    run.train.steps = 200;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 4}, &kept, &b),
                     LS_OK);
    assert_int_equal(kept.made, 1);
    assert_int_equal(b.steps, 200);
    assert_memory_equal(a.step_s, b.step_s, sizeof a.step_s);
    assert_true(b.evaluations_s > a.evaluations_s);
    run.model.layers = 5;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 4}, &kept, &b),
                     LS_OK);
    run.train.micro_batch = 1;
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 4}, &kept, &b),
                     LS_OK);
    assert_int_equal(ls_forecast_make(&arena, &run, &(ls_forecast_request){&calibration, 1, 1, 3}, &kept, &b),
                     LS_OK);
    assert_int_equal(kept.made, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(forecast_is_the_trainers_prediction, release_arena),
        cmocka_unit_test_teardown(forecast_says_nothing_that_the_file_does_not, release_arena),
        cmocka_unit_test_teardown(forecast_takes_layers_together, release_arena),
        cmocka_unit_test_teardown(forecast_is_bounded, release_arena),
        cmocka_unit_test_teardown(forecast_is_kept, release_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
