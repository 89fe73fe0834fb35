// SPDX-License-Identifier: Apache-2.0
/*
 * The tokens of one file, mapped: what the token cache (data/token_cache.h) and token files
 * (data/token_file.h) both become.
 *
 * Ids are little-endian, 2 or 4 bytes each. Documents are given by where they start. Where the file carries
 * checksums, the block of 1 MiB that is touched is verified when it is touched for the first time, so opening
 * stays cheap however large the file is and yet nothing unverified is ever used.
 *
 * Thread-safety: ls_tokens_read and the getters from any number of threads; close by one, when nobody reads.
 */
#ifndef LS_DATA_TOKENS_H
#define LS_DATA_TOKENS_H

#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "token files are mapped as they are: little-endian machines only");

enum { LS_TOKENS_BLOCK_BYTES = 1 << 20 };

typedef struct ls_tokens {
    char *path;          /* for error texts; owned */
    const void *ids;     /* count ids of id_bytes each */
    uint32_t id_bytes;   /* 2 or 4 */
    uint32_t vocab_size; /* every id is below it, or reading fails */
    uint64_t count;      /* tokens */
    const uint64_t *
        document_starts; /* document_count token indices, the first 0, strictly ascending, each below count */
    uint64_t document_count;                /* >= 1 when count >= 1 */
    uint64_t text_bytes;                    /* bytes of text these tokens stand for; 0: not known */
    char content_hash[LS_SHA256_HEX_BYTES]; /* SHA-256 of the source file(s) */

    /* Private: what close gives back, and the lazy checks. */
    ls_file_map map, index_map;
    void *owned_ids;
    uint64_t *owned_starts;
    const uint32_t *block_crcs;  /* CRC32C of each block of ids; NULL: no checksums */
    atomic_uchar *block_checked; /* 1: verified already */
} ls_tokens;

/* Unmaps and frees; *tokens is zero afterwards. Fine on a zero-initialised one. */
void ls_tokens_close(ls_tokens *tokens);

/* The id at `index` (below count), unverified. */
uint32_t ls_tokens_at(const ls_tokens *tokens, uint64_t index);

/*
 * Copies ids [first, first + count) to ids_out, verifying the blocks they lie in. The range must be inside
 * the file. Errors: LS_ERR_DATA for a checksum that does not match or an id not below vocab_size; ids_out may
 * then hold anything.
 */
LS_MUST_CHECK ls_status ls_tokens_read(const ls_tokens *tokens, uint64_t first, uint64_t count,
                                       int32_t *ids_out);

/* Verifies every block. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_tokens_verify(const ls_tokens *tokens);

#endif
