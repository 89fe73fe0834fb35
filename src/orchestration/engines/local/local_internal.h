// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the local engine.
 *
 *   local.c      orders and reports
 *   folder.c     what is written for a start: folder, run file, ticket
 *   machine.c    what this machine has
 *   watch.c      processes of jobs: how busy, and what is left of them
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_INTERNAL_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_INTERNAL_H

#include "orchestration/engines/local/local.h"
#include "orchestration/engines/local/ticket.h"

#include <stdbool.h>
#include <sys/types.h>

/* ---- machine.c ---- */

typedef struct ls_local_machine {
    ls_engine_node node;
    bool has_gpus;
    char name[64], kind[64];
} ls_local_machine;

/* slots: 0: what there is. */
LS_MUST_CHECK ls_status ls_local_machine_read(uint32_t slots, ls_local_machine *machine_out);

/* ---- folder.c ---- */

enum { LS_LOCAL_PATH_BYTES = 4096 };

typedef struct ls_local_path {
    char text[LS_LOCAL_PATH_BYTES];
} ls_local_path;

ls_local_path ls_local_folder(const char *home, uint64_t job);
/* Folder, run file and ticket of an epoch. Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_local_folder_write(const ls_local_settings *settings,
                                              const ls_local_machine *machine, const ls_job *job);

/* ---- watch.c ---- */

/* One look at a session: all processes that a runner's job consists of. */
typedef struct ls_local_look {
    pid_t session;
    uint64_t cpu_ms; /* used so far by processes that live */
} ls_local_look;

/* Fills cpu_ms of `looks`, which are sorted by session. */
void ls_local_look_all(ls_local_look *looks, uint32_t count);

/* Kills what is left of a job: processes that have its folder in their environment. (Not those of its runner's session: that number may be
 * somebody else's by now.) Returns how many there were: 0 means none is left. */
uint32_t ls_local_kill_leftovers(const char *folder);

#endif
