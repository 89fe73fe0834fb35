// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "planning/shipped.h"
#include "planning/step/memory.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double GIB = 1073741824.0;

static const ls_stack plain = {.name = "plain", .gradient_bytes = 4, .logit_bytes = 10, .saved_factor = 1};
static const ls_stack flash = {
    .name = "flash", .gradient_bytes = 4, .logit_bytes = 10, .saved_factor = 1, .flash = true};

static ls_setting setting_of(const char *model, const char *node, const ls_stack *stack, int64_t gpus,
                             int64_t length, int64_t global_batch)
{
    ls_shape *shape = ls_arena_new(&arena, ls_shape, 1);
    ls_setting setting = {
        .shape = shape, .stack = stack, .gpus = gpus, .length = length, .global_batch = global_batch};
    assert_int_equal(ls_shape_parse(&arena, model, shape), LS_OK);
    assert_int_equal(ls_catalogue_find_node(&catalogue, node, &setting.node), LS_OK);
    return setting;
}

static ls_strategy strategy_of(const ls_setting *setting, const char *text)
{
    ls_strategy_request request;
    assert_int_equal(ls_strategy_parse(text, &request), LS_OK);
    const ls_strategy strategy = ls_strategy_resolve(&request, setting->gpus);
    if (ls_strategy_check(&strategy, setting->shape, setting->gpus, setting->global_batch, setting->length) !=
        LS_OK) {
        fail_msg("%s: %s", text, ls_error_text());
    }
    return strategy;
}

static ls_memory_estimate memory_of(const ls_setting *setting, const char *text)
{
    const ls_strategy strategy = strategy_of(setting, text);
    ls_memory_estimate memory;
    ls_memory_compute(setting, &strategy, &memory);
    assert_true(fabs(memory.weights + memory.gradients + memory.optimizer + memory.activations +
                     memory.buffers - memory.total) <= 1e-9 * memory.total);
    return memory;
}

static void assert_gib(double bytes, const char *expected)
{
    char text[32];
    snprintf(text, sizeof text, "%.4f", bytes / GIB);
    assert_string_equal(text, expected);
}

/* Figure 1 of Korthikanti et al., to the last digit: parameters and optimizer at 18 B; activations
 * of tensor parallelism alone, and with sequence parallelism and selective recompute. */
static void memory_reproduces_korthikanti(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        int64_t gpus;
        const char *split, *state, *none, *selective;
    } cases[] = {
        {"gpt-22b", 8, "tp=8,pp=1,vpp=1,mb=4", "45.5625", "59.2500", "9.5625"},
        {"gpt-175b", 64, "tp=8,pp=8,vpp=3,mb=1", "45.5625", "66.8438", "12.3516"},
        {"gpt-530b", 280, "tp=8,pp=35,vpp=3,mb=1", "31.6406", "114.0234", "23.0762"},
        {"gpt-1t", 512, "tp=8,pp=64,vpp=1,mb=1", "32.9590", "131.2500", "26.5625"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ls_setting setting = setting_of(cases[i].model, "dgx-a100", &plain, cases[i].gpus, 2048, 512);
        char text[120];
        ls_memory_parts p;
        snprintf(text, sizeof text, "%s,cp=1,ep=1,zero=0,recompute=none,sp=0", cases[i].split);
        ls_strategy strategy = strategy_of(&setting, text);
        ls_memory_parts_compute(&setting, &strategy, 0, &p);
        assert_gib(p.matrix_parameters * (p.weight_bytes + p.gradient_bytes + p.optimizer_bytes),
                   cases[i].state);
        assert_gib(p.layers * p.in_flight * (p.layer_values + p.layer_masks + p.layer_softmax),
                   cases[i].none);
        snprintf(text, sizeof text, "%s,cp=1,ep=1,zero=0,recompute=selective,sp=1", cases[i].split);
        strategy = strategy_of(&setting, text);
        ls_memory_parts_compute(&setting, &strategy, 0, &p);
        assert_gib(p.layers * p.in_flight * (p.layer_kept - p.layer_statistics), cases[i].selective);
    }
}

