// SPDX-License-Identifier: Apache-2.0
#include "data/stream/shard.h"

#include "base/hash.h"
#include "base/log.h"
#include "storage/blob/transfer.h"

#include <assert.h>
#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef unsigned long long ull;

/* The end of a fetched item. */
typedef struct trailer {
    char magic[8];
    uint64_t bytes;
    ls_hash128 hash;
} trailer;
static_assert(sizeof(trailer) == 32, "the trailer is part of the cache's format");
static const char MAGIC[8] = {'L', 'S', 'F', 'E', 'T', 'C', 'H', '1'};

/* ---- lists ----------------------------------------------------------------------------------- */

static bool is_wild(const char *key)
{
    return strpbrk(key, "*?[") != NULL;
}

typedef struct listing {
    ls_arena *arena;
    const ls_blob_place *place;
    ls_shard like; /* what all have in common */
    ls_shard *shards;
    size_t count;
} listing;

static void add_entry(listing *l, const ls_blob_entry *entry)
{
    ls_shard *shard = &l->shards[l->count++];
    *shard = l->like;
    shard->address = ls_arena_printf(l->arena, "%s/%s", ls_blob_address(l->place->store), entry->key);
    shard->etag = ls_arena_strdup(l->arena, entry->etag);
    shard->bytes = entry->bytes;
}

static ls_status list_below(listing *l, const char *prefix, const char *pattern)
{
    ls_blob_entry *entries = NULL;
    size_t count = 0;
    LS_TRY(ls_blob_list(l->place->store, l->arena, prefix, true, &entries, &count));
    l->shards = ls_arena_new(l->arena, ls_shard, count + 1);
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = strlen(entries[i].key);
        const bool is_marker = bytes > 0 && entries[i].key[bytes - 1] == '/';
        if (!is_marker && (!pattern || fnmatch(pattern, entries[i].key, FNM_PATHNAME | FNM_PERIOD) == 0)) {
            add_entry(l, &entries[i]);
        }
    }
    return LS_OK;
}

/* An object of that name, or else the objects below it. */
static ls_status list_named(listing *l, bool *is_object_out)
{
    ls_blob_entry entry = {0};
    const char *key = l->place->key;
    const size_t bytes = strlen(key);
    if (bytes > 0 && key[bytes - 1] != '/') {
        const ls_status status = ls_blob_stat(l->place->store, key, &entry);
        if (status == LS_OK) {
            entry.key = key;
            l->shards = ls_arena_new(l->arena, ls_shard, 1);
            add_entry(l, &entry);
            *is_object_out = true;
        }
        if (status != LS_ERR_NOT_FOUND) {
            return status;
        }
    }
    const char *folder = bytes == 0 || key[bytes - 1] == '/' ? key : ls_arena_printf(l->arena, "%s/", key);
    return list_below(l, folder, NULL);
}

ls_status ls_shards_list(ls_arena *arena, const char *pattern, const char *cache_folder,
                         ls_shard **shards_out, size_t *count_out, bool *is_object_out)
{
    ls_blob_place place = {0};
    LS_TRY(ls_blob_place_open(arena, pattern, NULL, &place));
    listing l = {.arena = arena,
                 .place = &place,
                 .like = {.cache_folder = cache_folder ? cache_folder : ls_home_path(arena, "cache/tokens")}};
    l.like.cache_folder = l.like.cache_folder ? l.like.cache_folder : "";
    *is_object_out = false;
    ls_status status =
        is_wild(place.key)
            ? list_below(&l, ls_arena_strndup(arena, place.key, strcspn(place.key, "*?[")), place.key)
            : list_named(&l, is_object_out);
    ls_blob_close(place.store);
    if (status == LS_OK && l.count == 0) {
        status = ls_fail(LS_ERR_NOT_FOUND,
                         "no object matches %s: 'lockstep blob ls' shows what a bucket holds", pattern);
    }
    *shards_out = l.shards;
    *count_out = l.count;
    return status;
}

