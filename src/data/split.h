// SPDX-License-Identifier: Apache-2.0
/*
 * Streams and the validation split.
 *
 * A stream is a list of spans: pieces of files that are read one after the other as if they were one. The
 * split cuts the files of one source, taken as one row of tokens, into a training stream and a validation
 * stream that share no token.
 *
 *   stripes      |-------- 1 --------|-------- 2 --------|-------- 3 --------|
 *   training     |===============|   |===============|   |===============|
 *   validation                   |===|               |===|               |===|
 *
 * Rule (version 1). total tokens, fraction f: wanted = round(total * f); stripes S = wanted / 4096 but at
 * least 1 and at most 16. Stripe s is [total*s/S, total*(s+1)/S); its last round(size * f) tokens are
 * validation. First every cut is moved to the nearest document boundary; if validation then has between
 * wanted/2 and 2*wanted tokens and training has some, that is the split ("by document"). Else the cuts stay
 * where they are. The rule looks at tokens and documents only: no seed, no context length.
 *
 * Thread-safe; streams are read-only once made.
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
    const ls_tokens *tokens; /* borrowed */
    uint64_t file_first;     /* first token in the file */
    uint64_t stream_first;   /* first token in the stream: the sum of the counts before */
    uint64_t count;          /* >= 1 */
} ls_span;

typedef struct ls_stream {
    ls_span *spans; /* in the arena they were made with */
    size_t span_count, span_capacity;
    uint64_t token_count;
} ls_stream;

/*
 * Splits `file_count` files. Appends to train and validation (which may hold spans already), allocating in
 * `arena`. fraction: 0 to 0.5; 0 gives everything to train. by_document_out: how the cuts were made (true for
 * fraction 0).
 */
void ls_split_files(ls_arena *arena, const ls_tokens *files, size_t file_count, double fraction,
                    ls_stream *train, ls_stream *validation, bool *by_document_out);

/* Appends tokens [first, first + count) of a file to a stream; joins them with the span before when they
 * continue it. */
void ls_stream_append(ls_arena *arena, ls_stream *stream, const ls_tokens *tokens, uint64_t first,
                      uint64_t count);

/*
 * Copies tokens [first, first + count) of a stream; the range must be inside. O(log spans), no allocation.
 * Errors: those of ls_tokens_read.
 */
LS_MUST_CHECK ls_status ls_stream_read(const ls_stream *stream, uint64_t first, uint64_t count,
                                       int32_t *ids_out);

#endif
