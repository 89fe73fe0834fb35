// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the tokens of token sets from a bucket or a slow disk, ahead of the step that needs them.
 *
 *   expect(shard, first, ...)   ─▶ queue ─▶ threads: the node's block cache, else the host that owns
 *                                                       │ them (ls_token_reader_share), else one
 *                                                       │ range request to the store
 *                                                       │ checked blocks
 *   read(shard, first, count) ◀── block cache ◀─────────┘
 *          └── what is not there is fetched at once, as if nobody had expected it
 *
 * Expecting is a hint and changes no result. Where the requests take most of the time and not their
 * bytes, tokens that will all be read, and fit in half of the cache, are fetched 64 blocks at once.
 * Blocks go to the cache of the node
 * (data/stream/block_cache.h), so the jobs of a node fetch a block once. A request names the
 * version of the object that the index names; blocks that arrive damaged are asked for again,
 * three times in all; the store tries again what fails for a reason that passes.
 *
 * Thread-safe. read and expect allocate nothing but what a request to the store does.
 */
#ifndef LS_DATA_STREAM_TOKEN_READER_H
#define LS_DATA_STREAM_TOKEN_READER_H

#include "base/status.h"
#include "data/stream/block_peers.h"
#include "data/stream/token_set.h"

#include <stddef.h>
#include <stdint.h>

typedef struct ls_token_reader ls_token_reader;

/* cache_folder: see ls_block_cache_open. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_token_reader_open(const char *cache_folder, ls_token_reader **reader_out);
/* Ends the requests that are on their way. NULL is allowed. */
void ls_token_reader_close(ls_token_reader *reader);

/* Connects the reader with the store of the shard's set. To be called for each shard before it is
 * read, on one thread. Errors: those of ls_blob_open. */
LS_MUST_CHECK ls_status ls_token_reader_add(ls_token_reader *reader, const ls_token_shard *shard);

/*
 * Shares blocks with the other hosts of a run (data/stream/block_peers.h): gives them what they ask
 * for if own->port is not 0, and sets it; asks them after ls_token_reader_meet. Once, after all
 * shards are added. Errors: those of ls_block_peers_open.
 */
LS_MUST_CHECK ls_status ls_token_reader_share(ls_token_reader *reader, ls_block_peer *own, const char *token);
/* The hosts of the run from now on (ls_block_peers_set); nothing if it does not share. */
void ls_token_reader_meet(ls_token_reader *reader, const ls_block_peer *hosts, uint32_t count);

/*
 * Copies ids [first, first + count) of a shard, which has them; largest_out: the largest of them.
 * Errors: LS_ERR_DATA, naming the object, if it has changed since it was prepared or arrives
 * damaged; those of ls_blob_read.
 */
LS_MUST_CHECK ls_status ls_token_reader_read(ls_token_reader *reader, const ls_token_shard *shard,
                                             uint64_t first, uint64_t count, int32_t *ids_out,
                                             uint32_t *largest_out);

/* Ids [first, first + count) will be read soon. whole: at least two thirds of the shard will be
 * read by the processes that share the cache. */
void ls_token_reader_expect(ls_token_reader *reader, const ls_token_shard *shard, uint64_t first,
                            uint64_t count, bool whole);

/* The document of token `at`: where it begins and ends among the tokens of the shard. Errors: as
 * for ls_token_reader_read. */
LS_MUST_CHECK ls_status ls_token_reader_document(ls_token_reader *reader, const ls_token_shard *shard,
                                                 uint64_t at, uint64_t *begin_out, uint64_t *end_out);

#endif
