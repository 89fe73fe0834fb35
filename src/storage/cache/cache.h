// SPDX-License-Identifier: Apache-2.0
/*
 * Cache: a folder of files that can be made again, shared by all processes of a node. A file is
 * made by one process at a time, stays while it is in use, and is removed, least recently used
 * first, when space is needed.
 *
 *      get(key) ─▶ pin ─▶ is it there, ours and whole? ──── yes ─────────────────────────────▶ mapped
 *                              │ no                                                              ▲
 *                              └─▶ alone (wait for the maker) ─▶ there now? ── yes ───────────┤
 *                                                                      └─ no ─▶ room, make, rename
 *
 * In the folder:
 *   KEY.SUFFIX      an entry: never changed, only replaced as a whole or removed; its modification
 *                   time is when it was last used
 *   KEY.note        what it was made from and by which process: JSON, for people
 *   KEY.part        an entry that is being made
 *   lock-00 .. 3f   empty; each key has two bytes in one of them, far beyond the end, that
 *                   processes lock (fcntl, open file description locks)
 *   cache.yaml      limits of this folder (ls_cache_limits), if they differ from the defaults
 *
 * Pins and single flight are kernel locks, so they end with their process, however it ends. When a
 * maker is killed, a waiting process becomes the maker; the leftovers are removed by the next
 * process that makes the same entry or needs room. Waiting blocks in the kernel, without polling. A
 * pin is a shared lock that lasts until ls_cache_close; a process that removes entries tries to
 * take the lock exclusively, without waiting, and skips entries whose lock it does not get. Entries
 * are never truncated.
 *
 * Trusted entries are those of this user and of root, and, if the folder's cache.yaml (which must
 * belong to this user or root) names a group, those that belong to this group and can't be written
 * by others. No other entry can be trusted, because checking that tokens belong to a text means
 * making them again. Symbolic links in the folder are not followed.
 *
 * A cache never makes a run fail. If the folder can't be made, written or locked (read-only, full,
 * a network file system without locks), content is made in memory, with a warning; existing entries
 * are used, without a pin if necessary.
 *
 * Entries are not synced: `take` detects an entry that a power cut damaged, and it is made again.
 *
 * Thread-safe: one ls_cache may be used by several threads at once; threads that want the same key
 * wait for each other as processes do. A child made by fork without exec shares the pins of its
 * parent.
 */
#ifndef LS_STORAGE_CACHE_CACHE_H
#define LS_STORAGE_CACHE_CACHE_H

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
    const char *folder; /* copied; "": no folder, everything is made in memory */
    const char *suffix; /* suffix of entries, with its dot; a constant */
    /* Called several times per second while waiting; any status but LS_OK ends the wait and is
     * returned. NULL: wait for ever. */
    ls_status (*stop)(void *context);
    /* Receives a line for people that explains a long wait. NULL: not reported. */
    void (*tell)(void *context, const char *text);
    void *context;
} ls_cache_options;

/* Does not touch the folder yet. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_cache_open(const ls_cache_options *options, ls_cache **cache_out);

/* Releases the pins; everything that was taken must have been unmapped. If this cache made an
 * entry, the quota is enforced once more. NULL is allowed. */
void ls_cache_close(ls_cache *cache);

/* "" if there is none. */
const char *ls_cache_folder(const ls_cache *cache);

typedef struct ls_cache_item {
    /* 16 to LS_CACHE_KEY_MAX lower-case hex digits: a hash of everything the content depends on */
    const char *key;
    const char *what;        /* "tokens of a.txt", shown while waiting and in the list */
    uint64_t bytes_expected; /* approximate size, to make room */
    /* Writes the content to an empty file. LS_ERR_DISK and LS_ERR_IO count as errors of the
     * folder: it is then called again, to write to memory. */
    ls_status (*make)(void *context, int fd, const char *path);
    /* Takes ownership of the map and returns LS_OK, or leaves the map to the caller.
     * LS_ERR_DATA: the entry is damaged and is made again. Other errors are returned as they
     * are. */
    ls_status (*take)(void *context, ls_file_map map, const char *path);
    void *context;
} ls_cache_item;

/* Finds or makes an item, pins it, and passes it to `take`. Errors: those of make, take and
 * stop. */
LS_MUST_CHECK ls_status ls_cache_get(ls_cache *cache, const ls_cache_item *item);

/* The path of an entry, in `arena`. */
char *ls_cache_entry_path(ls_arena *arena, const char *folder, const char *key, const char *suffix);

/* ---- limits ---- */

typedef struct ls_cache_limits {
    /* when an entry is made and the total exceeds this, entries are removed down to nine tenths
     * of it */
    uint64_t quota_bytes;
    /* free space of the disk: entries are removed to keep it, and content of 16 MiB or more that
     * would use it is made in memory */
    uint64_t keep_free_bytes;
    const char *group; /* trusted group, see above; "": none */
} ls_cache_limits;

/* Rows of cache.yaml. */
const ls_option_table *ls_cache_limits_table(void);

/*
 * The limits in force for a folder, with auto resolved: without cache.yaml, or with auto in it, a
 * quota of a fifth of the disk, and a twentieth of it free (10 GiB at most). Errors: LS_ERR_INVALID
 * for a cache.yaml that can't be read or belongs to an untrusted user.
 */
LS_MUST_CHECK ls_status ls_cache_limits_load(ls_arena *arena, const char *folder,
                                             ls_cache_limits *limits_out);

/* Reads the folder's cache.yaml as it is (LS_AUTO_U64 for auto), and writes it, creating the
 * folder. */
LS_MUST_CHECK ls_status ls_cache_limits_read(ls_arena *arena, const char *folder,
                                             ls_cache_limits *limits_out);
LS_MUST_CHECK ls_status ls_cache_limits_write(const char *folder, const ls_cache_limits *limits);

/* ---- looking after it ---- */

/* A process that has an entry pinned. */
typedef struct ls_cache_user {
    int32_t pid;
    uint64_t job; /* number of its job in the queue; 0: none, or not known */
} ls_cache_user;

typedef struct ls_cache_entry {
    char key[LS_CACHE_KEY_MAX + 1];
    const char *what; /* "": not known */
    uint64_t bytes;
    double used_s;              /* since 1970 */
    uint32_t uid;               /* owner */
    bool believed;              /* this user trusts it */
    bool is_making;             /* still being made; `bytes` is its present size */
    bool is_pinned;             /* a process uses it */
    const ls_cache_user *users; /* the visible users: this user's processes, or all for root */
    size_t user_count;
} ls_cache_entry;

/* All entries, most recently used first. A missing folder counts as empty. Errors: LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_cache_list(ls_cache *cache, ls_arena *arena, ls_cache_entry **entries_out,
                                      size_t *count_out);

/* Removes an entry unless it is in use. removed_out: false if it is in use or already gone. */
LS_MUST_CHECK ls_status ls_cache_remove(ls_cache *cache, const char *key, bool *removed_out);

/* Removes leftovers of killed makers. Also done whenever an entry is made. */
LS_MUST_CHECK ls_status ls_cache_sweep(ls_cache *cache);
/* The same, and removes entries beyond the limits. */
LS_MUST_CHECK ls_status ls_cache_trim(ls_cache *cache);

#endif
