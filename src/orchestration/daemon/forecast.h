// SPDX-License-Identifier: Apache-2.0
/* Forecast: how long a submitted run will take on this machine, by its calibration (planning/step/forecast.h). */
#ifndef LS_ORCHESTRATION_DAEMON_FORECAST_H
#define LS_ORCHESTRATION_DAEMON_FORECAST_H

#include "orchestration/job/job.h"
#include "planning/step/forecast.h"

/* Fills job->plan of a run that trains; leaves it as it is when nothing can be said. threads: of each rank. kept: see there; it also
 * bounds what this takes, beside reading the file. */
void ls_daemon_forecast(const ls_calibration *calibration, uint32_t threads, ls_forecast_kept *kept,
                        ls_job *job);

#endif
