// SPDX-License-Identifier: Apache-2.0
#include "execution/generate/generate.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT_BLOCK = 64 }; /* prompt tokens per forward pass */

struct ls_generator {
    ls_queue *queue;
    ls_arena arena;
    const float *parameters;
    ls_plan block_plan, one_plan; /* PROMPT_BLOCK positions, or one */
    ls_executor block_executor, one_executor;
    ls_kv_cache cache;
    float *cache_memory;
    size_t cache_bytes;
    float *logits;
    int32_t *order;
    int32_t *text; /* tokens in the cache and those to follow, at most context */
};

static ls_status plan_init(ls_generator *g, const ls_model_config *config, const ls_layout *layout,
                           int64_t length, ls_plan *plan, ls_executor *executor)
{
    ls_plan_options options = ls_executor_plan_options();
    options.sequences = 1;
    options.length = length;
    LS_TRY(ls_plan_build(&g->arena, config, layout, &options, plan));
    LS_TRY(ls_executor_init(executor, g->queue, plan, g->cache.capacity));
    executor->cache = &g->cache;
    return LS_OK;
}

static ls_status cache_init(ls_generator *g, const ls_model_config *config, int64_t capacity)
{
    const int64_t cols = config->kv_heads * config->head_dim, floats = capacity * cols;
    void *memory = NULL;
    g->cache_bytes = (size_t)(2 * config->layers * floats) * sizeof(float);
    LS_TRY(ls_device_alloc(g->queue, g->cache_bytes, &memory));
    g->cache_memory = memory;
    g->cache = (ls_kv_cache){
        .keys = ls_arena_new(&g->arena, ls_tensor, (size_t)config->layers),
        .values = ls_arena_new(&g->arena, ls_tensor, (size_t)config->layers),
        .capacity = capacity,
    };
    for (int64_t layer = 0; layer < config->layers; layer++) {
        g->cache.keys[layer] = ls_tensor_f32(g->cache_memory + 2 * layer * floats, capacity, cols);
        g->cache.values[layer] = ls_tensor_f32(g->cache_memory + (2 * layer + 1) * floats, capacity, cols);
    }
    return LS_OK;
}

static ls_status generator_init(ls_generator *g, const ls_model_config *config, const ls_layout *layout,
                                int64_t capacity)
{
    const int64_t block = capacity < PROMPT_BLOCK ? capacity : PROMPT_BLOCK;
    g->logits = ls_arena_new(&g->arena, float, (size_t)config->vocab);
    g->order = ls_arena_new(&g->arena, int32_t, (size_t)config->vocab);
    g->text = ls_arena_new(&g->arena, int32_t, (size_t)capacity);
    LS_TRY(cache_init(g, config, capacity));
    LS_TRY(plan_init(g, config, layout, block, &g->block_plan, &g->block_executor));
    return plan_init(g, config, layout, 1, &g->one_plan, &g->one_executor);
}

ls_status ls_generator_create(ls_queue *queue, const ls_model_config *config, const ls_layout *layout,
                              const float *parameters, int64_t capacity, ls_generator **generator_out)
{
    if (config->context < 2) {
        return ls_fail(LS_ERR_INVALID, "the model's context is one token, which leaves no room to continue a "
                                       "prompt: use a model with a longer context");
    }
    const int64_t positions = capacity <= 0 || capacity > config->context ? config->context : capacity;
    LS_ASSERT(positions >= 2);
    ls_generator *g = calloc(1, sizeof *g);
    if (!g) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to generate text");
    }
    g->queue = queue;
    g->parameters = parameters;
    const ls_status status = generator_init(g, config, layout, positions);
    if (status != LS_OK) {
        ls_generator_destroy(g);
        return status;
    }
    *generator_out = g;
    return LS_OK;
}

void ls_generator_destroy(ls_generator *g)
{
    if (!g) {
        return;
    }
    ls_executor_release(&g->block_executor);
    ls_executor_release(&g->one_executor);
    if (g->cache_memory) {
        ls_device_free(g->queue, g->cache_memory, g->cache_bytes);
    }
    ls_arena_release(&g->arena);
    free(g);
}

