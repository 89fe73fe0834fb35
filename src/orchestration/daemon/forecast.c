// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/forecast.h"

#include "planning/accuracy/accuracy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void take(const ls_forecast *forecast, const ls_calibration *calibration, ls_job *job)
{
    ls_job_plan *plan = &job->plan;
    for (uint32_t i = 0; i < forecast->count && i < LS_JOB_CURVE_MAX; i++) {
        plan->curve[i] = (uint32_t)fmin(1e6, 1000.0 * forecast->step_s[0] / forecast->step_s[i]);
        plan->curve_count = i + 1;
    }
    plan->run_s = ls_forecast_run_s(forecast, job->ranks);
    const ls_band band = ls_accuracy_band_here(calibration, 1.0);
    plan->low = band.low_s;
    plan->high = band.high_s;
    snprintf(plan->source, sizeof plan->source, "calibration of %.40s", calibration->date);
}

void ls_daemon_forecast(const ls_calibration *calibration, uint32_t threads, ls_forecast_kept *kept,
                        ls_job *job)
{
    const ls_job_spec *spec = &job->spec;
    ls_arena arena = {0};
    ls_run_file run;
    ls_forecast forecast;
    const ls_forecast_request request = {calibration, threads, spec->min_ranks, spec->max_ranks};
    if (spec->command.count == 0 &&
        ls_run_file_parse(spec->file, strlen(spec->file), spec->file_name, spec->set.items, spec->set.count,
                          &arena, &run) == LS_OK &&
        ls_forecast_make(&arena, &run, &request, kept, &forecast) == LS_OK) {
        take(&forecast, calibration, job);
    }
    ls_error_clear(); /* the run itself will report what is wrong */
    ls_arena_release(&arena);
}
