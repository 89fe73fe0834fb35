// SPDX-License-Identifier: Apache-2.0
#include "data/stream/token_set.h"

#include "base/file.h"
#include "base/json.h"
#include "storage/blob/transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { VERSION = 1, INDEX_BYTES_MAX = 512 << 20, BLOCKS_AT_ONCE = 1024 };
static const char FORMAT[] = "lockstep token set";
static const uint64_t COUNT_MAX = UINT64_C(1) << 56;

bool ls_token_set_is_index(const char *path)
{
    return strcmp(ls_path_basename(path), LS_TOKEN_SET_INDEX) == 0;
}

static uint64_t bytes_of(const ls_token_shard *shard)
{
    const uint32_t most = ls_token_block_ids(shard->id_bytes);
    return (shard->tokens + most - 1) / most * LS_TOKEN_BLOCK_BYTES;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct index_reader {
    ls_arena *arena;
    const char *address, *set, *tokenizer;
} index_reader;

static ls_status read_text(const index_reader *r, const json_t *object, const char *key, size_t bytes_max,
                           const char **text_out)
{
    const char *text = NULL;
    LS_TRY(ls_json_get_string(object, r->address, key, NULL, &text));
    if (!text || strlen(text) > bytes_max) {
        return ls_fail(LS_ERR_DATA, "%s: '%s' of a file is missing or too long: prepare the set again",
                       r->address, key);
    }
    *text_out = ls_arena_strdup(r->arena, text);
    return LS_OK;
}

static ls_status read_counts(const index_reader *r, const json_t *object, ls_token_shard *shard)
{
    uint64_t kind = 0, id_bytes = 0, id_max = 0;
    LS_TRY(ls_json_get_u64(object, r->address, "kind", 0, 1000, 0, &kind));
    LS_TRY(ls_json_get_u64(object, r->address, "id_bytes", 2, 4, 0, &id_bytes));
    LS_TRY(ls_json_get_u64(object, r->address, "id_max", 0, INT32_MAX, 0, &id_max));
    LS_TRY(ls_json_get_u64(object, r->address, "tokens", 1, COUNT_MAX, 0, &shard->tokens));
    LS_TRY(ls_json_get_u64(object, r->address, "documents", 1, COUNT_MAX, 0, &shard->documents));
    LS_TRY(ls_json_get_u64(object, r->address, "text_bytes", 0, COUNT_MAX, 0, &shard->text_bytes));
    LS_TRY(ls_json_get_u64(object, r->address, "bytes", 1, COUNT_MAX, 0, &shard->bytes));
    shard->kind = (uint32_t)kind;
    shard->id_bytes = (uint32_t)id_bytes;
    shard->id_max = (uint32_t)id_max;
    if ((id_bytes != 2 && id_bytes != 4) || shard->tokens == 0 || shard->documents == 0 ||
        shard->bytes != bytes_of(shard)) {
        return ls_fail(LS_ERR_DATA,
                       "%s: the counts of %s do not fit together (%" PRIu64 " tokens of %" PRIu64
                       " bytes in %" PRIu64 " bytes): prepare the set again",
                       r->address, shard->key, shard->tokens, id_bytes, shard->bytes);
    }
    return LS_OK;
}

static ls_status read_shard(const index_reader *r, const json_t *object, ls_token_shard *shard)
{
    const char *content = NULL, *uid = NULL, *field = NULL;
    char *rest = NULL;
    *shard = (ls_token_shard){.set = r->set, .tokenizer = r->tokenizer};
    LS_TRY(read_text(r, object, "key", 200, &shard->key));
    LS_TRY(ls_blob_check_key(shard->key));
    LS_TRY(read_text(r, object, "etag", 79, &shard->etag));
    LS_TRY(read_text(r, object, "uid", 16, &uid));
    LS_TRY(read_text(r, object, "content", LS_SHA256_HEX_BYTES - 1, &content));
    LS_TRY(ls_json_get_string(object, r->address, "field", NULL, &field));
    shard->field = field ? ls_arena_strdup(r->arena, field) : NULL;
    shard->uid = strtoull(uid, &rest, 16);
    snprintf(shard->content_hash, sizeof shard->content_hash, "%s", content);
    if (strlen(uid) != 16 || *rest || !ls_hash_is_hex(content, LS_SHA256_HEX_BYTES - 1)) {
        return ls_fail(LS_ERR_DATA, "%s: 'uid' or 'content' of %s is not what this program writes",
                       r->address, shard->key);
    }
    return read_counts(r, object, shard);
}

static ls_status read_index(index_reader *r, const json_t *root, ls_token_shard **shards_out,
                            size_t *count_out)
{
    const char *format = NULL;
    uint64_t version = 0;
    const json_t *files = json_object_get(root, "files");
    LS_TRY(ls_json_get_string(root, r->address, "format", "", &format));
    LS_TRY(ls_json_get_u64(root, r->address, "version", 0, UINT32_MAX, 0, &version));
    if (strcmp(format, FORMAT) != 0 || version != VERSION) {
        return ls_fail(
            LS_ERR_DATA,
            "%s is not the index of a token set that this program can read (format '%.40s', version "
            "%" PRIu64 "; needed is '%s', version %d)",
            r->address, format, version, FORMAT, VERSION);
    }
    LS_TRY(read_text(r, root, "tokenizer", LS_SHA256_HEX_BYTES, &r->tokenizer));
    const size_t count = json_array_size(files);
    ls_token_shard *shards = ls_arena_new(r->arena, ls_token_shard, count + 1);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_shard(r, json_array_get(files, i), &shards[i]));
    }
    *shards_out = shards;
    *count_out = count;
    return count > 0 ? LS_OK : ls_fail(LS_ERR_DATA, "%s: the set has no files", r->address);
}

