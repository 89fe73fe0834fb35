// SPDX-License-Identifier: Apache-2.0
/*
 * One training step: leaves, tree, norm, update (invariant I1).
 *
 *   global batch of 8 sequences, V = 4 leaves
 *   +--+--+--+--+--+--+--+--+
 *   |0 |1 |2 |3 |4 |5 |6 |7 |
 *   +--+--+--+--+--+--+--+--+
 *   leaf 0 leaf 1 leaf 2 leaf 3      each: the sums over its micro-batches, in order
 *       \    /       \    /
 *       [0, 2)       [2, 4)          one addition per element and node
 *            \       /
 *           root [0, 4)              divided by the tokens: norm, clipping, AdamW
 *
 * The result of a step is a pure function of the bits of the state and the step number. Which
 * process computes a leaf, when, and with how many threads does not matter, because leaves are
 * combined in one fixed tree: an interval [a, b) splits at a plus the largest power of two below
 * its length. A single process computes all leaves in order and keeps a stack of partial sums;
 * ranks (execution/parallel) compute a part each.
 *
 * A step allocates nothing.
 */
#ifndef LS_EXECUTION_TRAIN_STEP_H
#define LS_EXECUTION_TRAIN_STEP_H

#include "data/dataset.h"
#include "execution/executor/stage.h"
#include "execution/executor/state.h"
#include "execution/integrity/op_trace.h"
#include "execution/parallel/data_parallel.h"
#include "execution/team/bit_flip.h"
#include "execution/team/fault.h"
#include "execution/train/local.h"

/* Writes the sample at `position` of the run, `length` entries per array. first: NULL unless
 * ls_step_settings.documents. */
typedef ls_status (*ls_sample_fn)(void *context, uint64_t position, const ls_sample *sample);

typedef struct ls_step_settings {
    uint32_t leaves; /* V; divides global_batch. With workers, leaves and batch of one */
    /* as in ls_data_parallel_options */
    uint32_t group;
    ls_compression compression, changes;
    uint64_t compression_warmup;
    uint32_t global_batch; /* sequences */
    ls_local local;
    /* With workers on several hosts, the sum of the outer step of `count` floats from `at` on, and
     * the worker at fault if it is not finite; as ls_outer_sum_add and ls_local_not_finite. NULL:
     * all workers are here. */
    ls_status (*add_workers)(void *context, int64_t at, int64_t count, float *sum_out);
    ls_status (*find_worker)(void *context, uint32_t *worker_out);
    void *workers_context;
    /* sequences per pass; divides global_batch / leaves; equals the plan's sequences */
    uint32_t micro_batch;
    double clip_norm; /* 0: no clipping */
    float beta1, beta2, eps, weight_decay;
    /* with a compression that normalises: eps beside the sum over a group's tokens, not the mean */
    float group_eps;
    ls_sample_fn sample;
    void *sample_context;
    /* For dropout: the pass of the sample at `position` (ls_executor_batch.pass). NULL: 0. */
    uint32_t (*pass)(void *sample_context, uint64_t position);
    bool documents;                     /* samples hold records: attention restarts at `first` */
    bool (*should_stop)(void *context); /* asked before each micro-batch; NULL: never */
    void *stop_context;
    uint64_t seed;                       /* chooses the leaf of an audit */
    uint64_t audit_every_steps;          /* execution/integrity/audit.h; 0: never */
    uint64_t hash_every_steps;           /* execution/integrity/guard.h; 0: never */
    ls_bit_flip *flip;                   /* for tests; borrowed; NULL: none */
    ls_fault_injection *fault_injection; /* for tests; borrowed; NULL: none */
    /* borrowed; of a process that is one rank of many. NULL: this process computes all leaves */
    ls_data_parallel *parallel;
    /* Borrowed; of a rank of a crew with several stages: how it walks through the micro-batches of
     * a leaf (executor/stage.h). NULL: one after the other. */
    const ls_pipeline *pipeline;
    const ls_pipeline_work *pipeline_list;
} ls_step_settings;

