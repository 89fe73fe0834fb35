// SPDX-License-Identifier: Apache-2.0
/* Storing and fetching files by their chunks. */
#include "storage/registry/chunks.h"

#include "base/assert.h"
#include "base/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

enum { ZSTD_LEVEL = 3, LIST_BYTES_MAX = 256 << 20 };

struct ls_chunk_store {
    ls_blob_store *blobs;
    unsigned threads;
    ls_arena arena;
    bool is_listed;
    ls_blob_entry *known; /* the chunks when the first file was stored, sorted */
    size_t known_count;
    json_t *verified; /* digests of chunks that were compared, as keys */
};

ls_chunk_store *ls_chunk_store_create(ls_blob_store *blobs, unsigned threads)
{
    ls_chunk_store *store = calloc(1, sizeof *store);
    LS_ASSERT(store);
    store->blobs = blobs;
    store->threads = threads;
    store->verified = json_object();
    return store;
}

void ls_chunk_store_destroy(ls_chunk_store *store)
{
    if (store) {
        json_decref(store->verified);
        ls_arena_release(&store->arena);
        free(store);
    }
}

static const char *key_of(ls_arena *arena, const char *folder, const char *sha256)
{
    return ls_arena_printf(arena, "%s/%.2s/%s", folder, sha256, sha256);
}

ls_status ls_chunks_list(ls_chunk_store *store, ls_arena *arena, const ls_registry_entry_file *file,
                         ls_chunk_list *list_out)
{
    char *text = NULL;
    size_t bytes = 0;
    const char *key = key_of(arena, "files", file->sha256);
    const char *where = ls_arena_printf(arena, "%s: %s/%s", file->name, ls_blob_address(store->blobs), key);
    const ls_status status = ls_blob_get(store->blobs, arena, key, LIST_BYTES_MAX, &text, &bytes);
    if (status == LS_ERR_NOT_FOUND) {
        return ls_fail(LS_ERR_DATA, "%s is missing: it lists the chunks of the file", where);
    }
    LS_TRY(status);
    if (strlen(text) != bytes) {
        return ls_fail(LS_ERR_DATA, "%s has a zero byte", where);
    }
    return ls_chunks_decode(arena, text, file->bytes, where, list_out);
}

bool ls_chunks_has(ls_chunk_store *store, const ls_registry_entry_file *file)
{
    ls_arena arena = {0};
    ls_blob_entry entry;
    const bool has = ls_blob_stat(store->blobs, key_of(&arena, "files", file->sha256), &entry) == LS_OK;
    ls_error_clear();
    ls_arena_release(&arena);
    return has;
}

/* ---- storing ---- */

static int by_key(const void *key, const void *entry)
{
    return strcmp(key, ((const ls_blob_entry *)entry)->key);
}

/* One list is cheaper than a question for each chunk. What others store meanwhile is missed. */
static ls_status list_known(ls_chunk_store *store)
{
    if (!store->is_listed) {
        LS_TRY(
            ls_blob_list(store->blobs, &store->arena, "chunks/", true, &store->known, &store->known_count));
        store->is_listed = true;
    }
    return LS_OK;
}

static bool is_known(const ls_chunk_store *store, const char *key)
{
    return bsearch(key, store->known, store->known_count, sizeof *store->known, by_key) != NULL;
}

typedef struct put_job {
    ls_chunk_store *store;
    const unsigned char *data;
    const ls_chunk_list *list;
    _Atomic uint64_t new_bytes;
} put_job;

/* Stores bytes under their digest, smaller if that gains something. */
static ls_status put_bytes(ls_chunk_store *store, const char *key, const unsigned char *data, size_t bytes,
                           uint64_t *new_bytes_out)
{
    const size_t room = ZSTD_compressBound(bytes);
    void *small = malloc(room);
    bool stored = false;
    if (!small) {
        return ls_fail(LS_ERR_MEMORY, "no memory to compress %zu bytes", bytes);
    }
    const size_t packed = ZSTD_compress(small, room, data, bytes, ZSTD_LEVEL);
    /* Reading compressed bytes takes time: less than a thirtieth is not worth it. */
    const bool gains = !ZSTD_isError(packed) && packed < bytes - bytes / 32;
    const ls_status status =
        ls_blob_put_new(store->blobs, key, gains ? small : data, gains ? packed : bytes, &stored);
    free(small);
    *new_bytes_out = stored ? (gains ? packed : bytes) : 0;
    return status;
}

