// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/calibrations.h"
#include "planning/step/own_time.h"

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static void assert_near(double got, double want)
{
    if (fabs(got - want) > 1e-9 * fabs(want)) {
        fail_msg("%.12g, not %.12g", got, want);
    }
}

enum { LAYERS = 3, WIDTH = 64, HEADS = 4, HEAD_DIM = 16, FFN = 256, VOCAB = 256, LENGTH = 32, SEQUENCES = 2 };
enum { ROWS = LENGTH * SEQUENCES };

typedef struct model {
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
} model;

static void make_model(model *m, ls_family family, ls_recompute recompute)
{
    ls_model_config_defaults(family, &m->config);
    m->config.layers = LAYERS;
    m->config.width = WIDTH;
    m->config.heads = m->config.kv_heads = HEADS;
    m->config.head_dim = HEAD_DIM;
    m->config.ffn = FFN;
    m->config.context = LENGTH;
    m->config.vocab = VOCAB;
    assert_int_equal(ls_model_config_check(&m->config), LS_OK);
    ls_layout_build(&arena, &m->config, &m->layout);
    const ls_plan_options options = {.sequences = SEQUENCES,
                                     .length = LENGTH,
                                     .training = true,
                                     .losses = true,
                                     .recompute = recompute,
                                     .tensor_cut = 1};
    assert_int_equal(ls_plan_build(&arena, &m->config, &m->layout, &options, &m->plan), LS_OK);
}

static ls_own_run run_of(const model *m, uint32_t leaves, uint32_t micro_batches, uint32_t ranks)
{
    return (ls_own_run){
        .plan = &m->plan, .leaves = leaves, .micro_batches = micro_batches, .ranks = ranks, .threads = 1};
}

/* A nanosecond per multiply-add: products take half of what the plan counts as FLOPs, in
 * nanoseconds. */
static void own_time_products_are_those_of_the_plan(void **state)
{
    (void)state;
    model m;
    ls_own_time time;
    const ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    const ls_own_run run = run_of(&m, 1, 1, 1);
    ls_own_time_compute(&c, &run, &time);
    const double layer = WIDTH * 3 * WIDTH + WIDTH * WIDTH + 3 * WIDTH * FFN;
    assert_near(time.terms_s[LS_TERM_MATMUL], 3e-9 * ROWS * (LAYERS * layer + WIDTH * VOCAB));
    /* Forward and backward, both length^2 head_dim a head. */
    assert_near(time.terms_s[LS_TERM_ATTENTION],
                2e-9 * LAYERS * SEQUENCES * HEADS * LENGTH * LENGTH * HEAD_DIM);
    assert_near(time.terms_s[LS_TERM_OPTIMIZER], 1e-9 * (double)m.layout.float_count);
    double sum_s = 0.0;
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        sum_s += time.terms_s[term];
    }
    assert_near(time.step_s, sum_s);
    assert_near(time.tokens_ps, ROWS / sum_s);
}

static void own_time_recompute_adds_a_forward(void **state)
{
    (void)state;
    model none, full;
    ls_own_time a, b;
    const ls_calibration c = power_machine(&arena);
    make_model(&none, LS_FAMILY_GPT2, LS_RECOMPUTE_NONE);
    make_model(&full, LS_FAMILY_GPT2, LS_RECOMPUTE_FULL);
    ls_own_run run = run_of(&none, 1, 1, 1);
    ls_own_time_compute(&c, &run, &a);
    run = run_of(&full, 1, 1, 1);
    ls_own_time_compute(&c, &run, &b);
    /* all but the down projection */
    const double again = 3 * WIDTH * WIDTH + WIDTH * WIDTH + WIDTH * FFN;
    assert_near(b.terms_s[LS_TERM_MATMUL] - a.terms_s[LS_TERM_MATMUL], 1e-9 * ROWS * LAYERS * again);
}

static void own_time_grows_with_leaves_and_micro_batches(void **state)
{
    (void)state;
    model m;
    ls_own_time one, many;
    const ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    ls_own_run run = run_of(&m, 1, 1, 1);
    ls_own_time_compute(&c, &run, &one);
    run = run_of(&m, 4, 3, 1);
    ls_own_time_compute(&c, &run, &many);
    assert_near(many.terms_s[LS_TERM_MATMUL], 12.0 * one.terms_s[LS_TERM_MATMUL]);
    assert_near(many.terms_s[LS_TERM_OPTIMIZER], one.terms_s[LS_TERM_OPTIMIZER]);
    assert_near(many.tokens_ps * many.step_s, 12.0 * ROWS);
}

