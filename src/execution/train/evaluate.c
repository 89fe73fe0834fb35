// SPDX-License-Identifier: Apache-2.0
#include "execution/train/evaluate.h"

#include "base/math.h"
#include "compute/kernels/cross_entropy.h"

#include <stdlib.h>
#include <string.h>

struct ls_evaluator {
    ls_arena arena;
    ls_plan plan;
    ls_executor executor;
    int64_t sequences, length;
    int32_t *window; /* length + 1 */
    const void *weights;
    /* sequences x length each, in this order in one block of shared memory */
    ls_sample rows;
    float *losses;
    /* of a divided stream */
    uint64_t *part_ends;
    ls_evaluation_part *parts;
    size_t part_count;
};

static size_t shared_bytes(const ls_evaluator *e)
{
    return (size_t)(e->sequences * e->length) * (4 * sizeof(int32_t) + sizeof(float));
}

static ls_status evaluator_init(ls_evaluator *e, const ls_model_on_device *model)
{
    const int64_t rows = e->sequences * e->length;
    void *shared = NULL;
    ls_plan_options options = ls_executor_plan_options(model->queue, model->type);
    options.sequences = e->sequences;
    options.length = e->length;
    options.losses = true;
    e->weights = model->weights;
    e->window = ls_arena_new(&e->arena, int32_t, (size_t)e->length + 1);
    LS_TRY(ls_plan_build(&e->arena, model->config, model->layout, &options, &e->plan));
    LS_TRY(ls_executor_init(&e->executor, model->queue, &e->plan, e->length));
    LS_TRY(ls_shared_alloc(model->queue, shared_bytes(e), &shared));
    int32_t *ids = shared;
    e->rows = (ls_sample){ids, ids + rows, ids + 2 * rows, ids + 3 * rows};
    e->losses = (float *)(ids + 4 * rows);
    return LS_OK;
}

ls_status ls_evaluator_create(const ls_model_on_device *model, int64_t sequences, int64_t length,
                              ls_evaluator **evaluator_out)
{
    ls_evaluator *e = calloc(1, sizeof *e);
    if (!e) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for evaluation");
    }
    e->sequences = sequences;
    e->length = length;
    const ls_status status = evaluator_init(e, model);
    if (status != LS_OK) {
        ls_evaluator_destroy(e);
        return status;
    }
    *evaluator_out = e;
    return LS_OK;
}

void ls_evaluator_destroy(ls_evaluator *evaluator)
{
    if (!evaluator) {
        return;
    }
    if (evaluator->rows.tokens) {
        ls_shared_free(evaluator->executor.queue, evaluator->rows.tokens, shared_bytes(evaluator));
    }
    ls_executor_release(&evaluator->executor);
    ls_arena_release(&evaluator->arena);
    free(evaluator);
}

/* Puts window `index` of the stream into row block `row`; targets after the end of the stream are
 * ignored. */
static ls_status load_window(ls_evaluator *e, const ls_token_stream *stream, uint64_t index, int64_t row)
{
    const uint64_t first = index * (uint64_t)e->length;
    const uint64_t left = stream->token_count - first;
    const int64_t count = left < (uint64_t)e->length + 1 ? (int64_t)left : e->length + 1;
    LS_TRY(stream->read(stream->context, first, (uint64_t)count, e->window));
    for (int64_t i = 0; i < count; i++) {
        if (e->window[i] < 0 || e->window[i] >= e->plan.config.vocab) {
            return ls_fail(LS_ERR_DATA,
                           "token id %d at position %llu is outside the model's vocabulary, 0 to %lld",
                           e->window[i], (unsigned long long)first + (unsigned long long)i,
                           (long long)e->plan.config.vocab - 1);
        }
    }
    int32_t *tokens = e->rows.tokens + row * e->length, *targets = e->rows.targets + row * e->length;
    for (int64_t i = 0; i < e->length; i++) {
        tokens[i] = i < count ? e->window[i] : 0;
        targets[i] = i + 1 < count ? e->window[i + 1] : LS_TARGET_IGNORED;
    }
    return LS_OK;
}

static void blank_window(ls_evaluator *e, int64_t row)
{
    for (int64_t i = 0; i < e->length; i++) {
        e->rows.tokens[row * e->length + i] = 0;
        e->rows.targets[row * e->length + i] = LS_TARGET_IGNORED;
        e->rows.first[row * e->length + i] = 0;
    }
}

void ls_evaluator_divide(ls_evaluator *e, const uint64_t *ends, size_t count)
{
    e->part_ends = ls_arena_new(&e->arena, uint64_t, count);
    e->parts = ls_arena_new(&e->arena, ls_evaluation_part, count);
    e->part_count = count;
    memcpy(e->part_ends, ends, count * sizeof *ends);
}

/* Adds the losses of row `row`, which holds window `window`, to the parts its targets are in. */
static void add_to_parts(ls_evaluator *e, int64_t row, uint64_t window)
{
    size_t part = 0;
    for (int64_t i = 0; i < e->length && part < e->part_count; i++) {
        const uint64_t target = window * (uint64_t)e->length + (uint64_t)i + 1;
        while (part < e->part_count && target >= e->part_ends[part]) {
            part++;
        }
        if (part < e->part_count && e->rows.targets[row * e->length + i] != LS_TARGET_IGNORED) {
            e->parts[part].loss_sum += (double)e->losses[row * e->length + i];
            e->parts[part].tokens++;
        }
    }
}

