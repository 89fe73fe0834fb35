// SPDX-License-Identifier: Apache-2.0
#include "execution/generate/generate.h"

#include "base/assert.h"
#include "compute/kernels/adamw.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 64, /* of a forward pass, unless told otherwise */
    /* Rows of prompts in a pass beside texts that wait for their next token. */
    ROWS_BESIDE = 64,
};

/* The text in one slot. */
typedef struct text {
    ls_text_request request;
    bool is_busy;
    uint64_t number;  /* texts are served in this order */
    int32_t *tokens;  /* capacity: those in the cache, then those that follow */
    int64_t held;     /* tokens in the cache */
    int64_t count;    /* tokens known; more than `held` while the text is under way */
    uint64_t drawn;   /* new tokens */
    int64_t first;    /* row of its first new token in the current pass; -1: it has none */
    int64_t new_rows; /* of the current pass */
    int32_t *order;   /* vocab: scratch */
    int32_t token;    /* drawn in the current pass */
    ls_text_scores scores;
} text;

struct ls_generator {
    ls_queue *queue;
    ls_arena arena;
    ls_model_on_device model;
    ls_generator_options options;
    ls_plan plan;
    ls_executor executor;
    ls_kv_cache cache;
    void *cache_memory;
    size_t cache_bytes;
    text *texts;
    ls_text_span *spans; /* of the current pass, as many as slots at most */
    text **waiting;      /* scratch, as many as slots */
    uint64_t next_number;
    /* (scored, vocab): on the device, and as the host reads them */
    ls_tensor device_logits;
    float *logits;
    /* the tokens of a pass and, on a GPU, the logits as they come from the device */
    void *shared;
};

/* ---- memory ---- */

static bool is_cpu(const ls_generator *g)
{
    return ls_queue_device(g->queue) == LS_DEVICE_CPU;
}

static size_t logits_bytes(const ls_generator *g)
{
    return (size_t)(g->options.scored * g->model.config->vocab * ls_dtype_bytes(g->model.type));
}

static size_t token_bytes(const ls_generator *g)
{
    return (size_t)g->options.rows * sizeof(int32_t);
}

static size_t shared_bytes(const ls_generator *g)
{
    return token_bytes(g) + (is_cpu(g) ? 0 : logits_bytes(g));
}

static ls_status take_options(const ls_model_on_device *model, const ls_generator_options *given,
                              ls_generator_options *options_out)
{
    const int64_t context = model->config->context;
    if (context < 2) {
        return ls_fail(LS_ERR_INVALID, "the model's context is one token, which leaves no room to continue a "
                                       "prompt: use a model with a longer context");
    }
    ls_generator_options options = *given;
    options.capacity = given->capacity <= 0 || given->capacity > context ? context : given->capacity;
    options.rows = given->rows > 0 ? given->rows : ROWS;
    options.scored = given->scored > 0 ? given->scored : given->slots;
    LS_ASSERT(options.slots >= 1 && options.rows >= options.slots && options.capacity >= 2);
    *options_out = options;
    return LS_OK;
}

/* A plan has one sequence of at most the context's length: rows of several texts are as many
 * sequences of one position. */
static ls_status build_plan(ls_arena *arena, const ls_model_on_device *model, int64_t rows, ls_plan *plan)
{
    ls_plan_options options = ls_executor_plan_options(model->queue, model->type);
    options.sequences = rows;
    options.length = 1;
    return ls_plan_build(arena, model->config, model->layout, &options, plan);
}

static uint64_t slot_bytes(const ls_model_on_device *model, const ls_generator_options *options)
{
    const ls_model_config *c = model->config;
    const int64_t position = 2 * c->layers * c->kv_heads * c->head_dim * ls_dtype_bytes(model->type);
    return (uint64_t)(options->capacity * (position + 4) + c->vocab * 4);
}

