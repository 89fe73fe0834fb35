// SPDX-License-Identifier: Apache-2.0
/*
 * Corpus files: patterns to paths, and what kind of file each is.
 *
 * The kind follows from the suffix, and where the suffix says nothing from the first bytes:
 *   .jsonl .ndjson     one JSON object a line, the document under the key `text`
 *   .bin (and .idx)    token files: llm.c, nanoGPT, Megatron (data/token_file.h)
 *   anything else      llm.c's magic number: a token file; else text, one document a file
 *
 * Thread-safe.
 */
#ifndef LS_DATA_CORPUS_H
#define LS_DATA_CORPUS_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum ls_corpus_kind { LS_CORPUS_TEXT, LS_CORPUS_JSONL, LS_CORPUS_TOKENS } ls_corpus_kind;

typedef struct ls_corpus_file {
    const char *path;
    ls_corpus_kind kind;
} ls_corpus_file;

/*
 * Expands `patterns` in the order given, each sorted by name; a file named twice is taken once. Megatron's
 * x.idx stands for its x.bin. Everything is in `arena`.
 *
 * Errors: LS_ERR_NOT_FOUND for a pattern that matches nothing; LS_ERR_INVALID for a folder or device and for
 * no patterns; LS_ERR_DATA for an empty file.
 */
LS_MUST_CHECK ls_status ls_corpus_expand(ls_arena *arena, const char *const *patterns, size_t pattern_count,
                                         ls_corpus_file **files_out, size_t *count_out);

/* "text", "JSON lines", "token file". */
const char *ls_corpus_kind_name(ls_corpus_kind kind);

#endif
