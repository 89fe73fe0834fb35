// SPDX-License-Identifier: Apache-2.0
/*
 * Frozen parameters: the gradients of what is trained have the bits that they have when everything
 * is, whatever is frozen, in every family and with each recompute setting; what is frozen has none,
 * costs no memory, no step of the plan, and never changes.
 */
#include "test.h"

#include "execution/executor/executor.h"
#include "execution/executor/state.h"
#include "execution/train/step.h"
#include "model/models.h"

#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, LENGTH = 16, PATTERNS_MAX = 4 };

typedef struct model {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
    ls_queue *queue;
    ls_executor executor;
    ls_state state;
    int32_t tokens[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
    float losses[SEQUENCES * LENGTH];
} model;

static size_t count_of(const char *const *patterns)
{
    size_t count = 0;
    while (count < PATTERNS_MAX && patterns[count]) {
        count++;
    }
    return count;
}

static void model_open(model *m, const ls_model_config *config, ls_recompute recompute,
                       const char *const *patterns)
{
    *m = (model){.config = *config};
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = SEQUENCES;
    options.length = LENGTH;
    options.training = options.losses = true;
    options.recompute = recompute;
    if (ls_layout_build_frozen(&m->arena, config, patterns, count_of(patterns), &m->layout) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    assert_int_equal(ls_plan_build(&m->arena, &m->config, &m->layout, &options, &m->plan), LS_OK);
    ls_plan_check(&m->plan);
    assert_int_equal(ls_queue_create_cpu(1, &m->queue), LS_OK);
    assert_int_equal(ls_executor_init(&m->executor, m->queue, &m->plan, LENGTH), LS_OK);
    assert_int_equal(ls_state_init(&m->state, m->queue, LS_F32, &m->layout, 1), LS_OK);
    assert_int_equal(ls_state_init_weights(&m->state, m->queue, config, 3), LS_OK);
    for (int i = 0; i < SEQUENCES * LENGTH; i++) {
        m->tokens[i] = (i * 7 + 3) % (int32_t)config->vocab;
        m->targets[i] = (i * 5 + 1) % (int32_t)config->vocab;
    }
}

static void model_close(model *m)
{
    ls_executor_release(&m->executor);
    ls_state_release(&m->state);
    ls_queue_destroy(m->queue);
    ls_arena_release(&m->arena);
}

static void run_micro_batch(model *m, bool accumulate)
{
    const ls_executor_batch batch = {.weights = m->state.parameters,
                                     .gradients = m->state.gradients[0],
                                     .accumulate = accumulate,
                                     .more = !accumulate, /* two micro-batches make a leaf */
                                     .tokens = m->tokens,
                                     .targets = m->targets,
                                     .losses = m->losses};
    assert_int_equal(ls_executor_forward(&m->executor, &batch), LS_OK);
    assert_int_equal(ls_executor_backward(&m->executor, &batch), LS_OK);
}

/* Everything of `some` that is trained has the value and the gradient it has in `all`. */
static void expect_same_gradients(const model *all, const model *some)
{
    assert_memory_equal(all->losses, some->losses, sizeof all->losses);
    for (uint32_t i = 0; i < some->layout.parameter_count; i++) {
        const ls_parameter *p = &some->layout.parameters[i], *q = ls_layout_find(&all->layout, p->name);
        const size_t bytes = (size_t)(p->rows * p->cols) * sizeof(float);
        assert_non_null(q);
        assert_memory_equal(some->state.parameters + p->offset, all->state.parameters + q->offset, bytes);
        if (!p->frozen &&
            memcmp(some->state.gradients[0] + p->offset, all->state.gradients[0] + q->offset, bytes) != 0) {
            fail_msg("the gradient of %s differs", p->name);
        }
    }
}

static void compare(const ls_model_config *config, ls_recompute recompute, const char *const *patterns)
{
    const char *const nothing[PATTERNS_MAX] = {NULL};
    model all, some;
    model_open(&all, config, recompute, nothing);
    model_open(&some, config, recompute, patterns);
    assert_int_equal(all.layout.frozen_buckets, 0);
    assert_true(some.layout.frozen_elements > 0);
    assert_true(some.layout.float_count <= all.layout.float_count); /* buckets are padded */
    /* the second is added to the first */
    for (int i = 0; i < 2; i++) {
        run_micro_batch(&all, i > 0);
        run_micro_batch(&some, i > 0);
        expect_same_gradients(&all, &some);
    }
    model_close(&all);
    model_close(&some);
}

static void frozen_gradients_of_the_rest_keep_their_bits(void **state)
{
    (void)state;
    static const char *const gpt2[][PATTERNS_MAX] = {{"wte"},  {"wpe.weight"}, {"*wte*", "wpe", "h.0"},
                                                     {"h.*"},  {"*bias"},      {"*.weight", "wte"},
                                                     {"*ln*"}, {"h.1", "h.2"}};
    static const char *const others[][PATTERNS_MAX] = {{"*embed*"},
                                                       {"embed_tokens", "layers.0", "layers.1"},
                                                       {"layers.2", "norm"},
                                                       {"layers.*"},
                                                       {"*mlp*", "*norm*"},
                                                       {"*self_attn*"},
                                                       {"layers.?.mlp.down_proj*", "lm_head"}};
    static const char *const experts[][PATTERNS_MAX] = {{"embed_tokens", "layers.0", "layers.1"},
                                                        {"*experts*", "*norm*"},
                                                        {"*self_attn*", "*.gate.weight"},
                                                        {"*.experts.*", "layers.0", "layers.1"},
                                                        {"*.gate.weight", "lm_head"}};
    for (int family = 0; family < LS_FAMILY_COUNT; family++) {
        ls_model_config config = small_config(family);
        const bool is_gpt2 = family == LS_FAMILY_GPT2;
        if (config.experts > 0) {
            for (size_t i = 0; i < sizeof experts / sizeof *experts; i++) {
                compare(&config, (ls_recompute)(i % 3), experts[i]);
            }
            continue;
        }
        const size_t count = is_gpt2 ? sizeof gpt2 / sizeof *gpt2 : sizeof others / sizeof *others;
        config.tied = is_gpt2 || config.tied;
        for (size_t i = 0; i < count; i++) {
            const bool needs_head = !is_gpt2 && others[i][1] && strcmp(others[i][1], "lm_head") == 0;
            config.tied = config.tied && !needs_head;
            for (ls_recompute r = LS_RECOMPUTE_NONE; r <= LS_RECOMPUTE_FULL; r++) {
                compare(&config, r, is_gpt2 ? gpt2[i] : others[i]);
            }
        }
    }
}

static void frozen_layers_below_the_lowest_trained_one_have_no_backward(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const char *const nothing[PATTERNS_MAX] = {NULL};
    const char *const lower[PATTERNS_MAX] = {"*embed*", "layers.0", "layers.1"};
    const char *const all_but_head[PATTERNS_MAX] = {"*embed*", "layers.*", "norm"};
    const char *const head[PATTERNS_MAX] = {"lm_head"};
    model all, top, only, headless;
    model_open(&all, &config, LS_RECOMPUTE_NONE, nothing);
    model_open(&top, &config, LS_RECOMPUTE_NONE, lower);
    model_open(&only, &config, LS_RECOMPUTE_NONE, all_but_head);
    model_open(&headless, &config, LS_RECOMPUTE_NONE, head);

    /* Of three layers the backward of one is left, which ends with the gradients of its first
     * norm's weight. */
    const uint32_t each = (all.plan.step_count - all.plan.forward_steps - 2) / 3;
    assert_int_equal(top.plan.step_count - top.plan.forward_steps, 1 + each);
    assert_int_equal(only.plan.step_count, only.plan.forward_steps);
    assert_int_equal(only.plan.dhidden, LS_NONE);
    assert_true(top.plan.arena_floats < all.plan.arena_floats);

    const ls_plan_flops f = ls_plan_count_flops(&all.plan), g = ls_plan_count_flops(&top.plan),
                        h = ls_plan_count_flops(&only.plan), k = ls_plan_count_flops(&headless.plan);
    const double product = 2.0 * SEQUENCES * LENGTH * (double)(config.width * config.vocab);
    assert_float_equal(f.backward, 2.0 * f.forward, 0.0);
    assert_float_equal(g.forward, f.forward, 0.0);
    assert_float_equal(g.backward, 2.0 * ((f.forward - product) / 3.0 + product), 1.0);
    assert_float_equal(h.backward, product, 0.0); /* the head's weight gradient and nothing else */
    assert_float_equal(k.backward, f.backward - product, 0.0);
    model_close(&all);
    model_close(&top);
    model_close(&only);
    model_close(&headless);
}

static void frozen_parameters_cost_neither_gradients_nor_moments(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_QWEN3);
    const char *const nothing[PATTERNS_MAX] = {NULL}, *const embeddings[PATTERNS_MAX] = {"*embed*",
                                                                                         "layers.0"};
    model all, some;
    model_open(&all, &config, LS_RECOMPUTE_NONE, nothing);
    model_open(&some, &config, LS_RECOMPUTE_NONE, embeddings);
    const ls_memory_plan a = ls_plan_memory(&all.plan, 4, 0, 0), b = ls_plan_memory(&some.plan, 4, 0, 0);
    const uint64_t trained = (uint64_t)some.layout.float_count * sizeof(float);
    assert_int_equal(b.parameters, a.parameters); /* both buckets are whole ones */
    assert_int_equal(b.gradients, trained);
    assert_int_equal(b.optimizer, 2 * trained);
    assert_int_equal(b.tree, (b.tree_buffers - 1) * trained);
    assert_true(b.total < a.total);
    assert_int_equal(b.parameters - trained,
                     (uint64_t)(some.layout.parameter_floats - some.layout.float_count) * sizeof(float));
    assert_int_equal(some.layout.element_count, all.layout.element_count);
    model_close(&all);
    model_close(&some);
}

/* ---- steps ---- */

static int32_t token_at(const model *m, uint64_t position, int i)
{
    return (int32_t)((position * 7 + (uint64_t)i * (position % 5 + 1)) % (uint64_t)m->config.vocab);
}

static ls_status draw(void *context, uint64_t position, const ls_sample *sample)
{
    for (int i = 0; i < LENGTH; i++) {
        sample->tokens[i] = token_at(context, position, i);
        sample->targets[i] = token_at(context, position, i + 1);
    }
    return LS_OK;
}

static void frozen_parameters_do_not_change_and_the_rest_learns(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const char *const patterns[PATTERNS_MAX] = {"*embed*", "layers.1"};
    model m;
    model_open(&m, &config, LS_RECOMPUTE_NONE, patterns);
    const ls_step_settings settings = {.leaves = 1,
                                       .global_batch = SEQUENCES,
                                       .micro_batch = SEQUENCES,
                                       .clip_norm = 1.0,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.95f,
                                       .eps = 1e-8f,
                                       .weight_decay = 0.1f,
                                       .sample = draw,
                                       .sample_context = &m};
    ls_stepper *stepper = NULL;
    assert_int_equal(ls_stepper_create(&m.executor, &m.state, &settings, &stepper), LS_OK);
    const size_t bytes = (size_t)m.layout.parameter_floats * sizeof(float);
    float *before = malloc(bytes);
    memcpy(before, m.state.parameters, bytes);
    for (uint64_t step = 0; step < 3; step++) {
        ls_step_result result;
        assert_int_equal(ls_stepper_run(stepper, step, 1e-3, &result), LS_OK);
    }
    for (uint32_t i = 0; i < m.layout.parameter_count; i++) {
        const ls_parameter *p = &m.layout.parameters[i];
        const bool same = memcmp(before + p->offset, m.state.parameters + p->offset,
                                 (size_t)(p->rows * p->cols) * sizeof(float)) == 0;
        if (same != p->frozen) {
            fail_msg("%s %s", p->name, same ? "did not change" : "changed");
        }
    }
    free(before);
    ls_stepper_destroy(stepper);
    model_close(&m);
}

/* A snapshot has the trained values of its moment, and looks at the frozen ones where they are. */
static void frozen_parameters_are_not_copied_into_a_snapshot(void **state)
{
    (void)state;
    const ls_model_config config = small_config(LS_FAMILY_LLAMA);
    const char *const patterns[PATTERNS_MAX] = {"layers.0"};
    model m;
    ls_state snapshot;
    char a[LS_SHA256_HEX_BYTES], b[LS_SHA256_HEX_BYTES];
    model_open(&m, &config, LS_RECOMPUTE_NONE, patterns);
    assert_int_equal(ls_state_init_snapshot(&snapshot, &m.state), LS_OK);
    assert_int_equal(ls_state_copy(&snapshot, &m.state), LS_OK);
    assert_ptr_equal(snapshot.frozen, m.state.parameters + m.layout.float_count);
    assert_int_equal(ls_state_hash_now(&m.state, 7, NULL, a), LS_OK);
    assert_int_equal(ls_state_hash_now(&snapshot, 7, NULL, b), LS_OK);
    assert_string_equal(a, b);
    ls_state_release(&snapshot);
    model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frozen_gradients_of_the_rest_keep_their_bits),
        cmocka_unit_test(frozen_layers_below_the_lowest_trained_one_have_no_backward),
        cmocka_unit_test(frozen_parameters_cost_neither_gradients_nor_moments),
        cmocka_unit_test(frozen_parameters_do_not_change_and_the_rest_learns),
        cmocka_unit_test(frozen_parameters_are_not_copied_into_a_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
