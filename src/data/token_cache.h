// SPDX-License-Identifier: Apache-2.0
/*
 * Token cache: a text file is tokenised once per tokenizer, for all processes.
 *
 * The tokens of a file are one item of a cache folder, <folder>/<key>.tokens, in the format of
 * data/token_format.h. The folder (storage/cache/cache.h) lets one process at a time make an item,
 * pins it while it is mapped, and removes it when the space is needed. The key is the SHA-256 of
 * the reader version, the kind, the field, the tokenizer's hash and the SHA-256 of the content,
 * unpacked; for records that are not text also of the recipe (template, settings) and of what
 * ranks them. The tokens depend
 * on nothing else, so an entry never becomes wrong, and copies and renames of a corpus find it.
 *
 * The header and the tables are verified when an entry is opened, the ids block by block when they
 * are read (data/tokens.h). A damaged entry is made again, with a warning.
 *
 * Thread-safe, also between processes.
 */
#ifndef LS_DATA_TOKEN_CACHE_H
#define LS_DATA_TOKEN_CACHE_H

#include "base/arena.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/encode_corpus.h"
#include "data/tokens.h"
#include "storage/cache/cache.h"

#include <stdint.h>

/* Raised by a change that makes other tokens of the same text and tokenizer, for example in line
 * handling or separators. */
enum { LS_TOKEN_READER_VERSION = 1 };

typedef struct ls_token_cache_options {
    /* Opened with LS_TOKEN_CACHE_SUFFIX. Closed after the tokens. */
    ls_cache *cache;
    const ls_tokenizer *tokenizer;
    /* As in ls_encode_request. */
    const ls_recipe *recipe;
    ls_held_out_rule rule;
    /* Every id must be below it. */
    uint32_t vocab_size;
    /* Threads that encode, at least 1. */
    uint32_t threads;
    ls_encode_progress progress;
    /* Called while encoding, as in ls_encode_request. May be NULL. */
    ls_status (*stop)(void *context);
    /* The context of both. */
    void *context;
} ls_token_cache_options;

/*
 * Opens the tokens of any file but a token file, and makes them if the cache does not have them.
 *
 * tokens_out: written only on success. The caller closes it with ls_tokens_close.
 * Errors: those of ls_encode_file and ls_file_map_open; LS_ERR_INVALID if an id of the tokenizer is
 * not below vocab_size; what `stop` returned.
 */
LS_MUST_CHECK ls_status ls_token_cache_open(const ls_corpus_file *file, const ls_token_cache_options *options,
                                            ls_tokens *tokens_out);

/* $LOCKSTEP_HOME/cache/tokens, else $HOME/.lockstep/cache/tokens, else "", which is no cache.
 * Allocated in `arena`. */
const char *ls_token_cache_default_folder(ls_arena *arena);

/* The key of a file's tokens. content_hash: 64 hex digits. */
void ls_token_cache_key(const ls_corpus_file *file, const ls_token_cache_options *options,
                        const char *content_hash, char key_out[LS_SHA256_HEX_BYTES]);

/* Reads a whole entry and checks it. Errors: LS_ERR_DATA; those of ls_file_map_open. */
LS_MUST_CHECK ls_status ls_token_cache_verify(const char *path, const char *key);

#endif
