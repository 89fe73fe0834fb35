// SPDX-License-Identifier: Apache-2.0
#include "data/token_cache.h"

#include "base/text.h"
#include "data/content_hash.h"
#include "data/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* One file that is looked up in the cache or tokenised into it. */
typedef struct job {
    const ls_corpus_file *file;
    const ls_token_cache_options *options;
    /* The content; of a packed file the packed bytes, until they are unpacked. Of a shard that is
     * known by a note, nothing, until its content is needed. */
    ls_file_map text;
    bool is_mapped, is_packed, is_hashed;
    char content_hash[LS_SHA256_HEX_BYTES];
    char key[LS_SHA256_HEX_BYTES];
    ls_tokens *tokens_out;
} job;

const char *ls_token_cache_default_folder(ls_arena *arena)
{
    const char *folder = ls_home_path(arena, "cache/tokens");
    return folder ? folder : "";
}

void ls_token_cache_key(const ls_corpus_file *file, const ls_token_cache_options *options,
                        const char *content_hash, char key_out[LS_SHA256_HEX_BYTES])
{
    ls_text text = {0};
    ls_text_printf(&text, "lockstep tokens %d\nkind %d\n", LS_TOKEN_READER_VERSION, (int)file->kind);
    if (ls_corpus_field_matters(file)) {
        ls_text_printf(&text, "field %s\n", ls_corpus_field(file));
    }
    if (file->form != LS_RECORD_TEXT) {
        const ls_held_out_rule *rule = &options->rule;
        ls_text_printf(&text, "recipe %s\nform %d\nheld out %d by %d %s\n", ls_recipe_hash(options->recipe),
                       (int)file->form, LS_HELD_OUT_VERSION, rule->is_time, rule->key ? rule->key : "");
    }
    ls_text_printf(&text, "tokenizer %s\ncontent %s\n", ls_tokenizer_hash(options->tokenizer), content_hash);
    ls_sha256_hex(text.data, text.bytes, key_out);
    ls_text_release(&text);
}

static ls_status map_file(job *j)
{
    LS_TRY(j->is_mapped ? LS_OK : ls_corpus_map(j->file, &j->text));
    j->is_mapped = true;
    return LS_OK;
}

static ls_status unpack(job *j)
{
    const ls_token_cache_options *options = j->options;
    LS_TRY(map_file(j));
    const ls_unpack_options how = {
        .folder = ls_cache_folder(options->cache), .stop = options->stop, .context = options->context};
    LS_TRY(j->is_packed ? ls_corpus_unpack(j->file, &how, &j->text) : LS_OK);
    j->is_packed = false;
    return LS_OK;
}

/* What is hashed and tokenised: of a text, what follows its byte order mark. So a text with a mark
 * is the same data as one without. */
static ls_file_map content_of(const job *j)
{
    ls_file_map content = j->text;
    if (j->file->kind == LS_CORPUS_TEXT) {
        const size_t mark = ls_text_mark_bytes(content.data, content.bytes);
        content.data = (const unsigned char *)content.data + mark;
        content.bytes -= mark;
    }
    return content;
}

static void hash_content(job *j, char hex_out[LS_SHA256_HEX_BYTES])
{
    const ls_file_map content = content_of(j);
    ls_sha256_hex(content.data, content.bytes, hex_out);
    j->is_hashed = true;
}

/* A shard whose tokens are in the cache is not fetched. */
static ls_status find_hash_of_shard(job *j, const char *folder)
{
    if (ls_content_recall_shard(folder, j->file->shard, j->content_hash)) {
        return LS_OK;
    }
    LS_TRY(unpack(j));
    hash_content(j, j->content_hash);
    ls_content_remember_shard(folder, j->file->shard, j->content_hash);
    return LS_OK;
}

/* Unpacking is slow, so the content's hash is kept in a note: a file whose tokens are in the cache
 * is not unpacked again. */
