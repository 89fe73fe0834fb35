// SPDX-License-Identifier: Apache-2.0
/*
 * Token cache: a text file is tokenised once per tokenizer, whoever asks.
 *
 * An entry is one file, <folder>/<key>.tokens, in the format of data/token_format.h. Its key is the SHA-256
 * of (reader version, kind, tokenizer hash, content SHA-256): what the tokens depend on and nothing else, so
 * entries never need to be invalidated, only removed when the space is wanted; copies and renames of a corpus
 * hit.
 *
 * Entries are written under a temporary name and renamed, so a reader sees a whole file or none; two
 * processes that make the same entry write the same bytes. They are not synced to disk: what a power cut
 * leaves broken fails its checksum and is made again, as is any other damaged entry (with a warning).
 *
 * A cache must not make a run fail: when the folder can't be created or written (read-only, full), the tokens
 * are made in memory (an anonymous file of the same format) and a warning says so.
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

#include <stdint.h>

/* Raised whenever the same text and tokenizer would give other tokens (line handling, separators). */
enum { LS_TOKEN_READER_VERSION = 1 };

typedef struct ls_token_cache_options {
    const char *folder; /* NULL: ls_token_cache_default_folder; "": keep everything in memory */
    const ls_tokenizer *tokenizer;
    uint32_t vocab_size; /* ids must be below it */
    uint32_t threads;    /* for encoding; >= 1 */
    ls_encode_progress progress;
    void *progress_context;
} ls_token_cache_options;

/*
 * The tokens of a text or JSON lines file, from the cache or made now.
 *
 * tokens_out: closed by the caller with ls_tokens_close; written only on success.
 * Errors: those of ls_encode_file and ls_file_map_open; LS_ERR_INVALID when the tokenizer's ids exceed
 * vocab_size.
 */
LS_MUST_CHECK ls_status ls_token_cache_open(const ls_corpus_file *file, const ls_token_cache_options *options,
                                            ls_tokens *tokens_out);

/* $LOCKSTEP_HOME/cache/tokens, else $HOME/.lockstep/cache/tokens, else "" (no cache). In `arena`. */
const char *ls_token_cache_default_folder(ls_arena *arena);

/* The path of an entry, in `arena`; for tests and `cache` commands. content_hash: 64 hex digits. */
const char *ls_token_cache_entry_path(ls_arena *arena, const char *folder, ls_corpus_kind kind,
                                      const ls_tokenizer *tokenizer, const char *content_hash);

#endif
