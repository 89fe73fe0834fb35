// SPDX-License-Identifier: Apache-2.0
/* Home lock: at most one daemon works on a folder. HOME/lock is locked as long as it runs, and
 * holds its process number. Thread-safe. */
#ifndef LS_ORCHESTRATION_DAEMON_HOME_LOCK_H
#define LS_ORCHESTRATION_DAEMON_HOME_LOCK_H

#include "base/status.h"

#include <stdbool.h>
#include <sys/types.h>

/* file: HOME/lock. name: a socket with a name in the kernel that stands for this path, which
 * keeps a second daemon away even when the folder was emptied, or another disk is mounted there. */
typedef struct ls_home_lock {
    int file, name; /* -1: not held */
} ls_home_lock;

/*
 * Makes the folder if it does not exist, and locks it until ls_home_lock_drop. Waits for a holder
 * that is about to end. Errors: LS_ERR_FAILED (a daemon runs there, with its process number),
 * LS_ERR_INVALID, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_home_lock_take(const char *home, ls_home_lock *lock_out);
void ls_home_lock_drop(ls_home_lock *lock);
/* Whether the folder is still the one that was locked. */
bool ls_home_lock_is_there(const char *home, const ls_home_lock *lock);

/*
 * The process that holds the folder. Errors: LS_ERR_NOT_FOUND (no daemon runs there),
 * LS_ERR_INVALID (the folder belongs to another user, who is named), LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_home_holder(const char *home, pid_t *pid_out);

#endif
