// SPDX-License-Identifier: Apache-2.0
/*
 * Token cache: a text file is tokenised once per tokenizer, whoever asks.
 *
 * The tokens of a file are an item of a cache folder (storage/cache.h: made once at a time, pinned while mapped, removed when the space is
 * wanted), <folder>/<key>.tokens, in the format of data/token_format.h. The key is the SHA-256 of (reader version, kind, tokenizer hash, content
 * SHA-256): what the tokens depend on and nothing else, so entries never need to be invalidated; copies and renames of a corpus hit.
 *
 * Header and tables are verified when an entry is opened, its ids block by block when they are read (data/tokens.h). What is damaged is made
 * again, with a warning.
 *
 * Thread-safe, also between processes.
 */
#ifndef LS_DATA_TOKEN_CACHE_H
#define LS_DATA_TOKEN_CACHE_H

#include "base/arena.h"
#include "base/status.h"
#include "data/corpus.h"
#include "data/encode.h"
#include "data/tokens.h"
#include "storage/cache.h"

#include <stdint.h>

/* Raised whenever the same text and tokenizer would give other tokens (line handling, separators). */
enum { LS_TOKEN_READER_VERSION = 1 };

/* Of entries. */
#define LS_TOKEN_CACHE_SUFFIX ".tokens"

typedef struct ls_token_cache_options {
    ls_cache *cache; /* opened with LS_TOKEN_CACHE_SUFFIX; closed behind the tokens */
    const ls_tokenizer *tokenizer;
    uint32_t vocab_size; /* ids must be below it */
    uint32_t threads;    /* for encoding; >= 1 */
    ls_encode_progress progress;
    ls_status (*stop)(void *context); /* asked while encoding; NULL: never */
    void *context;                    /* of both */
} ls_token_cache_options;

/*
 * The tokens of a text or JSON lines file, from the cache or made now.
 *
 * tokens_out: closed by the caller with ls_tokens_close; written only on success.
 * Errors: those of ls_encode_file and ls_file_map_open; LS_ERR_INVALID when the tokenizer's ids exceed
 * vocab_size; what stop said.
 */
LS_MUST_CHECK ls_status ls_token_cache_open(const ls_corpus_file *file, const ls_token_cache_options *options,
                                            ls_tokens *tokens_out);

/* $LOCKSTEP_HOME/cache/tokens, else $HOME/.lockstep/cache/tokens, else "" (no cache). In `arena`. */
const char *ls_token_cache_default_folder(ls_arena *arena);

/* The key of what a file becomes. content_hash: 64 hex digits. */
void ls_token_cache_key(ls_corpus_kind kind, const ls_tokenizer *tokenizer, const char *content_hash,
                        char key_out[LS_SHA256_HEX_BYTES]);

/* Reads all of an entry and checks it. Errors: LS_ERR_DATA; those of ls_file_map_open. */
LS_MUST_CHECK ls_status ls_token_cache_verify(const char *path, const char *key);

#endif