/* ---- fetching -------------------------------------------------------------------------------- */

typedef struct fetch {
    const ls_shard *shard;
    ls_file_map content; /* taken */
} fetch;

static ls_status fail_changed(const ls_shard *shard, const char *now)
{
    return ls_fail(LS_ERR_DATA,
                   "%s changed after it was listed (etag %s, now %s): training data must not change during "
                   "a run; restore the old version, or begin a new run",
                   shard->address, shard->etag, now);
}

/* Whether the bytes have the hash that the server gives for them, if it gives one. */
static bool is_as_stored(const ls_blob_entry *entry, ls_file_map map)
{
    char hex[LS_SHA256_HEX_BYTES], quoted[LS_SHA256_HEX_BYTES + 2];
    if (entry->sha256[0]) {
        ls_sha256_hex(map.data, map.bytes, hex);
        return strcmp(hex, entry->sha256) == 0;
    }
    if (entry->is_encrypted || strlen(entry->etag) != LS_MD5_HEX_BYTES + 1 || strchr(entry->etag, '-')) {
        return true;
    }
    ls_md5_hex(map.data, map.bytes, hex);
    snprintf(quoted, sizeof quoted, "\"%s\"", hex);
    return strcmp(quoted, entry->etag) == 0;
}

static ls_status fetch_once(ls_blob_store *store, const ls_blob_entry *entry, int fd, const char *path,
                            bool *is_good_out, ls_hash128 *hash_out)
{
    LS_TRY(ls_blob_read_file(store, entry, fd, path));
    void *data = mmap(NULL, (size_t)entry->bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        return ls_fail_errno(errno, "can't map %s", path);
    }
    ls_file_map map = {.data = data, .bytes = (size_t)entry->bytes};
    *hash_out = ls_xxh3_128(map.data, map.bytes);
    *is_good_out = is_as_stored(entry, map);
    ls_file_map_close(&map);
    return LS_OK;
}

static ls_status fetch_checked(ls_blob_store *store, const ls_shard *shard, const ls_blob_entry *entry,
                               int fd, const char *path, ls_hash128 *hash_out)
{
    enum { TRIES = 3 };
    for (int i = 0; i < TRIES; i++) {
        bool is_good = false;
        LS_TRY(fetch_once(store, entry, fd, path, &is_good, hash_out));
        if (is_good) {
            return LS_OK;
        }
        ls_log_warn("data: %s arrived damaged%s", shard->address,
                    i + 1 < TRIES ? ", it is fetched again" : "");
    }
    return ls_fail(LS_ERR_DATA,
                   "%s arrives damaged: its bytes do not have the hash that the server gives for them (%s); "
                   "put the object there again",
                   shard->address, entry->sha256[0] ? entry->sha256 : entry->etag);
}

static ls_status fetch_from(const ls_blob_place *place, const ls_shard *shard, int fd, const char *path)
{
    ls_blob_entry entry;
    LS_TRY(ls_blob_stat(place->store, place->key, &entry));
    entry.key = place->key;
    if (strcmp(entry.etag, shard->etag) != 0 || entry.bytes != shard->bytes) {
        return fail_changed(shard, entry.etag);
    }
    trailer end = {.bytes = entry.bytes};
    memcpy(end.magic, MAGIC, sizeof MAGIC);
    LS_TRY(fetch_checked(place->store, shard, &entry, fd, path, &end.hash));
    return ls_file_pwrite_all(fd, path, &end, sizeof end, entry.bytes);
}

static ls_status make_item(void *context, int fd, const char *path)
{
    const fetch *f = context;
    ls_arena arena = {0};
    ls_blob_place place = {0};
    ls_log_info("data: fetching %s, %llu bytes", f->shard->address, (ull)f->shard->bytes);
    ls_status status = ls_blob_place_open(&arena, f->shard->address, NULL, &place);
    if (status == LS_OK) {
        status = fetch_from(&place, f->shard, fd, path);
    }
    ls_blob_close(place.store);
    ls_arena_release(&arena);
    return status;
}

