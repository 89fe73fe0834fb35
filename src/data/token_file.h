// SPDX-License-Identifier: Apache-2.0
/*
 * Reads token files made by other trainers.
 *
 *   llm.c      A header of 256 int32 (magic, version, token count, zeros), then the ids.
 *              Magic 20240520, version 1: uint16 (GPT-2). Magic 20240801, version 7: uint32 (Llama
 *              3). A document begins with its end-of-text token.
 *
 *   nanoGPT    No header: uint16 ids to the end of the file. A document ends with its end-of-text
 *              token. Refused if the vocabulary is above 65536, or if the ids look like uint32 or
 *              int64: every second 16-bit number is 0.
 *
 *   Megatron   x.bin holds ids without a header. x.idx beside it is unaligned and little-endian:
 *                magic "MMIDIDX\0\0" | u64 version 1 | u8 type | u64 sequences S | u64 documents D
 *                i32 length[S] (ids) | i64 offset[S] (bytes in x.bin)
 *                i64 document[D] (first sequence of each; the last is S)
 *                i8 mode[S], optional, ignored
 *              Types read: 1 uint8, 3 int16, 4 int32, 5 int64, 8 uint16. uint16 and int32 sequences
 *              that follow each other without gaps are used in place; all others are copied to
 *              memory.
 *
 * A `.bin` is Megatron's if its `.idx` exists, llm.c's if it begins with the magic, and nanoGPT's
 * otherwise.
 *
 * Sources: llm.c dev/data/data_common.py; nanoGPT data/openwebtext/prepare.py; Megatron-LM
 * core/datasets/indexed_dataset.py.
 *
 * Opening reads the whole file once: it hashes the content, checks the ids and finds the documents.
 * Thread-safe.
 */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include "base/status.h"
#include "data/stream/shard.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A vocab_size for readers that don't know the vocabulary. */
#define LS_TOKEN_FILE_VOCAB_UNKNOWN INT32_MAX

typedef struct ls_token_file_options {
    /* Every id must be below it. At least 1; LS_TOKEN_FILE_VOCAB_UNKNOWN if not known. */
    uint32_t vocab_size;
    /* The token that separates documents in files of llm.c and nanoGPT. -1: the file is one
     * document. */
    int64_t end_of_text;
    /* Folder for the notes of data/content_hash.h. NULL or "": none. */
    const char *notes_folder;
} ls_token_file_options;

/* A token file in memory. */
typedef struct ls_token_file_bytes {
    /* For error texts. */
    const char *name;
    /* The .bin. */
    const void *ids;
    size_t ids_bytes;
    /* Megatron's .idx, or NULL. */
    const void *index;
    size_t index_bytes;
} ls_token_file_bytes;

/*
 * Opens `path`; for Megatron that is the .bin.
 *
 * tokens_out: written only on success. The caller closes it with ls_tokens_close. Errors:
 * LS_ERR_DATA for an empty, truncated or overlong file, an unknown version or type, wide ids
 * without a header, an index that points outside the file, and an id beyond the vocabulary, with
 * its position and value; LS_ERR_MEMORY; those of ls_file_map_open.
 */
LS_MUST_CHECK ls_status ls_token_file_open(const char *path, const ls_token_file_options *options,
                                           ls_tokens *tokens_out);

/* The same for a file in a bucket, which is fetched and stays in the cache while it is open. index:
 * Megatron's .idx; NULL: none. Errors: also those of ls_shard_map. */
LS_MUST_CHECK ls_status ls_token_file_open_shard(const ls_shard *shard, const ls_shard *index,
                                                 const ls_token_file_options *options, ls_tokens *tokens_out);

/* The same for a file in memory. tokens_out borrows the file's bytes as long as it is open. */
LS_MUST_CHECK ls_status ls_token_file_parse(const ls_token_file_bytes *file,
                                            const ls_token_file_options *options, ls_tokens *tokens_out);

/* True if `data` begins with one of llm.c's magic numbers. */
bool ls_token_file_has_magic(const void *data, size_t bytes);

#endif
