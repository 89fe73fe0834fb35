// SPDX-License-Identifier: Apache-2.0
/* What both kinds of store share: keys, lists, parts at once. */
#include "storage/blob/blob.h"

#include "base/assert.h"
#include "base/file.h"
#include "storage/blob/blob_internal.h"
#include "storage/blob/world.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PART_BYTES_MIN = 8 << 20, PARTS_MAX = 10000, TEXT_BYTES = 2048 };

bool ls_blob_is_remote(const char *address)
{
    return strncmp(address, "s3://", 5) == 0;
}

const char *ls_blob_address(const ls_blob_store *store)
{
    return store->address;
}

bool ls_blob_is_cancelled(const ls_blob_store *store)
{
    return store->cancel && atomic_load(store->cancel) != 0;
}

ls_status ls_blob_check_key(const char *key)
{
    const char *problem =
        strlen(key) > LS_BLOB_KEY_BYTES_MAX ? "it has more than 1000 bytes" : ls_path_problem(key);
    return problem ? ls_fail(LS_ERR_INVALID, "'%.200s' can't be the key of a blob: %s", key, problem) : LS_OK;
}

ls_status ls_blob_open(const char *address, const ls_blob_options *options, ls_blob_store **store_out)
{
    static const ls_blob_options defaults = {0};
    const ls_blob_options *o = options ? options : &defaults;
    ls_arena arena = {0};
    size_t bytes = strlen(address);
    while (bytes > (ls_blob_is_remote(address) ? 5 : 1) && address[bytes - 1] == '/') {
        bytes--;
    }
    const char *plain = ls_arena_strndup(&arena, address, bytes);
    ls_blob_store *store = NULL;
    ls_status status = LS_OK;
    if (bytes == 0 || o->threads > LS_BLOB_THREADS_MAX) {
        status = ls_fail(LS_ERR_INVALID,
                         "'%s' is not the address of a store; allowed are s3://BUCKET/PREFIX "
                         "and folders, with 0 to %d threads",
                         address, LS_BLOB_THREADS_MAX);
    } else if (ls_blob_is_remote(plain)) {
        status = ls_blob_s3_open(plain + 5, o, &store);
    } else {
        status = strstr(plain, "://")
                     ? ls_fail(LS_ERR_INVALID, "%s: blobs are kept in s3:// or in a folder", plain)
                     : ls_blob_folder_open(plain, &store);
    }
    if (status == LS_OK) {
        store->address = ls_arena_strdup(&store->arena, plain);
        store->threads = o->threads ? o->threads : 4;
        store->patience_s = o->patience_s > 0.0 ? o->patience_s : 120.0;
        store->cancel = o->cancel;
        store->world = o->world ? o->world : &ls_blob_real_world;
        *store_out = store;
    }
    ls_arena_release(&arena);
    return status;
}

void ls_blob_close(ls_blob_store *store)
{
    if (store) {
        ls_arena arena = store->arena;
        store->calls->close(store);
        ls_arena_release(&arena);
    }
}

/* ---- calls with a key ---- */

typedef char full_key[2 * LS_BLOB_KEY_BYTES_MAX + 2];

static ls_status complete(const ls_blob_store *store, const char *key, full_key out)
{
    LS_TRY(ls_blob_check_key(key));
    if (strlen(store->prefix) + strlen(key) > LS_BLOB_KEY_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "%s/%s is too long: a key has at most %d bytes with its prefix",
                       store->address, key, LS_BLOB_KEY_BYTES_MAX);
    }
    snprintf(out, sizeof(full_key), "%s%s", store->prefix, key);
    return LS_OK;
}

ls_status ls_blob_put(ls_blob_store *store, const char *key, const void *data, size_t bytes)
{
    full_key full;
    LS_TRY(complete(store, key, full));
    return store->calls->put(store, full, data, bytes, NULL);
}

ls_status ls_blob_put_new(ls_blob_store *store, const char *key, const void *data, size_t bytes,
                          bool *stored_out)
{
    full_key full;
    LS_TRY(complete(store, key, full));
    return store->calls->put(store, full, data, bytes, stored_out);
}

ls_status ls_blob_read(ls_blob_store *store, const char *key, const char *etag, uint64_t offset, void *data,
                       size_t bytes)
{
    full_key full;
    LS_TRY(complete(store, key, full));
    return bytes == 0 ? LS_OK
                      : store->calls->read(store, full, etag, offset, bytes, &(ls_blob_sink){.data = data});
}

