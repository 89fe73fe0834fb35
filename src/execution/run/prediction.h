// SPDX-License-Identifier: Apache-2.0
/*
 * Predictions: the memory and time of a run, predicted before its first step and compared after its
 * last.
 *
 * Memory follows from the memory plan alone; times need the calibration of this machine
 * (execution/calibrate/calibrate.h). Each run that ends well appends a row with prediction and
 * measurement to $LOCKSTEP_HOME/accuracy.jsonl (planning/accuracy/own_runs.h), which `lockstep plan
 * --accuracy` shows.
 */
#ifndef LS_EXECUTION_RUN_PREDICTION_H
#define LS_EXECUTION_RUN_PREDICTION_H

#include "execution/train/session.h"
#include "planning/accuracy/own_runs.h"
#include "planning/step/own_time.h"

typedef struct ls_prediction {
    uint64_t memory_bytes;
    bool has_time;
    ls_own_time time;        /* when has_time */
    const char *calibration; /* the date of the calibration; NULL: none was used */
    char doubt[160];         /* why it may be rough (ls_calibration_doubt); "": it is not */
    char why_not[320];       /* without has_time: why, and what to do about it */
} ls_prediction;

/* Predicts the session's op plan on this machine. Times are not predicted with several hosts. Never
 * fails. */
void ls_prediction_make(ls_arena *arena, const ls_session *session, bool several_hosts,
                        ls_prediction *prediction_out);

/* The time of a step of this session if it were divided as `parallel` says, without auto. member:
 * of ls_session_build_member_plan for that mesh. scratch: for tables. */
ls_own_time ls_prediction_time(const ls_calibration *calibration, const ls_session *session,
                               const ls_run_parallel *parallel, const ls_plan *member, ls_arena *scratch);

/* Continues the text of ls_session_describe: "time    a step takes 212 ms ...", or why the time is
 * unknown. */
void ls_prediction_describe(const ls_prediction *prediction, const ls_session *session, ls_text *text);
/* {step_s, tokens_per_s, checkpoint_stall_s, breakdown_s{}, doubt}; values are null if unknown,
 * doubt is null if there is none. */
json_t *ls_prediction_to_json(const ls_prediction *prediction);

/* Appends the row of a run that ended; logs a warning if that fails. measured: all that does not
 * come from the session or the prediction. */
void ls_prediction_keep(const ls_prediction *prediction, const ls_session *session,
                        const ls_own_run_side *measured, uint64_t steps);

#endif
