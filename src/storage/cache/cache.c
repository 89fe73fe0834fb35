// SPDX-License-Identifier: Apache-2.0
#include "storage/cache/cache.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "storage/cache/cache_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STAMP_S 60.0 /* precision of the time of last use: a hit rarely has to write it */

enum { NOTE_BYTES_MAX = LS_CACHE_WHAT_MAX * 6 + 256 }; /* one character can become six in JSON */

/* ---- open and close ---- */

ls_status ls_cache_open(const ls_cache_options *options, ls_cache **cache_out)
{
    ls_cache *cache = calloc(1, sizeof *cache);
    char *path = strdup(options->folder);
    if (!cache || !path) {
        free(cache);
        free(path);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to open a cache");
    }
    *cache = (ls_cache){.options = *options,
                        .path = path,
                        .folder = -1,
                        .group = (gid_t)-1,
                        .opened_s = ls_clock_monotonic_s()};
    cache->options.folder = path;
    pthread_mutex_init(&cache->mutex, NULL);
    *cache_out = cache;
    return LS_OK;
}

const char *ls_cache_folder(const ls_cache *cache)
{
    return cache->path;
}

/* The time of last use is when a pin was last released. A killed process can't write it; then
 * the time is when its use began. */
static void stamp_all(ls_cache *cache)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    for (size_t i = 0; i < cache->key_count; i++) {
        const ls_cache_name name = ls_cache_name_of(cache->keys[i], cache->options.suffix);
        (void)!utimensat(cache->folder, name.text, now, AT_SYMLINK_NOFOLLOW);
    }
}

void ls_cache_close(ls_cache *cache)
{
    if (!cache) {
        return;
    }
    if (cache->folder >= 0) {
        if (ls_clock_monotonic_s() - cache->opened_s >= STAMP_S) {
            stamp_all(cache);
        }
        ls_cache_locks_release(&cache->pins);
        if (cache->has_made && ls_cache_make_room(cache, 0) != LS_OK) {
            ls_log_debug("cache: %s: %s", cache->path, ls_error_text());
        }
        close(cache->folder);
    }
    pthread_mutex_destroy(&cache->mutex);
    free(cache->keys);
    free(cache->path);
    free(cache);
}

/* ---- names ---- */

static bool is_key(const char *text, size_t bytes)
{
    return bytes >= 16 && bytes <= LS_CACHE_KEY_MAX && strspn(text, "0123456789abcdef") >= bytes;
}

ls_cache_name ls_cache_name_of(const char *key, const char *suffix)
{
    ls_cache_name name;
    snprintf(name.text, sizeof name.text, "%.64s%.31s", key, suffix);
    return name;
}

ls_cache_kind ls_cache_name_parse(const ls_cache *cache, const char *name, char key_out[LS_CACHE_KEY_MAX + 1])
{
    const size_t bytes = strcspn(name, ".");
    if (!is_key(name, bytes)) {
        return LS_CACHE_OTHER;
    }
    memcpy(key_out, name, bytes);
    key_out[bytes] = '\0';
    const char *suffix = name + bytes;
    return strcmp(suffix, cache->options.suffix) == 0 ? LS_CACHE_ENTRY
           : strcmp(suffix, ".note") == 0             ? LS_CACHE_NOTE
           : strcmp(suffix, ".part") == 0             ? LS_CACHE_PART
                                                      : LS_CACHE_OTHER;
}

char *ls_cache_entry_path(ls_arena *arena, const char *folder, const char *key, const char *suffix)
{
    const ls_cache_name name = ls_cache_name_of(key, suffix);
    return ls_path_join(arena, folder, name.text);
}

/* ---- notes ---- */

static void write_note(const ls_cache *cache, const ls_cache_item *item)
{
    const ls_cache_name name = ls_cache_name_of(item->key, ".note");
    json_t *root = json_pack("{s:I, s:f}", "pid", (json_int_t)getpid(), "made_s", ls_clock_wall_s());
    json_t *what = json_stringn(item->what, strnlen(item->what, LS_CACHE_WHAT_MAX));
    json_object_set_new(root, "what", what ? what : json_string("")); /* a path need not be UTF-8 */
    char *text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    unlinkat(cache->folder, name.text, 0);
    const int fd =
        openat(cache->folder, name.text, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!ls_cache_share(fd, cache->group, 0600);
        if (text && write(fd, text, strlen(text)) < 0) {
            ls_log_debug("cache: can't write a note in %s: %s", cache->path, strerror(errno));
        }
        close(fd);
    }
    free(text);
}