static bool read_trailer(ls_file_map map, trailer *end_out)
{
    if (map.bytes < sizeof *end_out) {
        return false;
    }
    memcpy(end_out, map.data + map.bytes - sizeof *end_out, sizeof *end_out);
    return memcmp(end_out->magic, MAGIC, sizeof MAGIC) == 0;
}

bool ls_shard_is_fetched(ls_file_map map)
{
    trailer end;
    return read_trailer(map, &end);
}

ls_status ls_shard_check(ls_file_map map, const char *path)
{
    trailer end;
    const bool is_whole = read_trailer(map, &end) && end.bytes == map.bytes - sizeof end &&
                          ls_hash128_equal(end.hash, ls_xxh3_128(map.data, (size_t)end.bytes));
    return is_whole ? LS_OK
                    : ls_fail(LS_ERR_DATA,
                              "%s is damaged: its content does not have the hash that was stored with it; "
                              "remove it and it will be fetched again",
                              path);
}

static ls_status take_item(void *context, ls_file_map map, const char *path)
{
    fetch *f = context;
    LS_TRY(ls_shard_check(map, path));
    const size_t bytes = map.bytes - sizeof(trailer);
    if (bytes != f->shard->bytes) {
        return ls_fail(LS_ERR_DATA, "%s has %zu bytes of content, but %s has %llu", path, bytes,
                       f->shard->address, (ull)f->shard->bytes);
    }
    /* What lies behind the content is unmapped, so that the map ends where the content does. */
    void *shorter = mremap((void *)(uintptr_t)map.data, map.bytes, bytes, 0);
    if (shorter == MAP_FAILED) {
        return ls_fail(LS_ERR_MEMORY, "can't map %s", path);
    }
    f->content = (ls_file_map){.data = shorter, .bytes = bytes};
    return LS_OK;
}

ls_status ls_shard_map(const ls_shard *shard, ls_cache **pins_out, ls_file_map *map_out)
{
    ls_arena arena = {0};
    char key[LS_SHA256_HEX_BYTES];
    fetch f = {.shard = shard};
    ls_cache *cache = NULL;
    const char *identity = ls_arena_printf(&arena, "lockstep fetched 1\n%s\n%s\n%llu", shard->address,
                                           shard->etag, (ull)shard->bytes);
    ls_sha256_hex(identity, strlen(identity), key);
    const ls_cache_item item = {.key = key,
                                .what = shard->address,
                                .bytes_expected = shard->bytes,
                                .make = make_item,
                                .take = take_item,
                                .context = &f};
    const ls_cache_options options = {.folder = shard->cache_folder, .suffix = LS_TOKEN_CACHE_SUFFIX};
    ls_status status = ls_cache_open(&options, &cache);
    if (status == LS_OK) {
        status = ls_cache_get(cache, &item);
    }
    if (status == LS_OK) {
        *map_out = f.content;
    }
    if (status == LS_OK && pins_out) {
        *pins_out = cache;
    } else {
        ls_cache_close(cache);
    }
    ls_arena_release(&arena);
    return status;
}

/* ---- fetching ahead -------------------------------------------------------------------------- */

static_assert(sizeof(pthread_t) <= sizeof(uint64_t), "a thread's name fits");

static void *ahead_main(void *argument)
{
    ls_file_map map = {0};
    if (ls_shard_map(argument, NULL, &map) == LS_OK) {
        ls_file_map_close(&map);
    }
    ls_error_clear();
    return NULL;
}

void ls_shard_ahead_begin(ls_shard_ahead *ahead, const ls_shard *shard)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, ahead_main, (void *)(uintptr_t)shard) == 0) {
        *ahead = (ls_shard_ahead){.shard = shard, .thread = (uint64_t)thread};
    }
}

void ls_shard_ahead_end(ls_shard_ahead *ahead)
{
    if (ahead->shard) {
        (void)pthread_join((pthread_t)ahead->thread, NULL);
        *ahead = (ls_shard_ahead){0};
    }
}
