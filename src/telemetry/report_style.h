// SPDX-License-Identifier: Apache-2.0
/*
 * Report style: the style sheet of report pages. No script, no font, no network; colours follow the reader's scheme and are those of
 * base/svg. Below 700 px (.ls-phone) figures are shown in their narrow form.
 */
#ifndef LS_TELEMETRY_REPORT_STYLE_H
#define LS_TELEMETRY_REPORT_STYLE_H

extern const char ls_report_style[];

#endif
