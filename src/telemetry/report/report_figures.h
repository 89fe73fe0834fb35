// SPDX-License-Identifier: Apache-2.0
/* The parts of a report, as values of web/report.html and web/run.html. Inside of
 * telemetry/report. */
#ifndef LS_TELEMETRY_REPORT_REPORT_FIGURES_H
#define LS_TELEMETRY_REPORT_REPORT_FIGURES_H

#include "base/template.h"
#include "telemetry/report/report_data.h"

/* Loss, learning rate, gradient norm, speed, and where the time went. */
void ls_report_add_figures(ls_report_data *data, ls_values *page);

/* Where the time of all starts went: a bar of classes; the same over time, with what was lost and
 * recovered; and a table. */
void ls_report_add_time(ls_report_data *data, ls_values *page);
/* The bar of classes as the values of web/bar.html, in a row named `name`. */
void ls_report_add_time_bar(ls_report_data *data, const char *name, ls_values *page);
/* One more piece of such a bar. from, to: 0..1. */
void ls_report_add_piece(ls_values *bar, const char *label, int color, double from, double to);
/* The classes over time as an SVG figure; false: nothing is known, and nothing was appended. */
bool ls_report_append_course(ls_report_data *data, int width, ls_text *svg);

/* ---- report.c ---- */

/* Title, name, status, times, tiles and advice. */
void ls_report_add_head(ls_report_data *data, ls_values *page);
/* The values of web/run_parts.html: sources, predictions, samples, checkpoints, events,
 * identity. */
void ls_report_add_parts(ls_report_data *data, ls_values *page);

#endif
