// SPDX-License-Identifier: Apache-2.0
/*
 * Step time against numbers worked by hand: an accelerator of 1e12 FLOP/s and one unit, a stack
 * that reaches all of it, so that each term can be written down.
 */
#include "test.h"

#include "model/pipeline.h"
#include "planning/step/step_time.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static ls_arena arena;
static ls_accelerator gpu;
static ls_node node;
static ls_stack stack;
static ls_shape shape;
static ls_setting setting;

enum { TOKENS = 256, WIDTH = 256, FFN = 1024, VOCAB = 512, LAYERS = 4 };

static int set_up(void **state)
{
    (void)state;
    gpu = (ls_accelerator){.name = "test",
                           .generation = "test",
                           .bf16_flops = 1e12,
                           .fp8_flops = 2e12,
                           .memory_bytes = 1e12,
                           .memory_bytes_ps = 1e30,
                           .scaleup_bytes_ps = 1e9,
                           .scaleup_domain = 8,
                           .pcie_bytes_ps = 1e9,
                           .sms = 1};
    node = (ls_node){.name = "test node", .accelerator = &gpu, .count = 8, .nic_bytes_ps = 1e9};
    stack = (ls_stack){.name = "test", .generation = "test"};
    assert_int_equal(ls_stack_set(&stack, "gemm_efficiency=1 gemm_fp8_efficiency=0.5 flash=1 "
                                          "attention_efficiency=1 memory_efficiency=1 elementwise_factor=1 "
                                          "loss_bytes=10 optimizer_bytes=38 scaleup_efficiency=1 "
                                          "nic_efficiency=1 recompute_share=1 reduce_bytes=4"),
                     LS_OK);
    ls_arena_init(&arena);
    assert_int_equal(ls_shape_parse(&arena,
                                    "layers=4,hidden=256,heads=2,ffn=1024,vocab=512,mlp=gelu,tied=1,seq=256",
                                    &shape),
                     LS_OK);
    setting = (ls_setting){.shape = &shape,
                           .node = &node,
                           .stack = &stack,
                           .gpus = 1,
                           .length = TOKENS,
                           .global_batch = 8,
                           .precision = LS_PLAN_BF16};
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static ls_strategy one(void)
{
    return (ls_strategy){.tp = 1, .pp = 1, .dp = 1, .cp = 1, .ep = 1, .vpp = 1, .micro_batch = 1};
}

static ls_time_estimate compute(const ls_strategy *strategy)
{
    ls_time_estimate time;
    setting.gpus = strategy->tp * strategy->pp * strategy->cp * strategy->dp;
    ls_step_time_compute(&setting, strategy, &time);
    return time;
}

static void near(double value, double expected)
{
    if (fabs(value - expected) > 1e-9 * fabs(expected) + 1e-18) {
        fail_msg("%.12g, expected %.12g", value, expected);
    }
}

/* 2 M N K at the peak where tiles, waves and K lose nothing. */
static void gemm_of_whole_tiles_runs_at_the_rate(void **state)
{
    (void)state;
    const ls_gemm_rates rates = ls_gemm_rates_of(&stack, &gpu, LS_PLAN_BF16);
    near(ls_gemm_s(&rates, 256, 512, 128, 1), 2.0 * 256 * 512 * 128 / 1e12);
    near(ls_gemm_s(&rates, 256, 512, 128, 3), 3 * 2.0 * 256 * 512 * 128 / 1e12);
    near(ls_gemm_s(&rates, 0, 512, 128, 1), 0);
    const ls_gemm_rates fp8 = ls_gemm_rates_of(&stack, &gpu, LS_PLAN_FP8);
    near(ls_gemm_s(&fp8, 256, 512, 128, 1), 2.0 * 256 * 512 * 128 / (2e12 * 0.5));
}

/* 129 rows are two tiles; 5 tiles on 4 units are two waves, 1.25 / 2; one tile on 4 units is held
 * at 0.55; K of k_half is half the rate. */
static void gemm_pays_for_tiles_waves_and_short_k(void **state)
{
    (void)state;
    ls_gemm_rates rates = ls_gemm_rates_of(&stack, &gpu, LS_PLAN_BF16);
    const double tile = 2.0 * 128 * 128 * 128 / 1e12;
    near(ls_gemm_s(&rates, 129, 128, 128, 1), 2 * tile);
    rates.sms = 4;
    near(ls_gemm_s(&rates, 5 * 128, 128, 128, 1), 5 * tile / (1.25 / 2));
    near(ls_gemm_s(&rates, 128, 128, 128, 1), tile / 0.55);
    near(ls_gemm_s(&rates, 128, 128, 128, 5), 5 * tile / (1.25 / 2));
    rates.k_half = 128;
    near(ls_gemm_s(&rates, 4 * 128, 128, 128, 1), 4 * tile * 2);
}

/* 2 (M N + M K + N K) bytes where memory is slower. */
static void gemm_is_bound_by_memory_at_worst(void **state)
{
    (void)state;
    ls_gemm_rates rates = ls_gemm_rates_of(&stack, &gpu, LS_PLAN_BF16);
    rates.bytes_ps = 1000;
    near(ls_gemm_s(&rates, 128, 256, 384, 1), 2.0 * (128 * 256 + 128 * 384 + 256 * 384) / 1000);
}

/* A card capped at an eighth of the power runs at half the clock. */
static void power_cap_slows_the_clock_with_its_cube_root(void **state)
{
    (void)state;
    stack.power_w = 800;
    gpu.tdp_w = 100;
    near(ls_gemm_rates_of(&stack, &gpu, LS_PLAN_BF16).flops_ps, 0.5e12);
    gpu.tdp_w = 1000;
    near(ls_gemm_rates_of(&stack, &gpu, LS_PLAN_BF16).flops_ps, 1e12);
}

/* Forward 2 T W a layer (W = 12 h^2), three times that with the backward; the head too. Attention 2
 * T^2 h causal, 1 + 2.5 / 0.9 times. */
static void one_gpu_does_six_flops_a_parameter_and_token(void **state)
{
    (void)state;
    const ls_strategy strategy = one();
    const ls_time_estimate time = compute(&strategy);
    const double layer = 2.0 * TOKENS * 12 * WIDTH * WIDTH, head = 2.0 * TOKENS * WIDTH * VOCAB;
    near(time.terms_s[LS_TERM_MATMUL], 8 * 3 * (LAYERS * layer + head) / 1e12);
    near(time.terms_s[LS_TERM_ATTENTION],
         8 * LAYERS * 2.0 * TOKENS * TOKENS * WIDTH * (1 + 2.5 / 0.9) / 1e12);
    assert_int_equal(time.micro_batches, 8);
}

static void full_recompute_adds_a_forward(void **state)
{
    (void)state;
    ls_strategy strategy = one();
    const double layer = 2.0 * TOKENS * 12 * WIDTH * WIDTH, head = 2.0 * TOKENS * WIDTH * VOCAB;
    strategy.recompute = LS_RECOMPUTE_FULL;
    near(compute(&strategy).terms_s[LS_TERM_MATMUL], 8 * (4 * LAYERS * layer + 3 * head) / 1e12);
    stack.recompute_share = 0.5;
    near(compute(&strategy).terms_s[LS_TERM_MATMUL], 8 * (3.5 * LAYERS * layer + 3 * head) / 1e12);
}

static void terms_add_up_to_the_step(void **state)
{
    (void)state;
    assert_int_equal(
        ls_stack_set(&stack, "launch_s=1e-5 layer_kernels=36 kernel_s=1e-6 fixed_s=0.01 straggler_sigma=0.01 "
                             "scaleup_alpha_s=1e-5 nic_alpha_s=2e-5 dp_overlap=1 dp_floor=0.1"),
        LS_OK);
    gpu.memory_bytes_ps = 1e11;
    const ls_strategy strategies[] = {
        one(),
        {.tp = 2,
         .pp = 2,
         .dp = 2,
         .cp = 1,
         .ep = 1,
         .vpp = 2,
         .micro_batch = 1,
         .zero = 1,
         .recompute = LS_RECOMPUTE_SELECTIVE,
         .sequence_parallel = true},
        {.tp = 1,
         .pp = 1,
         .dp = 4,
         .cp = 2,
         .ep = 1,
         .vpp = 1,
         .micro_batch = 1,
         .zero = 3,
         .recompute = LS_RECOMPUTE_FULL},
        {.tp = 2,
         .pp = 4,
         .dp = 1,
         .cp = 1,
         .ep = 1,
         .vpp = 1,
         .micro_batch = 2,
         .schedule = LS_PIPELINE_ZB_H1},
    };
    for (size_t i = 0; i < 4; i++) {
        const ls_time_estimate time = compute(&strategies[i]);
        double sum = 0;
        for (int term = 0; term < LS_TERM_COUNT; term++) {
            assert_true(time.terms_s[term] >= 0);
            sum += time.terms_s[term];
        }
        near(sum, time.step_s);
        assert_true(time.stage_forward_s > 0 && time.stage_backward_s > time.stage_forward_s);
    }
}

/* Two all-reduces of T h values each way and layer: m L 4 * 2 (t-1)/t S / B. */
static void tensor_parallel_reduces_the_stream_four_times_a_layer(void **state)
{
    (void)state;
    ls_strategy strategy = one();
    strategy.tp = 2;
    const double stream = 2.0 * TOKENS * WIDTH;
    near(compute(&strategy).terms_s[LS_TERM_TENSOR], 8 * LAYERS * 4 * stream / 1e9);
    stack.tp_overlap = 0.5;
    near(compute(&strategy).terms_s[LS_TERM_TENSOR], 8 * LAYERS * 2 * stream / 1e9);
    /* two more gathers of half of it, for the gradients of the weights */
    strategy.sequence_parallel = true;
    near(compute(&strategy).terms_s[LS_TERM_TENSOR], 8 * LAYERS * (2 + 0.5) * stream / 1e9);
}

/* Idle time by the lists that ranks follow, for stages that take `whole_s` each. */
static double listed_s(ls_pipeline pipeline, double whole_s, double weights_s)
{
    ls_pipeline_costs costs[4];
    for (int stage = 0; stage < 4; stage++) {
        costs[stage] = (ls_pipeline_costs){
            .forward_s = weights_s, .input_s = whole_s - 2 * weights_s, .weight_s = weights_s};
    }
    return ls_pipeline_run(&arena, &pipeline, costs, 4.0).idle_s;
}

/* (p - 1) / m of the work of a stage, over v; a third of it for ZB-H1 and none for ZB-H2 where
 * forward and both gradients take the same. */
static void bubble_is_p_minus_one_stages_over_v(void **state)
{
    (void)state;
    gpu.scaleup_bytes_ps = 1e30;
    stack.attention_efficiency = 1;
    setting.length = 128;
    ls_strategy strategy = one();
    strategy.pp = 4;
    const ls_time_estimate plain = compute(&strategy);
    ls_step_parts parts;
    ls_step_parts_compute(&setting, &strategy, &parts);
    near(plain.terms_s[LS_TERM_BUBBLE], 3 * parts.layer_s);
    const double weights = parts.matmul.backward_s / 2;
    near(weights, parts.matmul.forward_s);
    near(plain.terms_s[LS_TERM_BUBBLE],
         listed_s((ls_pipeline){LS_PIPELINE_ONE_BY_ONE, 4, 1, 8}, parts.layer_s, weights));
    strategy.schedule = LS_PIPELINE_ZB_H1;
    near(compute(&strategy).terms_s[LS_TERM_BUBBLE], 3 * (parts.layer_s - 2 * weights));
    near(compute(&strategy).terms_s[LS_TERM_BUBBLE],
         listed_s((ls_pipeline){LS_PIPELINE_ZERO_BUBBLE, 4, 1, 8}, parts.layer_s, weights));
    strategy.schedule = LS_PIPELINE_ZB_H2;
    near(compute(&strategy).terms_s[LS_TERM_BUBBLE], 3 * (parts.layer_s - 3 * weights));
    strategy = one();
    strategy.pp = 2;
    strategy.vpp = 2;
    ls_step_parts_compute(&setting, &strategy, &parts);
    near(compute(&strategy).terms_s[LS_TERM_BUBBLE], 2 * parts.layer_s / 2);
    near(compute(&strategy).terms_s[LS_TERM_BUBBLE],
         listed_s((ls_pipeline){LS_PIPELINE_ONE_BY_ONE, 2, 2, 8}, 2 * parts.layer_s, weights));
}

/* 6 layers on 4 stages: 2, 2, 2, 0; the head then has the last stage to itself. */
static void layers_that_do_not_divide_spare_the_last_stage(void **state)
{
    (void)state;
    assert_int_equal(ls_shape_parse(&arena,
                                    "layers=6,hidden=256,heads=2,ffn=1024,vocab=512,mlp=gelu,tied=1,seq=256",
                                    &shape),
                     LS_OK);
    ls_strategy strategy = one();
    strategy.pp = 4;
    ls_step_parts parts;
    ls_step_parts_compute(&setting, &strategy, &parts);
    near(parts.layers_slowest, 2);
    near(parts.layers_mean, 1.5);
    assert_false(parts.slowest_has_head);
}

/* All-reduce of 4 bytes a parameter; with ZeRO-1 half as a scatter of 4 and a gather of 2; what
 * 0.66 of a stage's work hides is gone. */
static void data_parallel_moves_gradients(void **state)
{
    (void)state;
    ls_strategy strategy = one();
    strategy.dp = 8;
    ls_step_parts parts;
    ls_step_parts_compute(&setting, &strategy, &parts);
    const double parameters = parts.owned_parameters;
    assert_true(fabs(parameters - (double)shape.parameters) < 0.01 * (double)shape.parameters);
    near(compute(&strategy).terms_s[LS_TERM_DATA], 1.75 * 4 * parameters / 1e9);
    strategy.zero = 1;
    near(compute(&strategy).terms_s[LS_TERM_DATA], 0.875 * (4 + 2) * parameters / 1e9);
    stack.dp_overlap = 1;
    near(compute(&strategy).terms_s[LS_TERM_DATA],
         0.875 * 6 * parameters / 1e9 - 0.66 * LAYERS * parts.layer_s);
}

/* ZeRO-3: gather forward, gather and scatter backward, for each layer and micro-batch: (2 + 2 + 4)
 * (n-1)/n bytes a parameter. */
static void zero3_gathers_each_layer_twice(void **state)
{
    (void)state;
    ls_strategy strategy = one();
    strategy.dp = 8;
    strategy.zero = 3;
    const double layer = (double)(shape.layer_matrices + shape.layer_vectors);
    near(compute(&strategy).terms_s[LS_TERM_DATA], LAYERS * 0.875 * 8 * layer / 1e9);
    stack.fsdp_overlap = 1;
    stack.dp_floor = 0.25;
    gpu.bf16_flops = 1e3; /* slow enough to hide all but what never hides */
    near(compute(&strategy).terms_s[LS_TERM_DATA], 0.25 * LAYERS * 0.875 * 8 * layer / 1e9);
}

/* A layer's forward can't be faster than its launches; the backward launches twice as many. */
static void launch_floor_waits_for_the_cpu(void **state)
{
    (void)state;
    gpu.bf16_flops = 1e30;
    assert_int_equal(ls_stack_set(&stack, "launch_s=1e-3 layer_kernels=36"), LS_OK);
    const ls_strategy strategy = one();
    const double launch_s = compute(&strategy).terms_s[LS_TERM_LAUNCH];
    assert_true(fabs(launch_s - 8 * LAYERS * 3 * 36e-3) < 1e-9);
}

/* 38 bytes a parameter; ZeRO-1 shares them. */
static void optimizer_moves_its_bytes(void **state)
{
    (void)state;
    gpu.memory_bytes_ps = 1e9;
    ls_strategy strategy = one();
    strategy.dp = 8;
    ls_step_parts parts;
    ls_step_parts_compute(&setting, &strategy, &parts);
    near(compute(&strategy).terms_s[LS_TERM_OPTIMIZER], 38 * parts.owned_parameters / 1e9);
    strategy.zero = 1;
    near(compute(&strategy).terms_s[LS_TERM_OPTIMIZER], 38 * parts.owned_parameters / 8 / 1e9);
}

static void stragglers_cost_sigma_root_two_ln_n(void **state)
{
    (void)state;
    ls_strategy strategy = one();
    strategy.dp = 8;
    const double before = compute(&strategy).step_s;
    stack.straggler_sigma = 0.01;
    near(compute(&strategy).step_s, before * (1 + 0.01 * sqrt(2 * log(8))));
}

/* Experts: 8 of 2 used; each GPU of 4 has two, which get the tokens of all four. All-to-all of k T
 * h values, twice each way. */
static void experts_exchange_tokens(void **state)
{
    (void)state;
    assert_int_equal(
        ls_shape_parse(
            &arena,
            "layers=4,hidden=256,heads=2,ffn=1024,vocab=512,mlp=swiglu,experts=8,active=2,expert_ffn=256",
            &shape),
        LS_OK);
    ls_strategy strategy = one();
    strategy.dp = 4;
    const double alone = compute(&strategy).terms_s[LS_TERM_MATMUL];
    assert_true(compute(&strategy).terms_s[LS_TERM_EXPERT] == 0);
    strategy.ep = 4;
    const ls_time_estimate time = compute(&strategy);
    near(time.terms_s[LS_TERM_EXPERT], 2 * LAYERS * 4 * 0.75 * (2.0 * TOKENS * 2 * WIDTH) / 1e9);
    assert_true(time.terms_s[LS_TERM_MATMUL] <= alone); /* the same FLOPs in fuller tiles */
}

/* Keys and values of the whole sequence, 2 s h values, come by; twice that backward. */
static void context_parallel_exchanges_keys_and_values(void **state)
{
    (void)state;
    ls_strategy strategy = one();
    strategy.cp = 4;
    const ls_time_estimate time = compute(&strategy);
    const double exchange = 0.75 * 2 * 2.0 * TOKENS * WIDTH / 1e9;
    const double forward = 2.0 * TOKENS * TOKENS * WIDTH / 4 / 1e12, backward = 2.5 / 0.9 * forward;
    near(time.terms_s[LS_TERM_CONTEXT],
         8 * LAYERS * (exchange - 0.8 * forward + 2 * exchange - 0.8 * backward));
}

static void explain_ends_with_the_result(void **state)
{
    (void)state;
    const ls_strategy strategy = {
        .tp = 2, .pp = 2, .dp = 2, .cp = 1, .ep = 1, .vpp = 2, .micro_batch = 1, .zero = 1};
    const ls_time_estimate time = compute(&strategy);
    for (int i = 0; i < LS_TERM_COUNT; i++) {
        ls_text text = {0};
        char result[64];
        assert_true(ls_step_time_explain(&setting, &strategy, ls_term_name((ls_term)i), &text));
        snprintf(result, sizeof(result), "= %.6g s", time.terms_s[i]);
        const bool idle = i == LS_TERM_CONTEXT || i == LS_TERM_EXPERT;
        assert_true(idle || strstr(ls_text_string(&text), result) != NULL);
        ls_text_release(&text);
    }
    ls_text none = {0};
    assert_false(ls_step_time_explain(&setting, &strategy, "magic", &none));
    ls_text_release(&none);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(gemm_of_whole_tiles_runs_at_the_rate),
        TEST(gemm_pays_for_tiles_waves_and_short_k),
        TEST(gemm_is_bound_by_memory_at_worst),
        TEST(power_cap_slows_the_clock_with_its_cube_root),
        TEST(one_gpu_does_six_flops_a_parameter_and_token),
        TEST(full_recompute_adds_a_forward),
        TEST(terms_add_up_to_the_step),
        TEST(tensor_parallel_reduces_the_stream_four_times_a_layer),
        TEST(bubble_is_p_minus_one_stages_over_v),
        TEST(layers_that_do_not_divide_spare_the_last_stage),
        TEST(data_parallel_moves_gradients),
        TEST(zero3_gathers_each_layer_twice),
        TEST(launch_floor_waits_for_the_cpu),
        TEST(optimizer_moves_its_bytes),
        TEST(stragglers_cost_sigma_root_two_ln_n),
        TEST(experts_exchange_tokens),
        TEST(context_parallel_exchanges_keys_and_values),
        TEST(explain_ends_with_the_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
