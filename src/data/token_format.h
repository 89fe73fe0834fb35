// SPDX-License-Identifier: Apache-2.0
/*
 * The file format of cached tokens. A file is written once from front to back, then mapped.
 *
 *   0             +------------------------------------------------------------------+
 *                 | header, 256 bytes (ls_token_header)                              |
 *   256           +------------------------------------------------------------------+
 *                 | ids, token_count * id_bytes                                      |
 *   starts_offset +------------------------------------------------------------------+
 *                 | document starts, u64 each (8-byte aligned)                       |
 *                 | of records: the origin of each document, two u64 each            |
 *   crcs_offset   +------------------------------------------------------------------+
 *                 | CRC32C of each block of LS_TOKENS_BLOCK_BYTES of ids, u32 each   |
 *   file_bytes    +------------------------------------------------------------------+
 *
 * Everything is little-endian. The header has a CRC of itself and a CRC of the starts and block
 * CRCs. Both are checked when the file is opened, the ids block by block when they are read
 * (data/tokens.h).
 *
 * A writer belongs to one thread.
 */
#ifndef LS_DATA_TOKEN_FORMAT_H
#define LS_DATA_TOKEN_FORMAT_H

#include "base/status.h"
#include "data/spill.h"
#include "data/tokens.h"

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

enum { LS_TOKEN_FORMAT_VERSION = 1, LS_TOKEN_HEADER_BYTES = 256, LS_TOKEN_KEY_BYTES = 64 };

/* The ids are those of records; prompts and turns differ in white space. */
enum { LS_TOKEN_FILE_RECORDS = 1, LS_TOKEN_FILE_LOOSE = 2 };

typedef struct ls_token_header {
    /* "LSTOKENS". */
    char magic[8];
    uint32_t version;
    uint32_t id_bytes;
    uint64_t token_count, document_count, text_bytes;
    uint64_t starts_offset, crcs_offset, file_bytes;
    /* The largest id in the file. */
    uint32_t id_max;
    /* CRC of the bytes from starts_offset to the end. */
    uint32_t tail_crc;
    /* The cache key in hex, without a final NUL. */
    char key[LS_TOKEN_KEY_BYTES];
    /* The SHA-256 of the source file in hex, without a final NUL. */
    char content_hash[LS_TOKEN_KEY_BYTES];
    /* LS_TOKEN_FILE_... */
    uint32_t flags;
    uint32_t zero;
    /* Records that were left out. */
    uint64_t left_count;
    /* Zero. */
    uint8_t reserved[36];
    /* CRC of the 252 bytes before it. */
    uint32_t header_crc;
} ls_token_header;
static_assert(sizeof(ls_token_header) == LS_TOKEN_HEADER_BYTES, "the header is part of the file format");

typedef struct ls_token_writer {
    int fd;
    /* For error texts. Borrowed. */
    const char *path;
    uint32_t id_bytes, id_max;
    uint64_t token_count, text_bytes;
    /* For the header; 0 in the beginning. */
    uint64_t left_count;
    bool is_loose;
    /* Private: the block that is being filled. */
    unsigned char *block;
    uint64_t block_bytes;
    /* Private: the tables, which grow. */
    uint64_t *starts;
    uint64_t start_count;
    ls_token_origin *origins;
    ls_spill start_table, origin_table;
    char *folder;
    uint32_t *crcs;
    size_t crc_count, crc_capacity;
} ls_token_writer;

/*
 * Begins a file on an empty, seekable `fd`, which the caller keeps and closes. id_bytes: 2 or 4.
 * Errors: LS_ERR_MEMORY, LS_ERR_IO. After an error nothing needs to be released.
 */
LS_MUST_CHECK ls_status ls_token_writer_init(ls_token_writer *writer, int fd, const char *path,
                                             uint32_t id_bytes);

/* Frees the writer's memory. */
void ls_token_writer_release(ls_token_writer *writer);

/*
 * Appends one document of `count` ids that were made from text_bytes of text. An empty document is
 * left out. If id_bytes is 2, every id must be below 65536. Errors: LS_ERR_DISK, LS_ERR_IO,
 * LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_token_writer_add(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                                            uint64_t text_bytes);

/* Appends a sample of a record: ids with marks, of 4 bytes, at least one, and its origin. A writer
 * takes either samples or documents. */
LS_MUST_CHECK ls_status ls_token_writer_add_sample(ls_token_writer *writer, const int32_t *ids,
                                                   uint64_t count, uint64_t text_bytes,
                                                   ls_token_origin origin);

/* Like ls_token_writer_add, but the ids continue the last document, or begin one if there is
 * none. */
LS_MUST_CHECK ls_status ls_token_writer_continue(ls_token_writer *writer, const int32_t *ids, uint64_t count,
                                                 uint64_t text_bytes);

/* Writes the tables and the header. key and content_hash: 64 hex digits. The file is then complete,
 * but not yet synced. */
LS_MUST_CHECK ls_status ls_token_writer_finish(ls_token_writer *writer, const char *key,
                                               const char *content_hash);

/*
 * Reads a mapped file. On success tokens_out owns `map`, and ls_tokens_close unmaps it; on error
 * the caller keeps it. path: for error texts. key: what the file's key must be; NULL: any.
 * vocab_size: every id must be below it. Errors: LS_ERR_DATA for a damaged file; LS_ERR_INVALID if
 * an id is beyond the vocabulary; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_token_format_open(ls_file_map map, const char *path, const char *key,
                                             uint32_t vocab_size, ls_tokens *tokens_out);

#endif
