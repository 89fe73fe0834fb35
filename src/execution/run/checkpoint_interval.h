// SPDX-License-Identifier: Apache-2.0
/*
 * The checkpoint interval: how often to save, given what a checkpoint costs and how often the run
 * fails (checkpoint.every_steps: auto).
 *
 * The interval T is the exact optimum for a checkpoint that costs C seconds of training and a mean
 * time M between failures; formulas and sources are in planning/money/failure_interval.h.
 *
 * M is estimated from the failures of the run itself, with a prior of one failure in one day:
 *
 *   M = (24 h + hours trained) / (1 + failures)
 *
 * which is the mean of a Gamma posterior with a prior of weight one. A new run thus has a value to
 * start with, and an old run its own.
 *
 * A failure is what loses the work since the newest checkpoint: a start of the run that was killed.
 * A lost rank that others take over is not a failure.
 *
 * Bounds: writing a checkpoint keeps the disk and some processors busy for write_s even if no step
 * waits for it, so T is at least ten times that, and at least ten seconds. It is at most an hour,
 * because M is an estimate. Pure.
 */
#ifndef LS_EXECUTION_RUN_CHECKPOINT_INTERVAL_H
#define LS_EXECUTION_RUN_CHECKPOINT_INTERVAL_H

#include <stddef.h>
#include <stdint.h>

#define LS_CHECKPOINT_INTERVAL_PRIOR_S     86400.0
#define LS_CHECKPOINT_INTERVAL_SHORTEST_S  10.0
#define LS_CHECKPOINT_INTERVAL_LONGEST_S   3600.0
#define LS_CHECKPOINT_INTERVAL_WRITE_SHARE 0.1 /* share of the time that the saver may be busy */

typedef struct ls_checkpoint_interval {
    /* Measured. */
    double stall_s;    /* C: how long training waits for one checkpoint, >= 0 */
    double write_s;    /* how long it takes until a checkpoint is durable, >= 0 */
    double recovery_s; /* from a failure to the first new step, >= 0 */
    double trained_s;  /* time of all starts of the run */
    uint64_t failures;
    /* Computed by ls_checkpoint_interval_update. */
    double failure_every_s; /* M */
    double interval_s;      /* T */
    double lost_fraction;   /* share of the time lost to saving and failures: 1 - 1 / w(T) */
} ls_checkpoint_interval;

void ls_checkpoint_interval_update(ls_checkpoint_interval *interval);

/* The number of steps of step_s seconds each in the interval, at least 1. */
uint64_t ls_checkpoint_interval_steps(const ls_checkpoint_interval *interval, double step_s);

/* "a checkpoint every 149 s (1203 steps): each stalls training for 0.2 s; with a failure every
 * 3.1 h, 0.4 % of the time is lost". */
void ls_checkpoint_interval_describe(const ls_checkpoint_interval *interval, double step_s, char *text_out,
                                     size_t text_bytes);

#endif
