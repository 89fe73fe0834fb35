// SPDX-License-Identifier: Apache-2.0
/*
 * The disk calls of a commit, as a table, so that a test can make any of them fail (DESIGN I4).
 *
 * Every call returns what it did, or minus an errno value; errno itself is not used. ls_disk_system() makes
 * the system calls. What only reads (loading, listing) does not go through here: it cannot hurt what is
 * stored.
 *
 * Thread-safety: write_at is called from several threads on one file, at distinct offsets; the others from
 * one thread.
 */
#ifndef LS_STORAGE_DISK_H
#define LS_STORAGE_DISK_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ls_disk {
    void *context; /* handed to every call */
    /* A file descriptor. flags as open(2); the mode is 0644. */
    int (*open)(void *context, const char *path, int flags);
    /* Reserves blocks, so that a full disk shows before the data are written. -EOPNOTSUPP is no failure to
     * the caller. */
    int (*allocate)(void *context, int fd, uint64_t bytes);
    /* Bytes written, possibly fewer than asked. */
    int64_t (*write_at)(void *context, int fd, const void *data, size_t bytes, uint64_t offset);
    int (*truncate)(void *context, int fd, uint64_t bytes);
    int (*sync)(void *context, int fd);
    int (*close)(void *context, int fd); /* the descriptor is gone, whatever is returned */
    int (*make_dir)(void *context, const char *path);
    int (*sync_dir)(void *context, const char *path);
    int (*rename)(void *context, const char *from, const char *to);
    /* Swaps two names in one step (RENAME_EXCHANGE). */
    int (*exchange)(void *context, const char *a, const char *b);
    /* Removes a file or a whole folder tree; a missing one is fine. */
    int (*remove)(void *context, const char *path);
} ls_disk;

/* The system's calls. Never NULL; a constant. */
const ls_disk *ls_disk_system(void);

/* Writes a small file under its final name and syncs it: open, write_at, sync, close. */
LS_MUST_CHECK ls_status ls_disk_write_file(const ls_disk *disk, const char *path, const void *data,
                                           size_t bytes);

/*
 * write_at until `bytes` are written. alignment_bytes: after a short write, starts again at a multiple of
 * this (1: where it stopped); O_DIRECT needs it. Errors: as ls_fail_errno, naming `path`.
 */
LS_MUST_CHECK ls_status ls_disk_write_all(const ls_disk *disk, int fd, const char *path, const void *data,
                                          size_t bytes, uint64_t offset, size_t alignment_bytes);

#endif
