// SPDX-License-Identifier: Apache-2.0
/* Plans of pipeline stages: which layers, which values, where they lie. */
#include "test.h"

#include "model/models.h"
#include "model/plan_stage.h"

#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_plan whole;
} fixture;

static void open_model(fixture *f, const ls_model_config *config, ls_recompute recompute)
{
    *f = (fixture){.config = *config};
    ls_layout_build(&f->arena, &f->config, &f->layout);
    const ls_plan_options options = {.sequences = 2,
                                     .length = 48,
                                     .training = true,
                                     .losses = true,
                                     .tensor_cut = 1,
                                     .recompute = recompute};
    assert_int_equal(ls_plan_build(&f->arena, &f->config, &f->layout, &options, &f->whole), LS_OK);
}

static ls_model_config deep_config(int64_t layers)
{
    ls_model_config config = small_config(LS_FAMILY_LLAMA);
    config.layers = layers;
    config.vocab = 16; /* a head of next to no FLOPs */
    return config;
}

static void cut_is(const ls_model_config *config, uint32_t runs, const uint32_t *want)
{
    fixture f;
    uint32_t first[17];
    open_model(&f, config, LS_RECOMPUTE_NONE);
    assert_int_equal(ls_plan_cut_layers(&f.arena, &f.whole, runs, first), LS_OK);
    for (uint32_t r = 0; r <= runs; r++) {
        if (first[r] != want[r]) {
            fail_msg("run %u of %u begins with layer %u instead of %u", r, runs, first[r], want[r]);
        }
    }
    ls_arena_release(&f.arena);
}

static void plan_cut_layers_balances_flops(void **state)
{
    (void)state;
    ls_model_config config = deep_config(8);
    cut_is(&config, 1, (uint32_t[]){0, 8});
    cut_is(&config, 2, (uint32_t[]){0, 4, 8});
    cut_is(&config, 8, (uint32_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8});
    /* The last run has the head, and the first stages hold the most micro-batches. */
    cut_is(&config, 3, (uint32_t[]){0, 3, 6, 8});
    config = deep_config(10);
    cut_is(&config, 4, (uint32_t[]){0, 2, 5, 8, 10});
    /* A head of about two layers: a layer has 4 x 32 x 64 + 3 x 32 x 96 weights and some attention,
     * 22,528 with 48 x 2 x 32 x 2 of it */
    config = deep_config(6);
    config.vocab = 2 * 22528 / 32;
    cut_is(&config, 2, (uint32_t[]){0, 4, 6});
    cut_is(&config, 4, (uint32_t[]){0, 1, 3, 5, 6});
}

static void plan_cut_layers_refuses_more_runs_than_layers(void **state)
{
    (void)state;
    fixture f;
    const ls_model_config config = deep_config(3);
    uint32_t first[5] = {77, 77, 77, 77, 77};
    open_model(&f, &config, LS_RECOMPUTE_NONE);
    assert_int_equal(ls_plan_cut_layers(&f.arena, &f.whole, 4, first), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "4 stages"));
    assert_non_null(strstr(ls_error_text(), "3 layers; use at most 3"));
    assert_int_equal(first[0], 77);
    ls_arena_release(&f.arena);
}

static void plan_build_refuses_stages_that_are_not_possible(void **state)
{
    (void)state;
    fixture f;
    const ls_model_config config = deep_config(3);
    open_model(&f, &config, LS_RECOMPUTE_NONE);
    const struct {
        uint32_t first, count, slots;
        bool training;
        const char *text;
    } cases[] = {{2, 2, 1, true, "2 layers from layer 2 on is not possible: the model has 3 layers"},
                 {1, 0, 1, true, "0 layers from layer 1 on"},
                 {0, 2, 1, false, "need option `training`"},
                 {0, 0, 2, false, "need option `training`"},
                 {0, 3, (1 << 20) + 1, true, "number of slots is 1048577"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_plan_options options = f.whole.options;
        ls_plan plan;
        options.first_layer = cases[i].first;
        options.layer_count = cases[i].count;
        options.slots = cases[i].slots;
        options.training = cases[i].training;
        assert_int_equal(ls_plan_build(&f.arena, &config, &f.layout, &options, &plan), LS_ERR_INVALID);
        assert_non_null(strstr(ls_error_text(), cases[i].text));
    }
    ls_arena_release(&f.arena);
}

/* ---- what stages compute ---- */

/* Ops of a kind among the forward steps. */
static uint32_t count_ops(const ls_plan *plan, ls_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < plan->forward_steps; i++) {
        count += plan->ops[plan->steps[i].op].kind == kind;
    }
    return count;
}

