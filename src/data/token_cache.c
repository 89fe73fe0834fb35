// SPDX-License-Identifier: Apache-2.0
#include "data/token_cache.h"

#include "base/assert.h"
#include "data/content_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Everything about one file on its way through the cache. */
typedef struct job {
    const ls_corpus_file *file;
    const ls_token_cache_options *options;
    ls_file_map text;
    char content_hash[LS_SHA256_HEX_BYTES];
    char key[LS_SHA256_HEX_BYTES];
    ls_tokens *tokens_out;
} job;

const char *ls_token_cache_default_folder(ls_arena *arena)
{
    const char *folder = ls_home_path(arena, "cache/tokens");
    return folder ? folder : "";
}

void ls_token_cache_key(ls_corpus_kind kind, const ls_tokenizer *tokenizer, const char *content_hash,
                        char key_out[LS_SHA256_HEX_BYTES])
{
    char text[256];
    const int bytes =
        snprintf(text, sizeof text, "lockstep tokens %d\nkind %d\ntokenizer %s\ncontent %s\n",
                 LS_TOKEN_READER_VERSION, (int)kind, ls_tokenizer_hash(tokenizer), content_hash);
    LS_ASSERT(bytes > 0 && (size_t)bytes < sizeof text);
    ls_sha256_hex(text, (size_t)bytes, key_out);
}

static uint32_t id_bytes_of(const ls_tokenizer *tokenizer)
{
    return ls_tokenizer_vocab_size(tokenizer) <= 65536 ? 2 : 4;
}

static ls_status encode_to(void *context, int fd, const char *path)
{
    const job *j = context;
    const ls_token_cache_options *options = j->options;
    const ls_encode_request request = {.path = j->file->path,
                                       .kind = j->file->kind,
                                       .data = (const char *)j->text.data,
                                       .bytes = j->text.bytes,
                                       .tokenizer = options->tokenizer,
                                       .threads = options->threads,
                                       .progress = options->progress,
                                       .stop = options->stop,
                                       .context = options->context};
    ls_token_writer writer;
    LS_TRY(ls_token_writer_init(&writer, fd, path, id_bytes_of(options->tokenizer)));
    ls_status status = ls_encode_file(&request, &writer);
    if (status == LS_OK) {
        status = ls_token_writer_finish(&writer, j->key, j->content_hash);
    }
    ls_token_writer_release(&writer);
    return status;
}

static ls_status take_map(void *context, ls_file_map map, const char *path)
{
    const job *j = context;
    return ls_token_format_open(map, path, j->key, j->options->vocab_size, j->tokens_out);
}

/* Bytes are tokens of their own; other tokens stand for some bytes each. */
static uint64_t bytes_expected(const job *j)
{
    const ls_tokenizer *tokenizer = j->options->tokenizer;
    const bool is_bytes = strcmp(ls_tokenizer_kind(tokenizer), "bytes") == 0;
    return is_bytes ? 2 * j->text.bytes : j->text.bytes * id_bytes_of(tokenizer) / 3;
}

ls_status ls_token_cache_open(const ls_corpus_file *file, const ls_token_cache_options *options,
                              ls_tokens *tokens_out)
{
    job j = {.file = file, .options = options, .tokens_out = tokens_out};
    LS_TRY(ls_file_map_open(file->path, &j.text));
    ls_arena arena = {0};
    const char *folder = ls_cache_folder(options->cache);
    ls_content_hash(folder, file->path, j.text, LS_CONTENT_HASH_REMEMBER_BYTES, j.content_hash);
    ls_token_cache_key(file->kind, options->tokenizer, j.content_hash, j.key);
    char *full = realpath(file->path, NULL); /* it may be asked for from other folders */
    const ls_cache_item item = {.key = j.key,
                                .what = ls_arena_printf(&arena, "tokens of %s", full ? full : file->path),
                                .bytes_expected = bytes_expected(&j),
                                .make = encode_to,
                                .take = take_map,
                                .context = &j};
    const ls_status status = ls_cache_get(options->cache, &item);
    free(full);
    ls_file_map_close(&j.text);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_token_cache_verify(const char *path, const char *key)
{
    ls_file_map map;
    ls_tokens tokens;
    LS_TRY(ls_file_map_open(path, &map));
    ls_status status = ls_token_format_open(map, path, key, UINT32_MAX, &tokens);
    if (status != LS_OK) {
        ls_file_map_close(&map);
        return status;
    }
    status = ls_tokens_verify(&tokens);
    ls_tokens_close(&tokens);
    return status;
}
