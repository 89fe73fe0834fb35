// SPDX-License-Identifier: Apache-2.0
/*
 * Shards: files of training data in a bucket, read as if they were on this machine.
 *
 * A shard is named by its address and by the version (etag, size) that the list showed. Reading it
 * fetches it whole into the cache of this node, under the cache's quota and as one of its items
 * (storage/cache/cache.h): one process fetches, the others wait for it, and the least recently used
 * items go when space is needed. A fetched item ends with 32 bytes that say how long the content is
 * and hash it, so that one that a power cut damaged is fetched again.
 *
 * What arrives is checked: its length and version by storage/blob/blob.h, its bytes by the SHA-256
 * that is stored with the object (x-amz-meta-sha256), else by the MD5 that the etag of an object is
 * if it was sent in one piece and is not encrypted with a key of its owner.
 *
 * Larger sets of tokens are not fetched but streamed (data/stream/token_stream.h).
 *
 * Thread-safe.
 */
#ifndef LS_DATA_STREAM_SHARD_H
#define LS_DATA_STREAM_SHARD_H

#include "base/arena.h"
#include "base/file.h"
#include "base/status.h"
#include "storage/cache/cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Suffix of the items of the cache of tokens, which shards are fetched into. */
#define LS_TOKEN_CACHE_SUFFIX ".tokens"

/* How one version of an object was listed. All is in the arena of the list. */
typedef struct ls_shard {
    const char *address; /* s3://BUCKET/KEY */
    const char *etag;
    uint64_t bytes;
    const char *cache_folder; /* where it is fetched to; "": memory */
} ls_shard;

/*
 * The shards that a pattern means, sorted by name: an object; with * ? [] in the key, all objects
 * that match (a * does not cross a slash); else all objects below it, as a folder.
 * is_object_out: it is one object. cache_folder: borrowed; NULL: the default of
 * ls_token_cache_default_folder.
 * Errors: LS_ERR_NOT_FOUND for a pattern without a match; those of ls_blob_open and ls_blob_list.
 */
LS_MUST_CHECK ls_status ls_shards_list(ls_arena *arena, const char *pattern, const char *cache_folder,
                                       ls_shard **shards_out, size_t *count_out, bool *is_object_out);

/*
 * Maps a shard's content, after fetching it if the cache does not have it. pins_out: keeps it in
 * the cache until ls_cache_close, which the caller calls after unmapping; NULL: it may be
 * removed from the cache while it is mapped, which a map outlives.
 * Errors: LS_ERR_DATA for content that differs from what was listed or is damaged; those of
 * ls_blob_read.
 */
LS_MUST_CHECK ls_status ls_shard_map(const ls_shard *shard, ls_cache **pins_out, ls_file_map *map_out);

/* Whether a cached item is a fetched shard, and if so, whether it is whole. Errors: LS_ERR_DATA,
 * naming `path`. */
bool ls_shard_is_fetched(ls_file_map map);
LS_MUST_CHECK ls_status ls_shard_check(ls_file_map map, const char *path);

/* ---- fetching ahead ---- */

/* Fetches one shard on a thread of its own while others are worked on. Zero: none. */
typedef struct ls_shard_ahead {
    const ls_shard *shard;
    uint64_t thread; /* pthread_t */
} ls_shard_ahead;

/* Begins to fetch `shard`, which must outlive the fetch; errors are left to ls_shard_map. */
void ls_shard_ahead_begin(ls_shard_ahead *ahead, const ls_shard *shard);
/* Waits for the end of the fetch, if there is one. */
void ls_shard_ahead_end(ls_shard_ahead *ahead);

#endif