static void check_ends(const ls_plan *plan, bool is_first, bool is_last, int64_t rows, int64_t width)
{
    assert_int_equal(count_ops(plan, LS_OP_EMBEDDING), is_first);
    assert_int_equal(count_ops(plan, LS_OP_HEAD_LOSS), is_last);
    assert_int_equal(count_ops(plan, LS_OP_ADD), !is_last);
    assert_int_equal(plan->stage.in == LS_NONE, is_first);
    assert_int_equal(plan->stage.din == LS_NONE, is_first);
    assert_int_equal(plan->stage.out == LS_NONE, is_last);
    assert_int_equal(plan->stage.dout == LS_NONE, is_last);
    const int32_t values[] = {plan->stage.in, plan->stage.out, plan->stage.din, plan->stage.dout};
    for (int i = 0; i < 4; i++) {
        if (values[i] != LS_NONE) {
            assert_int_equal(plan->values[values[i]].rows, rows);
            assert_int_equal(plan->values[values[i]].cols, width);
            assert_int_equal(plan->values[values[i]].stride, width);
        }
    }
}

static double flops_of(const ls_plan *plan)
{
    const ls_plan_flops flops = ls_plan_count_flops(plan);
    return flops.forward + flops.backward + flops.recomputed;
}

static void check_stages(fixture *f, const ls_pipeline *pipeline)
{
    const uint32_t runs = pipeline->stages * pipeline->chunks;
    double flops = 0.0;
    uint32_t layers = 0;
    for (uint32_t s = 0; s < pipeline->stages; s++) {
        ls_plan plans[3];
        const ls_pipeline_work *list = ls_pipeline_list(&f->arena, pipeline, s);
        assert_int_equal(ls_plan_build_stage(&f->arena, &f->whole, pipeline, s, list, plans), LS_OK);
        for (uint32_t c = 0; c < pipeline->chunks; c++) {
            const uint32_t run = c * pipeline->stages + s;
            const ls_plan *plan = &plans[c];
            ls_plan_check(plan);
            check_ends(plan, run == 0, run + 1 == runs, 96, f->config.width);
            flops += flops_of(plan);
            layers += plan->options.layer_count;
            assert_int_equal(plan->arena_floats >= plan->options.slots * plan->slot_floats, true);
            for (uint32_t i = 0; i < plan->step_count; i++) {
                const bool is_weight = plan->steps[i].phase == LS_PHASE_BACKWARD_WEIGHT;
                if (plan->options.split_backward) {
                    assert_int_equal(is_weight, i >= plan->first_weight_step);
                } else {
                    assert_int_equal(plan->first_weight_step, plan->step_count);
                }
            }
        }
    }
    assert_int_equal(layers, f->config.layers);
    assert_float_equal(flops, flops_of(&f->whole), 1.0);
}

static void plan_build_stage_has_each_step_of_the_whole_once(void **state)
{
    (void)state;
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        ls_model_config config = small_config((ls_family)family);
        config.layers = 6;
        for (int recompute = 0; recompute < 3; recompute++) {
            fixture f;
            open_model(&f, &config, (ls_recompute)recompute);
            check_stages(&f, &(ls_pipeline){LS_PIPELINE_ONE_BY_ONE, 1, 1, 4});
            check_stages(&f, &(ls_pipeline){LS_PIPELINE_ONE_BY_ONE, 3, 1, 4});
            check_stages(&f, &(ls_pipeline){LS_PIPELINE_ONE_BY_ONE, 2, 3, 4});
            check_stages(&f, &(ls_pipeline){LS_PIPELINE_ALL_FORWARD, 6, 1, 3});
            check_stages(&f, &(ls_pipeline){LS_PIPELINE_ZERO_BUBBLE, 4, 1, 9});
            ls_arena_release(&f.arena);
        }
    }
}

/* ---- memory ---- */

/* Memory that remembers which value of which micro-batch wrote each cell of 16 floats. */
typedef struct tags {
    const ls_plan *plan;
    int64_t *owner;
} tags;

static void tag(const tags *t, int32_t value, uint32_t micro_batch, bool writes)
{
    const ls_value *v = &t->plan->values[value];
    const int64_t id = (int64_t)micro_batch * t->plan->value_count + value;
    const int64_t first = ls_plan_offset(t->plan, value, micro_batch % t->plan->options.slots) / 16;
    for (int64_t cell = first; cell < first + (v->rows * v->cols + 15) / 16; cell++) {
        assert_true(cell * 16 < t->plan->arena_floats);
        if (writes) {
            t->owner[cell] = id;
        } else if (t->owner[cell] != id) {
            fail_msg("'%s' of micro-batch %u is overwritten", v->name, micro_batch);
        }
    }
}

