// SPDX-License-Identifier: Apache-2.0
/*
 * Forecast: how long a run of our own trainer will take on this machine with each number of ranks, said of its run file before anything of it is opened.
 *
 *   run = steps * step(ranks) + evaluations
 *
 * step(ranks) is that of planning/step/own_time.h, which the trainer says too before its first step. Evaluations are those that the file asks for, as many batches
 * as it allows. What the file does not say is not forecast: a vocabulary that comes with a tokenizer's file, the sizes of model.from.
 *
 * Who asks has no time: whatever the file says, a forecast takes below 5 ms on one core of today. Of layers that are alike a plan of three is made, where the middle
 * one stands for all but two. Where train.freeze makes them differ, at most LS_FORECAST_FROZEN_LAYERS_MAX layers and LS_FORECAST_PATTERNS_MAX patterns of two '*' each
 * are looked at; and nothing is said of micro-batches above LS_FORECAST_TOKENS_MAX tokens, which no machine holds. One that asks again for a
 * run that differs in other settings (a sweep of learning rates, another number of steps) gets the last answer, if it was kept (ls_forecast_kept).
 *
 * Pure but for what is kept, which has one owner.
 */
#ifndef LS_PLANNING_STEP_FORECAST_H
#define LS_PLANNING_STEP_FORECAST_H

#include "model/config.h"
#include "planning/hardware/calibration.h"
#include "planning/run_file.h"

enum { LS_FORECAST_RANKS_MAX = 64, LS_FORECAST_FROZEN_LAYERS_MAX = 16, LS_FORECAST_PATTERNS_MAX = 8 };
#define LS_FORECAST_TOKENS_MAX INT64_C(0x80000000)

typedef struct ls_forecast {
    uint64_t steps; /* 0: not known: epochs */
    double evaluations_s;
    uint32_t ranks_min, count;
    double step_s[LS_FORECAST_RANKS_MAX]; /* at ranks_min + i ranks, i below count */
} ls_forecast;

enum { LS_FORECAST_NUMBERS = 9 };

/* The last forecast, and what it was made for; begins as {0}. */
typedef struct ls_forecast_kept {
    const ls_calibration *calibration; /* NULL: there is none */
    ls_model_config config;
    uint64_t numbers[LS_FORECAST_NUMBERS];
    ls_forecast forecast;
    double forward_s; /* of a micro-batch in evaluations */
    uint64_t made;    /* how many were not the one before */
} ls_forecast_kept;

/*
 * At ranks_min to ranks_max ranks, of which those are left out that are beyond the leaves of a step or LS_FORECAST_RANKS_MAX of them. threads: of each rank, unless
 * train.threads says so. kept: of the same calibration each time. Errors: LS_ERR_UNSUPPORTED with what is not known; those of the model's configuration.
 */
LS_MUST_CHECK ls_status ls_forecast_make(ls_arena *arena, const ls_run_file *run,
                                         const ls_calibration *calibration, uint32_t threads,
                                         uint32_t ranks_min, uint32_t ranks_max, ls_forecast_kept *kept,
                                         ls_forecast *forecast_out);

/* The whole run at so many ranks; 0: not known. */
double ls_forecast_run_s(const ls_forecast *forecast, uint32_t ranks);

#endif
