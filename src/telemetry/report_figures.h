// SPDX-License-Identifier: Apache-2.0
/*
 * Report figures: the pictures of a report, each in a card with plain words on how to read it. Inside of telemetry/report.
 *
 * Every figure is there twice, wide and narrow; the style sheet shows the one that fits the reader's screen.
 */
#ifndef LS_TELEMETRY_REPORT_FIGURES_H
#define LS_TELEMETRY_REPORT_FIGURES_H

#include "base/text.h"
#include "telemetry/report_data.h"

/* Loss, learning rate, gradient norm, speed, where the time went. */
void ls_report_append_figures(ls_report_data *data, ls_text *page);

/* Where the time of all starts went: a bar of classes, the course of them, with what was lost and recovered, and a table. */
void ls_report_append_time(ls_report_data *data, ls_text *page);

#endif
