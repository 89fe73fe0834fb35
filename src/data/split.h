// SPDX-License-Identifier: Apache-2.0
/*
 * Streams and the validation split.
 *
 * A stream is a list of spans: pieces of files that are read in order as if they were one file. The
 * split treats the files of one source as one row of tokens and cuts it into a training stream and
 * a validation stream that share no token.
 *
 *   stripes      |-------- 1 --------|-------- 2 --------|-------- 3 --------|
 *   training     |===============|   |===============|   |===============|
 *   validation                   |===|               |===|               |===|
 *
 * The rule (version 1), for `total` tokens and the fraction f:
 *   1. wanted = round(total * f). The number of stripes S is wanted / 4096, but at least 1 and at
 *      most 16.
 *   2. Stripe s is [total*s/S, total*(s+1)/S). Its last round(size * f) tokens are validation.
 *   3. Every cut is moved to the nearest document boundary. If validation then has between wanted/2
 *      and 2*wanted tokens, and training has at least one, that is the split ("by document").
 *   4. Otherwise the cuts stay where step 2 put them.
 * The rule depends only on tokens and documents, not on the seed or the context length.
 *
 * Thread-safe. Streams are read-only once made.
 */
#ifndef LS_DATA_SPLIT_H
#define LS_DATA_SPLIT_H

#include "base/arena.h"
#include "base/status.h"
#include "data/tokens.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LS_SPLIT_RULE_VERSION = 1 };

typedef struct ls_span {
    /* Borrowed. */
    const ls_tokens *tokens;
    /* Index of the first token in the file. */
    uint64_t file_first;
    /* Index of the first token in the stream: the sum of the counts before this span. */
    uint64_t stream_first;
    /* At least 1. */
    uint64_t count;
} ls_span;

typedef struct ls_stream {
    /* In the arena that they were made in. */
    ls_span *spans;
    size_t span_count, span_capacity;
    uint64_t token_count;
} ls_stream;

/*
 * Splits `file_count` files. Appends to train and validation, which may already hold spans, and
 * allocates in `arena`. fraction is 0 to 0.5; 0 gives everything to train. Errors: those of
 * ls_tokens_document.
 */
LS_MUST_CHECK ls_status ls_split_files(ls_arena *arena, const ls_tokens *files, size_t file_count,
                                       double fraction, ls_stream *train, ls_stream *validation);

/* Appends tokens [first, first + count) of a file to a stream. Extends the last span if they
 * continue it. */
void ls_stream_append(ls_arena *arena, ls_stream *stream, const ls_tokens *tokens, uint64_t first,
                      uint64_t count);

/*
 * Copies tokens [first, first + count) of a stream. The range must be inside the stream. Takes
 * O(log spans) and allocates nothing. Errors: those of ls_tokens_read.
 */
LS_MUST_CHECK ls_status ls_stream_read(const ls_stream *stream, uint64_t first, uint64_t count,
                                       int32_t *ids_out);

/* The stream indices at which the document of token `at` begins and ends. A document that was cut
 * ends where the stream leaves it. Errors: those of ls_tokens_document. */
LS_MUST_CHECK ls_status ls_stream_document(const ls_stream *stream, uint64_t at, uint64_t *begin_out,
                                           uint64_t *end_out);

/* Tokens [first, first + count), which lie in the stream, will be read soon (ls_tokens_expect). */
void ls_stream_expect(const ls_stream *stream, uint64_t first, uint64_t count, bool whole);

#endif