bool ls_cache_note_read(const ls_cache *cache, ls_arena *arena, const char *key, const char **what_out,
                        int32_t *pid_out)
{
    const ls_cache_name name = ls_cache_name_of(key, ".note");
    char *text = ls_arena_alloc(arena, NOTE_BYTES_MAX);
    const int fd = openat(cache->folder, name.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, text, NOTE_BYTES_MAX) : -1;
    if (fd >= 0) {
        close(fd);
    }
    json_t *root = NULL;
    const char *what = "";
    uint64_t pid = 0;
    const bool is_good = bytes > 0 && ls_json_parse(text, (size_t)bytes, name.text, &root) == LS_OK &&
                         ls_json_get_string(root, name.text, "what", "", &what) == LS_OK &&
                         ls_json_get_u64(root, name.text, "pid", 0, INT32_MAX, 0, &pid) == LS_OK;
    if (is_good) {
        *what_out = ls_arena_strdup(arena, what);
        *pid_out = (int32_t)pid;
    }
    json_decref(root);
    return is_good;
}

/* ---- in memory ---- */

static ls_status map_memory(const ls_cache_item *item, int fd, ls_file_map *map_out)
{
    const off_t bytes = lseek(fd, 0, SEEK_END);
    void *data = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        return ls_fail_errno(bytes > 0 ? errno : ENOMEM, "can't map the %s in memory", item->what);
    }
    *map_out = (ls_file_map){.data = data, .bytes = (size_t)bytes};
    return LS_OK;
}

/* Closes the map if it is not taken. */
static ls_status hand_over(const ls_cache_item *item, ls_file_map map, const char *path)
{
    const ls_status status = item->take(item->context, map, path);
    if (status != LS_OK) {
        ls_file_map_close(&map);
    }
    return status;
}

static ls_status make_in_memory(const ls_cache_item *item)
{
    const int fd = memfd_create("lockstep-cache", MFD_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't make a file in memory for the %s", item->what);
    }
    ls_file_map map = {0};
    ls_status status = item->make(item->context, fd, item->what);
    if (status == LS_OK) {
        status = map_memory(item, fd, &map);
    }
    close(fd);
    LS_TRY(status);
    return hand_over(item, map, item->what);
}

/* ---- looking ---- */

static ls_status map_file(int fd, const char *path, size_t bytes, ls_file_map *map_out)
{
    void *data = bytes > 0 ? mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (data == MAP_FAILED) {
        return ls_fail_errno(errno, "can't map %s (%zu bytes)", path, bytes);
    }
    *map_out = (ls_file_map){.data = data, .bytes = bytes};
    return LS_OK;
}

static void stamp(int fd, const struct stat *info)
{
    const struct timespec now[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_NOW}};
    if (ls_clock_wall_s() - (double)info->st_mtim.tv_sec >= STAMP_S) {
        /* another user's file, or a read-only disk: the last use stays unknown */
        (void)!futimens(fd, now);
    }
}

static ls_status map_believed(const ls_cache *cache, int fd, const char *path, ls_file_map *map_out)
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return ls_fail_errno(errno, "can't look at %s", path);
    }
    if (!ls_cache_is_believed(&info, cache->group)) {
        return ls_fail(LS_ERR_DATA,
                       "%s was written by user %u, whose files this cache does not trust: remove it, and it "
                       "is made anew",
                       path, (unsigned)info.st_uid);
    }
    stamp(fd, &info);
    return map_file(fd, path, (size_t)info.st_size, map_out);
}

