// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenises the content of a corpus file into a token writer.
 *
 * The content is cut into units of about 2 MiB, between records (data/records.h). A text file is
 * one unit, unless the tokenizer works byte by byte. Threads encode a wave of units in parallel;
 * then the units are written in file order. So the result does not depend on the number of threads,
 * and of several errors the first in the file is reported.
 *
 * Every document is followed by the tokenizer's end-of-text token, if it has one. No other special
 * tokens are added.
 *
 * Records of another form than text become samples by a recipe (data/conversation/recipe.h). All
 * records of a file are of the form of the first. Records that can't be used do not end the
 * work: all are counted, the first of them are named, and then the file is refused, unless the
 * recipe leaves them out.
 */
#ifndef LS_DATA_ENCODE_CORPUS_H
#define LS_DATA_ENCODE_CORPUS_H

#include "base/status.h"
#include "data/conversation/recipe.h"
#include "data/corpus.h"
#include "data/held_out.h"
#include "data/token_format.h"
#include "tokenizer/tokenizer.h"

#include <stddef.h>
#include <stdint.h>

/* Called on the calling thread after each wave. */
typedef void (*ls_encode_progress)(void *context, const char *path, uint64_t done_bytes,
                                   uint64_t total_bytes);

typedef struct ls_encode_request {
    /* Any kind but LS_CORPUS_TOKENS. */
    const ls_corpus_file *file;
    /* The file's content, unpacked. */
    const char *data;
    size_t bytes;
    const ls_tokenizer *tokenizer;
    /* For records that are not text, and how they are ranked. */
    const ls_recipe *recipe;
    ls_held_out_rule rule;
    /* 1 to 256. */
    uint32_t threads;
    /* May be NULL. */
    ls_encode_progress progress;
    /* Called before each wave. A status other than LS_OK ends the encoding with that status. May be
     * NULL. */
    ls_status (*stop)(void *context);
    /* The context of both. */
    void *context;
} ls_encode_request;

/*
 * Encodes the whole file. The writer then holds its documents, and the caller finishes it. Errors:
 * LS_ERR_DATA, with the place, for binary content, broken UTF-8, a record that ls_records_next or
 * ls_records_read refuses, and a file without any text; LS_ERR_MEMORY; those of the writer; what
 * `stop` returned.
 */
LS_MUST_CHECK ls_status ls_encode_file(const ls_encode_request *request, ls_token_writer *writer);

#endif