static ls_status put_chunk(void *context, uint64_t index)
{
    put_job *job = context;
    ls_chunk_store *store = job->store;
    ls_chunk *chunk = &job->list->chunks[index];
    ls_arena arena = {0};
    ls_status status = LS_OK;
    uint64_t new_bytes = 0;
    ls_sha256_hex(job->data + chunk->offset, (size_t)chunk->bytes, chunk->sha256);
    const char *key = key_of(&arena, "chunks", chunk->sha256);
    if (!is_known(store, key)) {
        status = put_bytes(store, key, job->data + chunk->offset, (size_t)chunk->bytes, &new_bytes);
    }
    job->new_bytes += new_bytes;
    ls_arena_release(&arena);
    return status;
}

static ls_status put_map(ls_chunk_store *store, ls_arena *arena, const char *path, const ls_file_map *map,
                         const ls_registry_entry_file *file, uint64_t *new_bytes_out)
{
    ls_chunk_list list = {0};
    char sha256[LS_SHA256_HEX_BYTES];
    bool stored = false;
    ls_chunks_cut(arena, map->data, map->bytes, &list);
    put_job job = {.store = store, .data = map->data, .list = &list};
    LS_TRY(ls_blob_each_part(store->threads, list.count, put_chunk, &job));
    /* After the chunks: a file that changed until now is not taken for what it was. */
    ls_sha256_hex(map->data, map->bytes, sha256);
    if (map->bytes != file->bytes || strcmp(sha256, file->sha256) != 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s has %zu bytes with SHA-256 %.16s..., %" PRIu64
                       " with %.16s... are expected: it is "
                       "damaged, or was written to meanwhile",
                       path, map->bytes, sha256, file->bytes, file->sha256);
    }
    const char *text = ls_chunks_encode(arena, &list);
    LS_TRY(ls_blob_put_new(store->blobs, key_of(arena, "files", file->sha256), text, strlen(text), &stored));
    *new_bytes_out = job.new_bytes + (stored ? strlen(text) : 0);
    return LS_OK;
}

/* Whether the file is there with all its chunks. One that was removed, because it was damaged, is
 * stored again. */
static bool is_there(ls_chunk_store *store, ls_arena *arena, const ls_registry_entry_file *file)
{
    ls_chunk_list list = {0};
    bool is_whole = ls_chunks_list(store, arena, file, &list) == LS_OK;
    for (size_t i = 0; is_whole && i < list.count; i++) {
        is_whole = is_known(store, key_of(arena, "chunks", list.chunks[i].sha256));
    }
    ls_error_clear();
    return is_whole;
}

static ls_status put_file(ls_chunk_store *store, ls_arena *arena, const char *path,
                          const ls_registry_entry_file *file, uint64_t *new_bytes_out)
{
    ls_file_map map = {0};
    LS_TRY(list_known(store));
    if (is_there(store, arena, file)) {
        return LS_OK;
    }
    LS_TRY(ls_file_map_open(path, &map));
    const ls_status status = put_map(store, arena, path, &map, file, new_bytes_out);
    ls_file_map_close(&map);
    return status;
}

ls_status ls_chunks_put(ls_chunk_store *store, const char *path, const ls_registry_entry_file *file,
                        ls_chunks_stored *stored)
{
    ls_arena arena = {0};
    uint64_t new_bytes = 0;
    const ls_status status = put_file(store, &arena, path, file, &new_bytes);
    stored->bytes += file->bytes;
    stored->new_bytes += new_bytes;
    ls_arena_release(&arena);
    return status;
}

/* ---- fetching ---- */

typedef struct get_job {
    ls_chunk_store *store;
    const ls_registry_entry_file *file;
    const ls_chunk *const *chunks;
    const char *path; /* NULL: only compare */
    int fd;
} get_job;