ls_status ls_generator_memory(const ls_model_on_device *model, const ls_generator_options *given,
                              uint64_t *slot_bytes_out, uint64_t *other_bytes_out)
{
    ls_generator_options options = {0};
    LS_TRY(take_options(model, given, &options));
    ls_arena arena = {0};
    ls_plan plan;
    const ls_status status = build_plan(&arena, model, options.rows, &plan);
    if (status == LS_OK) {
        const ls_model_config *c = model->config;
        *slot_bytes_out = slot_bytes(model, &options);
        *other_bytes_out = (uint64_t)(4 * (plan.arena_floats + options.scored * c->vocab) +
                                      (c->rotary ? options.capacity * c->head_dim * 4 : 0));
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status cache_init(ls_generator *g)
{
    const ls_model_config *config = g->model.config;
    const int64_t cols = config->kv_heads * config->head_dim, layers = config->layers;
    const int64_t rows = g->options.slots * g->options.capacity;
    const int64_t bytes = rows * cols * ls_dtype_bytes(g->model.type);
    g->cache_bytes = (size_t)(2 * layers * bytes);
    LS_TRY(ls_device_alloc(g->queue, g->cache_bytes, &g->cache_memory));
    g->cache = (ls_kv_cache){
        .keys = ls_arena_new(&g->arena, ls_tensor, (size_t)layers),
        .values = ls_arena_new(&g->arena, ls_tensor, (size_t)layers),
        .capacity = g->options.capacity,
    };
    for (int64_t layer = 0; layer < layers; layer++) {
        char *keys = (char *)g->cache_memory + 2 * layer * bytes;
        g->cache.keys[layer] = ls_tensor_of(keys, g->model.type, rows, cols);
        g->cache.values[layer] = ls_tensor_of(keys + bytes, g->model.type, rows, cols);
    }
    return LS_OK;
}

static ls_status generator_init(ls_generator *g)
{
    const int64_t vocab = g->model.config->vocab;
    const size_t slots = (size_t)g->options.slots;
    g->texts = ls_arena_new(&g->arena, text, slots);
    g->spans = ls_arena_new(&g->arena, ls_text_span, slots);
    g->waiting = ls_arena_new(&g->arena, text *, slots);
    for (size_t i = 0; i < slots; i++) {
        g->texts[i].tokens = ls_arena_new(&g->arena, int32_t, (size_t)g->options.capacity);
        g->texts[i].order = ls_arena_new(&g->arena, int32_t, (size_t)vocab);
    }
    void *logits = NULL;
    LS_TRY(ls_shared_alloc(g->queue, shared_bytes(g), &g->shared));
    LS_TRY(ls_device_alloc(g->queue, logits_bytes(g), &logits));
    g->device_logits = ls_tensor_of(logits, g->model.type, g->options.scored, vocab);
    g->logits = is_cpu(g) ? logits : ls_arena_new(&g->arena, float, (size_t)(g->options.scored * vocab));
    LS_TRY(cache_init(g));
    LS_TRY(build_plan(&g->arena, &g->model, g->options.rows, &g->plan));
    LS_TRY(ls_executor_init(&g->executor, g->queue, &g->plan, g->options.capacity));
    g->executor.cache = &g->cache;
    return LS_OK;
}

ls_status ls_generator_create(const ls_model_on_device *model, const ls_generator_options *options,
                              ls_generator **generator_out)
{
    ls_generator *g = calloc(1, sizeof *g);
    if (!g) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to generate text");
    }
    g->queue = model->queue;
    g->model = *model;
    ls_status status = take_options(model, options, &g->options);
    status = status == LS_OK ? generator_init(g) : status;
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
    ls_executor_release(&g->executor);
    ls_device_free(g->queue, g->cache_memory, g->cache_bytes);
    if (g->shared) {
        ls_device_free(g->queue, g->device_logits.data, logits_bytes(g));
        ls_shared_free(g->queue, g->shared, shared_bytes(g));
    }
    ls_arena_release(&g->arena);
    free(g);
}

/* ---- texts ---- */

static ls_status check_request(const ls_generator *g, const ls_text_request *r)
{
    const int64_t vocab = g->model.config->vocab;
    LS_ASSERT(r->count > 0 || r->scores_prompt);
    LS_ASSERT(r->top_count <= LS_TEXT_TOP_MAX && r->scored_from < r->prompt_count + 1);
    if (r->prompt_count == 0) {
        return ls_fail(LS_ERR_INVALID, "the prompt is empty: at least one token is needed to continue from");
    }
    if (r->scores_prompt && r->prompt_count > (size_t)g->options.capacity) {
        return ls_fail(LS_ERR_INVALID, "the prompt has %zu tokens; at most %lld can be scored",
                       r->prompt_count, (long long)g->options.capacity);
    }
    for (size_t i = 0; i < r->prompt_count; i++) {
        if (r->prompt[i] < 0 || r->prompt[i] >= vocab) {
            return ls_fail(
                LS_ERR_INVALID,
                "the prompt has the token id %d, which is outside the model's vocabulary, 0 to %lld",
                r->prompt[i], (long long)vocab - 1);
        }
    }
    return LS_OK;
}

/* Tokens that the slot holds already and that need no row: all but the last of the prompt, and but
 * the one before the first that is scored. */
static int64_t common_tokens(const ls_generator *g, const text *t, const ls_text_request *r)
{
    const int64_t unscored = r->scores_prompt ? (int64_t)r->scored_from : (int64_t)r->prompt_count;
    const int64_t most = t->held < unscored - 1 ? t->held : unscored - 1;
    int64_t same = 0;
    if (!g->options.keeps_texts || r->prompt_count > (size_t)g->options.capacity) {
        return 0;
    }
    while (same < most && t->tokens[same] == r->prompt[same]) {
        same++;
    }
    return same;
}

/* The free slot that holds most of the prompt; of several, the one that holds least else, so that
 * other texts are kept. */
static text *choose_slot(const ls_generator *g, const ls_text_request *r)
{
    text *best = NULL;
    int64_t best_same = 0;
    for (int64_t i = 0; i < g->options.slots; i++) {
        text *t = &g->texts[i];
        const int64_t same = t->is_busy ? 0 : common_tokens(g, t, r);
        if (!t->is_busy && (!best || same > best_same || (same == best_same && t->held < best->held))) {
            best = t;
            best_same = same;
        }
    }
    return best;
}

ls_status ls_generator_start(ls_generator *g, const ls_text_request *r, size_t *slot_out)
{
    LS_TRY(check_request(g, r));
    text *t = choose_slot(g, r);
    LS_ASSERT(t && "there is no free slot");
    /* A prompt that does not fit loses its beginning. */
    const size_t room = (size_t)g->options.capacity;
    const bool fits = r->prompt_count < room || (r->prompt_count == room && r->scores_prompt);
    const size_t keep = fits ? r->prompt_count : room / 2;
    t->held = common_tokens(g, t, r);
    memcpy(t->tokens, r->prompt + (r->prompt_count - keep), keep * sizeof *t->tokens);
    t->count = (int64_t)keep;
    t->request = *r;
    t->drawn = 0;
    t->number = g->next_number++;
    t->is_busy = true;
    *slot_out = (size_t)(t - g->texts);
    return LS_OK;
}

void ls_generator_cancel(ls_generator *g, size_t slot)
{
    LS_ASSERT(slot < (size_t)g->options.slots);
    g->texts[slot].is_busy = false;
}

size_t ls_generator_texts(const ls_generator *g)
{
    size_t count = 0;
    for (int64_t i = 0; i < g->options.slots; i++) {
        count += g->texts[i].is_busy;
    }
    return count;
}

static void end_text(text *t, ls_text_end end)
{
    t->is_busy = false;
    if (t->request.on_end) {
        t->request.on_end(t->request.context, end);
    }
}

/* ---- a step: which rows ---- */

/* The text begins again with the newest half of itself. */
static void slide(text *t, int64_t capacity)
{
    const int64_t keep = capacity / 2;
    memmove(t->tokens, t->tokens + t->count - keep, (size_t)keep * sizeof *t->tokens);
    t->held = 0;
    t->count = keep;
}

/* The oldest text without rows that has one token to read (`single`), or several. */
static text *next_text(const ls_generator *g, bool single)
{
    text *oldest = NULL;
    for (int64_t i = 0; i < g->options.slots; i++) {
        text *t = &g->texts[i];
        if (t->is_busy && t->first < 0 && (t->count - t->held == 1) == single &&
            (!oldest || t->number < oldest->number)) {
            oldest = t;
        }
    }
    return oldest;
}

static void add_span(ls_generator *g, text *t, int64_t rows, size_t *spans, int64_t *used)
{
    int32_t *tokens = g->shared;
    memcpy(tokens + *used, t->tokens + t->held, (size_t)rows * sizeof *tokens);
    g->spans[(*spans)++] = (ls_text_span){.slot = t - g->texts, .past = t->held, .count = rows};
    t->first = *used;
    t->new_rows = rows;
    *used += rows;
}

/* Texts that wait for their next token come first: their rows are adjacent. Prompts get what is
 * left, the oldest first. Returns the number of spans. */
static size_t choose_rows(ls_generator *g)
{
    size_t spans = 0;
    int64_t used = 0;
    for (int64_t i = 0; i < g->options.slots; i++) {
        g->texts[i].first = -1;
    }
    for (text *t; (t = next_text(g, true));) {
        add_span(g, t, 1, &spans, &used);
    }
    const int64_t all = g->options.rows;
    const int64_t most = used > 0 && used + ROWS_BESIDE < all ? used + ROWS_BESIDE : all;
    for (text *t; used < most && (t = next_text(g, false));) {
        const int64_t left = t->count - t->held, room = most - used;
        add_span(g, t, left < room ? left : room, &spans, &used);
    }
    return spans;
}

/* ---- a step: from logits to tokens ---- */

/* Logits of rows [first, first + count) of the pass, to be read by the host. */
static ls_status fetch_logits(ls_generator *g, int64_t first, int64_t count)
{
    const ls_tensor hidden = ls_tensor_rows(ls_executor_value(&g->executor, g->plan.hidden), first, count);
    const ls_tensor logits = ls_tensor_rows(g->device_logits, 0, count);
    LS_TRY(ls_executor_logits(&g->executor, g->model.weights, &hidden, &logits));
    if (is_cpu(g)) {
        return ls_queue_wait(g->queue);
    }
    const int64_t floats = count * g->model.config->vocab;
    void *from = (char *)g->shared + token_bytes(g);
    LS_TRY(ls_queue_move(g->queue, from, logits.data, (size_t)(floats * ls_dtype_bytes(g->model.type))));
    LS_TRY(ls_queue_wait(g->queue));
    for (int64_t i = 0; i < floats; i++) {
        g->logits[i] =
            g->model.type == LS_BF16 ? ls_master_join(((uint16_t *)from)[i], 0) : ((float *)from)[i];
    }
    return LS_OK;
}

/* Rows of logits: those that are at hand, each for another token. */
typedef struct draw_job {
    ls_generator *g;
    text **texts;  /* of each row, for new tokens */
    text *prompt;  /* whose prompt all of the rows score, or NULL */
    int64_t first; /* position in it that row 0 predicts */
    ls_text_scores *scores;
} draw_job;

static void draw_row(void *context, int64_t row, uint32_t worker)
{
    (void)worker;
    const draw_job *job = context;
    const int64_t vocab = job->g->model.config->vocab;
    const float *logits = job->g->logits + row * vocab;
    if (job->prompt) {
        const text *t = job->prompt;
        ls_text_score(logits, vocab, t->tokens[job->first + row], t->request.top_count, &job->scores[row]);
        return;
    }
    text *t = job->texts[row];
    const ls_text_request *r = &t->request;
    t->token = ls_sampling_draw(&r->sampling, logits, vocab, r->prompt_count + t->drawn, t->order);
    if (r->scores) {
        ls_text_score(logits, vocab, t->token, r->top_count, &t->scores);
    }
}

static void draw_rows(draw_job *job, int64_t rows)
{
    if (is_cpu(job->g)) {
        ls_queue_run_tiles(job->g->queue, rows, draw_row, job);
        return;
    }
    for (int64_t row = 0; row < rows; row++) {
        draw_row(job, row, 0);
    }
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

/* Takes the token that was drawn. */
static void take_token(ls_generator *g, text *t)
{
    const ls_text_request *r = &t->request;
    t->drawn++;
    const bool stops = is_stop(r, t->token);
    if (stops && !r->reports_stop) {
        end_text(t, LS_TEXT_STOPPED);
    } else if (!r->on_token(r->context, t->token, r->scores ? &t->scores : NULL)) {
        end_text(t, stops ? LS_TEXT_STOPPED : LS_TEXT_REFUSED);
    } else if (stops) {
        end_text(t, LS_TEXT_STOPPED);
    } else if (t->drawn == r->count) {
        end_text(t, LS_TEXT_FULL);
    } else {
        if (t->count == g->options.capacity) {
            slide(t, g->options.capacity);
        }
        t->tokens[t->count++] = t->token;
    }
}

/* Draws the next token of texts in adjacent rows, from row `first` on. */
static ls_status draw_tokens(ls_generator *g, text **texts, int64_t first, int64_t count)
{
    draw_job job = {.g = g, .texts = texts};
    for (int64_t done = 0; done < count; done += g->options.scored) {
        const int64_t now = count - done < g->options.scored ? count - done : g->options.scored;
        LS_TRY(fetch_logits(g, first + done, now));
        job.texts = texts + done;
        draw_rows(&job, now);
    }
    for (int64_t i = 0; i < count; i++) {
        take_token(g, texts[i]);
    }
    return LS_OK;
}

/* Reports the tokens of the prompt whose logits this pass has. */
static ls_status score_prompt(ls_generator *g, text *t, int64_t held)
{
    const ls_text_request *r = &t->request;
    const int64_t rows = t->count - 1 - held < t->new_rows ? t->count - 1 - held : t->new_rows;
    draw_job job = {.g = g, .prompt = t};
    if (r->scored_from == 0 && held == 0 && !r->on_token(r->context, t->tokens[0], NULL)) {
        end_text(t, LS_TEXT_REFUSED);
    }
    const int64_t unscored = (int64_t)r->scored_from - 1 - held;
    job.scores = malloc((size_t)g->options.scored * sizeof *job.scores);
    LS_ASSERT(job.scores && "not enough memory for scores");
    ls_status status = LS_OK;
    for (int64_t done = unscored > 0 ? unscored : 0; done < rows && t->is_busy && status == LS_OK;
         done += g->options.scored) {
        const int64_t now = rows - done < g->options.scored ? rows - done : g->options.scored;
        job.first = held + done + 1;
        status = fetch_logits(g, t->first + done, now);
        if (status == LS_OK) {
            draw_rows(&job, now);
        }
        for (int64_t i = 0; i < now && t->is_busy && status == LS_OK; i++) {
            if (!r->on_token(r->context, t->tokens[job.first + i], &job.scores[i])) {
                end_text(t, LS_TEXT_REFUSED);
            }
        }
    }
    free(job.scores);
    return status;
}

static bool scores_now(const text *t)
{
    return t->request.scores_prompt && t->drawn == 0;
}

/* After a pass over a piece of a prompt. */
static ls_status take_prompt(ls_generator *g, text *t)
{
    const int64_t held = t->held;
    t->held += t->new_rows;
    if (scores_now(t)) {
        LS_TRY(score_prompt(g, t, held));
    }
    if (!t->is_busy || t->held < t->count) {
        return LS_OK;
    }
    if (t->request.count == 0) {
        end_text(t, LS_TEXT_FULL);
        return LS_OK;
    }
    return draw_tokens(g, &t, t->first + t->new_rows - 1, 1);
}

static ls_status take_pass(ls_generator *g, size_t spans)
{
    size_t singles = 0;
    for (; singles < spans && g->spans[singles].count == 1; singles++) {
        text *t = &g->texts[g->spans[singles].slot];
        if (t->count - t->held != 1 || scores_now(t)) {
            break; /* one row of a longer prompt draws nothing yet */
        }
        t->held++;
        g->waiting[singles] = t;
    }
    LS_TRY(draw_tokens(g, g->waiting, 0, (int64_t)singles));
    for (size_t i = singles; i < spans; i++) {
        LS_TRY(take_prompt(g, &g->texts[g->spans[i].slot]));
    }
    return LS_OK;
}

static ls_status run_pass(ls_generator *g)
{
    const size_t spans = choose_rows(g);
    LS_ASSERT(spans > 0);
    const ls_executor_batch batch = {
        .weights = g->model.weights, .tokens = g->shared, .spans = g->spans, .span_count = spans};
    LS_TRY(ls_executor_forward(&g->executor, &batch));
    LS_TRY(ls_queue_wait(g->queue));
    return take_pass(g, spans);
}

ls_status ls_generator_step(ls_generator *g)
{
    const ls_status status = run_pass(g);
    for (int64_t i = 0; status != LS_OK && i < g->options.slots; i++) {
        g->texts[i].is_busy = false;
        g->texts[i].held = 0;
    }
    return status;
}

ls_status ls_generator_run(ls_generator *g, const ls_text_request *request)
{
    size_t slot = 0;
    LS_ASSERT(ls_generator_texts(g) == 0);
    LS_TRY(ls_generator_start(g, request, &slot));
    while (g->texts[slot].is_busy) {
        LS_TRY(ls_generator_step(g));
    }
    return LS_OK;
}
