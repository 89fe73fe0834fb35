// SPDX-License-Identifier: Apache-2.0
/*
 * Run directories: who owns one, and what is in it already.
 *
 *   run.yaml         the resolved run file
 *   lock             held (flock) by the process that trains here
 *   summary.json     the result; its status is "finished" when the run reached its last step
 *   control          where the process that trains here can be asked (execution/elastic/control_socket.h)
 *   time.jsonl       where the time of all starts went (telemetry/time_log.h)
 *   metrics.jsonl, events.jsonl, tb/, checkpoints/, report.html
 */
#ifndef LS_EXECUTION_TRAIN_RUN_DIR_H
#define LS_EXECUTION_TRAIN_RUN_DIR_H

#include "base/arena.h"
#include "planning/run_file.h"

typedef enum ls_run_mode {
    LS_RUN_CONTINUE, /* resume what is there, else begin */
    LS_RUN_RESUME,   /* resume; nothing there is an error */
    LS_RUN_FRESH     /* move what is there aside and begin */
} ls_run_mode;

typedef struct ls_run_dir {
    const char *path;
    const char *checkpoints; /* path/checkpoints */
    int lock_fd;
    bool had_run; /* a run is there that goes on */
    bool replace; /* a run is there that ls_run_dir_settle moves aside */
} ls_run_dir;

/*
 * Creates and locks a run directory. With LS_RUN_FRESH the run that is there stays until ls_run_dir_settle, so that a mistake in the new
 * one moves nothing.
 *
 * Errors: LS_ERR_INVALID when another process trains there, when LS_RUN_RESUME finds no run, or when the folder holds files that are
 * no run; LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_run_dir_open(ls_arena *arena, const char *path, ls_run_mode mode,
                                        ls_run_dir *dir_out);
void ls_run_dir_close(ls_run_dir *dir);

/*
 * The new run is sound: moves the one it replaces aside (`path` becomes `path.old-1`, -2, ...; moved_out: where to, in `arena`, or NULL when
 * nothing was there) and makes the folder anew.
 */
LS_MUST_CHECK ls_status ls_run_dir_settle(ls_arena *arena, ls_run_dir *dir, const char **moved_out);

/*
 * Compares the run that is in the directory with `now`. Errors: LS_ERR_INVALID
 * listing every key that differs with both values, and what to do.
 */
LS_MUST_CHECK ls_status ls_run_dir_check_identity(ls_arena *arena, const ls_run_dir *dir,
                                                  const ls_run_file *now);

#endif
