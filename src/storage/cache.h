// SPDX-License-Identifier: Apache-2.0
/*
 * Cache: a folder of files that can be made again, shared by all processes of a node. Each is made at most once at a time, stays while it is
 * used, and goes, least recently used first, when the space is wanted.
 *
 *      get(key) ─▶ pin ─▶ is it there, ours and whole? ──── yes ─────────────────────────────▶ mapped
 *                              │ no                                                              ▲
 *                              └─▶ alone (wait for who makes it) ─▶ there now? ── yes ───────────┤
 *                                                                      └─ no ─▶ room, make, rename
 *
 * In the folder:
 *   KEY.SUFFIX      an entry: never changed, only replaced as a whole or removed; its modification time is when it was last used
 *   KEY.note        what it was made from and by which process: JSON, for people
 *   KEY.part        an entry that is being made
 *   lock-00 .. 3f   empty; each key has two bytes in one of them, far behind their end, that processes lock (fcntl, open file description locks)
 *   cache.yaml      limits of this folder (ls_cache_limits), when there are any but the defaults
 *
 * Pins and single flight are locks of the kernel, so nothing of them outlives a process, however it ends: who waits for a maker that is killed
 * becomes the maker; what it left is removed by the next who makes the same or looks for room. Waiting is blocking in the kernel, no polling.
 * A pin is a shared lock that lasts until ls_cache_close: which removes entries takes the lock exclusively without waiting, and leaves alone what
 * it does not get. Entries are never truncated.
 *
 * Whose entries are believed: those of this user and of root; and, where cache.yaml of the folder (which must be this user's or root's) names
 * a group, those that belong to this group and can't be written by others. Nothing else can be believed: that tokens are those of a text can't
 * be seen without making them. Symbolic links in the folder are not followed.
 *
 * A cache never makes a run fail. Where the folder can't be made, written or locked (read-only, full, a network file system without locks),
 * things are made in memory, and a warning says so; entries that are there are used, without a pin if need be.
 *
 * Entries are not synced: what a power cut leaves broken is found by `take` and made again.
 *
 * Thread-safe: one ls_cache may be used by several threads at once; threads that want the same key wait for each other as processes do.
 * A child made by fork without exec shares the pins of its parent.
 */
#ifndef LS_STORAGE_CACHE_H
#define LS_STORAGE_CACHE_H

#include "base/arena.h"
#include "base/file.h"
#include "base/options.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_cache ls_cache;

enum { LS_CACHE_KEY_MAX = 64, LS_CACHE_WHAT_MAX = 4096 };

typedef struct ls_cache_options {
    const char *folder; /* copied; "": none, everything is made in memory */
    const char *suffix; /* of entries, with its point; a constant */
    /* Asked several times per second while waiting: anything but LS_OK ends the wait with it. NULL: wait for ever. */
    ls_status (*stop)(void *context);
    /* A line for people: why it takes so long. NULL: nobody is told. */
    void (*tell)(void *context, const char *text);
    void *context;
} ls_cache_options;

/* Looks at nothing yet. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_cache_open(const ls_cache_options *options, ls_cache **cache_out);

/* Ends the pins: what was taken must have been unmapped. When it made something, the quota is kept once more. NULL is fine. */
void ls_cache_close(ls_cache *cache);

/* "" when there is none. */
const char *ls_cache_folder(const ls_cache *cache);

typedef struct ls_cache_item {
    const char *
        key; /* 16 to LS_CACHE_KEY_MAX hex digits in lower case, of a hash of all that the content depends on */
    const char *what;        /* "tokens of a.txt": for who waits, for the list */
    uint64_t bytes_expected; /* about so large, so that there is room */
    /* Writes the content to an empty file. LS_ERR_DISK and LS_ERR_IO are the folder's fault: it is called again, for memory. */
    ls_status (*make)(void *context, int fd, const char *path);
    /* Takes the map over and returns LS_OK; or leaves it. LS_ERR_DATA: damaged, it is made again. Other errors are the result. */
    ls_status (*take)(void *context, ls_file_map map, const char *path);
    void *context;
} ls_cache_item;

/* Finds or makes an item, pins it, and lets it be taken. Errors: those of make, take and stop. */
LS_MUST_CHECK ls_status ls_cache_get(ls_cache *cache, const ls_cache_item *item);

/* The path of an entry, in `arena`. */
char *ls_cache_entry_path(ls_arena *arena, const char *folder, const char *key, const char *suffix);

/* ---- limits ---- */

typedef struct ls_cache_limits {
    uint64_t quota_bytes; /* entries beyond it go when something is made, down to nine tenths of it */
    uint64_t
        keep_free_bytes; /* of the disk: entries go for it, and what would take it is made in memory (from 16 MiB on) */
    const char *group; /* "": none; see above */
} ls_cache_limits;

/* Rows of cache.yaml. */
const ls_option_table *ls_cache_limits_table(void);

/*
 * What holds in a folder, definite: without cache.yaml, or where it says auto, a fifth of the disk, and a twentieth of it free (10 GiB at
 * most). Errors: LS_ERR_INVALID for a cache.yaml that can't be read or is a stranger's.
 */
LS_MUST_CHECK ls_status ls_cache_limits_load(ls_arena *arena, const char *folder,
                                             ls_cache_limits *limits_out);

/* The folder's cache.yaml as it stands (with LS_AUTO_U64 for auto), and writing it; it makes the folder. */
LS_MUST_CHECK ls_status ls_cache_limits_read(ls_arena *arena, const char *folder,
                                             ls_cache_limits *limits_out);
LS_MUST_CHECK ls_status ls_cache_limits_write(const char *folder, const ls_cache_limits *limits);

/* ---- looking after it ---- */

/* A process that has an entry pinned. */
typedef struct ls_cache_user {
    int32_t pid;
    uint64_t job; /* of the queue; 0: none, or not known */
} ls_cache_user;

typedef struct ls_cache_entry {
    char key[LS_CACHE_KEY_MAX + 1];
    const char *what; /* "": not known */
    uint64_t bytes;
    double used_s;              /* since 1970 */
    uint32_t uid;               /* whose it is */
    bool believed;              /* by this user */
    bool is_making;             /* not there yet, bytes is how far it is */
    bool is_pinned;             /* somebody uses it */
    const ls_cache_user *users; /* those that can be seen: of this user, or all for root */
    size_t user_count;
} ls_cache_entry;

/* All entries, last used first. A folder that is not there is empty. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_cache_list(ls_cache *cache, ls_arena *arena, ls_cache_entry **entries_out,
                                      size_t *count_out);

/* Removes an entry unless it is used. removed_out: false when somebody uses it or it is gone. */
LS_MUST_CHECK ls_status ls_cache_remove(ls_cache *cache, const char *key, bool *removed_out);

/* Removes what makers left that were killed. Also done whenever something is made. */
LS_MUST_CHECK ls_status ls_cache_sweep(ls_cache *cache);
/* The same, and what is beyond the limits. */
LS_MUST_CHECK ls_status ls_cache_trim(ls_cache *cache);

#endif
