// SPDX-License-Identifier: Apache-2.0
/*
 * Cadence: how often to save, from what a checkpoint costs and how often the run is lost (checkpoint.every_steps: auto).
 *
 * The interval is the exact optimum of planning/money/interval.h, where the formulas and their sources are, for a checkpoint that costs C seconds of training and
 * a mean time M between failures.
 *
 * M is what the run itself saw, with a prior: one failure in a day before it began, so that a new run has a number and an old one its own:
 *
 *   M = (24 h + hours trained) / (1 + failures)          the mean of a Gamma posterior with prior of weight one
 *
 * Only what costs work since the newest checkpoint is a failure: starts that did not end by themselves. A lost rank that is taken over costs none.
 *
 * Bounds: a checkpoint takes write_s of the disk and of processors at low priority even when nobody waits for it, so T is at least ten times
 * that, and at least ten seconds; it is at most an hour, because M is a guess. Pure.
 */
#ifndef LS_EXECUTION_TRAIN_CADENCE_H
#define LS_EXECUTION_TRAIN_CADENCE_H

#include <stddef.h>
#include <stdint.h>

#define LS_CADENCE_PRIOR_S     86400.0
#define LS_CADENCE_INTERVAL_S  10.0 /* least */
#define LS_CADENCE_LONGEST_S   3600.0
#define LS_CADENCE_WRITE_SHARE 0.1 /* of the time the saver may be busy */

typedef struct ls_cadence {
    /* Measured. */
    double stall_s;    /* of training by one checkpoint, >= 0 */
    double write_s;    /* until it is durable, >= 0 */
    double recovery_s; /* from a failure to the first new step, >= 0 */
    double trained_s;  /* by all starts of the run */
    uint64_t failures;
    /* What follows: ls_cadence_update. */
    double failure_every_s; /* M */
    double interval_s;      /* T */
    double lost_fraction;   /* of the time, by saving and by failures: 1 - 1 / w(T) */
} ls_cadence;

void ls_cadence_update(ls_cadence *cadence);

/* Steps of step_s seconds each for the interval: at least 1. */
uint64_t ls_cadence_steps(const ls_cadence *cadence, double step_s);

/* "a checkpoint every 149 s (1,203 steps): it stalls 0.20 s, a failure every 3.1 h, 0.4 % of the time lost". */
void ls_cadence_describe(const ls_cadence *cadence, double step_s, char *text_out, size_t text_bytes);

#endif
