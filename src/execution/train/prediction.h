// SPDX-License-Identifier: Apache-2.0
/*
 * Predictions: what is said of a run before its first step, and, behind its last one, how right that was.
 *
 * Memory comes from the memory plan alone; times need the calibration of this machine (execution/calibrate/calibrate.h). Each run that ends well appends a row
 * with both sides to $LOCKSTEP_HOME/accuracy.jsonl (planning/check/own_runs.h), which `lockstep plan --accuracy` shows.
 */
#ifndef LS_EXECUTION_TRAIN_PREDICTION_H
#define LS_EXECUTION_TRAIN_PREDICTION_H

#include "execution/train/session.h"
#include "planning/check/own_runs.h"
#include "planning/step/own_time.h"

typedef struct ls_prediction {
    uint64_t memory_bytes;
    bool has_time;
    ls_own_time time;        /* when has_time */
    const char *calibration; /* its date; NULL: none was used */
    char doubt[160];         /* of the calibration (ls_calibration_doubt); "": none */
    char why_not[320];       /* has_time false: what to do about it */
} ls_prediction;

/* What the session's op plan comes to on this machine. With several hosts times are not predicted. Never fails. */
void ls_prediction_make(ls_arena *arena, const ls_session *session, bool several_hosts,
                        ls_prediction *prediction_out);

/* Behind what ls_session_describe says: "time    a step takes 212 ms ..., " or why that is not known. */
void ls_prediction_describe(const ls_prediction *prediction, const ls_session *session, ls_text *text);
/* {step_s, tokens_per_s, checkpoint_stall_s, breakdown_s{}, doubt}; null where not known; doubt is null where there is none. */
json_t *ls_prediction_to_json(const ls_prediction *prediction);

/* Appends the row of a run that ended; one that can't be kept is a warning in the log. `measured` has all but what the session and the prediction say. */
void ls_prediction_keep(const ls_prediction *prediction, const ls_session *session,
                        const ls_own_run_side *measured, uint64_t steps);

#endif