static void memory_counts_every_parameter_once(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2-xl",      "llama3-8b",   "llama3.2-1b",
                                         "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        const ls_setting setting = setting_of(models[i], "dgx-h100", &flash, 1, 1024, 8);
        const ls_memory_estimate memory =
            memory_of(&setting, "tp=1,pp=1,dp=1,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none");
        const double parameters = (double)setting.shape->parameters;
        assert_true(memory.weights == 2.0 * parameters);
        assert_true(memory.gradients == 4.0 * parameters);
        assert_true(memory.optimizer == 12.0 * parameters);
    }
    /* Over stages and GPUs the matrices add up; a tied head is there twice. */
    const ls_setting setting = setting_of("llama3-8b", "dgx-h100", &flash, 8, 1024, 8);
    const ls_strategy strategy =
        strategy_of(&setting, "tp=2,pp=4,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none");
    double matrices = 0.0, vectors = 0.0, tables = 0.0;
    for (int64_t stage = 0; stage < 4; stage++) {
        ls_memory_parts p;
        ls_memory_parts_compute(&setting, &strategy, stage, &p);
        matrices += 2.0 * p.matrix_parameters;
        vectors += p.vector_parameters;
        tables += 2.0 * p.embedding_parameters;
    }
    assert_true(matrices + vectors + tables == (double)setting.shape->parameters);
}

static void memory_knows_precisions_and_optimizers(void **state)
{
    (void)state;
    static const struct {
        ls_plan_precision precision;
        ls_plan_optimizer optimizer;
        double bytes; /* a parameter, all in all */
    } cases[] = {
        {LS_PLAN_BF16, LS_PLAN_ADAMW, 18.0},        {LS_PLAN_FP16, LS_PLAN_ADAMW, 18.0},
        {LS_PLAN_FP8, LS_PLAN_ADAMW, 18.0},         {LS_PLAN_FP32, LS_PLAN_ADAMW, 16.0},
        {LS_PLAN_TF32, LS_PLAN_ADAMW, 16.0},        {LS_PLAN_BF16, LS_PLAN_ADAMW_NO_MASTER, 14.0},
        {LS_PLAN_BF16, LS_PLAN_ADAMW_8BIT, 12.0},   {LS_PLAN_BF16, LS_PLAN_SGD_MOMENTUM, 14.0},
        {LS_PLAN_FP32, LS_PLAN_SGD_MOMENTUM, 12.0},
    };
    ls_setting setting = setting_of("llama2-7b", "dgx-h100", &flash, 1, 2048, 4);
    const double parameters = (double)setting.shape->parameters;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setting.precision = cases[i].precision;
        setting.optimizer = cases[i].optimizer;
        const ls_memory_estimate m =
            memory_of(&setting, "tp=1,pp=1,dp=1,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none");
        assert_true(fabs(m.weights + m.gradients + m.optimizer - cases[i].bytes * parameters) < 1.0);
    }
    setting.precision = LS_PLAN_BF16;
    setting.optimizer = LS_PLAN_MUON;
    const ls_memory_estimate m =
        memory_of(&setting, "tp=1,pp=1,dp=1,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none");
    const double matrices = (double)setting.shape->config.layers * (double)setting.shape->layer_matrices;
    assert_true(fabs(m.optimizer - (8.0 * matrices + 12.0 * (parameters - matrices))) < 1.0);
}

