// SPDX-License-Identifier: Apache-2.0
/*
 * Calibration: times the kernels of training on this machine. The result is described in
 * planning/hardware/calibration.h.
 *
 * Each kernel is timed with 1, 2, 4, ... threads up to one per core, and for each number of threads
 * both alone and with all cores busy. A round visits every point (a kernel with given sizes) of
 * every setting once. Rounds are repeated until the result settles or the time is up, so that a
 * disturbance spoils one visit of a few points and not all visits of one. Of the visits of a point,
 * those close to the fastest count.
 *
 * Call it from a process that has only one thread.
 */
#ifndef LS_EXECUTION_CALIBRATE_CALIBRATE_H
#define LS_EXECUTION_CALIBRATE_CALIBRATE_H

#include "compute/queue.h"
#include "planning/hardware/calibration.h"

typedef struct ls_calibrate_options {
    double seconds;     /* no round starts after this time; the first one is always completed */
    bool quick;         /* fewer points: takes a few seconds, for tests and a first look */
    const char *folder; /* on the disk to be measured; NULL: none is */
    /* Called as the work proceeds. NULL: never. */
    void (*progress)(void *context, const char *what, double passed_s, double most_s);
    void *context;
} ls_calibrate_options;

/* Calibrates this machine. The result lives in `arena`. Errors: LS_ERR_MEMORY, those of the
 * kernels. If the disk or the collectives cannot be measured, a warning is logged and they are
 * left out. */
LS_MUST_CHECK ls_status ls_calibrate(ls_arena *arena, const ls_calibrate_options *options,
                                     ls_calibration *calibration_out);

/* The file with this machine's calibration, $LOCKSTEP_HOME/calibration.json. NULL: there is no
 * folder to keep it in. */
const char *ls_calibration_path(ls_arena *arena);

/*
 * Loads it. Returns false if there is none, or if it was made on another machine or with other
 * kernels; `why_out` then says what to do, in one sentence. Never fails: a run can do without
 * predictions.
 */
bool ls_calibration_find(ls_arena *arena, const ls_queue *queue, ls_calibration *calibration_out,
                         char *why_out, size_t why_bytes);

/* The time of a point, from the times of its visits (at most 40): the mean of those up to 10 %
 * above the fastest. */
double ls_calibrate_settled_s(const double *times, uint32_t count);

#endif
