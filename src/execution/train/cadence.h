// SPDX-License-Identifier: Apache-2.0
/*
 * Cadence: how often to save, from what a checkpoint costs and how often the run is lost (checkpoint.every_steps: auto).
 *
 * With failures as a Poisson process of mean time M between them, a checkpoint that costs C seconds of training, R seconds from a failure to
 * the first new step, and T seconds of training between checkpoints, a second of useful training takes
 *
 *   w(T) = M / T * exp(R / M) * (exp((T + C) / M) - 1)   seconds                      (Daly 2006, eq. 20, restart included)
 *
 * Its minimum does not depend on R: (T / M - 1) * exp(T / M - 1) = -exp(-C / M - 1), solved here by Newton's method; for C << M it is Young's
 * T = sqrt(2 C M). Sources: J. W. Young, "A first order approximation to the optimum checkpoint interval", 1974; J. T. Daly, "A higher order
 * estimate of the optimum checkpoint interval for restart dumps", FGCS 22, 2006.
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

/* The optimum without bounds, for cost_s > 0 and mean_s > 0; mean_s itself when a checkpoint costs more than two failures are apart. */
double ls_cadence_optimum_s(double cost_s, double mean_s);
/* 1 - 1 / w(interval_s). */
double ls_cadence_lost_fraction(double interval_s, double cost_s, double mean_s, double recovery_s);

/* Steps of step_s seconds each for the interval: at least 1. */
uint64_t ls_cadence_steps(const ls_cadence *cadence, double step_s);

/* "a checkpoint every 149 s (1,203 steps): it stalls 0.20 s, a failure every 3.1 h, 0.4 % of the time lost". */
void ls_cadence_describe(const ls_cadence *cadence, double step_s, char *text_out, size_t text_bytes);

#endif
