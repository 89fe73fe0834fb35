// SPDX-License-Identifier: Apache-2.0
/*
 * The file format of cached tokens: written once, front to back, then mapped.
 *
 *   0                 header, 256 bytes (ls_token_header)
 *   256               ids, token_count * id_bytes
 *   starts_offset     document starts, u64 each (8-byte aligned)
 *   crcs_offset       CRC32C of each block of LS_TOKENS_BLOCK_BYTES of ids, u32 each
 *   file_bytes        end
 *
 * Everything is little-endian. The header has its own CRC and one over starts and block CRCs; both are
 * checked when the file is opened, the ids block by block when they are read (data/tokens.h).
 *
 * A writer belongs to one thread.
 */
#ifndef LS_DATA_TOKEN_FORMAT_H
#define LS_DATA_TOKEN_FORMAT_H

#include "base/status.h"
#include "data/tokens.h"

#include <assert.h>
#include <stdint.h>

enum { LS_TOKEN_FORMAT_VERSION = 1, LS_TOKEN_HEADER_BYTES = 256, LS_TOKEN_KEY_BYTES = 64 };

typedef struct ls_token_header {
    char magic[8]; /* "LSTOKENS" */
    uint32_t version;
    uint32_t id_bytes;
    uint64_t token_count, document_count, text_bytes;
    uint64_t starts_offset, crcs_offset, file_bytes;
    uint32_t id_max;                       /* largest id in the file */
    uint32_t tail_crc;                     /* of the bytes from starts_offset to the end */
    char key[LS_TOKEN_KEY_BYTES];          /* cache key, hex, not terminated */
    char content_hash[LS_TOKEN_KEY_BYTES]; /* SHA-256 of the source file, hex, not terminated */
    uint8_t reserved[52];                  /* zero */
    uint32_t header_crc;                   /* of the 252 bytes before */
} ls_token_header;
static_assert(sizeof(ls_token_header) == LS_TOKEN_HEADER_BYTES, "the header is part of the file format");

typedef struct ls_token_writer {
    int fd;
    const char *path; /* for error texts; borrowed */
    uint32_t id_bytes, id_max;
    uint64_t token_count, text_bytes;
    /* Private: the block being filled, and the growing tables. */
    unsigned char *block;
    uint64_t block_bytes;
    uint64_t *starts;
    uint64_t start_count, start_capacity;
    uint32_t *crcs;
    uint64_t crc_count, crc_capacity;
} ls_token_writer;

/*
 * Begins a file on an empty, seekable `fd`, which stays the caller's. id_bytes: 2 or 4.
 * Errors: LS_ERR_MEMORY, LS_ERR_IO. On error nothing needs to be released.
 */
LS_MUST_CHECK ls_status ls_token_writer_init(ls_token_writer *writer, int fd, const char *path,
                                             uint32_t id_bytes);
void ls_token_writer_release(ls_token_writer *writer);

/*
 * Appends one document of `count` ids that stand for text_bytes of text. An empty document is left out. With
 * id_bytes 2 every id must be below 65536. Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_token_writer_add(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                                            uint64_t text_bytes);

/* Like add, but the ids continue the document of the last add (or begin one when there is none). */
LS_MUST_CHECK ls_status ls_token_writer_continue(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                                                 uint64_t text_bytes);

/* Writes tables and header. key and content_hash: 64 hex digits. The file is complete afterwards, though not
 * yet synced. */
LS_MUST_CHECK ls_status ls_token_writer_finish(ls_token_writer *writer, const char *key,
                                               const char *content_hash);

/*
 * Takes a mapped file apart. `map` becomes part of tokens_out on success (ls_tokens_close unmaps it) and
 * stays the caller's on error. path: where the tokens came from, for error texts. key: must match, NULL: any.
 * vocab_size: ids must be below it. Errors: LS_ERR_DATA for whatever is not as it was written; LS_ERR_INVALID
 * when an id is beyond the vocabulary; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_token_format_open(ls_file_map map, const char *path, const char *key,
                                             uint32_t vocab_size, ls_tokens *tokens_out);

#endif
