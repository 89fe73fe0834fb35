// SPDX-License-Identifier: Apache-2.0
#include "execution/executor/stage.h"

#include "base/assert.h"
#include "compute/kernels/elementwise.h"
#include "compute/kernels/shape.h"
#include "execution/executor/executor_internal.h"

static ls_status run_pass(ls_executor *executor, ls_pipeline_pass pass, const ls_executor_batch *batch)
{
    switch (pass) {
    case LS_PIPELINE_FORWARD:
        LS_TRY(ls_executor_forward(executor, batch));
        break;
    case LS_PIPELINE_BACKWARD:
    case LS_PIPELINE_BACKWARD_INPUT:
        LS_TRY(ls_executor_backward(executor, batch));
        break;
    case LS_PIPELINE_BACKWARD_WEIGHT:
        LS_TRY(ls_executor_backward_weight(executor, batch));
        break;
    }
    return ls_queue_wait(executor->queue);
}

/* ---- tied embeddings ---- */

/* The last stage sends its part of the table's gradient, a piece at a time. */
static ls_status send_table(const ls_stage *stage, ls_executor *e, int64_t most)
{
    const ls_tensor part = ls_executor_value(e, e->plan->head_gradient);
    for (int64_t first = 0; first < part.rows; first += most) {
        const ls_tensor rows = ls_tensor_rows(part, first, ls_min64(most, part.rows - first));
        LS_TRY(stage->crew->send(stage->crew->context, LS_CREW_FORWARD, 0, &rows));
    }
    return LS_OK;
}

/* The first stage adds it to its own. The gradient of the stream is over, so its place takes the
 * rows that arrive. */
static ls_status add_table(const ls_stage *stage, ls_executor *e, const ls_executor_batch *batch,
                           int64_t most)
{
    const int32_t index = (int32_t)e->plan->layout->table;
    const ls_tensor table = ls_executor_vocabulary_rows(e, ls_executor_gradient_view(e, batch, index));
    const ls_tensor place = ls_executor_value(e, e->plan->stage.dout);
    LS_ASSERT(most <= place.rows);
    for (int64_t first = 0; first < table.rows; first += most) {
        const int64_t count = ls_min64(most, table.rows - first);
        const ls_tensor rows = ls_tensor_rows(table, first, count), there = ls_tensor_rows(place, 0, count);
        LS_TRY(
            stage->crew->receive(stage->crew->context, LS_CREW_FORWARD, stage->pipeline->stages - 1, &there));
        LS_TRY(ls_add(e->queue, &rows, &there, &rows));
        LS_TRY(ls_queue_wait(e->queue));
    }
    return LS_OK;
}

/* batch: the last one, for the flat gradients. */
static ls_status join_tables(const ls_stage *stage, const ls_executor_batch *batch)
{
    ls_executor *first = &stage->executors[0], *last = &stage->executors[stage->pipeline->chunks - 1];
    const ls_plan *plan = first->plan;
    const bool is_first = plan->stage.in == LS_NONE, is_last = last->plan->stage.out == LS_NONE;
    if (is_first == is_last || !plan->config.tied || plan->layout->parameters[plan->layout->table].frozen) {
        return LS_OK;
    }
    /* as many rows as the stream between stages has: they fit its place */
    const int32_t stream = is_last ? last->plan->stage.in : plan->stage.dout;
    const int64_t most = is_last ? last->plan->values[stream].rows : plan->values[stream].rows;
    for (uint32_t piece = 0; piece < plan->pieces; piece++) {
        const ls_executor_batch own = ls_executor_piece(is_last ? last : first, batch, piece);
        LS_TRY(is_last ? send_table(stage, last, most) : add_table(stage, first, &own, most));
    }
    return LS_OK;
}

/* ---- the list ---- */

ls_status ls_stage_run(const ls_stage *stage)
{
    const ls_pipeline *pipeline = stage->pipeline;
    ls_executor_batch batch = {0};
    LS_ASSERT(pipeline->stages == 1 || stage->crew);
    for (uint32_t i = 0; i < ls_pipeline_length(pipeline); i++) {
        const ls_pipeline_work *work = &stage->list[i];
        ls_executor *executor = &stage->executors[work->chunk];
        batch = (ls_executor_batch){0};
        LS_TRY(stage->before(stage->context, work, &batch));
        batch.crew = stage->crew;
        batch.slot = work->micro_batch % executor->plan->options.slots;
        batch.accumulate = work->micro_batch > 0;
        batch.more = work->micro_batch + 1 < pipeline->micro_batches;
        LS_TRY(run_pass(executor, work->pass, &batch));
        if (stage->after) {
            LS_TRY(stage->after(stage->context, work, &batch));
        }
    }
    return join_tables(stage, &batch);
}
