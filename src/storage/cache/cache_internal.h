// SPDX-License-Identifier: Apache-2.0
/*
 * Shared by the files of the cache: cache.c finds and makes, cache_folder.c looks through the
 * folder, removes, and keeps the limits.
 */
#ifndef LS_STORAGE_CACHE_CACHE_INTERNAL_H
#define LS_STORAGE_CACHE_CACHE_INTERNAL_H

#include "storage/cache/cache.h"
#include "storage/cache/cache_locks.h"

#include <pthread.h>

enum { LS_CACHE_NAME_MAX = LS_CACHE_KEY_MAX + 32 };

struct ls_cache {
    ls_cache_options options;
    char *path;                         /* path of the folder; "": none */
    pthread_mutex_t mutex;              /* guards the members below */
    int folder;                         /* -1: not opened yet */
    gid_t group;                        /* trusted, or (gid_t)-1 */
    ls_cache_locks pins;                /* entries that were taken */
    char (*keys)[LS_CACHE_KEY_MAX + 1]; /* of what is pinned */
    size_t key_count, key_capacity;
    double opened_s;
    bool has_made;
};

/* Opens the folder once; with `make` a missing folder is created, without it the result is
 * LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_cache_folder_open(ls_cache *cache, bool make);

typedef struct ls_cache_name {
    char text[LS_CACHE_NAME_MAX];
} ls_cache_name;
ls_cache_name ls_cache_name_of(const char *key, const char *suffix);

/* Takes a name in the folder apart: whether it is an entry, a note or a part, and its key. */
typedef enum ls_cache_kind { LS_CACHE_OTHER, LS_CACHE_ENTRY, LS_CACHE_NOTE, LS_CACHE_PART } ls_cache_kind;
ls_cache_kind ls_cache_name_parse(const ls_cache *cache, const char *name,
                                  char key_out[LS_CACHE_KEY_MAX + 1]);

/* Reads a note: what the entry is, and which process made it. False if there is no readable
 * note. what: in `arena`. */
bool ls_cache_note_read(const ls_cache *cache, ls_arena *arena, const char *key, const char **what_out,
                        int32_t *pid_out);

/* Removes entries until `more_bytes` more fit into the quota and the disk keeps its free space.
 * LS_ERR_DISK if the disk would still have too little free space. */
LS_MUST_CHECK ls_status ls_cache_make_room(ls_cache *cache, uint64_t more_bytes);

#endif