/* Takes the entry. *found_out is false with LS_OK if there is no usable entry. */
static ls_status look(ls_cache *cache, const ls_cache_item *item, const char *path, ls_log_level level,
                      bool *found_out)
{
    *found_out = false;
    const ls_cache_name name = ls_cache_name_of(item->key, cache->options.suffix);
    const int fd = openat(cache->folder, name.text, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) {
        return LS_OK;
    }
    ls_file_map map = {0};
    ls_status status =
        fd < 0 ? ls_fail_errno(errno, "can't open %s", path) : map_believed(cache, fd, path, &map);
    if (fd >= 0) {
        close(fd);
    }
    if (status == LS_OK) {
        status = hand_over(item, map, path);
        if (status == LS_OK || (status != LS_ERR_DATA && status != LS_ERR_IO)) {
            *found_out = true;
            return status;
        }
    }
    ls_log_write(level, "cache: an entry can't be used, making it again: %s", ls_error_text());
    ls_error_clear();
    return LS_OK;
}

/* ---- pins ---- */

static void note_pin(ls_cache *cache, const char *key)
{
    pthread_mutex_lock(&cache->mutex);
    if (cache->key_count == cache->key_capacity) {
        const size_t capacity = cache->key_capacity > 0 ? 2 * cache->key_capacity : 16;
        void *keys = realloc(cache->keys, capacity * sizeof *cache->keys);
        if (keys) {
            cache->keys = keys;
            cache->key_capacity = capacity;
        }
    }
    /* otherwise its last use is not recorded, which does no harm */
    if (cache->key_count < cache->key_capacity) {
        snprintf(cache->keys[cache->key_count++], sizeof cache->keys[0], "%s", key);
    }
    pthread_mutex_unlock(&cache->mutex);
}

/* An entry can be used without a pin: a file that is removed while it is mapped stays readable
 * through the map. */
static ls_status pin(ls_cache *cache, const char *key)
{
    const ls_cache_patience patience = {.stop = cache->options.stop, .context = cache->options.context};
    const ls_status status = ls_cache_lock_take(&cache->pins, key, LS_CACHE_PIN, false, &patience, NULL);
    if (status == LS_OK) {
        note_pin(cache, key);
    } else if (status == LS_STOPPED || status == LS_INTERRUPTED) {
        return status;
    } else {
        ls_log_debug("cache: no pin: %s", ls_error_text());
        ls_error_clear();
    }
    return LS_OK;
}

/* ---- making ---- */

/* Called with the lock MAKE held, so that no other process writes the part. */
static ls_status write_part(ls_cache *cache, const ls_cache_item *item, const char *part, const char *path)
{
    unlinkat(cache->folder, part, 0); /* left by a killed maker */
    const int fd = openat(cache->folder, part, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't create %s", path);
    }
    ls_status status = item->make(item->context, fd, path);
    if (status == LS_OK && !ls_cache_share(fd, cache->group, 0644)) {
        status = ls_fail_errno(errno, "can't finish writing %s", path);
    }
    if (close(fd) != 0 && status == LS_OK) {
        status = ls_fail_errno(errno, "can't finish writing %s", path);
    }
    return status;
}

static ls_status write_entry(ls_cache *cache, const ls_cache_item *item, const char *path)
{
    const ls_cache_name part = ls_cache_name_of(item->key, ".part"),
                        name = ls_cache_name_of(item->key, cache->options.suffix);
    /* written first: waiting processes show which process makes the entry */
    write_note(cache, item);
    ls_status status = ls_cache_make_room(cache, item->bytes_expected);
    if (status == LS_OK) {
        status = write_part(cache, item, part.text, path);
    }
    if (status == LS_OK && renameat(cache->folder, part.text, cache->folder, name.text) != 0) {
        status = ls_fail_errno(errno, "can't rename %s to its final name", path);
    }
    if (status != LS_OK) {
        const ls_cache_name note = ls_cache_name_of(item->key, ".note");
        unlinkat(cache->folder, part.text, 0);
        unlinkat(cache->folder, note.text, 0);
        return status;
    }
    ls_log_info("cache: made the %s: %s", item->what, path);
    pthread_mutex_lock(&cache->mutex);
    cache->has_made = true;
    pthread_mutex_unlock(&cache->mutex);
    return ls_cache_make_room(cache, 0);
}

