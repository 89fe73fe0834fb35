// SPDX-License-Identifier: Apache-2.0
/*
 * Calibrating: this machine, measured with the kernels that training runs (planning/hardware/calibration.h has what comes of it).
 *
 * Kernels are measured alone and with all cores busy, with 1, 2, 4, ... threads up to one for each core. All points of all settings are
 * visited in turn, again and again until the result settles or the time is up, so that whatever else the machine does at one moment
 * spoils one visit of some points and not all of one. Of a point's visits those count that come near the fastest.
 *
 * Call from a process that has one thread.
 */
#ifndef LS_EXECUTION_CALIBRATE_CALIBRATE_H
#define LS_EXECUTION_CALIBRATE_CALIBRATE_H

#include "compute/queue.h"
#include "planning/hardware/calibration.h"

typedef struct ls_calibrate_options {
    double seconds;     /* until when rounds begin; the first one is finished in any case */
    bool quick;         /* fewer points: a few seconds, for tests and a first look */
    const char *folder; /* on the disk to measure; NULL: no disk */
    void (*progress)(void *context, const char *what, double passed_s, double most_s); /* NULL: none */
    void *context;
} ls_calibrate_options;

/* Everything in `arena`. Errors: LS_ERR_MEMORY, those of the kernels. A disk or collectives that can't be measured are left out, with a
 * warning in the log. */
LS_MUST_CHECK ls_status ls_calibrate(ls_arena *arena, const ls_calibrate_options *options,
                                     ls_calibration *calibration_out);

/* The calibration of this machine, $LOCKSTEP_HOME/calibration.json. NULL: nowhere to keep it. */
const char *ls_calibration_path(ls_arena *arena);

/*
 * Loads it. False when there is none that can be used: none at all, another machine's, one of other kernels; `why_out` then says what to do, in
 * one sentence. Never fails: a run without predictions is still a run.
 */
bool ls_calibration_find(ls_arena *arena, const ls_queue *queue, ls_calibration *calibration_out,
                         char *why_out, size_t why_bytes);

/* What counts of the times a point was visited, at most 40: the mean of those up to a tenth above the fastest. */
double ls_calibrate_settled_s(const double *times, uint32_t count);

#endif