static void replay_steps(const tags *t, uint32_t micro_batch, uint32_t first, uint32_t past)
{
    for (uint32_t step = first; step < past; step++) {
        ls_value_use uses[LS_STEP_USES_MAX];
        const uint32_t count = ls_plan_step_uses(t->plan, step, uses);
        for (uint32_t pass = 0; pass < 3; pass++) { /* read, write, read again */
            for (uint32_t i = 0; i < count; i++) {
                const bool reads = uses[i].use & LS_USE_READ;
                if (pass == 1 ? !reads : reads) {
                    tag(t, uses[i].value, micro_batch, pass == 1);
                }
            }
        }
    }
}

/* Follows the list of a stage: passes of several micro-batches in turn keep their values whole. */
static void replay_list(const ls_plan *plan, const ls_pipeline_work *list, uint32_t length)
{
    const int64_t cells = plan->arena_floats / 16;
    const tags t = {plan, malloc((size_t)cells * sizeof(int64_t))};
    for (int64_t i = 0; i < cells; i++) {
        t.owner[i] = -1;
    }
    for (uint32_t i = 0; i < length; i++) {
        const uint32_t m = list[i].micro_batch;
        const uint32_t bounds[] = {0, plan->forward_steps, plan->first_weight_step, plan->step_count};
        const bool forward = list[i].pass == LS_PIPELINE_FORWARD;
        const bool weight = list[i].pass == LS_PIPELINE_BACKWARD_WEIGHT;
        const int32_t received = forward ? plan->stage.in : weight ? LS_NONE : plan->stage.dout;
        const int32_t sent = forward ? plan->stage.out : weight ? LS_NONE : plan->stage.din;
        if (received != LS_NONE) {
            tag(&t, received, m, true);
        }
        const int at = forward ? 0 : weight ? 2 : 1;
        replay_steps(&t, m, bounds[at], bounds[list[i].pass == LS_PIPELINE_BACKWARD ? 3 : at + 1]);
        if (sent != LS_NONE) {
            tag(&t, sent, m, false);
        }
    }
    free(t.owner);
}

static void plan_place_keeps_values_of_all_slots_whole(void **state)
{
    (void)state;
    const ls_family families[] = {LS_FAMILY_GPT2, LS_FAMILY_LLAMA, LS_FAMILY_QWEN3};
    for (int i = 0; i < 9; i++) {
        fixture f;
        const ls_model_config config = small_config(families[i % 3]);
        open_model(&f, &config, (ls_recompute)(i / 3));
        for (int kind = 0; kind < LS_PIPELINE_KIND_COUNT; kind++) {
            for (uint32_t s = 0; s < 3; s++) {
                const ls_pipeline p = {(ls_pipeline_kind)kind, 3, 1, 7};
                const ls_pipeline_work *list = ls_pipeline_list(&f.arena, &p, s);
                ls_plan plan;
                assert_int_equal(ls_plan_build_stage(&f.arena, &f.whole, &p, s, list, &plan), LS_OK);
                replay_list(&plan, list, ls_pipeline_length(&p));
            }
        }
        ls_arena_release(&f.arena);
    }
}

static void plan_memory_counts_slots(void **state)
{
    (void)state;
    fixture f;
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    open_model(&f, &config, LS_RECOMPUTE_NONE);
    ls_plan_options options = f.whole.options;
    ls_plan plans[3];
    for (uint32_t i = 0; i < 3; i++) {
        options.slots = i + 1;
        assert_int_equal(ls_plan_build(&f.arena, &config, &f.layout, &options, &plans[i]), LS_OK);
    }
    assert_int_equal(plans[0].slot_floats, 0);
    assert_int_equal(plans[0].arena_floats, f.whole.arena_floats);
    assert_true(plans[1].slot_floats > 0);
    assert_int_equal(plans[2].arena_floats - plans[1].arena_floats, plans[1].slot_floats);
    const uint64_t two = ls_plan_memory(&plans[1], 1, 0, 0).total,
                   three = ls_plan_memory(&plans[2], 1, 0, 0).total;
    /* and tokens, targets and losses of another micro-batch */
    assert_int_equal(three - two, (uint64_t)plans[1].slot_floats * sizeof(float) + 3 * 96 * 4);
    /* what a second slot costs is what backward reads of forward, not a second arena */
    assert_true(plans[1].slot_floats < plans[0].arena_floats);
    ls_arena_release(&f.arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_cut_layers_balances_flops),
        cmocka_unit_test(plan_cut_layers_refuses_more_runs_than_layers),
        cmocka_unit_test(plan_build_refuses_stages_that_are_not_possible),
        cmocka_unit_test(plan_build_stage_has_each_step_of_the_whole_once),
        cmocka_unit_test(plan_place_keeps_values_of_all_slots_whole),
        cmocka_unit_test(plan_memory_counts_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
