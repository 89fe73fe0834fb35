// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "model/models.h"
#include "model/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ls_plan_options training = {
    .sequences = 2, .length = 48, .training = true, .losses = true, .tensor_cut = 1};

static ls_plan build(ls_arena *arena, const ls_model_config *config, const ls_plan_options *options)
{
    ls_layout *layout = ls_arena_new(arena, ls_layout, 1);
    ls_plan plan;
    ls_layout_build(arena, config, layout);
    if (ls_plan_build(arena, config, layout, options, &plan) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return plan;
}

/* The kinds of ops in step order as one letter each; weight gradients are upper case. */
static const char *step_letters(ls_arena *arena, const ls_plan *plan, uint32_t first, uint32_t end)
{
    static const char letters[] = "enaqkrtgsh"; /* as in ls_op_kind; q is a linear */
    const char order[] = {
        [LS_OP_EMBEDDING] = letters[0], [LS_OP_NORM] = letters[1],    [LS_OP_ADD_NORM] = letters[2],
        [LS_OP_LINEAR] = 'l',           [LS_OP_QK_NORM] = letters[4], [LS_OP_ROTARY] = letters[5],
        [LS_OP_ATTENTION] = letters[6], [LS_OP_GELU] = letters[7],    [LS_OP_SWIGLU] = letters[8],
        [LS_OP_HEAD_LOSS] = letters[9], [LS_OP_ROUTE] = 'o',          [LS_OP_DISPATCH] = 'd',
        [LS_OP_EXPERT_LINEAR] = 'x',    [LS_OP_COMBINE] = 'c'};
    char *text = ls_arena_new(arena, char, 2 * (end - first) + 1);
    size_t at = 0;
    for (uint32_t i = first; i < end; i++) {
        const char letter = order[plan->ops[plan->steps[i].op].kind];
        if (plan->steps[i].phase == LS_PHASE_FORWARD && i >= plan->forward_steps) {
            text[at++] = '+';
        }
        text[at++] = plan->steps[i].phase == LS_PHASE_BACKWARD_WEIGHT ? (char)(letter - 'a' + 'A') : letter;
    }
    return text;
}

static void plan_build_gpt2_steps_are_in_order(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_model_config config = small_config(LS_FAMILY_GPT2);
    config.layers = 2;
    const ls_plan plan = build(&arena, &config, &training);
    assert_string_equal(step_letters(&arena, &plan, 0, plan.forward_steps), "enltlalgl"
                                                                            "altlalgl"
                                                                            "ah");
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count), "a"
                                                                                          "LlgLlaLltLla"
                                                                                          "LlgLlaLltLln"
                                                                                          "E");
    ls_arena_release(&arena);
}

static void plan_build_qwen3_recomputes_what_it_says(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_model_config config = small_config(LS_FAMILY_QWEN3);
    config.layers = 1;
    ls_plan_options options = training;
    ls_plan plan = build(&arena, &config, &options);
    assert_string_equal(step_letters(&arena, &plan, 0, plan.forward_steps), "enlkrtlalslah");
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count), "aLlsLlaLltrkLlnE");
    options.recompute = LS_RECOMPUTE_SELECTIVE;
    plan = build(&arena, &config, &options);
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count),
                        "a+sLls+nLlnLl+k+rtrk+nLlnE");
    options.recompute = LS_RECOMPUTE_FULL;
    plan = build(&arena, &config, &options);
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count),
                        "a+n+l+k+r+t+l+a+l+sLlsLlaLltrkLlnE");
    ls_arena_release(&arena);
}

