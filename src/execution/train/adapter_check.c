// SPDX-License-Identifier: Apache-2.0
#include "execution/train/adapter_check.h"

#include "base/json.h"
#include "base/random.h"
#include "execution/executor/executor.h"

#include <math.h>
#include <string.h>

enum { RANDOM_TOKENS = 128, CHUNK_ROWS = 16 };

/* One of the two models. */
typedef struct side {
    ls_layout layout;
    ls_plan plan;
    ls_executor executor;
    const float *weights;
    ls_tensor hidden, logits; /* logits: of CHUNK_ROWS positions */
} side;

typedef struct checker {
    ls_arena arena;
    const ls_model_file *file;
    ls_queue *queue;
    int32_t *tokens;
    int64_t count;
    bool from_run;
    ls_state apart; /* base and adapter */
    side sides[2];  /* apart, merged */
} checker;

/* ---- tokens ---- */

static ls_status read_tokens(checker *c)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *list = NULL;
    if (!c->file->checkpoint || ls_checkpoint_attachment_read(c->file->checkpoint, &c->arena,
                                                              LS_MERGE_TOKENS_NAME, &text, &bytes) != LS_OK) {
        ls_error_clear();
        return LS_OK;
    }
    LS_TRY(ls_json_parse(text, bytes, LS_MERGE_TOKENS_NAME, &list));
    for (size_t i = 0; i < json_array_size(list) && c->count < LS_MERGE_TOKENS_MAX; i++) {
        const json_int_t id = json_integer_value(json_array_get(list, i));
        if (id >= 0 && id < c->file->config.vocab) {
            c->tokens[c->count++] = (int32_t)id;
        }
    }
    json_decref(list);
    c->from_run = c->count > 0;
    return LS_OK;
}

static ls_status find_tokens(checker *c)
{
    const ls_random_key key = ls_random_stream(0, LS_RANDOM_TEST);
    c->tokens = ls_arena_new(&c->arena, int32_t, LS_MERGE_TOKENS_MAX);
    LS_TRY(read_tokens(c));
    for (; !c->from_run && c->count < RANDOM_TOKENS; c->count++) {
        c->tokens[c->count] =
            (int32_t)ls_random_below(key, (uint64_t)c->count, 0, (uint64_t)c->file->config.vocab);
    }
    c->count = c->count < c->file->config.context ? c->count : c->file->config.context;
    return LS_OK;
}

/* ---- running ---- */

static ls_status run_side(checker *c, side *s)
{
    const ls_model_config *config = &c->file->config;
    ls_plan_options options = ls_executor_plan_options(c->queue, LS_F32);
    options.sequences = 1;
    options.length = c->count;
    LS_TRY(ls_plan_build(&c->arena, config, &s->layout, &options, &s->plan));
    LS_TRY(ls_executor_init(&s->executor, c->queue, &s->plan, c->count));
    const ls_executor_batch batch = {.weights = s->weights, .tokens = c->tokens};
    LS_TRY(ls_executor_forward(&s->executor, &batch));
    s->hidden = ls_executor_value(&s->executor, s->plan.hidden);
    s->logits = ls_tensor_f32(ls_arena_new(&c->arena, float, (size_t)(CHUNK_ROWS * config->vocab)),
                              CHUNK_ROWS, config->vocab);
    return LS_OK;
}

static ls_status load_apart(checker *c)
{
    side *s = &c->sides[0];
    s->layout = *ls_adapter_file_layout(c->file->adapter);
    LS_TRY(ls_state_init(&c->apart, c->queue, LS_F32, &s->layout, 0));
    s->weights = c->apart.parameters;
    return ls_model_file_load(c->file, &s->layout, c->apart.parameters);
}

/* ---- comparing ---- */

static void compare_row(const float *apart, const float *merged, int64_t vocab, ls_merge_check *check)
{
    int64_t best_apart = 0, best_merged = 0;
    for (int64_t i = 0; i < vocab; i++) {
        const double difference = fabs((double)apart[i] - (double)merged[i]);
        /* a difference that is no number must not pass as none */
        check->difference = difference <= check->difference ? check->difference : difference;
        check->logit = fmax(check->logit, fabs((double)apart[i]));
        best_apart = apart[i] > apart[best_apart] ? i : best_apart;
        best_merged = merged[i] > merged[best_merged] ? i : best_merged;
    }
    check->positions++;
    check->same += best_apart == best_merged;
}

static ls_status compare(checker *c, ls_merge_check *check)
{
    for (int64_t first = 0; first < c->count; first += CHUNK_ROWS) {
        const int64_t rows = c->count - first < CHUNK_ROWS ? c->count - first : CHUNK_ROWS;
        for (int i = 0; i < 2; i++) {
            side *s = &c->sides[i];
            const ls_tensor hidden = ls_tensor_rows(s->hidden, first, rows);
            const ls_tensor logits = ls_tensor_rows(s->logits, 0, rows);
            LS_TRY(ls_executor_logits(&s->executor, s->weights, &hidden, &logits));
        }
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = row * c->file->config.vocab;
            compare_row((const float *)c->sides[0].logits.data + at,
                        (const float *)c->sides[1].logits.data + at, c->file->config.vocab, check);
        }
    }
    return LS_OK;
}

static ls_status run(checker *c, ls_merge_check *check)
{
    LS_TRY(find_tokens(c));
    LS_TRY(load_apart(c));
    ls_layout_build(&c->arena, &c->file->config, &c->sides[1].layout);
    LS_TRY(run_side(c, &c->sides[0]));
    LS_TRY(run_side(c, &c->sides[1]));
    check->from_run = c->from_run;
    return compare(c, check);
}

ls_status ls_adapter_check_merge(const ls_model_file *file, ls_queue *queue, const float *merged,
                                 ls_merge_check *check_out)
{
    ls_merge_check check = {0};
    checker c = {.file = file, .queue = queue, .sides[1].weights = merged};
    const ls_status status = run(&c, &check);
    for (int i = 0; i < 2; i++) {
        if (c.sides[i].executor.queue) {
            ls_executor_release(&c.sides[i].executor);
        }
    }
    ls_state_release(&c.apart);
    ls_arena_release(&c.arena);
    LS_TRY(status);
    *check_out = check;
    return LS_OK;
}
