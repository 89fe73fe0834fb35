// SPDX-License-Identifier: Apache-2.0
/*
 * Locks of a cache folder (storage/cache/cache.h): two bytes for each key, in 64 files that all
 * keys share, so that a process with ten thousand pins needs only 64 descriptors, and a removed key
 * leaves no file behind.
 *
 *   PIN   shared: the entry is in use; exclusive: it is being removed
 *   MAKE  exclusive: the entry is being made
 *
 * Thread-safe except init and release. The locks are open file description locks: two sets of locks
 * exclude each other even within one process; a set does not exclude itself.
 */
#ifndef LS_STORAGE_CACHE_CACHE_LOCKS_H
#define LS_STORAGE_CACHE_CACHE_LOCKS_H

#include "base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { LS_CACHE_LOCK_FILES = 64 };

typedef enum ls_cache_lock { LS_CACHE_PIN = 0, LS_CACHE_MAKE = 1 } ls_cache_lock;

typedef struct ls_cache_locks {
    int folder;       /* borrowed */
    const char *path; /* path of the folder, for error texts; borrowed */
    gid_t group;      /* trusted, or (gid_t)-1 */
    _Atomic int fds[LS_CACHE_LOCK_FILES];
} ls_cache_locks;

void ls_cache_locks_init(ls_cache_locks *locks, int folder, const char *path, gid_t group);
/* Drops all locks. */
void ls_cache_locks_release(ls_cache_locks *locks);

/* How to wait for a lock. */
typedef struct ls_cache_patience {
    ls_status (*stop)(void *context);
    /* Called once if the wait takes a while. */
    void (*refused)(void *context);
    void *context;
} ls_cache_patience;

/* Whether a file in the folder belongs to this user, root or the trusted group. */
bool ls_cache_is_believed(const struct stat *info, gid_t group);
/* Gives a new file its mode regardless of the umask; if there is a trusted group, its members
 * can write the file, too. */
bool ls_cache_share(int fd, gid_t group, mode_t mode);

/* The file and the byte of a key's lock. */
uint32_t ls_cache_lock_file(const char *key);
off_t ls_cache_lock_offset(const char *key, ls_cache_lock lock);

/*
 * Takes a lock. With patience NULL it does not wait: *taken_out is false if another set holds the
 * lock. Otherwise it waits, and taken_out may be NULL. Errors: those of `stop`; LS_ERR_IO,
 * LS_ERR_DISK; LS_ERR_NOT_FOUND if the folder has no locks.
 */
LS_MUST_CHECK ls_status ls_cache_lock_take(ls_cache_locks *locks, const char *key, ls_cache_lock lock,
                                           bool exclusive, const ls_cache_patience *patience,
                                           bool *taken_out);
void ls_cache_lock_drop(ls_cache_locks *locks, const char *key, ls_cache_lock lock);

/* Whether another set holds the lock, shared or exclusive. False if that can't be determined. */
bool ls_cache_lock_is_held(ls_cache_locks *locks, const char *key, ls_cache_lock lock);

#endif
