// SPDX-License-Identifier: Apache-2.0
/*
 * Token files made by other trainers, read as they are.
 *
 *   llm.c      header of 256 int32 (magic, version, token count, zeros), then the ids.
 *              Magic 20240520 version 1: uint16 (GPT-2); magic 20240801 version 7: uint32 (Llama 3).
 *              A document begins with its end-of-text token.
 *
 *   nanoGPT    no header: uint16 ids to the end of the file. A document ends with its end-of-text token.
 *
 *   Megatron   x.bin: ids without a header. x.idx beside it, unaligned little-endian:
 *                magic "MMIDIDX\0\0" | u64 version 1 | u8 type | u64 sequences S | u64 documents D
 *                i32 length[S] (ids) | i64 offset[S] (bytes in x.bin)
 *                i64 document[D] (first sequence of each; the last is S)
 *                i8 mode[S], optional, ignored
 *              Types read: 1 uint8, 3 int16, 4 int32, 5 int64, 8 uint16. Sequences that follow each other as
 *              uint16 or int32 are used in place; anything else is gathered in memory.
 *
 * A `.bin` is Megatron's when its `.idx` is there, llm.c's when its magic is, and nanoGPT's otherwise.
 *
 * Sources: llm.c dev/data/data_common.py; nanoGPT data/openwebtext/prepare.py; Megatron-LM
 * core/datasets/indexed_dataset.py.
 *
 * Opening reads the whole file once (identity, ids below the vocabulary, documents). Thread-safe.
 */
#ifndef LS_DATA_TOKEN_FILE_H
#define LS_DATA_TOKEN_FILE_H

#include "base/status.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_token_file_options {
    uint32_t vocab_size;      /* every id must be below it; >= 1 */
    int64_t end_of_text;      /* parts documents in llm.c's and nanoGPT's files; -1: none, one document */
    const char *notes_folder; /* for data/content_hash.h; NULL or "": none */
} ls_token_file_options;

/*
 * Opens `path` (for Megatron the .bin).
 *
 * tokens_out: the caller closes it with ls_tokens_close; written only on success.
 * Errors: LS_ERR_DATA for an empty, truncated or overlong file, an unknown version or type, an index that
 * points outside the file, and for an id beyond the vocabulary (naming its position and value);
 * LS_ERR_MEMORY; those of ls_file_map_open.
 */
LS_MUST_CHECK ls_status ls_token_file_open(const char *path, const ls_token_file_options *options,
                                           ls_tokens *tokens_out);

/* The same for bytes in memory: `ids` is the .bin and `index` Megatron's .idx or NULL. They are borrowed as
 * long as tokens_out lives. For tests and fuzzing. */
LS_MUST_CHECK ls_status ls_token_file_parse(const char *name, const void *ids, size_t ids_bytes,
                                            const void *index, size_t index_bytes,
                                            const ls_token_file_options *options, ls_tokens *tokens_out);

/* True when `data` begins with one of llm.c's magic numbers. */
bool ls_token_file_has_magic(const void *data, size_t bytes);

#endif