ls_status ls_token_set_read(ls_arena *arena, const char *address, ls_token_shard **shards_out,
                            size_t *count_out)
{
    char *text = NULL;
    size_t bytes = 0;
    json_t *root = NULL;
    ls_blob_place place = {0};
    ls_arena scratch = {0};
    index_reader r = {.arena = arena, .address = address, .set = ls_path_dirname(arena, address)};
    LS_TRY(ls_blob_place_open(arena, address, NULL, &place));
    ls_status status = ls_blob_get(place.store, &scratch, place.key, INDEX_BYTES_MAX, &text, &bytes);
    ls_blob_close(place.store);
    if (status == LS_OK) {
        status = ls_json_parse(text, bytes, address, &root);
    }
    if (status == LS_OK) {
        status = read_index(&r, root, shards_out, count_out);
        json_decref(root);
    }
    ls_arena_release(&scratch);
    return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

struct ls_token_set_writer {
    ls_blob_store *store;
    json_t *files;
    char tokenizer[LS_SHA256_HEX_BYTES];
};

ls_status ls_token_set_begin(const char *address, ls_token_set_writer **writer_out)
{
    ls_token_set_writer *w = calloc(1, sizeof *w);
    if (!w) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to write a token set");
    }
    const ls_status status = ls_blob_open(address, NULL, &w->store);
    if (status != LS_OK) {
        free(w);
        return status;
    }
    w->files = json_array();
    *writer_out = w;
    return LS_OK;
}

void ls_token_set_destroy(ls_token_set_writer *writer)
{
    if (writer) {
        json_decref(writer->files);
        ls_blob_close(writer->store);
        free(writer);
    }
}

