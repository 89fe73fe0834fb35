// SPDX-License-Identifier: Apache-2.0
/* Listing of a cache: its entries, and the processes that use them. */
#include "storage/cache/cache_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENVIRONMENT_BYTES_MAX = 128 * 1024 };

/* ---- entries ---- */

typedef struct list {
    ls_cache *cache;
    ls_arena *arena;
    ls_cache_locks own;
    ls_cache_entry *entries;
    size_t count, capacity;
} list;

static ls_cache_entry *add_entry(list *l)
{
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity > 0 ? 2 * l->capacity : 32;
        ls_cache_entry *entries = ls_arena_new(l->arena, ls_cache_entry, capacity);
        if (l->count > 0) {
            memcpy(entries, l->entries, l->count * sizeof *entries);
        }
        l->entries = entries;
        l->capacity = capacity;
    }
    return &l->entries[l->count++];
}

static void look_at(list *l, const char *name)
{
    ls_cache *cache = l->cache;
    struct stat info;
    char key[LS_CACHE_KEY_MAX + 1];
    int32_t pid = 0;
    const ls_cache_kind kind = ls_cache_name_parse(cache, name, key);
    if ((kind != LS_CACHE_ENTRY && kind != LS_CACHE_PART) ||
        fstatat(cache->folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0) {
        return;
    }
    /* A part left by a killed maker is not listed: the next process that makes an entry removes
     * it. */
    if (kind == LS_CACHE_PART && !ls_cache_lock_is_held(&l->own, key, LS_CACHE_MAKE)) {
        return;
    }
    ls_cache_entry *e = add_entry(l);
    *e = (ls_cache_entry){.what = "",
                          .bytes = (uint64_t)info.st_size,
                          .used_s = (double)info.st_mtim.tv_sec + 1e-9 * (double)info.st_mtim.tv_nsec,
                          .uid = info.st_uid,
                          .believed = ls_cache_is_believed(&info, cache->group),
                          .is_making = kind == LS_CACHE_PART,
                          .is_pinned = ls_cache_lock_is_held(&l->own, key, LS_CACHE_PIN)};
    snprintf(e->key, sizeof e->key, "%s", key);
    (void)ls_cache_note_read(cache, l->arena, key, &e->what, &pid);
}

static int by_use(const void *a, const void *b)
{
    const ls_cache_entry *x = a, *y = b;
    return x->used_s != y->used_s ? (x->used_s < y->used_s ? 1 : -1) : strcmp(x->key, y->key);
}

/* ---- who uses them ---- */

/*
 * The kernel does not report who holds a lock of an open file description, but /proc/PID/fdinfo
 * lists the locks of each descriptor of a process. A user can read it for own processes only, root
 * for all.
 */
static void add_user(list *l, ls_cache_entry *e, ls_cache_user user)
{
    for (size_t i = 0; i < e->user_count; i++) {
        if (e->users[i].pid == user.pid) {
            return;
        }
    }
    ls_cache_user *users = ls_arena_new(l->arena, ls_cache_user, e->user_count + 1);
    if (e->user_count > 0) {
        memcpy(users, e->users, e->user_count * sizeof *users);
    }
    users[e->user_count] = user;
    e->users = users;
    e->user_count++;
}

/* "lock:	1: OFDLCK  ADVISORY  READ -1 fe:00:123 8 8": a byte of one of the keys. */
static void read_lock(list *l, const char *line, uint32_t number, ls_cache_user user)
{
    long long first = 0;
    if (sscanf(line, "lock: %*[^:]: OFDLCK %*s %*s %*s %*s %lld", &first) != 1) {
        return;
    }
    for (size_t i = 0; i < l->count; i++) {
        ls_cache_entry *e = &l->entries[i];
        const ls_cache_lock lock = e->is_making ? LS_CACHE_MAKE : LS_CACHE_PIN;
        if (ls_cache_lock_file(e->key) == number && ls_cache_lock_offset(e->key, lock) == first) {
            add_user(l, e, user);
        }
    }
}

static void read_locks(list *l, const char *pid_text, const char *fd_text, uint32_t number,
                       ls_cache_user user)
{
    char path[128], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/fdinfo/%.20s", pid_text, fd_text);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        read_lock(l, line, number, user);
    }
    if (file) {
        fclose(file);
    }
}