static void plan_build_mixtral_recomputes_what_it_says(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_model_config config = small_config(LS_FAMILY_MIXTRAL);
    config.layers = 1;
    ls_plan_options options = training;
    ls_plan plan = build(&arena, &config, &options);
    assert_string_equal(step_letters(&arena, &plan, 0, plan.forward_steps), "enlrtlalodxsxcah");
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count),
                        "acXxsXxdoLlaLltrLlnE");
    options.recompute = LS_RECOMPUTE_SELECTIVE;
    plan = build(&arena, &config, &options);
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count),
                        "ac+sXxs+n+dXxdoLlnLltr+nLlnE");
    options.recompute = LS_RECOMPUTE_FULL;
    plan = build(&arena, &config, &options);
    assert_string_equal(step_letters(&arena, &plan, plan.forward_steps, plan.step_count),
                        "a+n+l+r+t+l+a+l+o+d+x+s+xcXxsXxdoLlaLltrLlnE");
    ls_arena_release(&arena);
}

/* A token pays for the experts that it visits: 2 of 4 of width 96 cost what one MLP of 192 costs, and
 * the router. */
static void plan_flops_count_visited_experts(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_model_config dense = small_config(LS_FAMILY_MISTRAL), mixed = small_config(LS_FAMILY_MIXTRAL);
    dense.ffn = 192;
    const ls_plan a = build(&arena, &dense, &training), b = build(&arena, &mixed, &training);
    const ls_plan_flops of_dense = ls_plan_count_flops(&a), of_mixed = ls_plan_count_flops(&b);
    const double router = 2.0 * 96.0 * 32.0 * 4.0 * 3.0; /* tokens, width, experts, layers */
    assert_true(of_mixed.forward == of_dense.forward + router);
    assert_true(of_mixed.backward == of_dense.backward + 2.0 * router);
    ls_arena_release(&arena);
}

static void plan_build_final_norm_starts_the_stream_gradient(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const ls_plan plan = build(&arena, &config, &training);
    const ls_op *final = &plan.ops[plan.steps[plan.forward_steps].op];
    assert_int_equal(final->kind, LS_OP_ADD_NORM);
    assert_false(final->accumulate_din);
    assert_int_equal(final->dout[0], LS_NONE);
    assert_int_equal(final->dout[1], plan.dhidden);
    const int32_t dstream = final->din[0];
    for (uint32_t i = plan.forward_steps + 1; i < plan.step_count; i++) {
        const ls_op *op = &plan.ops[plan.steps[i].op];
        if (op->kind == LS_OP_NORM || op->kind == LS_OP_ADD_NORM) {
            assert_true(op->accumulate_din);
            assert_int_equal(op->din[0], dstream);
        }
    }
    assert_int_equal(plan.ops[plan.steps[plan.step_count - 1].op].dout[0], dstream);
    ls_arena_release(&arena);
}

/*
 * Runs the steps on memory that remembers which value wrote each cell (of 16 floats): a read must
 * find its own value everywhere. This knows nothing of lives, so it would notice a wrong one.
 */
static void replay_on_tagged_memory(const ls_plan *plan)
{
    const int64_t cells = plan->arena_floats / 16;
    int32_t *owner = malloc((size_t)cells * sizeof *owner);
    memset(owner, 0xff, (size_t)cells * sizeof *owner);
    for (uint32_t step = 0; step < plan->step_count; step++) {
        ls_value_use uses[LS_STEP_USES_MAX];
        const uint32_t count = ls_plan_step_uses(plan, step, uses);
        for (uint32_t pass = 0; pass < 3;
             pass++) { /* write, then look: inputs must survive the step's own outputs */
            for (uint32_t i = 0; i < count; i++) {
                const ls_value *value = &plan->values[uses[i].value];
                const int64_t first = value->offset / 16, end = first + (value->rows * value->cols + 15) / 16;
                assert_true(end <= cells);
                const bool reads = uses[i].use & LS_USE_READ;
                for (int64_t cell = first; cell < end; cell++) {
                    if (pass == 1 && !reads) {
                        owner[cell] = uses[i].value;
                    } else if (pass != 1 && reads && owner[cell] != uses[i].value) {
                        fail_msg("step %u reads '%s', but '%s' is there", step, value->name,
                                 owner[cell] < 0 ? "nothing" : plan->values[owner[cell]].name);
                    } else if (pass == 2 && owner[cell] != uses[i].value) {
                        fail_msg("step %u: '%s' is overwritten by the same step", step, value->name);
                    }
                }
            }
        }
    }
    free(owner);
}

