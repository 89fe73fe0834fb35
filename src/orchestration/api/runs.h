// SPDX-License-Identifier: Apache-2.0
/*
 * Runs: the metrics of the runs that were asked for last, as far as their files were read
 * (telemetry/store/run_metrics.h). Requests for the same run share them.
 *
 * One owner.
 */
#ifndef LS_ORCHESTRATION_API_RUNS_H
#define LS_ORCHESTRATION_API_RUNS_H

#include "telemetry/store/run_metrics.h"

/* A new run replaces the least recently used of those that are not held. */
enum { LS_API_RUNS_MAX = 128 };

typedef struct ls_api_run_file {
    char *name; /* in the run directory */
    ls_feed feed;
} ls_api_run_file;

typedef struct ls_api_run {
    ls_run_metrics data;
    ls_api_run_file *files; /* those that were read */
    size_t file_count;
} ls_api_run;

typedef struct ls_api_runs ls_api_runs;

ls_api_runs *ls_api_runs_create(void);
void ls_api_runs_destroy(ls_api_runs *runs);

/* The run of a job. It stays while it is held. NULL: all are held. */
ls_api_run *ls_api_runs_hold(ls_api_runs *runs, uint64_t job);
/* NULL: nothing. */
void ls_api_runs_drop(ls_api_runs *runs, ls_api_run *run);
/* NULL: it was not read. Valid until the next call. */
const ls_api_run *ls_api_runs_find(const ls_api_runs *runs, uint64_t job);

/* How far a file of the run was read; it is new if the name is. Valid until the next call. */
ls_feed *ls_api_run_feed(ls_api_run *run, const char *name);
/* What was read is read again from the start. */
void ls_api_run_clear(ls_api_run *run);

#endif
