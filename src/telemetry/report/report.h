// SPDX-License-Identifier: Apache-2.0
/*
 * Report: a run directory as one page with figures (web/report.html).
 *
 * Reads run.yaml, metrics.jsonl, events.jsonl and summary.json of `dir`. Any of them may be missing
 * or end in the middle of a line, as during a run.
 */
#ifndef LS_TELEMETRY_REPORT_REPORT_H
#define LS_TELEMETRY_REPORT_REPORT_H

#include "base/status.h"

/* Writes the page to `path` atomically. Errors: LS_ERR_NOT_FOUND when `dir` is not a run directory;
 * LS_ERR_DISK, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_report_write(const char *dir, const char *path);

#endif
