// SPDX-License-Identifier: Apache-2.0
/*
 * A pipeline stage: walks the micro-batches of one leaf in the order of its list.
 *
 *   list of stage 1 of 3   F0 F1 B0 F2 B1 F3 B2 B3          (model/pipeline.h)
 *   executor of each chunk receive, steps of the pass, send (execution/executor/executor.h)
 *
 * A send returns when the values are copied, so the next pass is computed while they travel.
 *
 * What a stage leaves in the flat gradients of the leaf are the gradients of its own layers, with
 * the bits that a process with all layers would leave there; the rest of the buffer is not touched,
 * so stages may share one.
 * With tied embeddings the first stage has the table and the last one the head. The last one sends
 * its part of the table's gradient to the first one after its list, in pieces of as many rows as
 * the stream between stages has, and the first stage adds them to its own part.
 *
 * Used by one thread; allocates nothing.
 */
#ifndef LS_EXECUTION_EXECUTOR_STAGE_H
#define LS_EXECUTION_EXECUTOR_STAGE_H

#include "execution/executor/executor.h"
#include "model/pipeline.h"

/* All borrowed. */
typedef struct ls_stage {
    const ls_pipeline *pipeline;
    const ls_pipeline_work *list; /* of this stage, ls_pipeline_length entries */
    ls_executor *executors;       /* one per chunk, over the plans of ls_plan_build_stage */
    const ls_crew *crew;          /* NULL with a single stage */
    /*
     * Fills in the batch for a pass: weights, tokens, targets, losses and the rest of what belongs
     * to this micro-batch, the flat gradients of the leaf, and hooks for its steps. Slot, crew,
     * accumulate and more are set by the runner. What belongs to a micro-batch is the same in all
     * its passes; at most ls_pipeline_slots of them are on their way in a chunk.
     */
    ls_status (*before)(void *context, const ls_pipeline_work *work, ls_executor_batch *batch);
    /* Called after the pass; losses of a forward pass of the last layers are there. NULL: never. */
    ls_status (*after)(void *context, const ls_pipeline_work *work, const ls_executor_batch *batch);
    void *context;
} ls_stage;

/* Runs all passes of a leaf. Errors: those of the callbacks, of the kernels and of the crew; the
 * gradients are then incomplete. */
LS_MUST_CHECK ls_status ls_stage_run(const ls_stage *stage);

#endif
