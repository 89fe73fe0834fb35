// SPDX-License-Identifier: Apache-2.0
/* Forecast: the time a submitted run will take on this machine, from its calibration
 * (planning/step/forecast.h). */
#ifndef LS_ORCHESTRATION_DAEMON_FORECAST_H
#define LS_ORCHESTRATION_DAEMON_FORECAST_H

#include "orchestration/job/job.h"
#include "planning/step/forecast.h"

/* Fills job->plan of a training run; leaves it as it is if no forecast is possible. threads: of
 * each rank. kept: see planning/step/forecast.h; it also bounds the time this takes. */
void ls_daemon_forecast(const ls_calibration *calibration, uint32_t threads, ls_forecast_kept *kept,
                        ls_job *job);

#endif
