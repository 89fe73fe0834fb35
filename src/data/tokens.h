// SPDX-License-Identifier: Apache-2.0
/*
 * The tokens of one mapped file, which is an entry of the token cache (data/token_cache.h) or a
 * token file (data/token_file.h), or of one file of a token set, which is streamed
 * (data/stream/token_reader.h).
 *
 * Ids are little-endian, 2 or 4 bytes each. A document is given by where it starts. If the file has
 * checksums, each block of 1 MiB is verified when it is first read. So a file of any size opens
 * fast, and no unverified id is ever used.
 *
 * The tokens of records have 4 bytes, whose highest bit marks what is trained
 * (data/conversation/samples.h); each sample of a record is a document, and has an origin.
 *
 * Thread-safety: any number of threads may call ls_tokens_read and the getters. One thread closes,
 * when no other reads.
 */
#ifndef LS_DATA_TOKENS_H
#define LS_DATA_TOKENS_H

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "data/stream/token_reader.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "token files are mapped as they are: little-endian machines only");

enum { LS_TOKENS_BLOCK_BYTES = 1 << 20 };

/* The record that a sample was made of. */
typedef struct ls_token_origin {
    /* Decides whether it is held out (data/held_out.h). */
    uint64_t rank;
    /* Its line in the file. */
    uint64_t line;
} ls_token_origin;

typedef struct ls_tokens {
    /* For error texts. Owned. */
    char *path;
    /* `count` ids of id_bytes each. NULL: they are streamed. */
    const void *ids;
    /* 2 or 4. */
    uint32_t id_bytes;
    /* Every id is below it, or reading fails. */
    uint32_t vocab_size;
    uint64_t count;
    /* document_count token indices: the first is 0, they ascend strictly, each is below count.
     * NULL: the tokens are streamed. */
    const uint64_t *document_starts;
    /* At least 1 if count is. */
    uint64_t document_count;
    /* Bytes of text that the tokens were made from. 0: not known. */
    uint64_t text_bytes;
    /* document_count of them. NULL: the tokens are not those of records. */
    const ls_token_origin *origins;
    /* Records that were left out. */
    uint64_t left_count;
    /* Prompts and turns of the chat template differ in white space. */
    bool is_loose;
    /* The SHA-256 of the source file, or of its files. */
    char content_hash[LS_SHA256_HEX_BYTES];
    /* Where streamed tokens come from. NULL: they are mapped. Borrowed. */
    ls_token_reader *reader;
    const ls_token_shard *shard;

    /* Private: what ls_tokens_close releases. */
    ls_file_map map, index_map;
    struct ls_cache *pins;
    void *owned_ids;
    uint64_t *owned_starts;
    /* Private: the CRC32C of each block of ids. NULL: no checksums. */
    const uint32_t *block_crcs;
    /* Private: for each block, 1 if it was verified. */
    atomic_uchar *block_checked;
} ls_tokens;

/* Unmaps and frees, and sets *tokens to zero. Does nothing for one that is zero. */
void ls_tokens_close(ls_tokens *tokens);

/* The id at `index` of mapped tokens, which is below count, with its mark. It is not verified. */
uint32_t ls_tokens_at(const ls_tokens *tokens, uint64_t index);

/*
 * Copies ids [first, first + count), with their marks, to ids_out, and verifies the blocks that
 * they lie in. The range must be inside the file. Errors: those of ls_token_reader_read;
 * LS_ERR_DATA if a checksum does not match or an id is not below vocab_size; ids_out may then hold
 * anything.
 */
LS_MUST_CHECK ls_status ls_tokens_read(const ls_tokens *tokens, uint64_t first, uint64_t count,
                                       int32_t *ids_out);

/* Ids [first, first + count) will be read soon. For streamed tokens (ls_token_reader_expect); else
 * nothing happens. */
void ls_tokens_expect(const ls_tokens *tokens, uint64_t first, uint64_t count, bool whole);

/* The document of the token at `index`: where it begins and ends. Errors: those of
 * ls_token_reader_document. */
LS_MUST_CHECK ls_status ls_tokens_document(const ls_tokens *tokens, uint64_t index, uint64_t *begin_out,
                                           uint64_t *end_out);

/* Verifies every block of mapped tokens. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_tokens_verify(const ls_tokens *tokens);

#endif
