// SPDX-License-Identifier: Apache-2.0
/*
 * Run directories: which process owns one, and what it already holds.
 *
 *   run.yaml         the resolved run file
 *   lock             held (flock) by the process that trains here
 *   summary.json     the result; its status is "finished" once the run has reached its last step
 *   control          the address at which other processes reach the one that trains here
 *                    (execution/run/control_socket.h)
 *   time.jsonl       how the time of all starts was spent (telemetry/record/time_log.h)
 *   metrics.jsonl, events.jsonl, tb/, checkpoints/, report.html
 */
#ifndef LS_EXECUTION_RUN_RUN_DIR_H
#define LS_EXECUTION_RUN_RUN_DIR_H

#include "base/arena.h"
#include "config/run_file.h"

typedef enum ls_run_mode {
    LS_RUN_CONTINUE, /* resume the run in the directory, or begin a new one */
    LS_RUN_RESUME,   /* resume; it is an error if there is no run */
    LS_RUN_FRESH     /* move the run in the directory aside and begin a new one */
} ls_run_mode;

typedef struct ls_run_dir {
    const char *path;
    const char *checkpoints; /* path/checkpoints */
    int lock_fd;
    bool had_run; /* it holds a run that is to be resumed */
    bool replace; /* it holds a run that ls_run_dir_settle moves aside */
    bool is_new;  /* ls_run_dir_open made the folder, and nothing was written to it yet */
} ls_run_dir;

/*
 * Creates and locks a run directory. With LS_RUN_FRESH the old run stays in place until
 * ls_run_dir_settle, so that a mistake in the new run file moves nothing.
 *
 * Errors: LS_ERR_INVALID if another process trains there, if LS_RUN_RESUME finds no run, or if the
 * folder holds files that do not belong to a run; LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_run_dir_open(ls_arena *arena, const char *path, ls_run_mode mode,
                                        ls_run_dir *dir_out);
/* Unlocks it. A folder that was made for a run that then was refused is removed. */
void ls_run_dir_close(ls_run_dir *dir);

/*
 * To be called once the new run is known to be valid. Moves aside the run that it replaces (`path`
 * becomes `path.old-1`, -2, ...) and creates the folder again. moved_out: the new path of the old
 * run, in `arena`; NULL if there was none.
 */
LS_MUST_CHECK ls_status ls_run_dir_settle(ls_arena *arena, ls_run_dir *dir, const char **moved_out);

/* The run file of the run in the directory (run.yaml). Errors: those of ls_run_file_load. */
LS_MUST_CHECK ls_status ls_run_dir_begun(ls_arena *arena, const ls_run_dir *dir, ls_run_file *begun_out);

/*
 * Compares `begun`, the run in the directory, with `now`. Errors: LS_ERR_INVALID, whose text lists
 * every key that differs with both values, and says what to do.
 */
LS_MUST_CHECK ls_status ls_run_dir_check_identity(const ls_run_dir *dir, const ls_run_file *begun,
                                                  const ls_run_file *now);

#endif
