// SPDX-License-Identifier: Apache-2.0
/*
 * Runs: the metrics of the runs that were asked for last, as far as their files were read
 * (telemetry/store/stored_run.h). Requests for the same run share them.
 *
 * One owner.
 */
#ifndef LS_ORCHESTRATION_API_RUNS_H
#define LS_ORCHESTRATION_API_RUNS_H

#include "telemetry/store/stored_run.h"

/* A new run replaces the least recently used of those that are not held. */
enum { LS_API_RUNS_MAX = 128 };

typedef struct ls_api_runs ls_api_runs;

/* folder: gets their store files, and is made if it is missing; NULL: they are in memory alone.
 * bytes_max: of memory, for all of them; one may need a quarter of it. */
ls_api_runs *ls_api_runs_create(const char *folder, uint64_t bytes_max);
void ls_api_runs_destroy(ls_api_runs *runs);

/* The run of a job of user `uid`, which writes to `run_dir`. It stays while it is held. NULL: all
 * are held, or those that are held need all of the memory. */
ls_stored_run *ls_api_runs_hold(ls_api_runs *runs, uint64_t job, uint32_t uid, const char *run_dir);
/* Whether a run that is held may grow; forgets others for it, those used least recently first. */
bool ls_api_runs_have_room(ls_api_runs *runs, ls_stored_run *run);
/* NULL: nothing. */
void ls_api_runs_drop(ls_api_runs *runs, ls_stored_run *run);
/* NULL: it was not read. Valid until the next call. */
const ls_stored_run *ls_api_runs_find(const ls_api_runs *runs, uint64_t job);

#endif