/* The first micro-batch of a leaf writes gradients, later ones add to them. */
static void own_time_later_micro_batches_add_to_gradients(void **state)
{
    (void)state;
    model m;
    ls_own_time one, two;
    ls_calibration c = power_machine(&arena);
    c.settings[0].work[LS_WORK_GEMM_TN_ADD] = power_law(&arena, LS_WORK_GEMM_TN_ADD, 5e-9);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    ls_own_run run = run_of(&m, 1, 1, 1);
    ls_own_time_compute(&c, &run, &one);
    run.micro_batches = 2;
    ls_own_time_compute(&c, &run, &two);
    assert_near(two.terms_s[LS_TERM_MATMUL], one.terms_s[LS_TERM_MATMUL] * (1.0 + (1.0 + 1.0 + 5.0) / 3.0));
}

/* Every fourth step parameters and moments are hashed, and before the next update again. */
static void own_time_hashes_are_part_of_the_update(void **state)
{
    (void)state;
    model m;
    ls_own_time time;
    const ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    ls_own_run run = run_of(&m, 1, 1, 1);
    run.hash_every_steps = 4;
    ls_own_time_compute(&c, &run, &time);
    assert_near(time.terms_s[LS_TERM_OPTIMIZER],
                1e-9 * (double)m.layout.float_count * (1.0 + 2.0 * 3.0 / 4.0));
}

/* Sums read each input once: one leaf hands over 1 node; of four, two are merged on the way (before
 * the third leaf) and 3 are handed over. */
