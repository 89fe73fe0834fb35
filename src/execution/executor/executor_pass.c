// SPDX-License-Identifier: Apache-2.0
/* Passes of a micro-batch, and what a stage exchanges with its neighbours before and after them. */
#include "base/assert.h"
#include "comm/flight/flight.h"
#include "execution/executor/executor.h"

/* Receives `value` from the stage before or after this one, unless the plan has none. */
static ls_status receive_stream(ls_executor *e, const ls_executor_batch *batch, ls_crew_way way,
                                int32_t value)
{
    if (value == LS_NONE) {
        return LS_OK;
    }
    const ls_crew *crew = batch->crew;
    const uint32_t step = way == LS_CREW_FORWARD ? crew->stages - 1 : 1;
    for (e->piece = 0; e->piece < e->plan->pieces; e->piece++) {
        const ls_tensor values = ls_executor_value(e, value);
        LS_TRY(crew->receive(crew->context, way, (crew->stage + step) % crew->stages, &values));
    }
    return LS_OK;
}

static ls_status send_stream(ls_executor *e, const ls_executor_batch *batch, ls_crew_way way, int32_t value)
{
    if (value == LS_NONE) {
        return LS_OK;
    }
    const ls_crew *crew = batch->crew;
    const uint32_t step = way == LS_CREW_FORWARD ? 1 : crew->stages - 1;
    LS_TRY(ls_queue_wait(e->queue));
    for (e->piece = 0; e->piece < e->plan->pieces; e->piece++) {
        const ls_tensor values = ls_executor_value(e, value);
        LS_TRY(crew->send(crew->context, way, (crew->stage + step) % crew->stages, &values));
    }
    return LS_OK;
}

static void take_spans(ls_executor *e, const ls_executor_batch *batch)
{
    e->rows = 0;
    for (size_t i = 0; i < batch->span_count; i++) {
        const ls_text_span *span = &batch->spans[i];
        LS_ASSERT(span->count >= 1 && span->past >= 0 && span->past + span->count <= e->cache->capacity);
        e->rows += span->count;
    }
    LS_ASSERT(e->rows >= 1 && e->rows <= e->plan->options.sequences * e->plan->options.length);
}

ls_status ls_executor_forward(ls_executor *e, const ls_executor_batch *batch)
{
    if (e->cache) {
        take_spans(e, batch);
    }
    e->slot = batch->slot;
    LS_TRY(receive_stream(e, batch, LS_CREW_FORWARD, e->plan->stage.in));
    for (uint32_t i = 0; i < e->plan->forward_steps; i++) {
        if (batch->before_step) {
            LS_TRY(batch->before_step(batch->context, i));
        }
        ls_flight_activity(LS_ACTIVITY_FORWARD, i);
        LS_TRY(ls_executor_step(e, batch, i));
    }
    return send_stream(e, batch, LS_CREW_FORWARD, e->plan->stage.out);
}

static ls_status run_backward_steps(ls_executor *e, const ls_executor_batch *batch, uint32_t first,
                                    uint32_t past)
{
    for (uint32_t i = first; i < past; i++) {
        if (batch->before_step) {
            LS_TRY(batch->before_step(batch->context, i));
        }
        ls_flight_activity(LS_ACTIVITY_BACKWARD, i);
        LS_TRY(ls_executor_step(e, batch, i));
        if (batch->after_step) {
            LS_TRY(batch->after_step(batch->context, i));
        }
    }
    return LS_OK;
}

ls_status ls_executor_backward(ls_executor *e, const ls_executor_batch *batch)
{
    const ls_plan *plan = e->plan;
    LS_ASSERT(plan->options.training && batch->gradients);
    e->slot = batch->slot;
    LS_TRY(receive_stream(e, batch, LS_CREW_BACKWARD, plan->stage.dout));
    LS_TRY(run_backward_steps(e, batch, plan->forward_steps, plan->first_weight_step));
    return send_stream(e, batch, LS_CREW_BACKWARD, plan->stage.din);
}

ls_status ls_executor_backward_weight(ls_executor *e, const ls_executor_batch *batch)
{
    return run_backward_steps(e, batch, e->plan->first_weight_step, e->plan->step_count);
}
