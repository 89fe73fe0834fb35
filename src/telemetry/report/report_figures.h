// SPDX-License-Identifier: Apache-2.0
/* The figures of a report, as values of web/report.html. Inside of telemetry/report. */
#ifndef LS_TELEMETRY_REPORT_REPORT_FIGURES_H
#define LS_TELEMETRY_REPORT_REPORT_FIGURES_H

#include "base/template.h"
#include "telemetry/report/report_data.h"

/* Loss, learning rate, gradient norm, speed, and where the time went. */
void ls_report_add_figures(ls_report_data *data, ls_values *page);

/* Where the time of all starts went: a bar of classes; the same over time, with what was lost and
 * recovered; and a table. */
void ls_report_add_time(ls_report_data *data, ls_values *page);

#endif
