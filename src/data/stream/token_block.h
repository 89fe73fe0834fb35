// SPDX-License-Identifier: Apache-2.0
/*
 * The blocks that streamed tokens are stored in.
 *
 * The tokens of a file become blocks of 1 KiB, so that a window of any place can be read with
 * little around it, and each block can be checked and understood alone:
 *
 *   0     u64  XXH3 of the other 1016 bytes, seeded with the file and the number of the block
 *   8     u64  where the document of the first token begins, as an index into the file's tokens
 *   16    u64  where the document of the last token ends
 *   24         ids, 2 or 4 bytes each: 470 or 242; then zeros, in the last block
 *   24+n       one bit per id, the lowest first: a document begins with it
 *
 * All is little-endian. Pure; thread-safe.
 */
#ifndef LS_DATA_STREAM_TOKEN_BLOCK_H
#define LS_DATA_STREAM_TOKEN_BLOCK_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum { LS_TOKEN_BLOCK_BYTES = 1024, LS_TOKEN_BLOCK_PAYLOAD = 1000 };

typedef struct ls_token_block {
    uint64_t check, first_begin, last_end;
    unsigned char payload[LS_TOKEN_BLOCK_PAYLOAD];
} ls_token_block;
static_assert(sizeof(ls_token_block) == LS_TOKEN_BLOCK_BYTES, "the block is a format");

/* Ids per block. id_bytes: 2 or 4. */
uint32_t ls_token_block_ids(uint32_t id_bytes);

/* Where the ids of a block come from. */
typedef struct ls_token_block_source {
    const void *ids; /* all of the file */
    uint32_t id_bytes;
    uint64_t count;
    /* document_count indices, ascending, the first 0. */
    const uint64_t *document_starts;
    uint64_t document_count;
    uint64_t uid; /* of the file */
} ls_token_block_source;

/* Makes block `index`. document: the document of its first token; on return that of the first token
 * of the next block. Begin with 0, and make the blocks in order. */
void ls_token_block_make(const ls_token_block_source *from, uint64_t index, uint64_t *document,
                         ls_token_block *block_out);

/* Whether it is block `index` of file `uid`, unchanged. */
bool ls_token_block_is_good(const ls_token_block *block, uint64_t uid, uint64_t index);

/* Copies ids [first, first + count) of the block. Returns the largest of them. */
uint32_t ls_token_block_copy(const ls_token_block *block, uint32_t id_bytes, uint32_t first, uint32_t count,
                             int32_t *ids_out);

/* The document of token `at` of the file, which lies in block `index`. */
void ls_token_block_document(const ls_token_block *block, uint32_t id_bytes, uint64_t index, uint64_t at,
                             uint64_t *begin_out, uint64_t *end_out);

#endif