typedef struct ls_step_result {
    float loss;       /* mean over target tokens, nats */
    double grad_norm; /* of the mean gradient, before clipping */
    /* of what compression left over of it; 0: none, NAN: not known */
    double residual_norm;
    uint64_t tokens;      /* target tokens */
    ls_step_fault fault;  /* set if the step failed, and then nothing else is */
    uint32_t audited;     /* the leaf that was computed twice; LS_NO_LEAF: none */
    ls_hash128 state_sum; /* of what this rank updates (ls_guard_sum), if state_is_hashed */
    bool state_is_hashed;
    /* Wall time by activity, seconds; the sum is the time of the step. wait_s: waiting for other
     * ranks. */
    double data_s, forward_s, backward_s, reduce_s, optimizer_s, wait_s;
    ls_rank_traffic traffic; /* of this rank */
    double stage_wait_s;     /* its waiting for other stages, in all steps of this process */
    /* With workers on several hosts, where an outer gradient is applied: how long hosts computed in
     * the round, and the first rank of the slowest. 0: not known. */
    double slowest_s, fastest_s;
    uint32_t slowest_rank;
} ls_step_result;

typedef struct ls_stepper ls_stepper;

/*
 * Creates a stepper over an executor, of a stage one for each of its chunks, and a state (both
 * borrowed). state->gradient_count: tree_buffers of ls_plan_memory for a single process; the
 * gradient buffers of a rank are those passed to ls_data_parallel_create. Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_stepper_create(ls_executor *executors, ls_state *state,
                                          const ls_step_settings *settings, ls_stepper **stepper_out);
void ls_stepper_destroy(ls_stepper *stepper);

/* After ls_data_parallel_assign: adapts the stepper to the new parts. Allocates. Errors:
 * LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_stepper_assign(ls_stepper *stepper);

/*
 * Runs step `step` (0-based: updates done before it) with learning rate `lr`. With local steps
 * (train/local.h) `step` is the number of a turn, here and wherever steps are counted below, up to
 * and including execution/parallel; the trainer and error texts count steps of the run. The result
 * of an outer step has only its norm, as grad_norm, and times. should_stop is then asked only in
 * the first turn of a step.
 *
 * Errors:
 *   LS_FENCED        A fence was raised and other ranks had to be waited for. Called again for the
 *                    same step, by this process or another one that runs these parts, it completes
 *                    the step (parallel/data_parallel.h says when that is possible).
 *   LS_STOPPED       should_stop returned true: the state is as before the step.
 *   LS_ERR_FAILED    The loss or the gradient norm is not finite: the state is as before the step,
 *                    the text names the leaf, the layer and the value, and result_out->fault is
 *                    set.
 *                    With workers also that the parameters of one, named, are not.
 *   LS_ERR_DATA      No token of the batch has a target: the same, without a fault.
 *   LS_ERR_MISMATCH  An audit or the guard found corruption: the same.
 *   and the errors of the sample function.
 */
LS_MUST_CHECK ls_status ls_stepper_run(ls_stepper *stepper, uint64_t step, double lr,
                                       ls_step_result *result_out);

/*
 * Makes a snapshot at almost no cost (docs/design/003-nothing-is-lost.md): the update of the next
 * step copies parameters, m and v, as they are before it, to snapshot[0..2], flat buffers of the
 * state's layout. After that step, the copies of all ranks together are the complete state before
 * it. A step that fails or is given up leaves them undefined. Every rank of the host must call this
 * for the same step, and so must a process that continues a step another one left.
 */
void ls_stepper_keep(ls_stepper *stepper, float *const snapshot[3]);

/* Checks that the state is still what the last update left, as far as it was hashed; for example
 * before saving it. Errors: LS_ERR_MISMATCH, with *fault_out set. */
LS_MUST_CHECK ls_status ls_stepper_check_state(ls_stepper *stepper, ls_step_fault *fault_out);

/* ---- a single leaf, into gradient buffer 0 (execution/run/replay.h) ---- */

/* Computes leaf `leaf` of step `step`; returns its loss sum and token count. Errors: as
 * ls_stepper_run. */
LS_MUST_CHECK ls_status ls_stepper_run_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                            double *loss_sum_out, uint64_t *tokens_out);

/* The same; `fn` is called with what each step of the plan wrote, micro-batch after micro-batch.
 * Ends when fn returns false. */
LS_MUST_CHECK ls_status ls_stepper_trace_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                              ls_op_range_fn fn, void *context);

/* The place of the first value of a leaf that is not finite. */
typedef struct ls_leaf_fault {
    bool found;
    uint64_t position; /* of the first sample of its micro-batch */
    char where[256];   /* ls_op_range_describe */
} ls_leaf_fault;
LS_MUST_CHECK ls_status ls_stepper_find_nonfinite(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                                  ls_leaf_fault *fault_out);

#endif
