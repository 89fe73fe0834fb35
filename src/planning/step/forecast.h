// SPDX-License-Identifier: Apache-2.0
/*
 * Forecast: how long a run of Lockstep's own trainer will take on this machine for each number of
 * ranks, computed from its run file before any of its data is opened.
 *
 *   run = steps * step(ranks) + evaluations
 *
 * step(ranks) is that of planning/step/own_time.h, which the trainer also reports before its first
 * step. Evaluations are those that the file asks for, with as many batches as it allows. What the
 * file does not contain is not forecast: a vocabulary defined by a tokenizer file, or sizes in
 * model.from.
 *
 * The daemon asks for forecasts and must not wait: whatever the file contains, a forecast takes
 * less than 5 ms on one current core. Where layers are alike, a plan of three layers is made, in
 * which the middle one stands for all but two. Where train.freeze makes them differ, at most
 * LS_FORECAST_FROZEN_LAYERS_MAX layers and LS_FORECAST_PATTERNS_MAX patterns of two '*' each are
 * examined. Micro-batches above LS_FORECAST_TOKENS_MAX tokens, which no machine can hold, are not
 * forecast. A later question about a run that differs only in other settings (a sweep of learning
 * rates, another number of steps) gets the kept answer (ls_forecast_kept).
 *
 * Pure except for what is kept, which has one owner.
 */
#ifndef LS_PLANNING_STEP_FORECAST_H
#define LS_PLANNING_STEP_FORECAST_H

#include "config/run_file.h"
#include "model/config.h"
#include "planning/hardware/calibration.h"

enum { LS_FORECAST_RANKS_MAX = 64, LS_FORECAST_FROZEN_LAYERS_MAX = 16, LS_FORECAST_PATTERNS_MAX = 8 };
#define LS_FORECAST_TOKENS_MAX INT64_C(0x80000000)

typedef struct ls_forecast {
    uint64_t steps; /* 0: not known: epochs */
    double evaluations_s;
    uint32_t ranks_min, count;
    double step_s[LS_FORECAST_RANKS_MAX]; /* at ranks_min + i ranks, i below count */
} ls_forecast;

enum { LS_FORECAST_NUMBERS = 10 };

/* The last forecast, and what it was made for; begins as {0}. */
typedef struct ls_forecast_kept {
    const ls_calibration *calibration; /* NULL: there is none */
    ls_model_config config;
    uint64_t numbers[LS_FORECAST_NUMBERS];
    ls_forecast forecast;
    double forward_s; /* of a micro-batch in evaluations */
    uint64_t made;    /* how many were not the one before */
} ls_forecast_kept;

/* What is forecast besides the run file. */
typedef struct ls_forecast_request {
    const ls_calibration *calibration; /* the same each time for the same `kept` */
    uint32_t threads;                  /* of each rank, unless train.threads gives them */
    uint32_t ranks_min, ranks_max;
} ls_forecast_request;

/*
 * Forecasts the run at ranks_min to ranks_max ranks. Rank counts above the number of leaves, or
 * beyond LS_FORECAST_RANKS_MAX of them, are left out.
 * Errors: LS_ERR_UNSUPPORTED with what is not known; those of the model's configuration.
 */
LS_MUST_CHECK ls_status ls_forecast_make(ls_arena *arena, const ls_run_file *run,
                                         const ls_forecast_request *request, ls_forecast_kept *kept,
                                         ls_forecast *forecast_out);

/* The time of the whole run at this many ranks; 0: not known. */
double ls_forecast_run_s(const ls_forecast *forecast, uint32_t ranks);

#endif
