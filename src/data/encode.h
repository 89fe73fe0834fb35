// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenising a text or JSON lines file into a token writer.
 *
 * The file is cut in units (a text file is one unit, unless the tokenizer works byte by byte; JSON lines are
 * cut between lines, about 2 MiB each). Threads encode a wave of units side by side, then the units are
 * written in file order: the result does not depend on the number of threads, and of several errors the first
 * in the file is reported.
 *
 * Every document is followed by the tokenizer's end-of-text token where it has one. Otherwise no special
 * tokens are added.
 */
#ifndef LS_DATA_ENCODE_H
#define LS_DATA_ENCODE_H

#include "base/status.h"
#include "data/corpus.h"
#include "data/token_format.h"
#include "data/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* Called on the calling thread after each wave. */
typedef void (*ls_encode_progress)(void *context, const char *path, uint64_t done_bytes,
                                   uint64_t total_bytes);

typedef struct ls_encode_request {
    const char *path;    /* for error texts */
    ls_corpus_kind kind; /* LS_CORPUS_TEXT or LS_CORPUS_JSONL */
    const char *data;    /* the file's content */
    size_t bytes;
    const ls_tokenizer *tokenizer;
    uint32_t threads;            /* 1 to 256 */
    ls_encode_progress progress; /* may be NULL */
    /* Asked before each wave; anything but LS_OK ends the encoding with it. May be NULL. */
    ls_status (*stop)(void *context);
    void *context; /* of both */
} ls_encode_request;

/*
 * Encodes the whole file. The writer then holds its documents; the caller finishes it.
 * Errors: LS_ERR_DATA for binary content, broken UTF-8, broken or unfit JSON lines, and a file without any
 * text, naming where; LS_ERR_MEMORY; those of the writer; what `stop` said.
 */
LS_MUST_CHECK ls_status ls_encode_file(const ls_encode_request *request, ls_token_writer *writer);

#endif
