// SPDX-License-Identifier: Apache-2.0
/*
 * Retention: removes ended jobs, with row, journal and folder, when there are more than `jobs_kept`
 * or they ended longer than `time_s` ago. A job that another one waits for is kept, and so is the
 * newest one, whose number tells which number comes next.
 *
 * It works in rounds, a few jobs at a time. First each folder is removed, by a process of its own,
 * because a user may have put anything there; then the rows of those whose folders are gone. A
 * folder that can't be removed, or takes too long, is left for the next round and delays no other.
 * A crash in between leaves rows without folders, which the next round finds again. Before the
 * first job is removed, the log says how many will be.
 */
#ifndef LS_ORCHESTRATION_DAEMON_RETENTION_H
#define LS_ORCHESTRATION_DAEMON_RETENTION_H

#include "env/env.h"
#include "orchestration/control/controller.h"
#include "orchestration/control/job_store.h"

#include <stdint.h>

typedef struct ls_retention ls_retention;

typedef struct ls_retention_settings {
    ls_env *env;
    ls_job_store *store;
    ls_controller *controller;
    const char *home;   /* copied */
    uint64_t jobs_kept; /* number of ended jobs to keep, the newest */
    double time_s;      /* after their end; 0: no limit */
} ls_retention_settings;

/* The first round begins soon, then one every ten minutes. */
ls_retention *ls_retention_create(const ls_retention_settings *settings);
/* New limits, for the next round. */
void ls_retention_configure(ls_retention *retention, uint64_t jobs_kept, double time_s);
/* Must come before store, controller and env are destroyed. NULL: nothing. */
void ls_retention_destroy(ls_retention *retention);

#endif
