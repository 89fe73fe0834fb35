// SPDX-License-Identifier: Apache-2.0
/*
 * Token sets: tokens of a corpus in a bucket or folder, made once, that training streams.
 *
 *   PREFIX/token-index.json      what the set holds; written last
 *   PREFIX/00000-UID.tokens      the blocks of a file (data/stream/token_block.h), one after another
 *
 * The index names, for each file of the corpus, the content, kind and counts that the identity of a
 * data set and the positions of samples follow from. So a run on the set has the same hash and the
 * same samples as one on the files themselves, and begins without reading any of the tokens.
 */
#ifndef LS_DATA_STREAM_TOKEN_SET_H
#define LS_DATA_STREAM_TOKEN_SET_H

#include "base/arena.h"
#include "base/hash.h"
#include "base/status.h"
#include "data/stream/token_block.h"

#include <stddef.h>
#include <stdint.h>

#define LS_TOKEN_SET_INDEX "token-index.json"

typedef struct ls_token_shard {
    const char *set;  /* s3://BUCKET/PREFIX or a folder */
    const char *key;  /* below it */
    const char *etag; /* of the object; "" in a folder */
    uint64_t uid;     /* of the blocks */
    uint64_t bytes;
    /* The file that it was made from. */
    char content_hash[LS_SHA256_HEX_BYTES];
    const char *field;     /* NULL: the default */
    uint32_t kind;         /* ls_corpus_kind */
    const char *tokenizer; /* hash of the tokenizer; "none" */
    uint32_t id_bytes, id_max;
    uint64_t tokens, documents, text_bytes;
} ls_token_shard;

/* Whether a path or key names an index. */
bool ls_token_set_is_index(const char *path);

/*
 * Reads the index at `address` (s3://... or a path). Everything is in `arena`. Errors: LS_ERR_DATA
 * for an index that is damaged or of another version, naming what is wrong; those of ls_blob_get.
 */
LS_MUST_CHECK ls_status ls_token_set_read(ls_arena *arena, const char *address, ls_token_shard **shards_out,
                                          size_t *count_out);

/* ---- writing --------------------------------------------------------------------------------- */

typedef struct ls_token_set_writer ls_token_set_writer;

/* address: of the set. Nothing is written yet. Errors: those of ls_blob_open. */
LS_MUST_CHECK ls_status ls_token_set_begin(const char *address, ls_token_set_writer **writer_out);

/* Stores the blocks of one file, by way of a temporary file in $TMPDIR; blocks that are there
 * already, from a call that was interrupted, are not sent again. like: what is known of the file;
 * set, key, etag, uid and bytes are chosen here. from->uid is ignored. Errors: those of
 * ls_blob_put_file; LS_ERR_DISK. */
LS_MUST_CHECK ls_status ls_token_set_add(ls_token_set_writer *writer, const ls_token_shard *like,
                                         const ls_token_block_source *from);

/* Writes the index, which makes the set visible. */
LS_MUST_CHECK ls_status ls_token_set_end(ls_token_set_writer *writer);
void ls_token_set_destroy(ls_token_set_writer *writer); /* NULL is allowed */

#endif
