// SPDX-License-Identifier: Apache-2.0
/*
 * Forecast: how long a run of our own trainer will take on this machine with each number of ranks, said of its run file before anything of it is opened.
 *
 *   run = steps * step(ranks) + evaluations
 *
 * step(ranks) is that of planning/step/own_time.h, which the trainer says too before its first step. Evaluations are those that the file asks for, as many batches
 * as it allows. What the file does not say is not forecast: a vocabulary that comes with a tokenizer's file, the sizes of model.from.
 *
 * Pure.
 */
#ifndef LS_PLANNING_STEP_FORECAST_H
#define LS_PLANNING_STEP_FORECAST_H

#include "planning/hardware/calibration.h"
#include "planning/run_file.h"

enum { LS_FORECAST_RANKS_MAX = 64 };

typedef struct ls_forecast {
    uint64_t steps; /* 0: not known: epochs */
    double evaluations_s;
    uint32_t ranks_min, count;
    double step_s[LS_FORECAST_RANKS_MAX]; /* at ranks_min + i ranks, i below count */
} ls_forecast;

/*
 * At ranks_min to ranks_max ranks, of which those are left out that are beyond the leaves of a step or LS_FORECAST_RANKS_MAX of them. threads: of each rank, unless
 * train.threads says so. Errors: LS_ERR_UNSUPPORTED with what is not known; those of the model's configuration.
 */
LS_MUST_CHECK ls_status ls_forecast_make(ls_arena *arena, const ls_run_file *run,
                                         const ls_calibration *calibration, uint32_t threads,
                                         uint32_t ranks_min, uint32_t ranks_max, ls_forecast *forecast_out);

/* The whole run at so many ranks; 0: not known. */
double ls_forecast_run_s(const ls_forecast *forecast, uint32_t ranks);

#endif