/* Reports a wait that takes a while. */
typedef struct wait {
    ls_cache *cache;
    const ls_cache_item *item;
} wait;

static void tell_wait(void *context)
{
    const wait *w = context;
    ls_arena arena = {0};
    const char *what = "";
    int32_t pid = 0;
    char who[32] = "";
    if (ls_cache_note_read(w->cache, &arena, w->item->key, &what, &pid) && pid > 0) {
        snprintf(who, sizeof who, " (pid %" PRId32 ")", pid);
    }
    if (w->cache->options.tell) {
        char *text =
            ls_arena_printf(&arena, "another process%s is making the %s: waiting for it", who, w->item->what);
        w->cache->options.tell(w->cache->options.context, text);
    }
    ls_arena_release(&arena);
}

static ls_status ask_stop(void *context)
{
    const wait *w = context;
    const ls_cache_options *options = &w->cache->options;
    return options->stop ? options->stop(options->context) : LS_OK;
}

/* *is_folder_out: the error is caused by the folder, not by the item. */
static ls_status make_alone(ls_cache *cache, const ls_cache_item *item, const char *path, bool *is_folder_out)
{
    bool found = false;
    LS_TRY(look(cache, item, path, LS_LOG_DEBUG, &found)); /* another process made it meanwhile */
    if (found) {
        return LS_OK;
    }
    ls_status status = write_entry(cache, item, path);
    *is_folder_out = status == LS_ERR_DISK || status == LS_ERR_IO || status == LS_ERR_NOT_FOUND;
    LS_TRY(status);
    status = look(cache, item, path, LS_LOG_WARN, &found);
    if (status == LS_OK && !found) {
        *is_folder_out = true;
        return ls_fail(LS_ERR_IO,
                       "%s was just written, but can't be read: is another process removing files there?",
                       path);
    }
    return status;
}

static ls_status make_in_folder(ls_cache *cache, const ls_cache_item *item, const char *path,
                                bool *is_folder_out)
{
    wait w = {cache, item};
    const ls_cache_patience patience = {.stop = ask_stop, .refused = tell_wait, .context = &w};
    /* each call has its own, so that threads of one process exclude each other */
    ls_cache_locks own;
    ls_cache_locks_init(&own, cache->folder, cache->path, cache->group);
    ls_status status = ls_cache_lock_take(&own, item->key, LS_CACHE_MAKE, true, &patience, NULL);
    *is_folder_out = status != LS_OK && status != LS_STOPPED && status != LS_INTERRUPTED;
    if (status == LS_OK) {
        status = make_alone(cache, item, path, is_folder_out);
    }
    ls_cache_locks_release(&own);
    return status;
}

static ls_status get_from_folder(ls_cache *cache, const ls_cache_item *item, const char *path,
                                 bool *is_folder_out)
{
    bool found = false;
    *is_folder_out = true;
    const ls_status opened = ls_cache_folder_open(cache, false);
    if (opened == LS_ERR_NOT_FOUND) {
        LS_TRY(ls_cache_folder_open(cache, true));
    } else {
        LS_TRY(opened);
    }
    *is_folder_out = false;
    LS_TRY(pin(cache, item->key));
    LS_TRY(look(cache, item, path, LS_LOG_WARN, &found));
    return found ? LS_OK : make_in_folder(cache, item, path, is_folder_out);
}

ls_status ls_cache_get(ls_cache *cache, const ls_cache_item *item)
{
    LS_ASSERT(is_key(item->key, strlen(item->key)));
    if (!cache->path[0]) {
        return make_in_memory(item);
    }
    ls_arena arena = {0};
    bool is_folder = false;
    const char *path = ls_cache_entry_path(&arena, cache->path, item->key, cache->options.suffix);
    ls_status status = get_from_folder(cache, item, path, &is_folder);
    if (status != LS_OK && is_folder) {
        ls_log_warn("cache: can't keep the %s on disk, making it in memory: %s", item->what, ls_error_text());
        ls_error_clear();
        status = make_in_memory(item);
    }
    ls_arena_release(&arena);
    return status;
}
