// SPDX-License-Identifier: Apache-2.0
/*
 * The calls that read a checkpoint's data files, as a table, so that a test can make any of them
 * fail. (Writing goes through storage/checkpoint/commit.h.)
 *
 * Every call returns its result, or minus an errno value; errno itself is not used. Calls come from
 * several threads at once.
 */
#ifndef LS_STORAGE_CHECKPOINT_READ_CALLS_H
#define LS_STORAGE_CHECKPOINT_READ_CALLS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ls_read_calls {
    void *context; /* passed to every call */
    /* A file descriptor. flags as open(2). */
    int (*open)(void *context, const char *path, int flags);
    /* Bytes read, possibly fewer than asked; 0: the end. */
    int64_t (*read_at)(void *context, int fd, void *data, size_t bytes, uint64_t offset);
    int (*close)(void *context, int fd);
} ls_read_calls;

/* The system's calls. Never NULL; a constant. */
const ls_read_calls *ls_read_calls_system(void);

#endif
