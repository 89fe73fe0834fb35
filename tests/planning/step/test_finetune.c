// SPDX-License-Identifier: Apache-2.0
/* Fine-tuning: adapters as PEFT counts them, what each way needs, and published figures beside it. */
#include "test.h"

#include "planning/shipped.h"
#include "planning/step/finetune.h"

#include <math.h>

static const double GIB = 1073741824.0;

static ls_setting setting_of(const char *model, const char *accelerator, int64_t gpus, int64_t length)
{
    ls_shape *shape = ls_arena_new(&arena, ls_shape, 1);
    ls_stack *stack = ls_arena_new(&arena, ls_stack, 1);
    const ls_accelerator *found = NULL;
    const char *from = NULL;
    ls_setting s = {.shape = shape, .stack = stack, .gpus = gpus, .length = length, .global_batch = 16};
    assert_int_equal(ls_shape_parse(&arena, model, shape), LS_OK);
    assert_int_equal(ls_catalogue_find_accelerator(&catalogue, accelerator, &found), LS_OK);
    assert_int_equal(ls_stack_find("megatron-core", found, stack, &from), LS_OK);
    s.node = ls_catalogue_usual_node(&catalogue, &arena, found);
    return s;
}

static void adapter_parameters_are_pefts(void **state)
{
    (void)state;
    /* get_peft_model(..., LoraConfig(r=16, target_modules="all-linear")).num_parameters(True) */
    ls_shape shape;
    assert_int_equal(ls_shape_parse(&arena, "llama3-8b", &shape), LS_OK);
    assert_float_equal(ls_finetune_adapter_parameters(&shape, 16), 41943040.0, 0.5);
    /* gpt2: c_attn 768 x 2304, c_proj 768 x 768, c_fc 768 x 3072, c_proj 3072 x 768 */
    assert_int_equal(ls_shape_parse(&arena, "gpt2", &shape), LS_OK);
    assert_float_equal(ls_finetune_adapter_parameters(&shape, 8),
                       12.0 * 8.0 * (768 + 2304 + 768 + 768 + 768 + 3072 + 3072 + 768), 0.5);
}

static void frozen_bases_need_what_their_format_says(void **state)
{
    (void)state;
    const ls_setting s = setting_of("llama3-8b", "rtx-4090", 1, 2048);
    const ls_strategy_request open = {.has_zero = false};
    ls_finetune_estimate e[LS_FINETUNE_KINDS];
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        ls_finetune_compute(&s, (ls_finetune_kind)kind, 16, &open, &e[kind]);
        const ls_memory_estimate *m = &e[kind].memory;
        assert_float_equal(m->total, m->weights + m->gradients + m->optimizer + m->activations + m->buffers,
                           1);
        assert_true(e[kind].tokens_ps > 0.0);
    }
    const double adapters = 41943040.0, tables = 2.0 * 128256 * 4096, vectors = 65 * 4096;
    const double matrices = (double)s.shape->parameters - tables - vectors;
    assert_float_equal(e[LS_FINETUNE_LORA].memory.weights, 4 * adapters + 2.0 * (double)s.shape->parameters,
                       1);
    assert_float_equal(e[LS_FINETUNE_QLORA].memory.weights,
                       4 * adapters + 2 * (tables + vectors) + matrices * 4.126953125 / 8, 1);
    assert_float_equal(e[LS_FINETUNE_LORA].memory.optimizer, 8 * adapters, 1);
    assert_int_equal(e[LS_FINETUNE_FULL].fit, LS_FIT_NO);
    assert_int_not_equal(e[LS_FINETUNE_QLORA].fit, LS_FIT_NO);
    /* No weight gradients of the base: less time, more than the two thirds of the products. */
    ls_strategy_request same = {.has_recompute = true};
    same.strategy.micro_batch = 1;
    for (int kind = 0; kind < LS_FINETUNE_KINDS; kind++) {
        ls_finetune_compute(&s, (ls_finetune_kind)kind, 16, &same, &e[kind]);
        assert_int_equal(e[kind].strategy.recompute, LS_RECOMPUTE_NONE);
    }
    const double gain = e[LS_FINETUNE_LORA].tokens_ps / e[LS_FINETUNE_FULL].tokens_ps;
    assert_true(gain > 1.1 && gain < 1.7);
    assert_true(e[LS_FINETUNE_QLORA].tokens_ps < e[LS_FINETUNE_LORA].tokens_ps);
}

/* The table of docs/planning.md. */
static void published_figures_are_as_far_off_as_documented(void **state)
{
    (void)state;
    static const struct anchor {
        const char *model, *accelerator;
        int64_t gpus, micro_batch, length, rank;
        ls_finetune_kind kind;
        double published_gib, off;
    } anchors[] = {
        {"llama3-8b", "rtx-4090", 1, 2, 2048, 8, LS_FINETUNE_LORA, 16.2, 0.23},
        {"llama3-8b", "rtx-4090", 1, 2, 2048, 8, LS_FINETUNE_QLORA, 7.4, 0.36},
        {"llama3-70b", "a100-80", 8, 2, 2048, 8, LS_FINETUNE_LORA, 27.6, 0.29},
        {"llama3-8b", "h100", 1, 1, 1024, 16, LS_FINETUNE_LORA, 22e9 / 1073741824.0, -0.10},
        {"llama3-8b", "h100", 1, 1, 1024, 16, LS_FINETUNE_QLORA, 6e9 / 1073741824.0, 0.52},
        {"llama3-70b", "h100", 1, 1, 1024, 16, LS_FINETUNE_LORA, 164e9 / 1073741824.0, -0.05},
        {"llama3-70b", "h100", 1, 1, 1024, 16, LS_FINETUNE_QLORA, 41e9 / 1073741824.0, 0.21},
    };
    for (size_t i = 0; i < sizeof anchors / sizeof anchors[0]; i++) {
        const struct anchor *a = &anchors[i];
        const ls_setting s = setting_of(a->model, a->accelerator, a->gpus, a->length);
        ls_strategy_request request = {.has_recompute = true};
        request.strategy.recompute = LS_RECOMPUTE_FULL;
        request.strategy.micro_batch = a->micro_batch;
        ls_finetune_estimate e;
        ls_finetune_compute(&s, a->kind, a->rank, &request, &e);
        assert_float_equal(e.memory.total / GIB / a->published_gib - 1.0, a->off, 0.01);
    }
}

static void micro_batches_fill_the_memory(void **state)
{
    (void)state;
    const ls_strategy_request open = {.has_zero = false};
    ls_finetune_estimate e;
    const ls_setting small = setting_of("llama3.2-1b", "h100", 1, 512);
    ls_finetune_compute(&small, LS_FINETUNE_LORA, 16, &open, &e);
    assert_int_equal(e.strategy.micro_batch, 8);
    assert_int_equal(e.strategy.recompute, LS_RECOMPUTE_NONE);
    const ls_setting large = setting_of("llama3-70b", "h100", 1, 2048);
    ls_finetune_compute(&large, LS_FINETUNE_FULL, 16, &open, &e);
    assert_int_equal(e.strategy.micro_batch, 1);
    assert_int_equal(e.strategy.recompute, LS_RECOMPUTE_FULL);
    assert_int_equal(e.fit, LS_FIT_NO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapter_parameters_are_pefts),
        cmocka_unit_test(frozen_bases_need_what_their_format_says),
        cmocka_unit_test(published_figures_are_as_far_off_as_documented),
        cmocka_unit_test(micro_batches_fill_the_memory),
    };
    return cmocka_run_group_tests(tests, load_shipped, release_shipped);
}