static ls_status find_hash(job *j, const char *folder)
{
    const char *path = j->file->path;
    if (j->file->shard) {
        return find_hash_of_shard(j, folder);
    }
    LS_TRY(map_file(j));
    j->is_hashed = !j->is_packed;
    if (!j->is_packed) {
        ls_content_hash(folder, path, content_of(j), LS_CONTENT_HASH_REMEMBER_BYTES, j->content_hash);
        return LS_OK;
    }
    if (ls_content_recall_unpacked(folder, path, j->text, j->content_hash)) {
        return LS_OK;
    }
    const ls_file_map packed = {.bytes = j->text.bytes};
    LS_TRY(unpack(j));
    hash_content(j, j->content_hash);
    ls_content_remember_unpacked(folder, path, packed, j->content_hash);
    return LS_OK;
}

/* Marked ids need a bit more. */
static uint32_t id_bytes_of(const job *j)
{
    return ls_tokenizer_vocab_size(j->options->tokenizer) <= 65536 && j->file->form == LS_RECORD_TEXT ? 2 : 4;
}

/* The file may have changed since its hash was found. */
static ls_status unpack_as_hashed(job *j)
{
    if (j->is_hashed) {
        return LS_OK;
    }
    char hash[LS_SHA256_HEX_BYTES];
    LS_TRY(unpack(j));
    hash_content(j, hash);
    return strcmp(hash, j->content_hash) == 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA, "%s changed while it was read: run the command again", j->file->path);
}

static ls_status encode_to(void *context, int fd, const char *path)
{
    job *j = context;
    const ls_token_cache_options *options = j->options;
    LS_TRY(unpack_as_hashed(j));
    const ls_file_map content = content_of(j);
    const ls_encode_request request = {.file = j->file,
                                       .data = (const char *)content.data,
                                       .bytes = content.bytes,
                                       .tokenizer = options->tokenizer,
                                       .recipe = options->recipe,
                                       .rule = options->rule,
                                       .threads = options->threads,
                                       .progress = options->progress,
                                       .stop = options->stop,
                                       .context = options->context};
    ls_token_writer writer;
    LS_TRY(ls_token_writer_init(&writer, fd, path, id_bytes_of(j)));
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

/* An estimate of the entry's size. The bytes tokenizer makes one token of each byte; the others
 * make one token of about three bytes. */
static uint64_t bytes_expected(const job *j)
{
    const ls_tokenizer *tokenizer = j->options->tokenizer;
    const bool is_bytes = strcmp(ls_tokenizer_kind(tokenizer), "bytes") == 0;
    const uint64_t stored = j->file->shard ? j->file->shard->bytes : j->text.bytes;
    const uint64_t bytes = j->is_packed ? 4 * stored : stored;
    return is_bytes ? 2 * bytes : bytes * id_bytes_of(j) / 3;
}

static ls_status find_item(job *j)
{
    const ls_token_cache_options *options = j->options;
    LS_TRY(find_hash(j, ls_cache_folder(options->cache)));
    ls_token_cache_key(j->file, options, j->content_hash, j->key);
    /* The entry outlives this process's working folder, so it names the full path. */
    ls_arena arena = {0};
    const char *full = ls_path_real(&arena, j->file->path);
    const ls_cache_item item = {.key = j->key,
                                .what = ls_arena_printf(&arena, "tokens of %s", full ? full : j->file->path),
                                .bytes_expected = bytes_expected(j),
                                .make = encode_to,
                                .take = take_map,
                                .context = j};
    const ls_status status = ls_cache_get(options->cache, &item);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_token_cache_open(const ls_corpus_file *file, const ls_token_cache_options *options,
                              ls_tokens *tokens_out)
{
    job j = {.file = file,
             .options = options,
             .is_packed = file->packing != LS_PACKING_NONE,
             .tokens_out = tokens_out};
    const ls_status status = find_item(&j);
    ls_file_map_close(&j.text);
    return status;
}

ls_status ls_token_cache_verify(const char *path, const char *key)
{
    ls_file_map map;
    ls_tokens tokens;
    LS_TRY(ls_file_map_open(path, &map));
    if (ls_shard_is_fetched(map)) {
        const ls_status checked = ls_shard_check(map, path);
        ls_file_map_close(&map);
        return checked;
    }
    ls_status status = ls_token_format_open(map, path, key, UINT32_MAX, &tokens);
    if (status != LS_OK) {
        ls_file_map_close(&map);
        return status;
    }
    status = ls_tokens_verify(&tokens);
    ls_tokens_close(&tokens);
    return status;
}