ls_status ls_blob_stat(ls_blob_store *store, const char *key, ls_blob_entry *entry_out)
{
    full_key full;
    LS_TRY(complete(store, key, full));
    ls_blob_entry entry = {0};
    LS_TRY(store->calls->stat(store, full, &entry));
    entry.key = key;
    *entry_out = entry;
    return LS_OK;
}

ls_status ls_blob_remove(ls_blob_store *store, const char *key)
{
    full_key full;
    LS_TRY(complete(store, key, full));
    return store->calls->remove(store, full);
}

ls_status ls_blob_copy(ls_blob_store *store, const char *from, const char *to)
{
    full_key full_from, full_to;
    LS_TRY(complete(store, from, full_from));
    LS_TRY(complete(store, to, full_to));
    return store->calls->copy(store, full_from, full_to);
}

ls_status ls_blob_put_file(ls_blob_store *store, const char *key, int fd, const char *path, uint64_t bytes,
                           const char *sha256, uint64_t *sent_out)
{
    full_key full;
    uint64_t sent = 0;
    LS_TRY(complete(store, key, full));
    LS_TRY(store->calls->put_file(store, full, fd, path, bytes, sha256, &sent));
    if (sent_out) {
        *sent_out = sent;
    }
    return LS_OK;
}

ls_status ls_blob_get(ls_blob_store *store, ls_arena *arena, const char *key, size_t limit_bytes,
                      char **data_out, size_t *bytes_out)
{
    ls_blob_entry entry;
    LS_TRY(ls_blob_stat(store, key, &entry));
    if (entry.bytes > limit_bytes || entry.bytes > LS_BLOB_WHOLE_BYTES_MAX) {
        return ls_fail(LS_ERR_DATA, "%s/%s has %llu bytes; at most %zu are read", store->address, key,
                       (unsigned long long)entry.bytes, limit_bytes);
    }
    char *data = ls_arena_alloc(arena, (size_t)entry.bytes + 1);
    LS_TRY(ls_blob_read(store, key, entry.etag, 0, data, (size_t)entry.bytes));
    *data_out = data;
    *bytes_out = (size_t)entry.bytes;
    return LS_OK;
}

/* ---- lists ---- */

void ls_blob_entries_add(ls_blob_entries *list, const ls_blob_entry *entry)
{
    if (list->count == list->room) {
        list->room = list->room ? 2 * list->room : 64;
        ls_blob_entry *more = realloc(list->entries, list->room * sizeof *more);
        LS_ASSERT(more != NULL);
        list->entries = more;
    }
    list->entries[list->count++] = *entry;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const ls_blob_entry *)a)->key, ((const ls_blob_entry *)b)->key);
}

void ls_blob_entries_take(ls_blob_entries *list, ls_arena *arena, ls_blob_entry **entries_out,
                          size_t *count_out)
{
    ls_blob_entry *entries = ls_arena_new(arena, ls_blob_entry, list->count);
    if (list->count > 0) {
        qsort(list->entries, list->count, sizeof *entries, compare_keys);
        memcpy(entries, list->entries, list->count * sizeof *entries);
    }
    *entries_out = entries;
    *count_out = list->count;
    free(list->entries);
    *list = (ls_blob_entries){0};
}

/* A prefix may end anywhere, so only what a path could abuse is refused. */
static ls_status check_prefix(const char *prefix)
{
    if (strlen(prefix) > LS_BLOB_KEY_BYTES_MAX || prefix[0] == '/' || strstr(prefix, "//") ||
        strncmp(prefix, "../", 3) == 0 || strstr(prefix, "/../") || strchr(prefix, '\\')) {
        return ls_fail(LS_ERR_INVALID, "'%.200s' can't begin the key of a blob", prefix);
    }
    return LS_OK;
}

ls_status ls_blob_list(ls_blob_store *store, ls_arena *arena, const char *prefix, bool recursive,
                       ls_blob_entry **entries_out, size_t *count_out)
{
    LS_TRY(check_prefix(prefix));
    const char *full = ls_arena_printf(arena, "%s%s", store->prefix, prefix);
    LS_TRY(store->calls->list(store, arena, full, recursive, entries_out, count_out));
    for (size_t i = 0; i < *count_out; i++) {
        (*entries_out)[i].key += strlen(store->prefix);
    }
    return LS_OK;
}

ls_status ls_blob_abandon(ls_blob_store *store, const char *prefix)
{
    ls_arena arena = {0};
    LS_TRY(check_prefix(prefix));
    const ls_status status =
        store->calls->abandon(store, ls_arena_printf(&arena, "%s%s", store->prefix, prefix));
    ls_arena_release(&arena);
    return status;
}

/* ---- parts ---- */