static void own_time_tree_reads_what_the_tree_reads(void **state)
{
    (void)state;
    model m;
    ls_own_time time;
    const ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    static const struct {
        uint32_t leaves, inputs;
    } cases[] = {{1, 1}, {2, 2}, {3, 2 + 2}, {4, 2 + 3}, {5, 2 + 3 + 2}, {8, 2 + 3 + 2 + 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_own_run run = run_of(&m, cases[i].leaves, 1, 1);
        ls_own_time_compute(&c, &run, &time);
        assert_near(time.terms_s[LS_TERM_DATA], 1e-9 * (double)m.layout.float_count * cases[i].inputs);
    }
}

static void own_time_ranks_share_the_work_and_the_machine(void **state)
{
    (void)state;
    model m;
    ls_own_time one, four, three;
    const ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    ls_own_run run = run_of(&m, 8, 2, 1);
    ls_own_time_compute(&c, &run, &one);
    run = run_of(&m, 8, 2, 4);
    ls_own_time_compute(&c, &run, &four);
    /* A quarter of the leaves, each twice as slow while all four compute. */
    assert_near(four.terms_s[LS_TERM_MATMUL], one.terms_s[LS_TERM_MATMUL] * 2.0 / 4.0);
    assert_near(four.terms_s[LS_TERM_OPTIMIZER], one.terms_s[LS_TERM_OPTIMIZER] * 2.0 / 4.0);
    assert_near(four.terms_s[LS_TERM_FIXED], 3e-6);
    assert_true(one.terms_s[LS_TERM_FIXED] == 0.0);
    /* Of three ranks two have 3 leaves of 8: the last ones without the third rank. */
    run = run_of(&m, 8, 2, 3);
    ls_own_time_compute(&c, &run, &three);
    assert_near(three.terms_s[LS_TERM_MATMUL],
                one.terms_s[LS_TERM_MATMUL] / 8.0 * (2.0 * (1.0 + 2.0 / 3.0) + (1.0 + 1.0 / 3.0)));
}

/* Llama with layers of equal FLOPs and next to no head: stages are balanced. */
static void make_even_model(model *m, int64_t layers)
{
    make_model(m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    ls_plan_options options = m->plan.options;
    m->config.layers = layers;
    m->config.vocab = 8;
    ls_layout_build(&arena, &m->config, &m->layout);
    options.layer_count = 0;
    assert_int_equal(ls_plan_build(&arena, &m->config, &m->layout, &options, &m->plan), LS_OK);
}

static ls_own_time pipeline_time(const model *m, const ls_pipeline *pipeline)
{
    ls_own_run run = run_of(m, 1, pipeline->micro_batches, pipeline->stages);
    ls_own_time time;
    const ls_calibration c = power_machine(&arena);
    run.pipeline = pipeline;
    run.scratch = &arena;
    ls_own_time_compute(&c, &run, &time);
    return time;
}

/* One stage takes what a process takes that adds every micro-batch to the gradients. */
static void own_time_a_single_stage_is_no_pipeline(void **state)
{
    (void)state;
    model m;
    ls_own_time one, two;
    const ls_calibration c = power_machine(&arena);
    make_even_model(&m, 4);
    ls_own_run run = run_of(&m, 1, 1, 1);
    ls_own_time_compute(&c, &run, &one);
    run.micro_batches = 2;
    ls_own_time_compute(&c, &run, &two);
    const ls_own_time stage = pipeline_time(&m, &(ls_pipeline){LS_PIPELINE_ONE_BY_ONE, 1, 1, 5});
    assert_near(stage.terms_s[LS_TERM_MATMUL],
                5.0 * (two.terms_s[LS_TERM_MATMUL] - one.terms_s[LS_TERM_MATMUL]));
    assert_near(stage.terms_s[LS_TERM_OPTIMIZER], one.terms_s[LS_TERM_OPTIMIZER]);
    assert_true(stage.terms_s[LS_TERM_BUBBLE] == 0.0 && stage.terms_s[LS_TERM_PIPELINE] == 0.0);
}

/* Of stages that are nearly even, the idle share is within 5 % of the formulas. */
static void own_time_stages_idle_as_the_formula_says(void **state)
{
    (void)state;
    model m;
    const uint32_t stages = 4, micro_batches = 16;
    make_even_model(&m, 16);
    ls_pipeline p = {LS_PIPELINE_ONE_BY_ONE, stages, 1, micro_batches};
    const ls_own_time in_turn = pipeline_time(&m, &p);
    const double busy_s = in_turn.terms_s[LS_TERM_MATMUL] + in_turn.terms_s[LS_TERM_ATTENTION] +
                          in_turn.terms_s[LS_TERM_ELEMENTWISE] + in_turn.terms_s[LS_TERM_PIPELINE];
    const double idle_s = in_turn.terms_s[LS_TERM_BUBBLE];
    const double share = (stages - 1.0) / (micro_batches + stages - 1.0);
    assert_true(fabs(idle_s / (idle_s + busy_s) - share) < 0.05 * share);
    p.chunks = 2;
    assert_true(fabs(pipeline_time(&m, &p).terms_s[LS_TERM_BUBBLE] - idle_s / 2.0) < 0.05 * idle_s);
    p.chunks = 1;
    p.kind = LS_PIPELINE_ZERO_BUBBLE;
    assert_true(pipeline_time(&m, &p).terms_s[LS_TERM_BUBBLE] < idle_s / 2.0);
}

/* More stages than cores: a leaf takes at least its work on the cores, and not much longer. */
static void own_time_stages_share_cores(void **state)
{
    (void)state;
    model m;
    ls_calibration c = power_machine(&arena);
    make_even_model(&m, 16);
    const ls_pipeline p = {LS_PIPELINE_ONE_BY_ONE, 4, 1, 4};
    ls_own_run run = run_of(&m, 1, p.micro_batches, p.stages);
    ls_own_time many, two;
    c.setting_count = 1; /* no rank slows another down */
    c.cores = 8;
    run.pipeline = &p;
    run.scratch = &arena;
    ls_own_time_compute(&c, &run, &many);
    const double passes_s = many.step_s - many.terms_s[LS_TERM_BUBBLE] - many.terms_s[LS_TERM_DATA] -
                            many.terms_s[LS_TERM_OPTIMIZER] - many.terms_s[LS_TERM_FIXED];
    c.cores = 2;
    ls_own_time_compute(&c, &run, &two);
    assert_true(two.terms_s[LS_TERM_BUBBLE] > 0.99 * passes_s &&
                two.terms_s[LS_TERM_BUBBLE] < 1.4 * passes_s);
    assert_near(two.terms_s[LS_TERM_MATMUL], many.terms_s[LS_TERM_MATMUL]);
}

/* A member of groups has its part of the products, whether there are stages or not. */
static void own_time_groups_divide_the_products(void **state)
{
    (void)state;
    model m;
    ls_calibration c = power_machine(&arena);
    c.cores = 8; /* one for each rank, none slows another down */
    c.setting_count = 1;
    make_even_model(&m, 4);
    const ls_pipeline pipeline = {LS_PIPELINE_ONE_BY_ONE, 2, 1, 3};
    double matmul_s = 0.0;
    ls_plan alone = {0};
    for (uint32_t tensor = 1; tensor <= 2; tensor++) {
        for (uint32_t context = 1; context <= 2; context++) {
            ls_plan member;
            ls_own_time time;
            ls_plan_options options = m.plan.options;
            options.tensor_cut = options.sequence_cut = 2;
            options.tensor_degree = tensor;
            options.context_degree = context;
            assert_int_equal(ls_plan_build(&arena, &m.config, &m.layout, &options, &member), LS_OK);
            alone = tensor * context == 1 ? member : alone;
            for (uint32_t stages = 1; stages <= 2; stages++) {
                const ls_own_run run = {.plan = &member,
                                        .whole = &alone,
                                        .leaves = 2,
                                        .micro_batches = 3,
                                        .ranks = 2 * tensor * context * stages,
                                        .threads = 1,
                                        .pipeline = stages > 1 ? &pipeline : NULL,
                                        .scratch = &arena};
                ls_own_time_compute(&c, &run, &time);
                if (stages == 1) { /* with stages, it is that of the fullest one */
                    matmul_s = tensor * context == 1 ? time.terms_s[LS_TERM_MATMUL] : matmul_s;
                    const double share_s = matmul_s / (tensor * context); /* and sums of pieces */
                    assert_true(fabs(time.terms_s[LS_TERM_MATMUL] - share_s) < 0.01 * share_s);
                }
                assert_true((time.terms_s[LS_TERM_TENSOR] > 0.0) == (tensor > 1));
                assert_true((time.terms_s[LS_TERM_CONTEXT] > 0.0) == (context > 1));
                assert_true((time.terms_s[LS_TERM_BUBBLE] > 0.0) == (stages > 1));
            }
        }
    }
}

static void own_time_a_checkpoint_is_written_or_copied(void **state)
{
    (void)state;
    model m;
    ls_own_time time;
    ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_LLAMA, LS_RECOMPUTE_NONE);
    ls_own_run run = run_of(&m, 2, 1, 1);
    ls_own_time_compute(&c, &run, &time);
    assert_near(time.checkpoint_stall_s, 12e-9 * (double)m.layout.float_count);
    run.saves_behind = true;
    ls_own_time_compute(&c, &run, &time);
    assert_near(time.checkpoint_stall_s, 3e-9 * (double)m.layout.float_count);
    run.saves_behind = false;
    c.disk_write_bytes_ps = 0.0;
    ls_own_time_compute(&c, &run, &time);
    assert_true(time.checkpoint_stall_s == 0.0);
}

static void own_plan_steps_add_up_to_the_micro_batch(void **state)
{
    (void)state;
    model m;
    ls_own_time time;
    const ls_calibration c = power_machine(&arena);
    make_model(&m, LS_FAMILY_QWEN3, LS_RECOMPUTE_SELECTIVE);
    const ls_own_run run = run_of(&m, 1, 1, 1);
    ls_own_time_compute(&c, &run, &time);
    double sum_s = 0.0;
    for (uint32_t i = 0; i < m.plan.step_count; i++) {
        ls_term term;
        const double step_s = ls_own_plan_step_s(&c, &m.plan, i, 1, false, &term);
        assert_true(step_s > 0.0);
        assert_true(term == LS_TERM_MATMUL || term == LS_TERM_ATTENTION || term == LS_TERM_ELEMENTWISE);
        sum_s += step_s;
    }
    assert_near(sum_s, time.terms_s[LS_TERM_MATMUL] + time.terms_s[LS_TERM_ATTENTION] +
                           time.terms_s[LS_TERM_ELEMENTWISE]);
}

#define arena_case(function) cmocka_unit_test_teardown(function, release_arena)

int main(void)
{
    const struct CMUnitTest tests[] = {
        arena_case(own_time_products_are_those_of_the_plan),
        arena_case(own_time_recompute_adds_a_forward),
        arena_case(own_time_grows_with_leaves_and_micro_batches),
        arena_case(own_time_later_micro_batches_add_to_gradients),
        arena_case(own_time_hashes_are_part_of_the_update),
        arena_case(own_time_tree_reads_what_the_tree_reads),
        arena_case(own_time_ranks_share_the_work_and_the_machine),
        arena_case(own_time_a_single_stage_is_no_pipeline),
        arena_case(own_time_stages_idle_as_the_formula_says),
        arena_case(own_time_stages_share_cores),
        arena_case(own_time_groups_divide_the_products),
        arena_case(own_time_a_checkpoint_is_written_or_copied),
        arena_case(own_plan_steps_add_up_to_the_micro_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