/* How far placement may be from the bound that no placement can beat: 3 % in training, where memory
 * matters.
 */
static void check_one(const ls_model_config *config, const ls_plan_options *options)
{
    ls_arena arena = {0};
    const ls_plan plan = build(&arena, config, options);
    ls_plan_check(&plan);
    replay_on_tagged_memory(&plan);
    assert_true((double)plan.arena_floats <= (options->training ? 1.03 : 1.15) * (double)plan.live_floats);
    ls_arena_release(&arena);
}

static void plan_place_every_mode_keeps_values_whole(void **state)
{
    (void)state;
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        const ls_model_config config = small_config(family);
        const uint32_t most = config.experts > 0 ? 1 : 2;
        for (int mode = 0; mode < 5; mode++) {
            for (uint32_t cut = 1; cut <= most; cut++) {
                ls_plan_options options = training;
                options.tensor_cut = cut;
                options.recompute = mode < 3 ? (ls_recompute)mode : LS_RECOMPUTE_NONE;
                options.training = mode < 3;
                options.losses = mode < 4;
                check_one(&config, &options);
            }
        }
    }
}

static void plan_place_large_models_are_near_the_bound(void **state)
{
    (void)state;
    double worst = 1.0;
    for (int recompute = 0; recompute < 3; recompute++) {
        ls_model_config gpt2;
        ls_model_config_defaults(LS_FAMILY_GPT2, &gpt2);
        gpt2.layers = 12, gpt2.heads = gpt2.kv_heads = 12, gpt2.head_dim = 64, gpt2.width = 768;
        gpt2.ffn = 3072, gpt2.context = 1024, gpt2.vocab = 50257;
        ls_model_config small;
        ls_model_config_defaults(LS_FAMILY_LLAMA, &small);
        small.layers = 6, small.heads = 6, small.kv_heads = 2, small.head_dim = 64, small.width = 384;
        small.ffn = 1024, small.context = 256, small.vocab = 256;
        ls_plan_options options = training;
        options.recompute = (ls_recompute)recompute;
        for (options.length = 64; options.length <= 256; options.length *= 4) {
            ls_arena arena = {0};
            const ls_plan a = build(&arena, &gpt2, &options), b = build(&arena, &small, &options);
            const double ratio_a = (double)a.arena_floats / (double)a.live_floats;
            const double ratio_b = (double)b.arena_floats / (double)b.live_floats;
            worst = ratio_a > worst ? ratio_a : worst;
            worst = ratio_b > worst ? ratio_b : worst;
            ls_arena_release(&arena);
        }
    }
    assert_true(worst <= 1.02);
}

static void plan_build_recompute_needs_less_memory(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_model_config config = small_config(LS_FAMILY_LLAMA);
    config.layers = 8;
    ls_plan_options options = training;
    int64_t floats[3];
    for (int i = 0; i < 3; i++) {
        options.recompute = (ls_recompute)i;
        floats[i] = build(&arena, &config, &options).arena_floats;
    }
    assert_true(floats[0] > floats[1] && floats[1] > floats[2]);
    options.training = false;
    assert_true(build(&arena, &config, &options).arena_floats < floats[2]);
    ls_arena_release(&arena);
}

static void plan_build_cut_and_segments_reach_the_linears(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    ls_plan_options options = training;
    options.tensor_cut = 2;
    const ls_plan plan = build(&arena, &config, &options);
    const ls_op *linear[4];
    for (uint32_t i = 0, found = 0; i < plan.op_count && found < 4; i++) {
        if (plan.ops[i].kind == LS_OP_LINEAR) {
            linear[found++] = &plan.ops[i];
        }
    }
    for (int i = 0; i < 4; i++) { /* qkv, output, up, down */
        assert_int_equal(linear[i]->forward_cut, i % 2 == 1 ? 2 : 1);
        assert_int_equal(linear[i]->backward_input_cut, i % 2 == 0 ? 2 : 1);
        assert_true(linear[i]->workspace != LS_NONE);
        assert_false(linear[i]->weight_in_out);
    }
    assert_int_equal(linear[0]->segment_count, 3);
    assert_int_equal(linear[0]->segment[0], 32);
    assert_int_equal(linear[0]->segment[2], 16);
    assert_int_equal(linear[2]->segment_count, 2);
    assert_int_equal(linear[2]->segment[1], 96);
    ls_arena_release(&arena);
}