static void memory_is_split_by_zero_and_experts(void **state)
{
    (void)state;
    const ls_setting setting = setting_of("llama3-8b", "dgx-h100", &flash, 16, 2048, 32);
    ls_memory_estimate m[4];
    for (int zero = 0; zero < 4; zero++) {
        char text[120];
        snprintf(text, sizeof text, "tp=1,pp=1,cp=2,ep=1,mb=1,zero=%d,recompute=none", zero);
        m[zero] = memory_of(&setting, text);
    }
    assert_true(m[1].optimizer == m[0].optimizer / 16.0 && m[1].gradients == m[0].gradients);
    assert_true(m[2].gradients == m[0].gradients / 16.0 && m[2].weights == m[0].weights);
    assert_true(m[3].weights == m[0].weights / 16.0);
    assert_true(m[3].buffers > m[2].buffers && m[2].buffers > m[0].buffers);

    const ls_setting mixtral = setting_of("mixtral-8x7b", "dgx-h100", &flash, 16, 2048, 32);
    const ls_memory_estimate whole = memory_of(&mixtral, "tp=1,pp=1,cp=1,ep=1,mb=1,zero=1,recompute=none");
    const ls_memory_estimate split = memory_of(&mixtral, "tp=1,pp=1,cp=1,ep=8,mb=1,zero=1,recompute=none");
    const double experts = 32.0 * (double)mixtral.shape->layer_experts;
    assert_true(whole.weights - split.weights == 2.0 * experts * 7.0 / 8.0);
    /* an eighth of the experts, over an eighth of the GPUs */
    assert_true(fabs(split.optimizer - whole.optimizer) < 1.0);
}

static void memory_in_flight_follows_the_schedule(void **state)
{
    (void)state;
    ls_strategy s = {.pp = 8, .vpp = 1};
    assert_true(ls_memory_in_flight(&s, 0, 64) == 8.0);
    assert_true(ls_memory_in_flight(&s, 7, 64) == 1.0);
    assert_true(ls_memory_in_flight(&s, 0, 4) == 4.0);
    s.vpp = 4;
    assert_true(ls_memory_in_flight(&s, 0, 64) == 8.0 * (1.0 + 7.0 / 32.0));
    s.vpp = 1;
    s.schedule = LS_PIPELINE_GPIPE;
    assert_true(ls_memory_in_flight(&s, 0, 64) == 64.0);
    s.schedule = LS_PIPELINE_ZB_H1;
    assert_true(ls_memory_in_flight(&s, 2, 64) == 6.0);
    s.schedule = LS_PIPELINE_ZB_H2;
    assert_true(ls_memory_in_flight(&s, 0, 64) == 15.0);
}

static void memory_of_activations_goes_the_right_way(void **state)
{
    (void)state;
    const ls_setting setting = setting_of("llama3-70b", "dgx-h100", &flash, 64, 8192, 128);
    const double none =
        memory_of(&setting, "tp=8,pp=1,cp=1,ep=1,mb=1,zero=1,recompute=none,sp=0").activations;
    const double sp = memory_of(&setting, "tp=8,pp=1,cp=1,ep=1,mb=1,zero=1,recompute=none,sp=1").activations;
    const double full =
        memory_of(&setting, "tp=8,pp=1,cp=1,ep=1,mb=1,zero=1,recompute=full,sp=1").activations;
    const double cp = memory_of(&setting, "tp=8,pp=1,cp=2,ep=1,mb=1,zero=1,recompute=none,sp=1").activations;
    const double two = memory_of(&setting, "tp=8,pp=1,cp=1,ep=1,mb=2,zero=1,recompute=none,sp=1").activations;
    assert_true(full < sp && sp < none);
    assert_true(cp == sp / 2.0 && two == sp * 2.0);
    /* Plain data parallel does not make a model smaller: 70B on 80 GB cards never fits. */
    const ls_memory_estimate plain_dp = memory_of(&setting, "tp=1,pp=1,cp=1,ep=1,mb=1,zero=0,recompute=full");
    assert_true(plain_dp.total > 10.0 * plain_dp.capacity);
}

static void memory_of_apple_is_shared_with_the_system(void **state)
{
    (void)state;
    const ls_setting setting = setting_of("gpt2", "mac-studio", &flash, 1, 1024, 4);
    const ls_memory_estimate m =
        memory_of(&setting, "tp=1,pp=1,dp=1,cp=1,ep=1,vpp=1,mb=1,zero=0,recompute=none");
    assert_true(m.capacity == 0.75 * 512.0 * GIB);
}

