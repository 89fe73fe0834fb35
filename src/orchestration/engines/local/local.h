// SPDX-License-Identifier: Apache-2.0
/*
 * Local: the engine that runs jobs on this machine.
 *
 * One node: its GPUs, or slots of its cores. A start is a folder HOME/jobs/N, a ticket in it (engines/local/ticket.h) and a runner process
 * (engines/local/runner.h), which outlives this one; what the runner says in files is heard of by inotify, and its end by a pidfd.
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_H

#include "base/env.h"
#include "base/status.h"
#include "base/user_files.h"
#include "orchestration/engines/engine.h"

#include <stdint.h>

typedef struct ls_local_settings {
    ls_env *env;
    ls_user_files *files; /* how folders of runs are looked at; outlives the engine */
    const char *home;     /* absolute: jobs/ is made in it */
    const char *program;  /* this program, absolute: `program runner`, `program train` */
    bool spot;            /* this machine may be taken away */
    uint32_t slots;       /* 0: GPUs if there are any, else one per core */
    double look_s;        /* between two looks at what jobs do */
    ls_engine_hear hear;
    void *hear_context;
} ls_local_settings;

/* settings: copied. Errors: LS_ERR_IO, LS_ERR_DISK, LS_ERR_INVALID (slots). Destroyed by its own call; jobs go on. */
LS_MUST_CHECK ls_status ls_local_engine_create(const ls_local_settings *settings, ls_engine **engine_out);

#endif
