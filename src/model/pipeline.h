// SPDX-License-Identifier: Apache-2.0
/*
 * Pipeline schedules: in which order each stage computes its micro-batches.
 *
 * The layers of a model are cut into stages * chunks runs of layers. Stage s computes the runs s,
 * s + stages, s + 2 stages, ...: its chunks 0, 1, 2, ... A schedule is a pure function of (kind,
 * stages, chunks, micro-batches); ranks follow the lists, the planner reads them for idle time and
 * memory.
 *
 *   1F1B, 3 stages, 4 micro-batches; F: forward, B: backward (drawn as long as a forward pass)
 *
 *   stage 0   F0 F1 F2 .. .. B0 F3 B1 .. B2 .. B3
 *   stage 1   .. F0 F1 .. B0 F2 B1 F3 B2 .. B3 ..
 *   stage 2   .. .. F0 B0 F1 B1 F2 B2 F3 B3 .. ..
 *
 *   1F1B         stages - s forward passes, then one backward and one forward pass in turn. With
 *                several chunks (interleaved) micro-batches go round the stages in groups of
 *                `stages`. A last group that is not full leaves its places empty.
 *   all forward  GPipe: all forward passes, then all backward passes
 *   zero bubble  ZB-H1: the gradient of the input is made and sent first. The gradients of weights
 *                follow s micro-batches later, so that all stages hold as many micro-batches as
 *                stage 0 of 1F1B and the others work where they would wait. One chunk.
 *
 * On every stage the passes of a chunk are in the order of the micro-batches, in each direction and
 * for gradients of weights. So sums over micro-batches have the same order in every schedule.
 *
 * Waiting. A forward pass needs the output of the run of layers before it, a backward pass the
 * gradient from the one after it. Following the lists never ends in a circle of waits, even if a
 * send waits until the receiver has taken the previous value that was sent to it on this way.
 *
 * Idle time, if all passes take as long on every stage (f forward, b backward without, w gradients
 * of weights, for all chunks of a stage together) and micro-batches come in full groups:
 *
 *   1F1B, all forward   (stages - 1) (f + b + w) / chunks
 *   zero bubble         (stages - 1) (f + b - w) for `stages` micro-batches or more, w <= f, b
 *
 * Sources: Narayanan et al., "Efficient large-scale language model training on GPU clusters using
 * Megatron-LM", 2021 (1F1B, interleaved); Huang et al., "GPipe", 2019; Qi et al., "Zero bubble
 * pipeline parallelism", 2023 (ZB-H1). Pure, any thread.
 */
#ifndef LS_MODEL_PIPELINE_H
#define LS_MODEL_PIPELINE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum ls_pipeline_kind {
    LS_PIPELINE_ONE_BY_ONE, /* 1F1B, interleaved with several chunks */
    LS_PIPELINE_ALL_FORWARD,
    LS_PIPELINE_ZERO_BUBBLE,
    LS_PIPELINE_KIND_COUNT
} ls_pipeline_kind;

typedef struct ls_pipeline {
    ls_pipeline_kind kind;
    uint32_t stages;        /* 1 to 1,024 */
    uint32_t chunks;        /* 1 to 1,024; above 1 only with ONE_BY_ONE and 2 stages or more */
    uint32_t micro_batches; /* 1 to 1,048,576 */
} ls_pipeline;

typedef enum ls_pipeline_pass {
    LS_PIPELINE_FORWARD,
    LS_PIPELINE_BACKWARD, /* both that follow, in one */
    LS_PIPELINE_BACKWARD_INPUT,
    LS_PIPELINE_BACKWARD_WEIGHT
} ls_pipeline_pass;

/* One entry of a list. */
typedef struct ls_pipeline_work {
    ls_pipeline_pass pass;
    uint32_t micro_batch;
    uint32_t chunk;
} ls_pipeline_work;

/* Errors: LS_ERR_INVALID with the value and the allowed range. */
LS_MUST_CHECK ls_status ls_pipeline_check(const ls_pipeline *pipeline);

/* Whether weights have passes of their own: BACKWARD_INPUT and BACKWARD_WEIGHT, else BACKWARD. */
bool ls_pipeline_splits_backward(const ls_pipeline *pipeline);

/* Entries of the list of each stage. */
uint32_t ls_pipeline_length(const ls_pipeline *pipeline);

/* The list of `stage`, ls_pipeline_length entries, in `arena`. The pipeline is a checked one. */
const ls_pipeline_work *ls_pipeline_list(ls_arena *arena, const ls_pipeline *pipeline, uint32_t stage);

/* The most micro-batches of one chunk whose values a stage holds at once, from the begin of the
 * forward pass to the end of the last backward pass. They are consecutive, so micro-batch i can use
 * slot i mod this number. */
uint32_t ls_pipeline_slots(const ls_pipeline *pipeline, const ls_pipeline_work *list);

/* Seconds of a stage, all its chunks together, for one micro-batch. */
typedef struct ls_pipeline_costs {
    double forward_s, input_s, weight_s;
} ls_pipeline_costs;

/* Times of one round of micro-batches. */
typedef struct ls_pipeline_times {
    double total_s; /* until the last stage ends */
    /* of the stage that idles least, or waits for a core: total without its passes */
    double idle_s;
} ls_pipeline_times;

/* Follows all lists. costs: one entry per stage. cores: stages that compute at a time, > 0; where
 * more have something to do, they share them. scratch: for the tables. */
ls_pipeline_times ls_pipeline_run(ls_arena *scratch, const ls_pipeline *pipeline,
                                  const ls_pipeline_costs *costs, double cores);

#endif
