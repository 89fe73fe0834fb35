// SPDX-License-Identifier: Apache-2.0
/*
 * The cache of token blocks of a node: a file with a fixed number of places, shared by all
 * processes that use the folder.
 *
 *   set 0 | 8 x (u32 tag, u32 when it was last used) | 8 blocks of 1 KiB
 *   set 1 | ...
 *
 * A block has a place in one set, which follows from its file and number; in a full set, the least
 * recently used block gives way. Nothing is locked: a block carries a check of its content, file
 * and number (data/stream/token_block.h), so one that is half written, or another one, is as good
 * as none. The file's size is fixed by the quota of the folder, of which it takes a quarter beside
 * the rest; it grows as it is filled. If it can't be made or written, the cache is 64 MiB of
 * memory.
 *
 * Thread-safe, also between processes; allocates nothing once it is open.
 */
#ifndef LS_DATA_STREAM_BLOCK_CACHE_H
#define LS_DATA_STREAM_BLOCK_CACHE_H

#include "base/status.h"
#include "data/stream/token_block.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct ls_block_cache ls_block_cache;

/* folder: that of a cache (storage/cache/cache.h); "": memory. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_block_cache_open(const char *folder, ls_block_cache **cache_out);
void ls_block_cache_close(ls_block_cache *cache); /* NULL is allowed */
/* What it has room for. */
uint64_t ls_block_cache_bytes(const ls_block_cache *cache);

/* Reads block `index` of file `uid`. False: it is not there. */
bool ls_block_cache_get(ls_block_cache *cache, uint64_t uid, uint64_t index, ls_token_block *block_out);
void ls_block_cache_put(ls_block_cache *cache, uint64_t uid, uint64_t index, const ls_token_block *block);

/*
 * Keeps other processes from fetching a block at the same time: waits until none does, at most 10
 * s, and returns a token for ls_block_cache_unlock. A process that dies releases it.
 */
int ls_block_cache_lock(ls_block_cache *cache, uint64_t uid, uint64_t index);
void ls_block_cache_unlock(int token);

#endif
