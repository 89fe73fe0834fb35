// SPDX-License-Identifier: Apache-2.0
/*
 * User files: reads files under paths that a user chose, for an event loop that must never block.
 *
 * Such a path may lie on a network file system that does not answer, where any call (open, stat,
 * read) can take minutes, or never return. So a worker thread makes the call, and the loop gets the
 * answer, or after `limit` that there was none:
 *
 *   ls_user_files_ask ──▶ waiting ──▶ worker: open, fstat, pread ──▶ done() from the loop
 *                                        │  └─ for another user: through a helper (user_helper.h)
 *                                        └─ hangs ──▶ limit ──▶ done(ETIMEDOUT); the worker stays
 *                                                               with the call until it returns
 *
 * With whose rights: if this process is root, a file is read by a helper process that is the user
 * and nothing else, so a name that leads somewhere else, through links or otherwise, shows nothing
 * that the user could not read. Files of root itself, and all files if this process is not root,
 * are read by this process.
 *
 * A call that hangs never delays other users. Limits:
 *   - one call at a time in a folder (of that spelling). A folder with a call over its limit is
 *     refused with EBUSY until the call returns; a helper's call is ended after a minute;
 *   - 8 calls at a time for one user, or 2 while one of that user's calls is over its limit;
 *   - 8 workers for one user, those with calls over their limit included (64 for our own user);
 *   - 32 calls at a time for all other users together, but a user without any may always make one;
 *   - 256 workers, 16 of them reserved for our own files and for names of users. So 30 users with 8
 *     hung calls each are needed before another user has to wait.
 *
 * All functions are called from the loop's thread, and so is `done`, which is never called from
 * inside ls_user_files_ask.
 */
#ifndef LS_ENV_USER_USER_FILES_H
#define LS_ENV_USER_USER_FILES_H

#include "base/status.h"
#include "env/env.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_USER_FILES_ASKED_MAX = 4096 }; /* requests that are not answered yet */

typedef struct ls_user_files ls_user_files;

typedef struct ls_user_file {
    const char *folder, *name; /* FOLDER/NAME; both are copied */
    uint32_t uid, gid;         /* user it is read as, if this process is root */
    bool is_folder;            /* a folder, of which the names are read; else a plain file */
    /* The answer's data are the name of user `uid` (env/user/user.h); folder and name are not
     * used. */
    bool is_user;
    bool from_end;   /* `offset` counts back from the end of the file */
    uint64_t offset; /* past the end: no bytes; with from_end and before the start: the start */
    size_t bytes;    /* at most, up to LS_USER_READ_BYTES_MAX; 0: it is only looked at */
} ls_user_file;

typedef struct ls_user_file_answer {
    /*
     * 0, or errno: ENOENT, EACCES ... of the calls; EPERM: not a plain file (or folder), or a link;
     * ETIMEDOUT: no answer within the limit; EBUSY: an earlier call in that folder hangs; EAGAIN:
     * too many requests wait; ENOSYS: lockstep-as-user is missing; EIO: it was killed.
     */
    int error;
    uint64_t file_bytes; /* size when it was opened */
    uint32_t owner;      /* user who owns it; with is_user: primary group, UINT32_MAX: unknown */
    double modified_s;
    uint64_t offset;  /* of the data, from the start */
    const char *data; /* valid during the call; a zero follows */
    size_t bytes;
} ls_user_file_answer;

typedef void (*ls_user_file_done)(void *context, const ls_user_file_answer *answer);

/* env: a real one, which outlives this. limit_ns: from asking to the answer. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_user_files_create(ls_env *env, uint64_t limit_ns, ls_user_files **files_out);
/* No `done` is called any more. Does not wait for calls that hang. NULL: nothing. */
void ls_user_files_destroy(ls_user_files *files);

/* `done` is called once, from the loop. Returns the number of the request, never 0. */
uint64_t ls_user_files_ask(ls_user_files *files, const ls_user_file *file, ls_user_file_done done,
                           void *context);
/* `done` will not be called. 0, or the number of an answered request, does nothing. */
void ls_user_files_forget(ls_user_files *files, uint64_t number);

#endif
