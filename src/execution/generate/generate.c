// SPDX-License-Identifier: Apache-2.0
#include "execution/generate/generate.h"

#include "base/assert.h"
#include "compute/kernels/adamw.h"

#include <stdlib.h>
#include <string.h>

enum { PROMPT_BLOCK = 64 }; /* prompt tokens per forward pass */

struct ls_generator {
    ls_queue *queue;
    ls_arena arena;
    ls_model_on_device model;
    ls_plan block_plan, one_plan; /* PROMPT_BLOCK positions, or one */
    ls_executor block_executor, one_executor;
    ls_kv_cache cache;
    char *cache_memory;
    size_t cache_bytes;
    /* of the last position: on the device, and as the host reads them */
    ls_tensor device_logits;
    float *logits;
    int32_t *order;
    int32_t *text; /* tokens in the cache and those to follow, at most context */
    /* the tokens of a block and, after them, the logits as they come from the device */
    void *shared;
};

static ls_status plan_init(ls_generator *g, int64_t length, ls_plan *plan, ls_executor *executor)
{
    ls_plan_options options = ls_executor_plan_options(g->queue, g->model.type);
    options.sequences = 1;
    options.length = length;
    LS_TRY(ls_plan_build(&g->arena, g->model.config, g->model.layout, &options, plan));
    LS_TRY(ls_executor_init(executor, g->queue, plan, g->cache.capacity));
    executor->cache = &g->cache;
    return LS_OK;
}

static ls_status cache_init(ls_generator *g, const ls_model_config *config, int64_t capacity)
{
    const int64_t cols = config->kv_heads * config->head_dim;
    const int64_t bytes = capacity * cols * ls_dtype_bytes(g->model.type);
    void *memory = NULL;
    g->cache_bytes = (size_t)(2 * config->layers * bytes);
    LS_TRY(ls_device_alloc(g->queue, g->cache_bytes, &memory));
    g->cache_memory = memory;
    g->cache = (ls_kv_cache){
        .keys = ls_arena_new(&g->arena, ls_tensor, (size_t)config->layers),
        .values = ls_arena_new(&g->arena, ls_tensor, (size_t)config->layers),
        .capacity = capacity,
    };
    for (int64_t layer = 0; layer < config->layers; layer++) {
        char *keys = g->cache_memory + 2 * layer * bytes;
        g->cache.keys[layer] = ls_tensor_of(keys, g->model.type, capacity, cols);
        g->cache.values[layer] = ls_tensor_of(keys + bytes, g->model.type, capacity, cols);
    }
    return LS_OK;
}

static size_t shared_bytes(const ls_generator *g)
{
    return PROMPT_BLOCK * sizeof(int32_t) + (size_t)g->model.config->vocab * sizeof(float);
}

static size_t logits_bytes(const ls_generator *g)
{
    return (size_t)(g->model.config->vocab * ls_dtype_bytes(g->model.type));
}

static ls_status generator_init(ls_generator *g, int64_t capacity)
{
    const ls_model_config *config = g->model.config;
    const int64_t block = capacity < PROMPT_BLOCK ? capacity : PROMPT_BLOCK;
    void *logits = NULL;
    g->logits = ls_arena_new(&g->arena, float, (size_t)config->vocab);
    g->order = ls_arena_new(&g->arena, int32_t, (size_t)config->vocab);
    g->text = ls_arena_new(&g->arena, int32_t, (size_t)capacity);
    LS_TRY(ls_shared_alloc(g->queue, shared_bytes(g), &g->shared));
    LS_TRY(ls_device_alloc(g->queue, logits_bytes(g), &logits));
    g->device_logits = ls_tensor_of(logits, g->model.type, 1, config->vocab);
    LS_TRY(cache_init(g, config, capacity));
    LS_TRY(plan_init(g, block, &g->block_plan, &g->block_executor));
    return plan_init(g, 1, &g->one_plan, &g->one_executor);
}

ls_status ls_generator_create(const ls_model_on_device *model, int64_t capacity, ls_generator **generator_out)
{
    const int64_t context = model->config->context;
    if (context < 2) {
        return ls_fail(LS_ERR_INVALID, "the model's context is one token, which leaves no room to continue a "
                                       "prompt: use a model with a longer context");
    }
    const int64_t positions = capacity <= 0 || capacity > context ? context : capacity;
    LS_ASSERT(positions >= 2);
    ls_generator *g = calloc(1, sizeof *g);
    if (!g) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to generate text");
    }
    g->queue = model->queue;
    g->model = *model;
    const ls_status status = generator_init(g, positions);
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
    ls_device_free(g->queue, g->device_logits.data, logits_bytes(g));
    ls_shared_free(g->queue, g->shared, shared_bytes(g));
    ls_arena_release(&g->arena);
    free(g);
}

/* Runs `count` tokens (a block, or one) after those in the cache; the hidden state of the last one
 * stays in the executor. */
static ls_status feed_block(ls_generator *g, const int32_t *tokens, int64_t count, ls_tensor *last_out)
{
    ls_executor *executor = count == g->block_plan.options.length ? &g->block_executor : &g->one_executor;
    const ls_executor_batch batch = {.weights = g->model.weights, .tokens = g->shared};
    memcpy(g->shared, tokens, (size_t)count * sizeof *tokens);
    LS_TRY(ls_executor_forward(executor, &batch));
    LS_TRY(ls_queue_wait(g->queue));
    g->cache.length += count;
    const ls_tensor hidden = ls_executor_value(executor, executor->plan->hidden);
    *last_out = ls_tensor_rows(hidden, count - 1, 1);
    return LS_OK;
}

/* Brings the logits to the host. */
static ls_status fetch_logits(ls_generator *g)
{
    void *from = (int32_t *)g->shared + PROMPT_BLOCK;
    LS_TRY(ls_queue_move(g->queue, from, g->device_logits.data, logits_bytes(g)));
    LS_TRY(ls_queue_wait(g->queue));
    for (int64_t i = 0; i < g->model.config->vocab; i++) {
        g->logits[i] =
            g->model.type == LS_BF16 ? ls_master_join(((uint16_t *)from)[i], 0) : ((float *)from)[i];
    }
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
    LS_TRY(ls_executor_logits(&g->one_executor, g->model.weights, &last, &g->device_logits));
    return fetch_logits(g);
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
