// SPDX-License-Identifier: Apache-2.0
/*
 * Local: the engine that runs jobs on this machine.
 *
 * There is one node: its GPUs, or slots on its cores. A start is a folder HOME/jobs/N with a ticket
 * in it (ticket.h) and a runner process (runner.h), which outlives the daemon. The engine learns by
 * inotify what the runner writes to files, and by a pidfd that it has ended.
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_H

#include "base/status.h"
#include "env/env.h"
#include "env/user/user_files.h"
#include "orchestration/engines/engine.h"

#include <stdint.h>

#define LS_LOCAL_PATIENCE_S 5.0

typedef struct ls_local_settings {
    ls_env *env;
    ls_user_files *files; /* reads the folders of runs; outlives the engine */
    const char *home;     /* absolute; jobs/ is created in it */
    /* this program, absolute; started as `program runner` and `program train` */
    const char *program;
    bool spot;      /* this machine may be taken away */
    uint32_t slots; /* slots to offer; 0: one per GPU, or one per core without GPUs */
    double look_s;  /* time between two looks at what jobs do */
    /* A job that was told to end has its grace period and this time; then the engine itself ends
     * it, whatever its runner does. 0: LS_LOCAL_PATIENCE_S. */
    double patience_s;
    ls_engine_hear hear;
    void *hear_context;
} ls_local_settings;

/* settings: copied. Errors: LS_ERR_IO, LS_ERR_DISK, LS_ERR_INVALID (slots). The engine's own
 * `destroy` ends it; jobs keep running. */
LS_MUST_CHECK ls_status ls_local_engine_create(const ls_local_settings *settings, ls_engine **engine_out);

/* One line for whoever starts it: what it cannot enforce on this machine; "": it can. */
const char *ls_local_engine_note(const ls_engine *engine);

#endif