/* The bytes of a chunk from what is stored of it, in `arena`. */
static const char *unpack(ls_arena *arena, const char *data, size_t bytes, const ls_chunk *chunk)
{
    if (bytes == chunk->bytes) {
        return data;
    }
    char *whole = ls_arena_alloc(arena, (size_t)chunk->bytes);
    return ZSTD_decompress(whole, (size_t)chunk->bytes, data, bytes) == chunk->bytes ? whole : NULL;
}

static ls_status get_chunk_in(ls_arena *arena, const get_job *job, const ls_chunk *chunk)
{
    char *data = NULL, sha256[LS_SHA256_HEX_BYTES] = "";
    size_t bytes = 0;
    const char *key = key_of(arena, "chunks", chunk->sha256), *address = ls_blob_address(job->store->blobs);
    const ls_status status = ls_blob_get(job->store->blobs, arena, key, LS_CHUNK_BYTES_MAX, &data, &bytes);
    if (status == LS_ERR_NOT_FOUND) {
        return ls_fail(LS_ERR_DATA, "%s: its chunk %s/%s is missing; %s lists it", job->file->name, address,
                       key, key_of(arena, "files", job->file->sha256));
    }
    LS_TRY(status);
    const char *whole = unpack(arena, data, bytes, chunk);
    if (whole) {
        ls_sha256_hex(whole, (size_t)chunk->bytes, sha256);
    }
    if (strcmp(sha256, chunk->sha256) != 0) {
        return ls_fail(LS_ERR_DATA,
                       "%s: its chunk %s/%s, or %s, which lists it, is damaged; remove it and add a good "
                       "copy of the file again",
                       job->file->name, address, key, key_of(arena, "files", job->file->sha256));
    }
    return job->path ? ls_file_pwrite_all(job->fd, job->path, whole, (size_t)chunk->bytes, chunk->offset)
                     : LS_OK;
}

static ls_status get_chunk(void *context, uint64_t index)
{
    const get_job *job = context;
    ls_arena arena = {0};
    const ls_status status = get_chunk_in(&arena, job, job->chunks[index]);
    ls_arena_release(&arena);
    return status;
}

/* Reads all chunks of a file; into `fd`, or only those that were not compared before. */
static ls_status read_file(ls_chunk_store *store, const ls_registry_entry_file *file, int fd,
                           const char *path)
{
    ls_arena arena = {0};
    ls_chunk_list list = {0};
    size_t count = 0;
    ls_status status = ls_chunks_list(store, &arena, file, &list);
    const ls_chunk **chunks = ls_arena_new(&arena, const ls_chunk *, list.count + 1);
    for (size_t i = 0; i < list.count; i++) {
        const char *sha256 = list.chunks[i].sha256;
        if (path || !json_object_get(store->verified, sha256)) {
            chunks[count++] = &list.chunks[i];
        }
    }
    if (status == LS_OK) {
        get_job job = {.store = store, .file = file, .chunks = chunks, .path = path, .fd = fd};
        status = ls_blob_each_part(store->threads, count, get_chunk, &job);
    }
    for (size_t i = 0; status == LS_OK && i < count; i++) {
        json_object_set_new(store->verified, chunks[i]->sha256, json_true());
    }
    ls_arena_release(&arena);
    return status;
}

typedef struct write_job {
    ls_chunk_store *store;
    const ls_registry_entry_file *file;
} write_job;

static ls_status write_file(void *context, int fd, const char *path)
{
    const write_job *write = context;
    return read_file(write->store, write->file, fd, path);
}

ls_status ls_chunks_get(ls_chunk_store *store, const ls_registry_entry_file *file, const char *path)
{
    write_job job = {store, file};
    ls_file_map map = {0};
    char sha256[LS_SHA256_HEX_BYTES];
    LS_TRY(ls_file_write_atomic_by(path, write_file, &job));
    LS_TRY(ls_file_map_open(path, &map));
    ls_sha256_hex(map.data, map.bytes, sha256);
    ls_file_map_close(&map);
    return strcmp(sha256, file->sha256) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "%s: the list of its chunks in %s is damaged: they do not make this file",
                         file->name, ls_blob_address(store->blobs));
}

ls_status ls_chunks_verify(ls_chunk_store *store, const ls_registry_entry_file *file)
{
    return read_file(store, file, -1, NULL);
}
