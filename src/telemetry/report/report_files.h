// SPDX-License-Identifier: Apache-2.0
/*
 * Report files: the small files of a run directory, as texts: what a page of a run is made of,
 * whoever reads them. A daemon reads those of its users' runs one by one (env/user/user_files.h).
 *
 * Files are read, not mapped, because a resume may truncate them at any moment. A file that is
 * missing is an empty text.
 */
#ifndef LS_TELEMETRY_REPORT_REPORT_FILES_H
#define LS_TELEMETRY_REPORT_REPORT_FILES_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>

typedef enum ls_report_file {
    LS_REPORT_RUN_YAML,
    LS_REPORT_EVENTS,
    LS_REPORT_SUMMARY,
    LS_REPORT_TIME,
    LS_REPORT_NOTES,
    LS_REPORT_METRICS, /* all of it, or its end: then a line may begin in the middle */
    LS_REPORT_FILES
} ls_report_file;

typedef struct ls_report_files {
    ls_text texts[LS_REPORT_FILES];
    double newest_s; /* when metrics.jsonl was last written, seconds since 1970; 0: not known */
} ls_report_files;

/* "run.yaml", ... */
const char *ls_report_file_name(ls_report_file file);

/* Reads all of them. Release in any case. Errors: LS_ERR_NOT_FOUND when `dir` holds neither
 * run.yaml nor metrics.jsonl; LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_report_files_load(const char *dir, ls_report_files *files);
void ls_report_files_release(ls_report_files *files);

#endif
