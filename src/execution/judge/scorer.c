// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/scorer.h"

#include "base/assert.h"
#include "base/math.h"
#include "compute/kernels/adamw.h"
#include "compute/kernels/cross_entropy.h"

#include <stdlib.h>
#include <string.h>

/* Positions per forward pass, and rows of logits at once. */
enum { BLOCK_MAX = 64, LOGIT_ROWS = 16 };

struct ls_scorer {
    ls_model_on_device model;
    ls_arena arena;
    ls_plan plan;
    ls_executor executor;
    ls_kv_cache cache;
    char *cache_memory;
    size_t cache_bytes;
    int32_t *text;  /* tokens of the positions in the cache */
    int64_t length; /* how many those are */
    /* (LOGIT_ROWS, vocab) on the device, rows logit_stride apart */
    ls_tensor logits;
    int64_t logit_stride;
    /* for the host and the device: tokens of a block, targets and losses of LOGIT_ROWS rows, and
     * after them the logits as the host reads them */
    int32_t *shared;
    uint64_t positions;
};

static size_t logits_bytes(const ls_scorer *s)
{
    return (size_t)(LOGIT_ROWS * s->logit_stride * ls_dtype_bytes(s->model.type));
}

static size_t shared_bytes(const ls_scorer *s)
{
    return (BLOCK_MAX + 2 * LOGIT_ROWS) * sizeof(int32_t) + logits_bytes(s);
}

static ls_status init_cache(ls_scorer *s, int64_t capacity)
{
    const ls_model_config *config = s->model.config;
    const int64_t cols = config->kv_heads * config->head_dim;
    const int64_t bytes = capacity * cols * ls_dtype_bytes(s->model.type);
    void *memory = NULL;
    s->cache_bytes = (size_t)(2 * config->layers * bytes);
    LS_TRY(ls_device_alloc(s->model.queue, s->cache_bytes, &memory));
    s->cache_memory = memory;
    s->cache = (ls_kv_cache){.keys = ls_arena_new(&s->arena, ls_tensor, (size_t)config->layers),
                             .values = ls_arena_new(&s->arena, ls_tensor, (size_t)config->layers),
                             .capacity = capacity};
    for (int64_t layer = 0; layer < config->layers; layer++) {
        char *keys = s->cache_memory + 2 * layer * bytes;
        s->cache.keys[layer] = ls_tensor_of(keys, s->model.type, capacity, cols);
        s->cache.values[layer] = ls_tensor_of(keys + bytes, s->model.type, capacity, cols);
    }
    return LS_OK;
}

static ls_status init_logits(ls_scorer *s, int64_t align)
{
    void *logits = NULL, *shared = NULL;
    s->logit_stride = ls_round_up_i64(s->model.config->vocab, align > 0 ? align : 1);
    LS_TRY(ls_device_alloc(s->model.queue, logits_bytes(s), &logits));
    s->logits = ls_tensor_of(logits, s->model.type, LOGIT_ROWS, s->model.config->vocab);
    s->logits.stride = s->logit_stride;
    LS_TRY(ls_shared_alloc(s->model.queue, shared_bytes(s), &shared));
    s->shared = shared;
    return LS_OK;
}

static ls_status init(ls_scorer *s, int64_t capacity)
{
    const ls_model_config *config = s->model.config;
    s->text = ls_arena_new(&s->arena, int32_t, (size_t)capacity);
    LS_TRY(init_cache(s, capacity));
    ls_plan_options options = ls_executor_plan_options(s->model.queue, s->model.type);
    LS_TRY(init_logits(s, options.logits_align));
    options.sequences = 1;
    options.length = ls_min_i64(BLOCK_MAX, config->context);
    LS_TRY(ls_plan_build(&s->arena, config, s->model.layout, &options, &s->plan));
    LS_TRY(ls_executor_init(&s->executor, s->model.queue, &s->plan, config->context));
    s->executor.cache = &s->cache;
    return LS_OK;
}

ls_status ls_scorer_create(const ls_model_on_device *model, int64_t capacity, ls_scorer **scorer_out)
{
    ls_scorer *s = calloc(1, sizeof *s);
    if (!s) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to score texts");
    }
    s->model = *model;
    const ls_status status = init(s, capacity);
    if (status != LS_OK) {
        ls_scorer_destroy(s);
        return status;
    }
    *scorer_out = s;
    return LS_OK;
}

void ls_scorer_destroy(ls_scorer *s)
{
    if (!s) {
        return;
    }
    ls_executor_release(&s->executor);
    ls_device_free(s->model.queue, s->cache_memory, s->cache_bytes);
    ls_device_free(s->model.queue, s->logits.data, logits_bytes(s));
    ls_shared_free(s->model.queue, s->shared, shared_bytes(s));
    ls_arena_release(&s->arena);
    free(s);
}

uint64_t ls_scorer_positions(const ls_scorer *s)
{
    return s->positions;
}

