// SPDX-License-Identifier: Apache-2.0
/*
 * A stepper, as the files of the step share it:
 *
 *   step.c             the step: parts, agreement, update; creating and destroying a stepper
 *   step_leaves.c      one leaf, and the leaves of a part added up in the tree
 *   step_nonfinite.c   finds the origin of a loss that is not finite
 */
#ifndef LS_EXECUTION_TRAIN_STEP_INTERNAL_H
#define LS_EXECUTION_TRAIN_STEP_INTERNAL_H

#include "execution/integrity/sdc_monitor.h"
#include "execution/train/step.h"
#include "execution/train/update.h"

struct ls_stepper {
    ls_executor *executor; /* the first of the chunks of a stage */
    ls_state *state;
    ls_step_settings settings;
    ls_data_parallel *parallel; /* settings.parallel, or `alone` */
    ls_data_parallel *alone;    /* of a single process, with its exchange area; else NULL */
    void *exchange;
    int64_t length;
    /* micro_batch x length each, in this order in one block of shared memory */
    ls_sample rows; /* first: NULL without documents */
    uint32_t *pass; /* of each sample of the micro-batch */
    float *losses;
    ls_update **updates; /* per part of this process */
    uint32_t update_count;
    uint64_t step;              /* the current step */
    ls_local_turn turn;         /* which it is */
    ls_outer_sum *outer;        /* with workers, else NULL */
    uint32_t index;             /* the part being computed, among those of this process */
    double stage_wait_s;        /* since it was created */
    double last_s, last_wait_s; /* when the current activity began */
    ls_op_range_fn look;        /* called with every output of a traced leaf; NULL: no trace */
    void *look_context;
    bool look_ended;
    uint64_t position; /* of the micro-batch being computed */
    /* the weights of the leaves being computed come from other hosts */
    bool fetches;
    ls_leaf_sum shares[LS_SHARES_MAX]; /* losses of what is computed side by side */
    ls_sdc_monitor *sdc_monitor;
    /* where the update of the next step keeps the old values; NULL: nowhere */
    float *snapshot[3];
    ls_step_result result;
};

/* Flat buffer `flat` (0 parameters, 1 m, 2 v) that the current turn updates. */
float *ls_stepper_flat(const ls_stepper *stepper, uint32_t flat);
/* The weights that the leaves of the current turn meet. */
const void *ls_stepper_weights(const ls_stepper *stepper);

/* Adds the time since the last call to `*sum_s`, except the time spent waiting for other ranks. */
void ls_stepper_lap(ls_stepper *stepper, double *sum_s);

/* Computes the leaves of the current part in order, and merges pairs before the next leaf. The
 * nodes that remain after the last leaf are handed over: the owners add them up with the nodes of
 * the other parts (ls_tree_handover). Continues where the stack says. */
LS_MUST_CHECK ls_status ls_stepper_run_leaves(ls_stepper *stepper, uint64_t step);

/* Computes a single leaf into gradient buffer 0 of part `index`, for the SDC monitor. context: the
 * stepper. */
LS_MUST_CHECK ls_status ls_stepper_compute_alone(void *context, uint32_t index, uint64_t step, uint32_t leaf,
                                                 double *loss_sum_out, uint64_t *tokens_out);

/* The same for the sum of an outer step, which names the worker. */
LS_MUST_CHECK ls_status ls_stepper_explain_outer(ls_stepper *stepper);

/* Finds out why the loss or the norm of a step is not finite. Collective: all ranks call it, and
 * all get the same text. Errors: LS_ERR_FAILED, with result.fault set; LS_FENCED. */
LS_MUST_CHECK ls_status ls_stepper_explain_nonfinite(ls_stepper *stepper, uint64_t step, double any_loss,
                                                     double any_norm);

#endif
