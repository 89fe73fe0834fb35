// SPDX-License-Identifier: Apache-2.0
/*
 * User read: one read of a file, as it is asked of a worker or of lockstep-as-user.
 *
 * The two structs are also the messages between daemon and helper (src/as_user/as_user.c): a
 * request is an ls_user_read and `path_bytes` bytes of path, an answer is an ls_user_read_result
 * and `bytes` bytes of data. Both ends are of one build, on one machine. No library but the C
 * library: this file is compiled into the helper too.
 */
#ifndef LS_ENV_USER_USER_READ_H
#define LS_ENV_USER_USER_READ_H

#include <assert.h>
#include <stdint.h>

enum {
    LS_USER_READ_MAGIC = 0x4c535255,          /* a helper of another build is refused */
    LS_USER_READ_BYTES_MAX = 4 * 1024 * 1024, /* of one read */
    /* a helper that takes longer for one read is killed */
    LS_USER_HELPER_LIMIT_S = 60,
};

/* Exit codes of the helper's `run`. */
enum {
    LS_USER_EXIT_ANOTHER = 67, /* the user's number belongs to another name now, or to none */
    LS_USER_EXIT_UNKNOWN = 68, /* the database of users could not be asked: try again */
};

typedef struct ls_user_read {
    uint32_t magic;
    uint32_t path_bytes; /* without a terminating zero; for the helper */
    uint32_t is_folder;  /* must be a folder, of which the names are read; 0: a plain file */
    uint32_t from_end;   /* `offset` counts back from the end of the file */
    uint64_t offset, bytes;
} ls_user_read;

typedef struct ls_user_read_result {
    int32_t error;       /* 0, or errno */
    uint32_t owner;      /* user who owns it */
    uint64_t file_bytes; /* size when it was opened */
    double modified_s;
    uint64_t offset; /* of the data, from the start */
    uint64_t bytes;
} ls_user_read_result;

static_assert(sizeof(ls_user_read) == 32 && sizeof(ls_user_read_result) == 40, "sent over a socket");

/*
 * Opens `path` and reads from it, with this process's rights. Blocks for as long as the file system
 * takes. data_out: to be freed, a zero follows the bytes; NULL when there are none. Of a folder,
 * these are the names in it, in no order, each with a zero, as many as fit into `bytes`.
 *
 * The last part of the path must not be a link. EPERM: it is a link, or neither plain file nor
 * folder as asked.
 */
void ls_user_read_path(const ls_user_read *what, const char *path, ls_user_read_result *result_out,
                       char **data_out);

#endif