static ls_status write_blocks(const ls_token_block_source *from, uint64_t blocks, int fd, const char *path,
                              char sha256_out[LS_SHA256_HEX_BYTES])
{
    ls_sha256 hash;
    uint64_t document = 0;
    ls_token_block *some = malloc(BLOCKS_AT_ONCE * sizeof *some);
    if (!some) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to write %s", path);
    }
    ls_status status = LS_OK;
    ls_sha256_init(&hash);
    for (uint64_t at = 0; at < blocks && status == LS_OK; at += BLOCKS_AT_ONCE) {
        const uint64_t count = blocks - at < BLOCKS_AT_ONCE ? blocks - at : BLOCKS_AT_ONCE;
        for (uint64_t i = 0; i < count; i++) {
            ls_token_block_make(from, at + i, &document, &some[i]);
        }
        ls_sha256_update(&hash, some, count * sizeof *some);
        status = ls_file_write_all(fd, path, some, count * sizeof *some);
    }
    ls_sha256_finish(&hash, sha256_out);
    free(some);
    return status;
}

static ls_status put_blocks(ls_token_set_writer *w, const ls_token_block_source *from, ls_token_shard *shard)
{
    char sha256[LS_SHA256_HEX_BYTES];
    ls_arena arena = {0};
    int fd = -1;
    ls_status status = ls_file_open_temporary("", &fd);
    static const char path[] = "the temporary file of a token set, in $TMPDIR or /tmp";
    if (status == LS_OK) {
        ls_blob_entry entry;
        LS_TRY_GOTO(status, write_blocks(from, shard->bytes / LS_TOKEN_BLOCK_BYTES, fd, path, sha256),
                    closed);
        LS_TRY_GOTO(status, ls_blob_put_file(w->store, shard->key, fd, path, shard->bytes, sha256, NULL),
                    closed);
        LS_TRY_GOTO(status, ls_blob_stat(w->store, shard->key, &entry), closed);
        json_array_append_new(
            w->files,
            json_pack("{s:s, s:s, s:s, s:I, s:s, s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:s}", "key", shard->key,
                      "etag", entry.etag, "uid", ls_arena_printf(&arena, "%016" PRIx64, shard->uid), "bytes",
                      (json_int_t)shard->bytes, "content", shard->content_hash, "field", shard->field, "kind",
                      (json_int_t)shard->kind, "id_bytes", (json_int_t)shard->id_bytes, "id_max",
                      (json_int_t)shard->id_max, "tokens", (json_int_t)shard->tokens, "documents",
                      (json_int_t)shard->documents, "text_bytes", (json_int_t)shard->text_bytes, "sha256",
                      sha256));
    closed:
        close(fd);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_token_set_add(ls_token_set_writer *writer, const ls_token_shard *like,
                           const ls_token_block_source *from)
{
    char key[128], hash[LS_SHA256_HEX_BYTES];
    ls_arena arena = {0};
    ls_token_shard shard = *like;
    ls_token_block_source numbered = *from;
    const char *identity = ls_arena_printf(&arena, "%s\n%s\n%u\n%s\n%u", like->content_hash, like->tokenizer,
                                           like->kind, like->field ? like->field : "", like->id_bytes);
    ls_sha256_hex(identity, strlen(identity), hash);
    hash[16] = '\0';
    numbered.uid = shard.uid = strtoull(hash, NULL, 16);
    snprintf(key, sizeof key, "%05zu-%s.tokens", json_array_size(writer->files), hash);
    snprintf(writer->tokenizer, sizeof writer->tokenizer, "%s", like->tokenizer);
    shard.key = key;
    shard.bytes = bytes_of(&shard);
    const ls_status status = put_blocks(writer, &numbered, &shard);
    ls_arena_release(&arena);
    return status;
}

ls_status ls_token_set_end(ls_token_set_writer *writer)
{
    json_t *root = json_pack("{s:s, s:i, s:s, s:O}", "format", FORMAT, "version", VERSION, "tokenizer",
                             writer->tokenizer, "files", writer->files);
    char *text = json_dumps(root, JSON_INDENT(2));
    const ls_status status = text ? ls_blob_put(writer->store, LS_TOKEN_SET_INDEX, text, strlen(text))
                                  : ls_fail(LS_ERR_MEMORY, "not enough memory to write an index");
    free(text);
    json_decref(root);
    return status;
}
