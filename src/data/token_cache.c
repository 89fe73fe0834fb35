// SPDX-License-Identifier: Apache-2.0
#include "data/token_cache.h"

#include "base/assert.h"
#include "base/log.h"
#include "data/content_hash.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Everything about one file on its way through the cache. */
typedef struct job {
    const ls_corpus_file *file;
    const ls_token_cache_options *options;
    ls_file_map text;
    char content_hash[LS_SHA256_HEX_BYTES];
    char key[LS_SHA256_HEX_BYTES];
} job;

const char *ls_token_cache_default_folder(ls_arena *arena)
{
    const char *folder = ls_home_path(arena, "cache/tokens");
    return folder ? folder : "";
}

static void make_key(ls_corpus_kind kind, const ls_tokenizer *tokenizer, const char *content_hash,
                     char key_out[LS_SHA256_HEX_BYTES])
{
    char text[256];
    const int bytes =
        snprintf(text, sizeof text, "lockstep tokens %d\nkind %d\ntokenizer %s\ncontent %s\n",
                 LS_TOKEN_READER_VERSION, (int)kind, ls_tokenizer_hash(tokenizer), content_hash);
    LS_ASSERT(bytes > 0 && (size_t)bytes < sizeof text);
    ls_sha256_hex(text, (size_t)bytes, key_out);
}

static char *entry_path(ls_arena *arena, const char *folder, const char *key)
{
    return ls_path_join(arena, folder, ls_arena_printf(arena, "%s.tokens", key));
}

const char *ls_token_cache_entry_path(ls_arena *arena, const char *folder, ls_corpus_kind kind,
                                      const ls_tokenizer *tokenizer, const char *content_hash)
{
    char key[LS_SHA256_HEX_BYTES];
    make_key(kind, tokenizer, content_hash, key);
    return entry_path(arena, folder, key);
}

/* Opens a mapped or in-memory entry; the map is closed on error. */
static ls_status open_map(const job *j, ls_file_map map, const char *path, ls_tokens *tokens_out)
{
    const ls_status status = ls_token_format_open(map, path, j->key, j->options->vocab_size, tokens_out);
    if (status != LS_OK) {
        ls_file_map_close(&map);
    }
    return status;
}

static ls_status encode_to(const job *j, int fd, const char *path)
{
    const ls_token_cache_options *options = j->options;
    const ls_encode_request request = {.path = j->file->path,
                                       .kind = j->file->kind,
                                       .data = (const char *)j->text.data,
                                       .bytes = j->text.bytes,
                                       .tokenizer = options->tokenizer,
                                       .threads = options->threads,
                                       .progress = options->progress,
                                       .progress_context = options->progress_context};
    ls_token_writer writer;
    LS_TRY(ls_token_writer_init(&writer, fd, path,
                                ls_tokenizer_vocab_size(options->tokenizer) <= 65536 ? 2 : 4));
    ls_status status = ls_encode_file(&request, &writer);
    if (status == LS_OK) {
        status = ls_token_writer_finish(&writer, j->key, j->content_hash);
    }
    ls_token_writer_release(&writer);
    return status;
}

/* ---- in memory --------------------------------------------------------------------------------- */

static ls_status map_memory(int fd, const char *path, ls_file_map *map_out)
{
    const off_t bytes = lseek(fd, 0, SEEK_END);
    void *data = bytes > 0 ? mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (data == MAP_FAILED) {
        return ls_fail_errno(bytes > 0 ? errno : ENOMEM, "can't map the tokens of %s in memory", path);
    }
    *map_out = (ls_file_map){.data = data, .bytes = (size_t)bytes};
    return LS_OK;
}

static ls_status make_in_memory(const job *j, ls_tokens *tokens_out)
{
    const char *path = j->file->path;
    const int fd = memfd_create("lockstep-tokens", MFD_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't make a file in memory for the tokens of %s", path);
    }
    ls_file_map map = {0};
    ls_status status = encode_to(j, fd, path);
    if (status == LS_OK) {
        status = map_memory(fd, path, &map);
    }
    close(fd);
    LS_TRY(status);
    return open_map(j, map, path, tokens_out);
}

/* ---- in the folder ----------------------------------------------------------------------------- */

static ls_status open_entry(const job *j, const char *path, ls_tokens *tokens_out)
{
    ls_file_map map;
    LS_TRY(ls_file_map_open(path, &map));
    return open_map(j, map, path, tokens_out);
}

/* Encodes into a temporary file beside `path` and renames it. `folder_failed_out`: the failure is the
 * folder's, not the data's. */
static ls_status write_entry(const job *j, ls_arena *arena, const char *folder, const char *path,
                             bool *folder_failed_out)
{
    *folder_failed_out = true;
    LS_TRY(ls_dir_create(folder));
    char *temporary = ls_arena_printf(arena, "%s.tmp.XXXXXX", path);
    const int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't create %s", temporary);
    }
    ls_status status = encode_to(j, fd, temporary);
    *folder_failed_out = status == LS_ERR_DISK || status == LS_ERR_IO;
    const bool readable = fchmod(fd, 0644) == 0;
    if (close(fd) != 0 || !readable) {
        status = status == LS_OK ? ls_fail_errno(errno, "can't finish %s", temporary) : status;
        *folder_failed_out = true;
    }
    if (status == LS_OK && rename(temporary, path) != 0) {
        status = ls_fail_errno(errno, "can't rename %s to its final name", temporary);
        *folder_failed_out = true;
    }
    if (status != LS_OK) {
        unlink(temporary);
    }
    return status;
}

static ls_status open_or_make(const job *j, ls_arena *arena, const char *folder, ls_tokens *tokens_out)
{
    const char *path = entry_path(arena, folder, j->key);
    if (ls_path_exists(path)) {
        const ls_status status = open_entry(j, path, tokens_out);
        if (status == LS_OK || status == LS_ERR_INVALID) {
            return status;
        }
        ls_log_warn("data: token cache entry can't be used, making it again: %s", ls_error_text());
    }
    bool folder_failed = false;
    ls_status status = write_entry(j, arena, folder, path, &folder_failed);
    if (status == LS_OK) {
        status = open_entry(j, path, tokens_out);
        folder_failed = status != LS_OK && status != LS_ERR_INVALID;
    }
    if (status != LS_OK && folder_failed) {
        ls_log_warn("data: can't cache the tokens of %s, keeping them in memory: %s", j->file->path,
                    ls_error_text());
        ls_error_clear();
        return make_in_memory(j, tokens_out);
    }
    return status;
}

ls_status ls_token_cache_open(const ls_corpus_file *file, const ls_token_cache_options *options,
                              ls_tokens *tokens_out)
{
    job j = {.file = file, .options = options};
    LS_TRY(ls_file_map_open(file->path, &j.text));
    ls_arena arena = {0};
    const char *folder = options->folder ? options->folder : ls_token_cache_default_folder(&arena);
    ls_content_hash(folder, file->path, j.text, LS_CONTENT_HASH_REMEMBER_BYTES, j.content_hash);
    make_key(file->kind, options->tokenizer, j.content_hash, j.key);
    const ls_status status =
        folder[0] ? open_or_make(&j, &arena, folder, tokens_out) : make_in_memory(&j, tokens_out);
    ls_file_map_close(&j.text);
    ls_arena_release(&arena);
    return status;
}
