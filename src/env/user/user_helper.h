// SPDX-License-Identifier: Apache-2.0
/*
 * User helpers: processes of lockstep-as-user (src/as_user/as_user.c), through which a daemon of
 * root acts for other users. The daemon itself never takes on another user's rights.
 *
 *   worker thread ── request over a socket pair ──▶ helper, which is that user for good
 *                 ◀── result and bytes ───────────┘
 *
 * One helper serves one thread at a time, and one user for all its life. Helpers that are not used
 * are kept for the next request of the same user, because starting one takes a few milliseconds; at
 * most LS_USER_HELPERS_IDLE_MAX of them, for half a minute. A helper that hangs kills itself
 * after LS_USER_HELPER_LIMIT_S.
 *
 * Thread-safe.
 */
#ifndef LS_ENV_USER_USER_HELPER_H
#define LS_ENV_USER_USER_HELPER_H

#include "base/status.h"
#include "env/user/user_read.h"

#include <stddef.h>
#include <stdint.h>

enum { LS_USER_HELPERS_IDLE_MAX = 64 };

typedef struct ls_user_helpers ls_user_helpers;

/* A user other than root, and the group to act as. */
typedef struct ls_user_identity {
    uint32_t uid, gid;
} ls_user_identity;

ls_user_helpers *ls_user_helpers_create(void);
/* No call may be under way. */
void ls_user_helpers_destroy(ls_user_helpers *helpers);

/*
 * ls_user_read_path, as another user. Blocks until the helper has answered or ended.
 * Errors in result_out, beside those of the read: ENOSYS (the helper can't be started), EIO (it
 * ended before it answered).
 */
void ls_user_helpers_read(ls_user_helpers *helpers, ls_user_identity user, const ls_user_read *what,
                          const char *path, ls_user_read_result *result_out, char **data_out);

/* Ends those that have not been used for a while. */
void ls_user_helpers_trim(ls_user_helpers *helpers);

/*
 * Where lockstep-as-user is: beside this program, as in a build folder, or in
 * ../libexec/lockstep/, as it is installed. Errors: LS_ERR_NOT_FOUND, with the places tried.
 */
LS_MUST_CHECK ls_status ls_user_helper_find(char *path_out, size_t bytes);

#endif
