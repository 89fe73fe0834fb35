// SPDX-License-Identifier: Apache-2.0
/*
 * Retention: ended jobs go, row, journal and folder together, when there are more than are kept or they are older. Never one that somebody waits for,
 * nor the newest, whose number says which comes next.
 *
 * A round now and then, a few jobs at a time: first the folders, each by a process of its own, because a user may have put anything there, then the rows of
 * those whose folders are gone. A folder that can't be removed, or takes too long, is left until the next round and holds up no other. A crash between leaves
 * rows without folders, and the next round finds them again. Before the first one goes, the log says how many will.
 */
#ifndef LS_ORCHESTRATION_DAEMON_RETENTION_H
#define LS_ORCHESTRATION_DAEMON_RETENTION_H

#include "base/env.h"
#include "orchestration/control/controller.h"
#include "orchestration/control/job_store.h"

#include <stdint.h>

typedef struct ls_retention ls_retention;

typedef struct ls_retention_settings {
    ls_env *env;
    ls_job_store *store;
    ls_controller *controller;
    const char *home;   /* copied */
    uint64_t jobs_kept; /* ended ones, the newest */
    double time_s;      /* since their end; 0: for ever */
} ls_retention_settings;

/* Looks soon, and then from time to time. */
ls_retention *ls_retention_create(const ls_retention_settings *settings);
/* Before the others that it was given. NULL allowed. */
void ls_retention_destroy(ls_retention *retention);

#endif