/* Runs the next positions of a text, at most `left`; *hidden_out is their last norm's output. */
static ls_status feed(ls_scorer *s, const int32_t *tokens, int64_t left, ls_tensor *hidden_out)
{
    const int64_t count = ls_min_i64(left, s->plan.options.length);
    memcpy(s->shared, tokens, (size_t)count * sizeof *tokens);
    const ls_executor_batch batch = {
        .weights = s->model.weights,
        .tokens = s->shared,
        .spans = &(ls_text_span){.past = s->length, .count = count},
        .span_count = 1,
    };
    LS_TRY(ls_executor_forward(&s->executor, &batch));
    LS_TRY(ls_queue_wait(s->model.queue));
    memcpy(s->text + s->length, tokens, (size_t)count * sizeof *tokens);
    s->length += count;
    s->positions += (uint64_t)count;
    *hidden_out = ls_executor_value(&s->executor, s->plan.hidden);
    return LS_OK;
}

static float logit(const ls_scorer *s, const void *logits, int64_t index)
{
    return s->model.type == LS_BF16 ? ls_master_join(((const uint16_t *)logits)[index], 0)
                                    : ((const float *)logits)[index];
}

/* The likeliest token, the lowest id among equals: what greedy generation continues with. */
static int32_t likeliest(const ls_scorer *s, const void *logits, int64_t row)
{
    const int64_t base = row * s->logit_stride;
    int32_t best = 0;
    for (int64_t i = 1; i < s->model.config->vocab; i++) {
        if (logit(s, logits, base + i) > logit(s, logits, base + best)) {
            best = (int32_t)i;
        }
    }
    return best;
}

/* Adds the log-probabilities of targets[0 .. rows - 1] after the rows of `hidden`. */
static ls_status add_rows(ls_scorer *s, const ls_tensor *hidden, const int32_t *wanted,
                          ls_ending_score *score)
{
    int32_t *targets = s->shared + BLOCK_MAX;
    float *losses = (float *)(targets + LOGIT_ROWS);
    void *on_host = losses + LOGIT_ROWS;
    for (int64_t first = 0; first < hidden->rows; first += LOGIT_ROWS) {
        const int64_t rows = ls_min_i64(hidden->rows - first, LOGIT_ROWS);
        const ls_tensor x = ls_tensor_rows(*hidden, first, rows);
        const ls_tensor logits = ls_tensor_rows(s->logits, 0, rows);
        memcpy(targets, wanted + first, (size_t)rows * sizeof *targets);
        LS_TRY(ls_executor_logits(&s->executor, s->model.weights, &x, &logits));
        LS_TRY(ls_cross_entropy(s->model.queue, &logits, targets, losses, false));
        LS_TRY(ls_queue_move(s->model.queue, on_host, s->logits.data, logits_bytes(s)));
        LS_TRY(ls_queue_wait(s->model.queue));
        for (int64_t row = 0; row < rows; row++) {
            score->log_probability -= (double)losses[row];
            score->is_likeliest &= likeliest(s, on_host, row) == targets[row];
        }
    }
    return LS_OK;
}

static ls_status check_tokens(const ls_scorer *s, const int32_t *tokens, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= s->model.config->vocab) {
            return ls_fail(LS_ERR_DATA,
                           "the text has the token id %d, which is outside the model's vocabulary, 0 to "
                           "%lld: use the tokenizer the model was trained with",
                           tokens[i], (long long)s->model.config->vocab - 1);
        }
    }
    return LS_OK;
}

/* The ending's first token is predicted at position first - 1: up to there the cache may serve. */
static void keep_common(ls_scorer *s, const int32_t *tokens, size_t first)
{
    int64_t common = 0;
    while (common < s->length && common < (int64_t)first - 1 && s->text[common] == tokens[common]) {
        common++;
    }
    s->length = common;
}

ls_status ls_scorer_score(ls_scorer *s, const int32_t *tokens, size_t count, size_t first,
                          ls_ending_score *score_out)
{
    LS_ASSERT(first >= 1 && first < count && (int64_t)count <= s->cache.capacity);
    LS_TRY(check_tokens(s, tokens, count));
    keep_common(s, tokens, first);
    ls_ending_score score = {.is_likeliest = true};
    while (s->length < (int64_t)count - 1) {
        const int64_t at = s->length;
        ls_tensor hidden;
        LS_TRY(feed(s, tokens + at, (int64_t)count - 1 - at, &hidden));
        const int64_t skipped = ls_max_i64((int64_t)first - 1 - at, 0);
        if (skipped < hidden.rows) {
            const ls_tensor rows = ls_tensor_rows(hidden, skipped, hidden.rows - skipped);
            LS_TRY(add_rows(s, &rows, tokens + at + skipped + 1, &score));
        }
    }
    *score_out = score;
    return LS_OK;
}
