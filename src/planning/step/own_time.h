// SPDX-License-Identifier: Apache-2.0
/*
 * How long a training step of Lockstep takes on a calibrated machine: the steps of the op plan that
 * the runtime executes (model/plan.h), each at the measured time of its kernel, plus what happens
 * once per step.
 *
 *   step = leaves of a rank * micro-batches of a leaf * (sum over plan steps)
 *                                                             (matmul, attention, elementwise)
 *        + merging leaves, adding up handed-over nodes, squares                           (data)
 *        + AdamW over the rank's share, hashes of the state                           (optimizer)
 *        + agreeing with the other ranks                                                 (fixed)
 *
 * A rank shares the machine with the others: times are those of `ranks` processes at once
 * (planning/hardware/calibration.h). Where some have a leaf more than others, these are computed
 * when the others are idle: their times are those of fewer processes.
 *
 * Tensor and context groups. The plan of a member has its part of the work; what the members
 * exchange is terms `tensor` and `context`. A leaf is computed by all of them together.
 *
 * Stages. With a pipeline, ranks compute a leaf together, and the lists that they follow
 * (model/pipeline.h) are followed with the times of their passes: matmul, attention and elementwise
 * are those of the stage that idles least, `pipeline` its copies of what stages exchange, `bubble`
 * the time it waits, for other stages or, where there are more of them than cores, for a core.
 *
 * Merging. A rank merges two nodes as soon as both are complete, but leaves the merges after its
 * last leaf to the owner of the sum: of c leaves popcount(c - 1) + 1 nodes remain, and
 * c - 1 - popcount(c - 1) merges were made before (as in comm/transport/tree.h).
 *
 * The computation is proportional to the number of kinds of steps, about 25 for any number of
 * layers, rows, leaves and chunks of the head. Pure; allocates nothing.
 */
#ifndef LS_PLANNING_STEP_OWN_TIME_H
#define LS_PLANNING_STEP_OWN_TIME_H

#include "model/pipeline.h"
#include "model/plan.h"
#include "planning/hardware/calibration.h"
#include "planning/step/estimate.h"

enum { LS_OWN_MIDDLE_LAYER = 1 };

typedef struct ls_own_run {
    /* of a training micro-batch of a member of its groups, all layers, its layout set */
    const ls_plan *plan;
    uint32_t leaves;           /* of a step, all ranks */
    uint32_t micro_batches;    /* of a leaf */
    uint32_t ranks;            /* processes on this machine, 1..leaves */
    uint32_t threads;          /* of each */
    bool saves_behind;         /* checkpoints are written from a snapshot while steps go on */
    uint64_t hash_every_steps; /* the state is hashed so often; 0: never */
    /* of the stages that compute a leaf of `micro_batches` together, with `scratch` for tables;
     * NULL: each rank has all layers */
    const ls_pipeline *pipeline;
    const ls_plan *whole; /* with stages: what a process alone computes; NULL: the same as `plan` */
    ls_arena *scratch;
    /* 2 and more: layer LS_OWN_MIDDLE_LAYER of the plan stands for so many; its layout has them
     * all */
    uint32_t middle_layers;
} ls_own_run;

typedef struct ls_own_time {
    double step_s;
    double terms_s[LS_TERM_COUNT]; /* add up to the step; those of other machines are 0 */
    double tokens_ps;
    /* what training waits for one checkpoint; 0: the disk was not measured */
    double checkpoint_stall_s;
} ls_own_time;

void ls_own_time_compute(const ls_calibration *calibration, const ls_own_run *run, ls_own_time *time_out);

/* A term of the step, with the numbers in; the last line has the figure of the answer. False: not a
 * term. */
bool ls_own_time_explain(const ls_calibration *calibration, const ls_own_run *run, const char *term,
                         ls_text *text);

/* Seconds of one step of the plan, in a single rank; *term_out: the term it counts as. accumulate:
 * weight gradients are added to existing ones. */
double ls_own_plan_step_s(const ls_calibration *calibration, const ls_plan *plan, uint32_t step,
                          uint32_t threads, bool accumulate, ls_term *term_out);

#endif