/* Runs `count` tokens (a block, or one) after those in the cache; the hidden state of the last one
 * stays in the executor. */
static ls_status feed_block(ls_generator *g, const int32_t *tokens, int64_t count, ls_tensor *last_out)
{
    ls_executor *executor = count == g->block_plan.options.length ? &g->block_executor : &g->one_executor;
    const ls_executor_batch batch = {.parameters = g->parameters, .tokens = tokens};
    LS_TRY(ls_executor_forward(executor, &batch));
    LS_TRY(ls_queue_wait(g->queue));
    g->cache.length += count;
    const ls_tensor hidden = ls_executor_value(executor, executor->plan->hidden);
    *last_out = ls_tensor_rows(hidden, count - 1, 1);
    return LS_OK;
}

/* Runs tokens through the model and leaves the logits of the last one in g->logits. */
static ls_status feed(ls_generator *g, const int32_t *tokens, int64_t count)
{
    const int64_t block = g->block_plan.options.length;
    ls_tensor last = {0};
    for (int64_t at = 0; at < count;) {
        const int64_t now = count - at >= block ? block : 1;
        LS_TRY(feed_block(g, tokens + at, now, &last));
        at += now;
    }
    const ls_tensor logits = ls_tensor_f32(g->logits, 1, g->one_plan.config.vocab);
    LS_TRY(ls_executor_logits(&g->one_executor, g->parameters, &last, &logits));
    return ls_queue_wait(g->queue);
}

static ls_status check_prompt(const ls_generator *g, const int32_t *prompt, size_t count)
{
    if (count == 0) {
        return ls_fail(LS_ERR_INVALID, "the prompt is empty: at least one token is needed to continue from");
    }
    for (size_t i = 0; i < count; i++) {
        if (prompt[i] < 0 || prompt[i] >= g->one_plan.config.vocab) {
            return ls_fail(
                LS_ERR_INVALID,
                "the prompt has the token id %d, which is outside the model's vocabulary, 0 to %lld",
                prompt[i], (long long)g->one_plan.config.vocab - 1);
        }
    }
    return LS_OK;
}

/* Begins a text: the newest tokens that leave room for at least one more go into the cache. */
static ls_status begin_text(ls_generator *g, const int32_t *tokens, size_t count)
{
    const size_t room = (size_t)g->cache.capacity;
    const size_t keep = count < room ? count : room / 2;
    memmove(g->text, tokens + (count - keep), keep * sizeof *tokens);
    g->cache.length = 0;
    return feed(g, g->text, (int64_t)keep);
}

ls_status ls_generator_logits(ls_generator *g, const int32_t *tokens, size_t count, const float **logits_out)
{
    LS_TRY(check_prompt(g, tokens, count));
    LS_TRY(begin_text(g, tokens, count));
    *logits_out = g->logits;
    return LS_OK;
}

static bool is_stop(const ls_text_request *r, int32_t token)
{
    for (size_t i = 0; i < r->stop_count; i++) {
        if (r->stops[i] == token) {
            return true;
        }
    }
    return false;
}

ls_status ls_generator_run(ls_generator *g, const ls_text_request *r)
{
    LS_TRY(check_prompt(g, r->prompt, r->prompt_count));
    LS_TRY(begin_text(g, r->prompt, r->prompt_count));
    for (uint64_t i = 0; i < r->count; i++) {
        const int32_t token = ls_sampling_draw(&r->sampling, g->logits, g->one_plan.config.vocab,
                                               r->prompt_count + i, g->order);
        if (is_stop(r, token) || !r->on_token(r->context, token) || i + 1 == r->count) {
            return LS_OK;
        }
        if (g->cache.length == g->cache.capacity) {
            LS_TRY(begin_text(g, g->text, (size_t)g->cache.capacity));
        }
        g->text[g->cache.length] = token;
        LS_TRY(feed(g, &token, 1));
    }
    return LS_OK;
}