/* Which windows an evaluation takes: `windows` of `all`, evenly from the first `spread`. */
typedef struct choice {
    uint64_t all, windows, spread;
} choice;

static choice choose(ls_evaluator *e, uint64_t all, uint64_t windows_max)
{
    for (size_t i = 0; i < e->part_count; i++) {
        e->parts[i] = (ls_evaluation_part){0};
    }
    const uint64_t windows = windows_max > 0 && all > windows_max ? windows_max : all;
    return (choice){all, windows, e->part_count > 0 ? all : windows};
}

static uint64_t window_of(const choice *c, uint64_t taken)
{
    return taken * c->spread / c->windows;
}

ls_status ls_evaluator_run(ls_evaluator *e, const ls_token_stream *stream, uint64_t windows_max,
                           ls_evaluation *result_out)
{
    if (stream->token_count < 2) {
        return ls_fail(LS_ERR_DATA, "the data to evaluate on has %llu tokens; at least 2 are needed",
                       (unsigned long long)stream->token_count);
    }
    const uint64_t all = (stream->token_count - 1 + (uint64_t)e->length - 1) / (uint64_t)e->length;
    const choice c = choose(e, all, windows_max);
    double sum = 0.0;
    uint64_t tokens = 0;
    const ls_executor_batch batch = {
        .weights = e->weights, .tokens = e->rows.tokens, .targets = e->rows.targets, .losses = e->losses};
    for (uint64_t first = 0; first < c.windows; first += (uint64_t)e->sequences) {
        for (int64_t row = 0; row < e->sequences; row++) {
            const uint64_t taken = first + (uint64_t)row;
            if (taken < c.windows) {
                LS_TRY(load_window(e, stream, window_of(&c, taken), row));
            } else {
                blank_window(e, row);
            }
        }
        LS_TRY(ls_executor_forward(&e->executor, &batch));
        LS_TRY(ls_queue_wait(e->executor.queue));
        for (int64_t i = 0; i < e->sequences * e->length; i++) {
            sum += (double)e->losses[i];
            tokens += e->rows.targets[i] != LS_TARGET_IGNORED;
        }
        for (int64_t row = 0; row < e->sequences && e->part_count > 0; row++) {
            add_to_parts(e, row, window_of(&c, first + (uint64_t)row));
        }
    }
    *result_out = (ls_evaluation){.loss = sum / (double)tokens, .tokens = tokens, .parts = e->parts};
    return LS_OK;
}

/* ---- samples ---- */

static ls_sample sample_at(const ls_evaluator *e, int64_t row)
{
    const int64_t at = row * e->length;
    return (ls_sample){e->rows.tokens + at, e->rows.targets + at, e->rows.first + at, e->rows.record + at};
}

static void add_record(ls_evaluator *e, int32_t record, const ls_evaluation_part *sum,
                       ls_evaluation_part *total)
{
    total->loss_sum += sum->loss_sum;
    total->tokens += sum->tokens;
    size_t part = 0;
    while (part < e->part_count && (uint64_t)record >= e->part_ends[part]) {
        part++;
    }
    if (record != LS_NO_RECORD && part < e->part_count) {
        e->parts[part].loss_sum += sum->loss_sum;
        e->parts[part].tokens += sum->tokens;
    }
}

/* Adds the records of row `row`, each a chain of its own. */
static void add_records(ls_evaluator *e, int64_t row, ls_evaluation_part *total)
{
    const ls_sample s = sample_at(e, row);
    const float *losses = e->losses + row * e->length;
    for (int64_t i = 0, end = 0; i < e->length; i = end) {
        ls_evaluation_part sum = {0};
        for (end = i; end < e->length && s.first[end] == s.first[i]; end++) {
            sum.loss_sum += (double)losses[end];
            sum.tokens += s.targets[end] != LS_TARGET_IGNORED;
        }
        add_record(e, s.record[i], &sum, total);
    }
}

ls_status ls_evaluator_run_samples(ls_evaluator *e, const ls_sample_list *samples, uint64_t samples_max,
                                   ls_evaluation *result_out)
{
    const choice c = choose(e, samples->count, samples_max);
    ls_evaluation_part total = {0};
    const ls_executor_batch batch = {.weights = e->weights,
                                     .tokens = e->rows.tokens,
                                     .targets = e->rows.targets,
                                     .first = e->rows.first,
                                     .losses = e->losses};
    for (uint64_t begin = 0; begin < c.windows; begin += (uint64_t)e->sequences) {
        const int64_t rows = (int64_t)ls_min_u64((uint64_t)e->sequences, c.windows - begin);
        for (int64_t row = 0; row < e->sequences; row++) {
            const ls_sample sample = sample_at(e, row);
            if (row < rows) {
                LS_TRY(samples->read(samples->context, window_of(&c, begin + (uint64_t)row), &sample));
            } else {
                blank_window(e, row);
            }
        }
        LS_TRY(ls_executor_forward(&e->executor, &batch));
        LS_TRY(ls_queue_wait(e->executor.queue));
        for (int64_t row = 0; row < rows; row++) {
            add_records(e, row, &total);
        }
    }
    if (total.tokens == 0) {
        return ls_fail(LS_ERR_DATA, "no token of the validation data counts in the loss (see data.loss_on): "
                                    "give other validation records");
    }
    *result_out = (ls_evaluation){
        .loss = total.loss_sum / (double)total.tokens, .tokens = total.tokens, .parts = e->parts};
    return LS_OK;
}
