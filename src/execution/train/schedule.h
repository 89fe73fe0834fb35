// SPDX-License-Identifier: Apache-2.0
/*
 * Learning-rate schedules: a pure function of the step, computed without the C library's cosine so
 * that every machine gets the same bits.
 *
 * Step s (0-based: the number of updates done before it) of `steps`:
 *
 *   warm-up   s < warmup_steps: lr * (s + 1) / warmup_steps
 *   constant  lr
 *   linear    from lr to final_fraction * lr in a straight line, over the steps after warm-up
 *   cosine    the same with half a cosine wave (Loshchilov and Hutter, "SGDR", 2017, without
 *             restarts)
 *   wsd       lr until the last decay_fraction of all steps, then a straight line to final_fraction
 *             * lr (warm-up, stable, decay: Hu et al., "MiniCPM", 2024)
 *
 * Pure and thread-safe.
 */
#ifndef LS_EXECUTION_TRAIN_SCHEDULE_H
#define LS_EXECUTION_TRAIN_SCHEDULE_H

#include "config/run_file.h"

#include <stdint.h>

typedef struct ls_schedule {
    ls_schedule_kind kind;
    double lr;             /* peak, > 0 */
    uint64_t steps;        /* of the whole run, >= 1 */
    uint64_t warmup_steps; /* 0: none */
    double final_fraction; /* 0..1 */
    double decay_fraction; /* wsd: 0..1 */
} ls_schedule;

/* The learning rate of step `step`; steps past the end keep the last value. */
double ls_schedule_lr(const ls_schedule *schedule, uint64_t step);

#endif
