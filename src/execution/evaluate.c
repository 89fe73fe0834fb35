// SPDX-License-Identifier: Apache-2.0
#include "execution/evaluate.h"

#include "compute/kernels/cross_entropy.h"

#include <stdlib.h>
#include <string.h>

struct ls_evaluator {
    ls_arena arena;
    ls_plan plan;
    ls_walk walk;
    int64_t sequences, length;
    int32_t *window; /* length + 1 */
    int32_t *tokens; /* sequences x length */
    int32_t *targets;
    float *losses;
};

ls_status ls_evaluator_create(ls_queue *queue, const ls_model_config *config, const ls_layout *layout,
                              int64_t sequences, int64_t length, ls_evaluator **evaluator_out)
{
    ls_evaluator *e = calloc(1, sizeof *e);
    if (!e) {
        return ls_fail(LS_ERR_MEMORY, "no memory for evaluation");
    }
    e->sequences = sequences;
    e->length = length;
    const size_t rows = (size_t)(sequences * length);
    e->window = ls_arena_new(&e->arena, int32_t, (size_t)length + 1);
    e->tokens = ls_arena_new(&e->arena, int32_t, rows);
    e->targets = ls_arena_new(&e->arena, int32_t, rows);
    e->losses = ls_arena_new(&e->arena, float, rows);

    ls_plan_options options = ls_walk_plan_options();
    options.sequences = sequences;
    options.length = length;
    options.losses = true;
    ls_status status = ls_plan_build(&e->arena, config, layout, &options, &e->plan);
    if (status == LS_OK) {
        status = ls_walk_init(&e->walk, queue, &e->plan, length);
    }
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
    ls_walk_release(&evaluator->walk);
    ls_arena_release(&evaluator->arena);
    free(evaluator);
}

/* Puts window `index` of the stream into row block `row`; what the stream does not fill is ignored. */
static ls_status load_window(ls_evaluator *e, ls_stream_fn stream, void *context, uint64_t token_count,
                             uint64_t index, int64_t row)
{
    const uint64_t first = index * (uint64_t)e->length;
    const uint64_t left = token_count - first;
    const int64_t count = left < (uint64_t)e->length + 1 ? (int64_t)left : e->length + 1;
    LS_TRY(stream(context, first, (uint64_t)count, e->window));
    for (int64_t i = 0; i < count; i++) {
        if (e->window[i] < 0 || e->window[i] >= e->plan.config.vocab) {
            return ls_fail(LS_ERR_DATA, "token %d at position %llu, the model's vocabulary is 0 to %lld",
                           e->window[i], (unsigned long long)first + (unsigned long long)i,
                           (long long)e->plan.config.vocab - 1);
        }
    }
    int32_t *tokens = e->tokens + row * e->length, *targets = e->targets + row * e->length;
    for (int64_t i = 0; i < e->length; i++) {
        tokens[i] = i < count ? e->window[i] : 0;
        targets[i] = i + 1 < count ? e->window[i + 1] : LS_TARGET_IGNORED;
    }
    return LS_OK;
}

static void blank_window(ls_evaluator *e, int64_t row)
{
    for (int64_t i = 0; i < e->length; i++) {
        e->tokens[row * e->length + i] = 0;
        e->targets[row * e->length + i] = LS_TARGET_IGNORED;
    }
}

ls_status ls_evaluator_run(ls_evaluator *e, const float *parameters, ls_stream_fn stream,
                           void *stream_context, uint64_t token_count, uint64_t windows_max,
                           ls_evaluation *result_out)
{
    if (token_count < 2) {
        return ls_fail(LS_ERR_DATA, "%llu tokens to evaluate, at least 2 are needed",
                       (unsigned long long)token_count);
    }
    uint64_t windows = (token_count - 1 + (uint64_t)e->length - 1) / (uint64_t)e->length;
    if (windows_max > 0 && windows > windows_max) {
        windows = windows_max;
    }
    double sum = 0.0;
    uint64_t tokens = 0;
    const ls_walk_batch batch = {
        .parameters = parameters, .tokens = e->tokens, .targets = e->targets, .losses = e->losses};
    for (uint64_t first = 0; first < windows; first += (uint64_t)e->sequences) {
        for (int64_t row = 0; row < e->sequences; row++) {
            if (first + (uint64_t)row < windows) {
                LS_TRY(load_window(e, stream, stream_context, token_count, first + (uint64_t)row, row));
            } else {
                blank_window(e, row);
            }
        }
        LS_TRY(ls_walk_forward(&e->walk, &batch));
        LS_TRY(ls_queue_wait(e->walk.queue));
        for (int64_t i = 0; i < e->sequences * e->length; i++) {
            sum += (double)e->losses[i];
            tokens += e->targets[i] != LS_TARGET_IGNORED;
        }
    }
    *result_out = (ls_evaluation){.loss = sum / (double)tokens, .tokens = tokens};
    return LS_OK;
}