static void memory_of_lockstep_is_its_own_plan(void **state)
{
    (void)state;
    static const ls_stack own = {
        .name = "lockstep", .gradient_bytes = 4, .logit_bytes = 10, .saved_factor = 1};
    static const char *const recomputes[] = {"none", "selective", "full"};
    ls_setting setting = setting_of("layers=6,hidden=384,heads=6,ffn=1024,vocab=256,seq=256",
                                    "rtx-4090-desktop", &own, 1, 256, 8);
    setting.precision = LS_PLAN_FP32;
    for (int r = 0; r < 3; r++) {
        char text[120];
        snprintf(text, sizeof text, "tp=1,pp=1,dp=1,cp=1,ep=1,vpp=1,mb=8,zero=0,recompute=%s", recomputes[r]);
        const ls_memory_estimate m = memory_of(&setting, text);
        ls_arena scratch = {0};
        ls_layout layout;
        ls_plan plan;
        const ls_plan_options options = {.sequences = 8,
                                         .length = 256,
                                         .training = true,
                                         .losses = true,
                                         .recompute = (ls_recompute)r,
                                         .tensor_cut = 1};
        ls_layout_build(&scratch, &setting.shape->config, &layout);
        assert_int_equal(ls_plan_build(&scratch, &setting.shape->config, &layout, &options, &plan), LS_OK);
        assert_true(m.total - m.buffers ==
                    (double)(ls_plan_memory(&plan, 1, 0, 0).total - ls_plan_memory(&plan, 1, 0, 0).other));
        assert_true(m.buffers < 0.2 * m.total); /* tables, and the arena of evaluation */
        ls_arena_release(&scratch);
    }
    /* Two leaves: the tree of sums needs a second gradient buffer. */
    const ls_memory_estimate leaves =
        memory_of(&setting, "tp=1,pp=1,dp=1,cp=1,ep=1,vpp=1,mb=4,zero=0,recompute=none");
    assert_true(leaves.gradients == 2.0 * leaves.weights);
    /* What the runtime can't do is estimated like any other stack's. */
    const ls_setting tensor = setting_of("llama3-8b", "dgx-h100", &own, 8, 8192, 8);
    assert_true(memory_of(&tensor, "tp=8,pp=1,cp=1,ep=1,mb=1,zero=0,recompute=none").total > 0.0);
}

static void memory_explain_ends_with_the_estimate(void **state)
{
    (void)state;
    static const char *const terms[] = {"weights", "gradients", "optimizer", "activations", "buffers"};
    const ls_setting setting = setting_of("mixtral-8x7b", "dgx-h100", &plain, 64, 4096, 256);
    const ls_strategy strategy =
        strategy_of(&setting, "tp=2,pp=4,cp=1,ep=8,vpp=2,mb=1,zero=1,recompute=selective,sp=1");
    ls_memory_estimate m;
    ls_memory_compute(&setting, &strategy, &m);
    const double values[] = {m.weights, m.gradients, m.optimizer, m.activations, m.buffers};
    for (size_t i = 0; i < 5; i++) {
        ls_text text = {0};
        char result[64];
        assert_true(ls_memory_explain(&setting, &strategy, terms[i], &text));
        snprintf(result, sizeof result, "= %.2f GiB\n", values[i] / GIB);
        if (!strstr(ls_text_string(&text), result)) {
            fail_msg("%s", ls_text_string(&text));
        }
        ls_text_release(&text);
    }
    ls_text text = {0};
    assert_false(ls_memory_explain(&setting, &strategy, "matmul", &text));
    assert_string_equal(ls_text_string(&text), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_reproduces_korthikanti),
        cmocka_unit_test(memory_counts_every_parameter_once),
        cmocka_unit_test(memory_knows_precisions_and_optimizers),
        cmocka_unit_test(memory_is_split_by_zero_and_experts),
        cmocka_unit_test(memory_in_flight_follows_the_schedule),
        cmocka_unit_test(memory_of_activations_goes_the_right_way),
        cmocka_unit_test(memory_of_apple_is_shared_with_the_system),
        cmocka_unit_test(memory_of_lockstep_is_its_own_plan),
        cmocka_unit_test(memory_explain_ends_with_the_estimate),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