static void plan_build_bad_options_are_refused(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    ls_layout layout;
    ls_layout_build(&arena, &config, &layout);
    ls_plan plan = {.step_count = 77};
    ls_plan_options o = training;
    o.length = 65;
    assert_int_equal(ls_plan_build(&arena, &config, &layout, &o, &plan), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "65 tokens, but the model's context allows only 1 to 64"));
    o = training;
    o.sequences = 0;
    assert_int_equal(ls_plan_build(&arena, &config, &layout, &o, &plan), LS_ERR_INVALID);
    o = training;
    o.tensor_cut = 4;
    assert_int_equal(ls_plan_build(&arena, &config, &layout, &o, &plan), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "tensor_cut is 4, but kv_heads, 2, must be a multiple of it"));
    const ls_model_config mixtral = small_config(LS_FAMILY_MIXTRAL);
    o.sequence_cut = 4;
    o.tensor_cut = 1;
    o.expert_degree = 4;
    assert_int_equal(ls_plan_build(&arena, &mixtral, &layout, &o, &plan), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "parallel.expert is 4 and train.sequence_cut 4; their product"));
    o = training;
    o.losses = false;
    assert_int_equal(ls_plan_build(&arena, &config, &layout, &o, &plan), LS_ERR_INVALID);
    assert_int_equal(plan.step_count, 77);
    ls_arena_release(&arena);
}

static int64_t chunk_rows(ls_arena *arena, int64_t length, int64_t sequences, int64_t vocab)
{
    ls_model_config config = small_config(LS_FAMILY_GPT2);
    config.layers = 1;
    config.vocab = vocab;
    config.context = 4096;
    ls_plan_options options = training;
    options.length = length;
    options.sequences = sequences;
    const ls_plan plan = build(arena, &config, &options);
    return plan.values[plan.logits].rows;
}

static void plan_build_logits_come_in_chunks_of_64_mib(void **state)
{
    (void)state;
    ls_arena arena = {0};
    assert_int_equal(chunk_rows(&arena, 64, 4, 50257), 256); /* 51 MB: at once */
    /* 333 fit, 13 chunks of 316, up to 320 */
    assert_int_equal(chunk_rows(&arena, 1024, 4, 50257), 320);
    assert_int_equal(chunk_rows(&arena, 7, 3, 256), 21);
    assert_int_equal(chunk_rows(&arena, 1024, 1, 1 << 20), 64); /* never less than 64 */
    ls_arena_release(&arena);
}

static void plan_count_flops_by_hand(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_model_config config = small_config(LS_FAMILY_MISTRAL);
    config.layers = 1;
    config.window = 16;
    ls_plan_options options = training;
    options.recompute = LS_RECOMPUTE_FULL;
    const ls_plan plan = build(&arena, &config, &options);
    const ls_plan_flops flops = ls_plan_count_flops(&plan);
    /* 96 tokens: qkv 32 x 64, output 32 x 32, gate|up 32 x 192, down 96 x 32, head 32 x 70; 48 x 48
     * pairs twice. */
    const double layer_but_down = 2.0 * 96 * (32 * 64 + 32 * 32 + 32 * 192) + 4.0 * 2 * 48 * 48 * 32;
    const double forward = layer_but_down + 2.0 * 96 * (96 * 32 + 32 * 70);
    assert_true(flops.forward == forward);
    assert_true(flops.backward == 2.0 * forward);
    assert_true(flops.recomputed == layer_but_down);
    /* Pairs of one sequence: 1 + 2 + ... + 16, then 32 rows of 16. */
    assert_true(flops.causal_forward == forward - 4.0 * 2 * 32 * (48 * 48 - (136 + 32 * 16)));
    ls_arena_release(&arena);
}