/* Which of the lock files a descriptor is open on; LS_CACHE_LOCK_FILES: none. */
static uint32_t lock_file_of(const struct stat *files, const struct stat *info)
{
    uint32_t number = 0;
    while (number < LS_CACHE_LOCK_FILES &&
           (files[number].st_ino == 0 || files[number].st_ino != info->st_ino ||
            files[number].st_dev != info->st_dev)) {
        number++;
    }
    return number;
}

static uint64_t job_of(const char *pid_text)
{
    char path[64];
    static const char name[] = "LOCKSTEP_JOB=";
    snprintf(path, sizeof path, "/proc/%.20s/environ", pid_text);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *text = fd >= 0 ? calloc(1, ENVIRONMENT_BYTES_MAX + 1) : NULL;
    const ssize_t bytes = text ? read(fd, text, ENVIRONMENT_BYTES_MAX) : 0;
    uint64_t job = 0;
    for (const char *at = text; bytes > 0 && at < text + bytes; at += strlen(at) + 1) {
        if (strncmp(at, name, sizeof name - 1) == 0) {
            job = strtoull(at + sizeof name - 1, NULL, 10);
        }
    }
    free(text);
    if (fd >= 0) {
        close(fd);
    }
    return job;
}

static void look_at_process(list *l, const struct stat *files, const char *pid_text)
{
    char path[64];
    bool is_asked = false;
    ls_cache_user user = {.pid = (int32_t)strtol(pid_text, NULL, 10)};
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid_text);
    DIR *folder = opendir(path);
    for (struct dirent *item = folder ? readdir(folder) : NULL; item; item = readdir(folder)) {
        struct stat info;
        if (fstatat(dirfd(folder), item->d_name, &info, 0) != 0 || !S_ISREG(info.st_mode)) {
            continue;
        }
        const uint32_t number = lock_file_of(files, &info);
        if (number < LS_CACHE_LOCK_FILES) {
            user.job = is_asked ? user.job : job_of(pid_text);
            is_asked = true;
            read_locks(l, pid_text, item->d_name, number, user);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

static void find_users(list *l)
{
    struct stat files[LS_CACHE_LOCK_FILES] = {0};
    bool is_used = false;
    for (size_t i = 0; i < l->count; i++) {
        is_used = is_used || l->entries[i].is_pinned || l->entries[i].is_making;
    }
    for (uint32_t i = 0; i < LS_CACHE_LOCK_FILES; i++) {
        char name[16];
        snprintf(name, sizeof name, "lock-%02x", i);
        if (fstatat(l->cache->folder, name, &files[i], AT_SYMLINK_NOFOLLOW) != 0) {
            files[i].st_ino = 0;
        }
    }
    DIR *folder = is_used ? opendir("/proc") : NULL;
    for (struct dirent *item = folder ? readdir(folder) : NULL; item; item = readdir(folder)) {
        if (isdigit((unsigned char)item->d_name[0])) {
            look_at_process(l, files, item->d_name);
        }
    }
    if (folder) {
        closedir(folder);
    }
}

ls_status ls_cache_list(ls_cache *cache, ls_arena *arena, ls_cache_entry **entries_out, size_t *count_out)
{
    char **names = NULL;
    size_t count = 0;
    *count_out = 0;
    const ls_status opened = cache->path[0] ? ls_cache_folder_open(cache, false) : LS_ERR_NOT_FOUND;
    if (opened == LS_ERR_NOT_FOUND) {
        return LS_OK;
    }
    LS_TRY(opened);
    LS_TRY(ls_dir_list(arena, cache->path, &names, &count));
    list l = {.cache = cache, .arena = arena};
    ls_cache_locks_init(&l.own, cache->folder, cache->path, cache->group);
    for (size_t i = 0; i < count; i++) {
        look_at(&l, names[i]);
    }
    if (l.count > 0) {
        qsort(l.entries, l.count, sizeof *l.entries, by_use);
    }
    find_users(&l);
    ls_cache_locks_release(&l.own);
    *entries_out = l.entries;
    *count_out = l.count;
    return LS_OK;
}
