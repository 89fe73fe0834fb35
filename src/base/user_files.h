// SPDX-License-Identifier: Apache-2.0
/*
 * User files: reads of files under paths that a user chose, for a loop that must never wait.
 *
 * Such a path may lie on a network that does not answer, where any call (lstat, open, read) can take minutes, or for ever. So a worker thread makes it, with that
 * user's rights when this process is root, and the loop hears of the outcome or, when `limit` is over, that there was none:
 *
 *   ls_user_files_ask ──▶ todo ──▶ worker (as the user): open, fstat, pread ──▶ done() from the loop
 *                                     └── hangs ──▶ limit ──▶ done(ETIMEDOUT); the thread is left to itself until its call returns
 *
 * What hangs holds up no other user: one worker at a time is in a folder, 8 are with one user (those that hang counted), 2 beside one that hangs, and a user with none
 * may always have one, until 30 users have 8 that hang. Some are kept for files of our own user, who may have 64, and for names. A folder with a call that is over its
 * limit is refused (EBUSY) at once until that call returns. With that user's rights, and none of root's, a name that leads somewhere else, by a link or by many, shows
 * nothing that the user could not read.
 *
 * Called from the loop's thread only, as `done` is; never inside ls_user_files_ask.
 */
#ifndef LS_BASE_USER_FILES_H
#define LS_BASE_USER_FILES_H

#include "base/env.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LS_USER_FILE_BYTES_MAX = 4 * 1024 * 1024, /* of one read */
    LS_USER_FILES_ASKED_MAX = 4096,           /* questions that wait */
};

typedef struct ls_user_files ls_user_files;

typedef struct ls_user_file {
    const char *folder,
        *name;         /* folder/name; copied. One worker at a time is in a folder of that spelling. */
    uint32_t uid, gid; /* who it is read as, when this process is root; else as this process */
    bool is_folder;    /* it must be a folder, which is only looked at; else a plain file */
    bool
        is_user; /* no file: the data are what user `uid` is called (base/user.h); folder and name are not looked at */
    bool from_end;   /* offset is counted back from the file's end */
    uint64_t offset; /* past the end: no bytes. from_end and further than the start: the start */
    size_t bytes;    /* at most; 0: it is only looked at. More than the maximum counts as the maximum */
} ls_user_file;

typedef struct ls_user_file_answer {
    /*
     * 0, or errno: ENOENT, EACCES ... of the calls; EPERM: it is no plain file (no folder), or a link; ETIMEDOUT: no answer within the limit;
     * EBUSY: an earlier question for that folder has still no answer; EAGAIN: too many questions wait.
     */
    int error;
    uint64_t file_bytes; /* its size when it was opened */
    uint32_t owner;      /* whose it is */
    double modified_s;
    uint64_t offset;  /* of data, from the start */
    const char *data; /* valid during the call; a zero is behind it */
    size_t bytes;
} ls_user_file_answer;

typedef void (*ls_user_file_done)(void *context, const ls_user_file_answer *answer);

/* env: a real one, which outlives this. limit_ns: of one question, from asking to hearing. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_user_files_create(ls_env *env, uint64_t limit_ns, ls_user_files **files_out);
/* Nobody is called any more. Waits for no call that hangs. NULL: nothing. */
void ls_user_files_destroy(ls_user_files *files);

/* `done` is called once, from the loop. Returns the question's number, never 0. */
uint64_t ls_user_files_ask(ls_user_files *files, const ls_user_file *file, ls_user_file_done done,
                           void *context);
/* `done` will not be called. A number whose `done` was called, or 0, does nothing. */
void ls_user_files_forget(ls_user_files *files, uint64_t question);

#endif