static void tree_buffers_by_hand(void **state)
{
    (void)state;
    /* 12: the left 8 needs 4; then one sum waits while the right 4 needs 3. */
    const uint32_t expected[][2] = {{1, 1}, {2, 2}, {3, 2},  {4, 3},    {5, 3},
                                    {6, 3}, {8, 4}, {12, 4}, {1024, 11}};
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(ls_tree_buffers(expected[i][0], 0), expected[i][1]);
    }
}

/* Of a bucket: by hand from the order of the steps. Buckets become final from the end of the model
 * to its start, tied embeddings last. */
static void plan_last_gradient_step_goes_from_end_to_start(void **state)
{
    (void)state;
    const ls_family families[] = {LS_FAMILY_GPT2, LS_FAMILY_LLAMA, LS_FAMILY_QWEN3};
    const ls_recompute modes[] = {LS_RECOMPUTE_NONE, LS_RECOMPUTE_SELECTIVE, LS_RECOMPUTE_FULL};
    for (size_t i = 0; i < 9; i++) {
        ls_arena arena = {0};
        const ls_model_config config = small_config(families[i / 3]);
        ls_plan_options options = training;
        options.recompute = modes[i % 3];
        const ls_plan plan = build(&arena, &config, &options);
        const uint32_t last_bucket = plan.layout->bucket_count - 1;
        assert_int_equal(ls_plan_last_gradient_step(&plan, 0), plan.step_count - 1);
        for (uint32_t b = 0; b < last_bucket; b++) {
            assert_true(ls_plan_last_gradient_step(&plan, b) > ls_plan_last_gradient_step(&plan, b + 1));
        }
        /* The final norm (with the head, which is done) is the first step of backward; a layer ends
         * with its first norm. */
        assert_int_equal(ls_plan_last_gradient_step(&plan, last_bucket), plan.forward_steps);
        const ls_plan_step layer_end = plan.steps[ls_plan_last_gradient_step(&plan, 2)];
        assert_int_equal(layer_end.phase, LS_PHASE_BACKWARD_INPUT);
        ls_arena_release(&arena);
    }
}

static void plan_memory_adds_up(void **state)
{
    (void)state;
    ls_arena arena = {0};
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const ls_plan plan = build(&arena, &config, &training);
    const ls_memory_plan m = ls_plan_memory(&plan, 12, 0, 0);
    assert_int_equal(m.parameters, plan.layout->float_count * 4);
    assert_int_equal(m.tree, 3 * m.parameters);
    assert_int_equal(m.optimizer, 2 * m.gradients);
    assert_int_equal(m.activations + m.logits, plan.arena_floats * 4);
    assert_int_equal(m.logits, 96 * 70 * 4);
    assert_int_equal(m.total,
                     m.parameters + m.gradients + m.optimizer + m.tree + m.activations + m.logits + m.other);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_build_gpt2_steps_are_in_order),
        cmocka_unit_test(plan_build_qwen3_recomputes_what_it_says),
        cmocka_unit_test(plan_build_mixtral_recomputes_what_it_says),
        cmocka_unit_test(plan_flops_count_visited_experts),
        cmocka_unit_test(plan_build_final_norm_starts_the_stream_gradient),
        cmocka_unit_test(plan_place_every_mode_keeps_values_whole),
        cmocka_unit_test(plan_place_large_models_are_near_the_bound),
        cmocka_unit_test(plan_build_recompute_needs_less_memory),
        cmocka_unit_test(plan_build_cut_and_segments_reach_the_linears),
        cmocka_unit_test(plan_build_bad_options_are_refused),
        cmocka_unit_test(plan_build_logits_come_in_chunks_of_64_mib),
        cmocka_unit_test(plan_count_flops_by_hand),
        cmocka_unit_test(tree_buffers_by_hand),
        cmocka_unit_test(plan_last_gradient_step_goes_from_end_to_start),
        cmocka_unit_test(plan_memory_adds_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
