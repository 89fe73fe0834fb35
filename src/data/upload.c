// SPDX-License-Identifier: Apache-2.0
#include "data/upload.h"

#include "data/dataset_internal.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <string.h>

typedef struct upload {
    ls_token_set_writer *writer;
    const char *tokenizer;
    void (*tell)(void *context, const char *text);
    void *context;
} upload;

static uint32_t largest_of(const ls_tokens *tokens)
{
    uint32_t largest = 0;
    for (uint64_t i = 0; i < tokens->count; i++) {
        const uint32_t id = ls_tokens_at(tokens, i);
        largest = id > largest ? id : largest;
    }
    return largest;
}

static ls_status add_file(const upload *u, const ls_corpus_file *file, const ls_tokens *tokens)
{
    char line[512];
    if (file->form != LS_RECORD_TEXT || file->streamed) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "%s %s, and only text and token files can be stored as a token set; name them in "
                       "data.train as they are",
                       file->path, file->streamed ? "belongs to a token set" : "holds conversations");
    }
    LS_TRY(ls_tokens_verify(tokens));
    ls_token_shard like = {.field = ls_corpus_field_matters(file) ? ls_corpus_field(file) : NULL,
                           .kind = (uint32_t)file->kind,
                           .tokenizer = u->tokenizer,
                           .id_bytes = tokens->id_bytes,
                           .id_max = largest_of(tokens),
                           .tokens = tokens->count,
                           .documents = tokens->document_count,
                           .text_bytes = tokens->text_bytes};
    memcpy(like.content_hash, tokens->content_hash, sizeof like.content_hash);
    const ls_token_block_source from = {.ids = tokens->ids,
                                        .id_bytes = tokens->id_bytes,
                                        .count = tokens->count,
                                        .document_starts = tokens->document_starts,
                                        .document_count = tokens->document_count};
    LS_TRY(ls_token_set_add(u->writer, &like, &from));
    if (u->tell) {
        snprintf(line, sizeof line, "%.400s: %llu tokens stored", file->path,
                 (unsigned long long)tokens->count);
        u->tell(u->context, line);
    }
    return LS_OK;
}

static ls_status add_all(const upload *u, const ls_dataset *dataset)
{
    for (uint32_t i = 0; i < dataset->source_count; i++) {
        const ls_dataset_part *s = &dataset->sources[i];
        for (size_t k = 0; k < s->file_count; k++) {
            LS_TRY(add_file(u, &s->files[k], &s->tokens[k]));
        }
    }
    return ls_token_set_end(u->writer);
}

ls_status ls_dataset_upload(const ls_dataset *dataset, const ls_tokenizer *tokenizer, const char *address,
                            void (*tell)(void *context, const char *text), void *context)
{
    upload u = {
        .tokenizer = tokenizer ? ls_tokenizer_hash(tokenizer) : "none", .tell = tell, .context = context};
    LS_TRY(ls_token_set_begin(address, &u.writer));
    const ls_status status = add_all(&u, dataset);
    ls_token_set_destroy(u.writer);
    return status;
}
