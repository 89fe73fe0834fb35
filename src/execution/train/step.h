// SPDX-License-Identifier: Apache-2.0
/*
 * One training step: leaves, tree, norm, update (DESIGN I1).
 *
 *   global batch (8 sequences)        step
 *   +--+--+--+--+--+--+--+--+         leaf 0   leaf 1   leaf 2   leaf 3      each: sums over its
 * micro-batches, in order |0 |1 |2 |3 |4 |5 |6 |7 |            \       /         \       /
 *   +--+--+--+--+--+--+--+--+           [0, 2)              [2, 4)           one addition per element and
 * node leaf 0 leaf 1 leaf 2 leaf 3             \             / root [0, 4)  -> / tokens, norm, clip, AdamW
 *
 * What a step computes is a pure function of the state's bits and the step number: who computes a leaf, when,
 * and with how many threads does not matter, because leaves are combined in one fixed tree: an interval [a,
 * b) splits at the largest power of two below its length. Here one process does all leaves in order and keeps
 * a stack of partial sums; ranks (execution/parallel) do a part each.
 *
 * No allocation while a step runs.
 */
#ifndef LS_EXECUTION_TRAIN_STEP_H
#define LS_EXECUTION_TRAIN_STEP_H

#include "execution/diagnose/fault.h"
#include "execution/diagnose/flip.h"
#include "execution/diagnose/op_trace.h"
#include "execution/parallel/data_parallel.h"
#include "execution/state.h"
#include "execution/walk.h"

/* Writes the length + 1 tokens of the sample at `position` of the run. */
typedef ls_status (*ls_sample_fn)(void *context, uint64_t position, int32_t *tokens_out);

typedef struct ls_step_settings {
    uint32_t leaves;       /* V; divides global_batch */
    uint32_t global_batch; /* sequences */
    uint32_t micro_batch;  /* sequences at once; divides global_batch / leaves; = the plan's sequences */
    double clip_norm;      /* 0: no clipping */
    float beta1, beta2, eps, weight_decay;
    ls_sample_fn sample;
    void *sample_context;
    bool (*should_stop)(void *context); /* asked before each micro-batch; NULL: never */
    void *stop_context;
    uint64_t seed;              /* chooses the leaf of an audit */
    uint64_t audit_every_steps; /* execution/diagnose/audit.h; 0: never */
    uint64_t hash_every_steps;  /* execution/diagnose/guard.h; 0: never */
    ls_flip *flip;              /* for tests; borrowed; NULL: none */
    ls_sabotage *sabotage;      /* likewise */
    ls_data_parallel *parallel; /* borrowed: this process is one rank of many; NULL: it computes all leaves */
} ls_step_settings;

typedef struct ls_step_result {
    float loss;           /* mean over target tokens, nats */
    double grad_norm;     /* of the mean gradient, before clipping */
    uint64_t tokens;      /* target tokens */
    ls_step_fault fault;  /* of a step that failed, and then nothing else is set */
    uint32_t audited;     /* leaf that was computed twice; LS_NO_LEAF: none */
    ls_hash128 state_sum; /* of what this rank updates (ls_guard_sum), when state_is_hashed */
    bool state_is_hashed;
    /* Wall seconds by what was done; they add up to the step. wait_s: for other ranks. */
    double data_s, forward_s, backward_s, reduce_s, optimizer_s, wait_s;
} ls_step_result;

typedef struct ls_stepper ls_stepper;

/*
 * Makes a stepper over a training walk and a state (both borrowed). state->gradient_count: ls_tree_buffers(leaves) for one process; a rank's
 * gradients are those that it gave to ls_data_parallel_create. Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_stepper_create(ls_walk *walk, ls_state *state, const ls_step_settings *settings,
                                          ls_stepper **stepper_out);
void ls_stepper_destroy(ls_stepper *stepper);

/* Behind ls_data_parallel_assign: the same for other parts. Allocates. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_stepper_assign(ls_stepper *stepper);

/*
 * Runs step `step` (0-based: updates done before it) with learning rate `lr`.
 *
 * Errors: LS_FENCED when a fence came and others had to be waited for: called again for the same step, by this process or another that runs
 * these parts, it does what is not done yet (one host); see parallel/data_parallel.h. LS_STOPPED when should_stop said so: the state is as before the step. LS_ERR_FAILED when the loss
 * or the gradient norm is not finite: the state is as before the step, the text names the leaf, the layer
 * and the value, and result_out->fault is set. LS_ERR_MISMATCH when an audit or the guard found
 * corruption, likewise. Errors of the sample function.
 */
LS_MUST_CHECK ls_status ls_stepper_run(ls_stepper *stepper, uint64_t step, double lr,
                                       ls_step_result *result_out);

/*
 * A snapshot for nothing (docs/design/003-nothing-is-lost.md): the update of the next step keeps parameters, m and v as they are before it
 * in snapshot[0..2], flat buffers of the state's layout. When that step has run they are, with those of all ranks, the state before it, whole;
 * a step that fails or is given up leaves them undefined. Who goes on with a step that another left has to be told as well. Every rank of the host is told so for the same step.
 */
void ls_stepper_keep(ls_stepper *stepper, float *const snapshot[3]);

/* Whether the state still is what the last update left, as far as it was hashed. Before it is saved, say. Errors: LS_ERR_MISMATCH,
 * with *fault_out set. */
LS_MUST_CHECK ls_status ls_stepper_check_state(ls_stepper *stepper, ls_step_fault *fault_out);

/* ---- one leaf alone, into gradient buffer 0 (execution/diagnose/replay.h) ---- */

/* Computes leaf `leaf` of step `step`: the loss sum and the token count. Errors: as ls_stepper_run. */
LS_MUST_CHECK ls_status ls_stepper_run_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                            double *loss_sum_out, uint64_t *tokens_out);

/* The same, and `fn` sees what every step of the plan wrote, micro-batch after micro-batch;
 * it ends when fn returns false. */
LS_MUST_CHECK ls_status ls_stepper_trace_leaf(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                              ls_op_range_fn fn, void *context);

/* Where a leaf first went wrong. */
typedef struct ls_leaf_fault {
    bool found;
    uint64_t position; /* of the first sample of its micro-batch */
    char where[256];   /* ls_op_range_describe */
} ls_leaf_fault;
LS_MUST_CHECK ls_status ls_stepper_find_nonfinite(ls_stepper *stepper, uint64_t step, uint32_t leaf,
                                                  ls_leaf_fault *fault_out);

#endif
