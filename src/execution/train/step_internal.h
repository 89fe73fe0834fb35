// SPDX-License-Identifier: Apache-2.0
/*
 * A stepper, as the files of the step share it:
 *
 *   step.c             the step: parts, agreement, update; making and ending a stepper
 *   step_leaves.c      one leaf, and the leaves of a part added up in the tree
 *   step_nonfinite.c   where a loss that is not finite comes from
 */
#ifndef LS_EXECUTION_TRAIN_STEP_INTERNAL_H
#define LS_EXECUTION_TRAIN_STEP_INTERNAL_H

#include "execution/diagnose/sentinel.h"
#include "execution/train/step.h"
#include "execution/train/update.h"

struct ls_stepper {
    ls_walk *walk;
    ls_state *state;
    ls_step_settings settings;
    ls_data_parallel *parallel; /* settings.parallel, or `alone` */
    ls_data_parallel *alone;    /* of a process that is the only rank, with its exchange area */
    void *exchange;
    int64_t length;
    int32_t *samples;    /* micro_batch x (length + 1) as drawn */
    int32_t *tokens;     /* micro_batch x length */
    int32_t *targets;    /* micro_batch x length */
    float *losses;       /* micro_batch x length */
    ls_update **updates; /* per part of this process */
    uint32_t update_count;
    uint64_t step;              /* that runs */
    uint32_t index;             /* of the part that is computed, among those of this process */
    double last_s, last_wait_s; /* when the current part of the step began */
    ls_op_range_fn look;        /* sees every output of a leaf that is traced; NULL: not traced */
    void *look_context;
    bool look_ended;
    uint64_t position; /* of the micro-batch being computed */
    bool fetches;      /* leaves of a step whose weights come from other hosts */
    ls_sentinel *sentinel;
    float *snapshot[3]; /* of the step that comes: where its update keeps what was before it; NULL: nowhere */
    ls_step_result result;
};

/* Adds the time since the last call to `*sum_s`, without what was spent waiting for other ranks. */
void ls_stepper_lap(ls_stepper *stepper, double *sum_s);

/* The leaves of the current part, in order, merging pairs before the next. What stands behind the last one is handed over: its owners add it
 * up with what the other parts have (ls_tree_handover). Goes on where the stack says. */
LS_MUST_CHECK ls_status ls_stepper_run_leaves(ls_stepper *stepper, uint64_t step);

/* One leaf into gradient buffer 0 of part `index`; context: the stepper. What the sentinel computes a second time. */
LS_MUST_CHECK ls_status ls_stepper_compute_alone(void *context, uint32_t index, uint64_t step, uint32_t leaf,
                                                 double *loss_sum_out, uint64_t *tokens_out);

/* Why the loss or the norm of a step is not finite, as an error. All ranks come here, or none, and all leave with the same text. Errors:
 * LS_ERR_FAILED, with result.fault set; LS_FENCED. */
LS_MUST_CHECK ls_status ls_stepper_explain_nonfinite(ls_stepper *stepper, uint64_t step, double any_loss,
                                                     double any_norm);

#endif