uint64_t ls_blob_part_bytes(uint64_t bytes)
{
    const uint64_t mib = 1 << 20, least = (bytes + PARTS_MAX - 1) / PARTS_MAX;
    return least <= PART_BYTES_MIN ? PART_BYTES_MIN : (least + mib - 1) / mib * mib;
}

typedef struct crew {
    ls_status (*part)(void *context, uint64_t index);
    void *context;
    uint64_t count;
    _Atomic uint64_t next;
    _Atomic bool has_failed;
    pthread_mutex_t lock;
    ls_status status;
    char text[TEXT_BYTES];
} crew;

static void *crew_main(void *argument)
{
    crew *c = argument;
    while (!atomic_load(&c->has_failed)) {
        const uint64_t index = atomic_fetch_add(&c->next, 1);
        const ls_status status = index < c->count ? c->part(c->context, index) : LS_OK;
        if (index >= c->count) {
            break;
        }
        if (status != LS_OK) {
            pthread_mutex_lock(&c->lock);
            if (!atomic_exchange(&c->has_failed, true)) {
                c->status = status;
                snprintf(c->text, sizeof c->text, "%s", ls_error_text());
            }
            pthread_mutex_unlock(&c->lock);
        }
    }
    return NULL;
}

ls_status ls_blob_each_part(unsigned threads, uint64_t count,
                            ls_status (*part)(void *context, uint64_t index), void *context)
{
    crew c = {.part = part, .context = context, .count = count};
    pthread_t others[LS_BLOB_THREADS_MAX];
    unsigned started = 0;
    pthread_mutex_init(&c.lock, NULL);
    while (started + 1 < threads && started + 1 < count &&
           pthread_create(&others[started], NULL, crew_main, &c) == 0) {
        started++;
    }
    crew_main(&c);
    for (unsigned i = 0; i < started; i++) {
        LS_ASSERT(pthread_join(others[i], NULL) == 0);
    }
    pthread_mutex_destroy(&c.lock);
    return c.status == LS_OK || c.status == LS_STOPPED ? c.status : ls_fail(c.status, "%s", c.text);
}

ls_status ls_blob_sink_put(const ls_blob_sink *sink, uint64_t offset, const void *data, size_t bytes)
{
    if (!sink->data) {
        return ls_file_pwrite_all(sink->fd, sink->path, data, bytes, sink->at + offset);
    }
    memcpy((char *)sink->data + offset, data, bytes);
    return LS_OK;
}

/* ---- fetching a file ---- */

typedef struct fetch {
    ls_blob_store *store;
    const char *key;
    const ls_blob_entry *entry;
    uint64_t part_bytes;
    int fd;
    const char *path;
} fetch;

static ls_status fetch_part(void *context, uint64_t index)
{
    const fetch *f = context;
    const uint64_t from = index * f->part_bytes, left = f->entry->bytes - from;
    const size_t bytes = (size_t)(left < f->part_bytes ? left : f->part_bytes);
    const ls_blob_sink sink = {.fd = f->fd, .path = f->path, .at = from};
    LS_TRY(f->store->calls->read(f->store, f->key, f->entry->etag, from, bytes, &sink));
    /* The disk begins now, so that the fsync at the end is short; a hint. */
    (void)!sync_file_range(f->fd, (off_t)from, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    return LS_OK;
}

ls_status ls_blob_read_file(ls_blob_store *store, const ls_blob_entry *entry, int fd, const char *path)
{
    const uint64_t part_bytes = ls_blob_part_bytes(entry->bytes);
    full_key full;
    LS_TRY(complete(store, entry->key, full));
    fetch f = {.store = store, .key = full, .entry = entry, .part_bytes = part_bytes, .fd = fd, .path = path};
    if (ftruncate(fd, (off_t)entry->bytes) != 0) {
        return ls_fail_errno(errno, "can't make %s %llu bytes long", path, (unsigned long long)entry->bytes);
    }
    return ls_blob_each_part(store->threads, (entry->bytes + part_bytes - 1) / part_bytes, fetch_part, &f);
}

typedef struct wanted_file {
    ls_blob_store *store;
    const ls_blob_entry *entry;
} wanted_file;

static ls_status fetch_all(void *context, int fd, const char *path)
{
    const wanted_file *wanted = context;
    return ls_blob_read_file(wanted->store, wanted->entry, fd, path);
}

ls_status ls_blob_get_file(ls_blob_store *store, const ls_blob_entry *entry, const char *path)
{
    wanted_file wanted = {.store = store, .entry = entry};
    return ls_file_write_atomic_by(path, fetch_all, &wanted);
}
