// SPDX-License-Identifier: Apache-2.0
/* The folder of a cache as a whole: opening, looking through it, removing. */
#include "base/list.h"
#include "base/log.h"
#include "storage/cache/cache_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* too small to endanger a disk, and not worth a warning on each run */
static const uint64_t SMALL_BYTES = UINT64_C(16) << 20;

/* ---- opening ---- */

static gid_t find_group(const char *name)
{
    char text[4096];
    struct group group, *found = NULL;
    if (!name[0]) {
        return (gid_t)-1;
    }
    if (getgrnam_r(name, &group, text, sizeof text, &found) != 0 || !found) {
        ls_log_warn("cache: there is no group %s", name);
        return (gid_t)-1;
    }
    return found->gr_gid;
}

/* A broken cache.yaml must not end a run: warn, and continue with the defaults. */
static ls_cache_limits limits_of(ls_arena *arena, const ls_cache *cache)
{
    ls_cache_limits limits = {.quota_bytes = UINT64_MAX, .group = ""};
    if (ls_cache_limits_load(arena, cache->path, &limits) != LS_OK) {
        ls_log_warn("cache: the limits are ignored: %s", ls_error_text());
        ls_error_clear();
    }
    return limits;
}

static ls_status open_folder(ls_cache *cache, bool make)
{
    int fd = open(cache->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && make) {
        LS_TRY(ls_dir_create(cache->path));
        fd = open(cache->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open folder %s", cache->path);
    }
    ls_arena arena = {0};
    cache->group = find_group(limits_of(&arena, cache).group);
    ls_cache_locks_init(&cache->pins, fd, cache->path, cache->group);
    cache->folder = fd;
    ls_arena_release(&arena);
    return LS_OK;
}

ls_status ls_cache_folder_open(ls_cache *cache, bool make)
{
    pthread_mutex_lock(&cache->mutex);
    const ls_status status = cache->folder >= 0 ? LS_OK : open_folder(cache, make);
    pthread_mutex_unlock(&cache->mutex);
    return status;
}

/* ---- removing ---- */

/* A leftover of a killed maker: a part, or a note without an entry. */
static void sweep(ls_cache *cache, ls_cache_locks *own, const char *key, ls_cache_kind kind)
{
    bool is_ours = false;
    struct stat info;
    const ls_cache_name entry = ls_cache_name_of(key, cache->options.suffix),
                        name = ls_cache_name_of(key, kind == LS_CACHE_PART ? ".part" : ".note");
    if (kind == LS_CACHE_NOTE && fstatat(cache->folder, entry.text, &info, AT_SYMLINK_NOFOLLOW) == 0) {
        return;
    }
    if (ls_cache_lock_take(own, key, LS_CACHE_MAKE, true, NULL, &is_ours) == LS_OK && is_ours) {
        /* The part may have become an entry since. */
        if (kind == LS_CACHE_PART || fstatat(cache->folder, entry.text, &info, AT_SYMLINK_NOFOLLOW) != 0) {
            unlinkat(cache->folder, name.text, 0);
        }
        ls_cache_lock_drop(own, key, LS_CACHE_MAKE);
    }
}

static ls_status remove_entry(ls_cache *cache, ls_cache_locks *own, const char *key, bool *removed_out)
{
    bool is_ours = false;
    *removed_out = false;
    const ls_cache_name entry = ls_cache_name_of(key, cache->options.suffix),
                        note = ls_cache_name_of(key, ".note");
    LS_TRY(ls_cache_lock_take(own, key, LS_CACHE_PIN, true, NULL, &is_ours));
    if (!is_ours) {
        return LS_OK;
    }
    ls_status status = LS_OK;
    if (unlinkat(cache->folder, entry.text, 0) == 0) {
        *removed_out = true;
        unlinkat(cache->folder, note.text, 0);
    } else if (errno != ENOENT) {
        status = ls_fail_errno(errno, "can't remove %s/%s", cache->path, entry.text);
    }
    ls_cache_lock_drop(own, key, LS_CACHE_PIN);
    return status;
}

ls_status ls_cache_remove(ls_cache *cache, const char *key, bool *removed_out)
{
    *removed_out = false;
    const ls_status opened = ls_cache_folder_open(cache, false);
    if (opened == LS_ERR_NOT_FOUND) {
        return LS_OK;
    }
    LS_TRY(opened);
    ls_cache_locks own;
    ls_cache_locks_init(&own, cache->folder, cache->path, cache->group);
    const ls_status status = remove_entry(cache, &own, key, removed_out);
    ls_cache_locks_release(&own);
    return status;
}

/* ---- room ---- */

typedef struct found {
    char key[LS_CACHE_KEY_MAX + 1];
    uint64_t bytes;
    struct timespec used;
} found;

typedef struct census {
    found *entries;
    size_t count, capacity;
    uint64_t bytes; /* including entries that are being made */
} census;

static int by_use(const void *a, const void *b)
{
    const found *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    return (x->used.tv_nsec > y->used.tv_nsec) - (x->used.tv_nsec < y->used.tv_nsec);
}

static ls_status count_entry(census *c, const char *key, const struct stat *info)
{
    LS_TRY(ls_list_grow(&c->entries, c->count, &c->capacity, sizeof *c->entries));
    found *f = &c->entries[c->count++];
    *f = (found){.bytes = (uint64_t)info->st_size, .used = info->st_mtim};
    snprintf(f->key, sizeof f->key, "%s", key);
    return LS_OK;
}

static ls_status count_name(ls_cache *cache, ls_cache_locks *own, const char *name, census *c)
{
    char key[LS_CACHE_KEY_MAX + 1];
    struct stat info;
    const ls_cache_kind kind = ls_cache_name_parse(cache, name, key);
    if (kind == LS_CACHE_PART || kind == LS_CACHE_NOTE) {
        sweep(cache, own, key, kind);
    }
    if ((kind != LS_CACHE_ENTRY && kind != LS_CACHE_PART) ||
        fstatat(cache->folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return LS_OK;
    }
    c->bytes += (uint64_t)info.st_size;
    return kind == LS_CACHE_ENTRY ? count_entry(c, key, &info) : LS_OK;
}

static ls_status take_census(ls_cache *cache, ls_cache_locks *own, census *c)
{
    const int fd = openat(cache->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (!folder) {
        const int error = errno;
        if (fd >= 0) {
            close(fd);
        }
        return ls_fail_errno(error, "can't read folder %s", cache->path);
    }
    ls_status status = LS_OK;
    for (struct dirent *item = readdir(folder); item && status == LS_OK; item = readdir(folder)) {
        status = count_name(cache, own, item->d_name, c);
    }
    closedir(folder);
    if (status == LS_OK && c->count > 0) {
        qsort(c->entries, c->count, sizeof *c->entries, by_use);
    }
    return status;
}

/* Bytes of the disk that are free for this user; UINT64_MAX: not known. */
static uint64_t free_bytes(const ls_cache *cache)
{
    struct statvfs disk;
    return fstatvfs(cache->folder, &disk) == 0 ? (uint64_t)disk.f_bavail * disk.f_frsize : UINT64_MAX;
}

static uint64_t beyond(uint64_t value, uint64_t limit)
{
    return value > limit ? value - limit : 0;
}

/* Bytes to remove before `more` can be added. */
static uint64_t bytes_too_many(const ls_cache *cache, const ls_cache_limits *limits, uint64_t total,
                               uint64_t more)
{
    const uint64_t quota = limits->quota_bytes, low = quota - quota / 10;
    const uint64_t over = total + more > quota ? beyond(total + more, low) : 0;
    const uint64_t wanted = limits->keep_free_bytes + more, there = free_bytes(cache);
    const uint64_t lacking = beyond(wanted, there);
    return over > lacking ? over : lacking;
}

static bool is_there(const ls_cache *cache, const char *key)
{
    struct stat info;
    const ls_cache_name entry = ls_cache_name_of(key, cache->options.suffix);
    return fstatat(cache->folder, entry.text, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

/* Least recently used first; entries in use stay. Several processes may do this at once: entries
 * that another one removed count, too. */
static void evict(ls_cache *cache, ls_cache_locks *own, const census *c, uint64_t wanted)
{
    uint64_t gone = 0;
    for (size_t i = 0; i < c->count && gone < wanted; i++) {
        bool removed = false;
        if (remove_entry(cache, own, c->entries[i].key, &removed) != LS_OK) {
            ls_log_debug("cache: %s", ls_error_text());
        }
        gone += removed || !is_there(cache, c->entries[i].key) ? c->entries[i].bytes : 0;
        if (removed) {
            ls_log_info("cache: removed %s/%s%s, %llu bytes, to make room", cache->path, c->entries[i].key,
                        cache->options.suffix, (unsigned long long)c->entries[i].bytes);
        }
    }
}

static ls_status check_disk(const ls_cache *cache, const ls_cache_limits *limits, uint64_t more)
{
    const uint64_t there = free_bytes(cache);
    if (more < SMALL_BYTES || there >= limits->keep_free_bytes + more) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_DISK,
                   "%s has %.1f GiB free, but the new entry needs about %.1f GiB, and %.1f GiB must stay "
                   "free ('lockstep cache limit' changes that)",
                   cache->path, (double)there / 0x1p30, (double)more / 0x1p30,
                   (double)limits->keep_free_bytes / 0x1p30);
}

ls_status ls_cache_make_room(ls_cache *cache, uint64_t more_bytes)
{
    ls_arena arena = {0};
    ls_cache_locks own; /* not the set of the pins, because a set does not exclude itself */
    census c = {0};
    const ls_cache_limits limits = limits_of(&arena, cache);
    ls_cache_locks_init(&own, cache->folder, cache->path, cache->group);
    ls_status status = take_census(cache, &own, &c);
    if (status == LS_OK) {
        evict(cache, &own, &c, bytes_too_many(cache, &limits, c.bytes, more_bytes));
        status = check_disk(cache, &limits, more_bytes);
    }
    free(c.entries);
    ls_cache_locks_release(&own);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_cache_trim(ls_cache *cache)
{
    const ls_status opened = ls_cache_folder_open(cache, false);
    if (opened == LS_ERR_NOT_FOUND) {
        return LS_OK;
    }
    LS_TRY(opened);
    return ls_cache_make_room(cache, 0);
}

ls_status ls_cache_sweep(ls_cache *cache)
{
    const ls_status opened = ls_cache_folder_open(cache, false);
    if (opened == LS_ERR_NOT_FOUND) {
        return LS_OK;
    }
    LS_TRY(opened);
    ls_cache_locks own;
    census c = {0};
    ls_cache_locks_init(&own, cache->folder, cache->path, cache->group);
    const ls_status status = take_census(cache, &own, &c);
    free(c.entries);
    ls_cache_locks_release(&own);
    return status;
}
