// SPDX-License-Identifier: Apache-2.0
/*
 * A stepper over a tiny model, for tests: two layers, samples that are a function of their
 * position. Include after "test.h".
 */
#ifndef LS_TESTS_EXECUTION_STEP_BENCH_H
#define LS_TESTS_EXECUTION_STEP_BENCH_H

#include "execution/train/step.h"

enum { VOCAB = 40, LENGTH = 12 };

typedef struct bench {
    ls_arena arena;
    ls_model_config config;
    ls_layout layout;
    ls_plan plan;
    ls_queue *queue;
    ls_executor executor;
    ls_state state;
    ls_stepper *stepper;
    ls_step_settings settings;
    uint64_t stop_after; /* micro-batches until a stop is asked for; 0: never */
    uint64_t asked;
} bench;

/* A sample is a function of its position. */
static inline ls_status draw(void *context, uint64_t position, const ls_sample *sample)
{
    (void)context;
    for (int i = 0; i < LENGTH; i++) {
        sample->tokens[i] = (int32_t)((position * 7 + (uint64_t)i * (position % 5 + 1)) % VOCAB);
        sample->targets[i] = (int32_t)((position * 7 + (uint64_t)(i + 1) * (position % 5 + 1)) % VOCAB);
    }
    return LS_OK;
}

static inline bool stop(void *context)
{
    bench *b = context;
    return b->stop_after > 0 && ++b->asked > b->stop_after;
}

static inline void bench_init(bench *b, uint32_t leaves, uint32_t global_batch, uint32_t micro_batch,
                              uint32_t threads)
{
    *b = (bench){0};
    ls_model_config_defaults(LS_FAMILY_LLAMA, &b->config);
    b->config.layers = 2;
    b->config.heads = 2;
    b->config.kv_heads = 1;
    b->config.head_dim = 8;
    b->config.width = 16;
    b->config.ffn = 24;
    b->config.context = LENGTH;
    b->config.vocab = VOCAB;
    assert_int_equal(ls_model_config_check(&b->config), LS_OK);
    ls_layout_build(&b->arena, &b->config, &b->layout);
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = micro_batch;
    options.length = LENGTH;
    options.training = options.losses = true;
    assert_int_equal(ls_plan_build(&b->arena, &b->config, &b->layout, &options, &b->plan), LS_OK);
    assert_int_equal(ls_queue_create_cpu(threads, &b->queue), LS_OK);
    assert_int_equal(ls_executor_init(&b->executor, b->queue, &b->plan, LENGTH), LS_OK);
    assert_int_equal(ls_state_init(&b->state, b->queue, LS_F32, &b->layout, ls_tree_buffers(leaves, 0)),
                     LS_OK);
    assert_int_equal(ls_state_init_weights(&b->state, b->queue, &b->config, 3), LS_OK);
    b->settings = (ls_step_settings){.leaves = leaves,
                                     .global_batch = global_batch,
                                     .micro_batch = micro_batch,
                                     .clip_norm = 1.0,
                                     .beta1 = 0.9f,
                                     .beta2 = 0.95f,
                                     .eps = 1e-8f,
                                     .weight_decay = 0.1f,
                                     .sample = draw,
                                     .should_stop = stop,
                                     .stop_context = b};
    assert_int_equal(ls_stepper_create(&b->executor, &b->state, &b->settings, &b->stepper), LS_OK);
}

static inline void bench_release(bench *b)
{
    ls_stepper_destroy(b->stepper);
    ls_executor_release(&b->executor);
    ls_state_release(&b->state);
    ls_queue_destroy(b->queue);
    ls_arena_release(&b->arena);
}

static inline size_t flat_bytes(const bench *b)
{
    return (size_t)b->layout.float_count * sizeof(float);
}

#endif
