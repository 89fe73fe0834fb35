// SPDX-License-Identifier: Apache-2.0
#include "data/scratch.h"

#include "base/log.h"
#include "data/token_cache.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct fixture {
    scratch s;
    ls_tokenizer *bytes;    /* no end-of-text token */
    ls_tokenizer *with_end; /* one with an end-of-text token */
    const char *cache;
    ls_cache *opened; /* the last one */
} fixture;

static int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    strcpy(f->s.folder, "/tmp/lockstep-data-XXXXXX");
    if (!mkdtemp(f->s.folder) || ls_tokenizer_create_bytes(&f->bytes) != LS_OK ||
        make_tokenizer_with_end(&f->with_end) != LS_OK) {
        return -1;
    }
    f->cache = ls_path_join(&f->s.arena, f->s.folder, "cache/tokens");
    ls_log_init(&(ls_log_settings){.level = LS_LOG_ERROR, .rank = -1});
    *state = f;
    return 0;
}

static int fixture_teardown(void **state)
{
    fixture *f = *state;
    ls_tokenizer_destroy(f->bytes);
    ls_tokenizer_destroy(f->with_end);
    ls_cache_close(f->opened);
    const ls_status status = ls_dir_remove(f->s.folder);
    ls_arena_release(&f->s.arena);
    free(f);
    return status == LS_OK ? 0 : -1;
}

/* Opened anew for each file, as by another process; the last one lives until the end of the
 * test. */
static ls_cache *cache_of(fixture *f, const char *folder)
{
    ls_cache_close(f->opened);
    assert_int_equal(
        ls_cache_open(&(ls_cache_options){.folder = folder, .suffix = LS_TOKEN_CACHE_SUFFIX}, &f->opened),
        LS_OK);
    return f->opened;
}

static const char *entry_of(fixture *f, const ls_tokenizer *tokenizer, const char *content_hash)
{
    char key[LS_SHA256_HEX_BYTES];
    const ls_token_cache_options options = {.tokenizer = tokenizer};
    ls_token_cache_key(&(ls_corpus_file){.kind = LS_CORPUS_TEXT}, &options, content_hash, key);
    return ls_cache_entry_path(&f->s.arena, f->cache, key, LS_TOKEN_CACHE_SUFFIX);
}

static ls_status open_as(fixture *f, const char *path, ls_corpus_kind kind, const ls_tokenizer *tokenizer,
                         uint32_t threads, const char *folder, ls_tokens *tokens_out)
{
    const ls_token_cache_options options = {.cache = cache_of(f, folder),
                                            .tokenizer = tokenizer,
                                            .vocab_size = ls_tokenizer_vocab_size(tokenizer),
                                            .threads = threads};
    return ls_token_cache_open(&(ls_corpus_file){.path = path, .kind = kind}, &options, tokens_out);
}

static void expect_text(const ls_tokens *tokens, const char *text, size_t bytes)
{
    assert_int_equal(tokens->count, bytes);
    int32_t *ids = malloc((bytes + 1) * sizeof *ids);
    assert_int_equal(ls_tokens_read(tokens, 0, bytes, ids), LS_OK);
    for (size_t i = 0; i < bytes; i++) {
        assert_int_equal(ids[i], (unsigned char)text[i]);
    }
    free(ids);
}

static size_t entry_count(fixture *f)
{
    char **names;
    size_t count = 0;
    assert_int_equal(ls_dir_list(&f->s.arena, f->cache, &names, &count), LS_OK);
    size_t entries = 0;
    for (size_t i = 0; i < count; i++) {
        assert_false(ls_path_has_suffix(names[i], ".part"));
        entries += ls_path_has_suffix(names[i], LS_TOKEN_CACHE_SUFFIX);
    }
    return entries;
}

static void cache_open_makes_an_entry_once(void **state)
{
    fixture *f = *state;
    const char *text = "hello \xff\xfe world"; /* the bytes tokenizer takes any bytes but NUL */
    const char *path = scratch_text(&f->s, "a.txt", text);
    ls_tokens tokens;
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_OK);
    expect_text(&tokens, text, strlen(text));
    assert_int_equal(tokens.text_bytes, strlen(text));
    assert_int_equal(tokens.document_count, 1);
    assert_int_equal(tokens.id_bytes, 2);
    const char *entry = entry_of(f, f->bytes, tokens.content_hash);
    ls_tokens_close(&tokens);

    struct stat before, after;
    assert_int_equal(stat(entry, &before), 0);
    assert_int_equal(entry_count(f), 1); /* no temporary file is left */
    const char *copy = scratch_text(&f->s, "copy.txt", text);
    assert_int_equal(open_as(f, copy, LS_CORPUS_TEXT, f->bytes, 2, f->cache, &tokens), LS_OK);
    expect_text(&tokens, text, strlen(text));
    ls_tokens_close(&tokens);
    assert_int_equal(stat(entry, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* the same content hits, whatever its name */

    assert_int_equal(open_as(f, scratch_text(&f->s, "ascii.txt", "hello"), LS_CORPUS_TEXT, f->with_end, 1,
                             f->cache, &tokens),
                     LS_OK);
    ls_tokens_close(&tokens);
    assert_int_equal(entry_count(f), 2); /* another content or tokenizer is another entry */
}

static void cache_open_separates_documents_with_end_of_text(void **state)
{
    fixture *f = *state;
    const char *path =
        scratch_text(&f->s, "a.jsonl", "{\"text\": \"abc\"}\n\n  \r\n{\"text\": \"\"}\n{\"text\": \"de\"}");
    ls_tokens tokens;
    assert_int_equal(open_as(f, path, LS_CORPUS_JSONL, f->with_end, 2, f->cache, &tokens), LS_OK);
    const int32_t end = ls_tokenizer_eos(f->with_end);
    assert_int_equal(tokens.document_count, 2);
    const uint64_t second = tokens.document_starts[1];
    assert_int_equal(ls_tokens_at(&tokens, second - 1), end);
    assert_int_equal(ls_tokens_at(&tokens, tokens.count - 1), end);
    uint64_t ends = 0;
    for (uint64_t i = 0; i < tokens.count; i++) {
        ends += ls_tokens_at(&tokens, i) == (uint32_t)end;
    }
    assert_int_equal(ends, 2);
    assert_int_equal(tokens.text_bytes, 5);
    ls_tokens_close(&tokens);
}

/* About 5 MB of JSON lines: several units, so threads do work side by side. */
static const char *write_long_jsonl(fixture *f, const char *name, int bad_line)
{
    const char *path = ls_path_join(&f->s.arena, f->s.folder, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    for (int line = 1; line <= 50000; line++) {
        fprintf(out,
                line == bad_line
                    ? "{\"text\": %d}\n"
                    : "{\"text\": \"line %d of a file that takes several units to encode, yes\"}\n",
                line);
    }
    fclose(out);
    return path;
}

static void cache_open_does_not_depend_on_threads(void **state)
{
    fixture *f = *state;
    const char *path = write_long_jsonl(f, "long.jsonl", 0);
    ls_tokens one, three;
    assert_int_equal(open_as(f, path, LS_CORPUS_JSONL, f->bytes, 1, "", &one), LS_OK);
    assert_int_equal(open_as(f, path, LS_CORPUS_JSONL, f->bytes, 3, "", &three), LS_OK);
    assert_true(one.map.bytes > 3 * 2 * LS_TOKENS_BLOCK_BYTES);
    assert_int_equal(one.map.bytes, three.map.bytes);
    assert_memory_equal(one.map.data, three.map.data, one.map.bytes);
    assert_int_equal(one.document_count, 50000);
    assert_int_equal(ls_tokens_verify(&one), LS_OK);
    ls_tokens_close(&one);
    ls_tokens_close(&three);
}

static void cache_open_cuts_long_text_for_bytes_without_a_seam(void **state)
{
    fixture *f = *state;
    const size_t bytes = (5 << 20) + 3;
    char *text = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = (char)('a' + i * 7 % 26);
    }
    const char *path = scratch_write(&f->s, "long.txt", text, bytes);
    ls_tokens tokens;
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 2, f->cache, &tokens), LS_OK);
    expect_text(&tokens, text, bytes);
    assert_int_equal(tokens.document_count, 1);
    ls_tokens_close(&tokens);
    free(text);
}

static void cache_open_reports_the_first_bad_line(void **state)
{
    fixture *f = *state;
    const char *path = write_long_jsonl(f, "bad.jsonl", 41234);
    ls_tokens tokens = {.count = 77};
    for (uint32_t threads = 1; threads <= 3; threads += 2) {
        assert_int_equal(open_as(f, path, LS_CORPUS_JSONL, f->bytes, threads, f->cache, &tokens),
                         LS_ERR_DATA);
        assert_error_has("bad.jsonl:41234: the value of key `text` must be a string");
        assert_int_equal(entry_count(f), 0);
    }
    assert_int_equal(tokens.count, 77);
}

static void cache_open_refuses_what_is_not_text(void **state)
{
    fixture *f = *state;
    ls_tokens tokens = {.count = 77};
    const char *path = scratch_write(&f->s, "nul.txt", "ab\0cd", 5);
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_ERR_DATA);
    assert_error_has("nul.txt is not text: it has a NUL byte at offset 2");
    path = scratch_text(&f->s, "latin.txt", "caf\xe9 au lait");
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->with_end, 1, f->cache, &tokens), LS_ERR_DATA);
    assert_error_has("latin.txt:1: broken UTF-8, byte 0xe9 at offset 3");
    path = scratch_text(&f->s, "blank.jsonl", "\n \n{\"text\": \"\"}\n");
    assert_int_equal(open_as(f, path, LS_CORPUS_JSONL, f->bytes, 1, f->cache, &tokens), LS_ERR_DATA);
    assert_error_has("blank.jsonl has no text in it");
    assert_int_equal(open_as(f, "/nowhere/x.txt", LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens),
                     LS_ERR_NOT_FOUND);
    assert_int_equal(tokens.count, 77);
}

static void flip_byte(const char *path, off_t offset)
{
    const int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    unsigned char byte = 0;
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void cache_open_makes_damaged_entries_again(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "a.txt", "some text to keep");
    ls_tokens tokens;
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_OK);
    const off_t bytes = (off_t)tokens.map.bytes;
    const char *entry = entry_of(f, f->bytes, tokens.content_hash);
    ls_tokens_close(&tokens);
    const off_t offsets[] = {0, 9, 16, 80, 250, 255, bytes - 1, bytes - 6};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        flip_byte(entry, offsets[i]);
        assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_OK);
        expect_text(&tokens, "some text to keep", 17);
        ls_tokens_close(&tokens);
    }
    const off_t lengths[] = {0, 100, 256, bytes - 1};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        assert_int_equal(truncate(entry, lengths[i]), 0);
        assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_OK);
        expect_text(&tokens, "some text to keep", 17);
        ls_tokens_close(&tokens);
    }
}

static void tokens_read_finds_a_flipped_id(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "a.txt", "some text to keep");
    ls_tokens tokens;
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_OK);
    const char *entry = entry_of(f, f->bytes, tokens.content_hash);
    ls_tokens_close(&tokens);
    flip_byte(entry, LS_TOKEN_HEADER_BYTES + 4);
    /* ids are checked when read */
    assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, f->cache, &tokens), LS_OK);
    int32_t ids[2];
    assert_int_equal(ls_tokens_read(&tokens, 10, 2, ids), LS_ERR_DATA);
    assert_error_has("checksum");
    ls_tokens_close(&tokens);
}

static void cache_open_lives_without_a_folder(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "a.txt", "some text");
    /* A file where the folder should be: not writable, even for root. */
    const char *blocked = ls_path_join(&f->s.arena, scratch_text(&f->s, "file", "x"), "cache");
    const char *folders[] = {blocked, "/proc/cannot/be/made", ""};
    for (size_t i = 0; i < 3; i++) {
        ls_tokens tokens;
        assert_int_equal(open_as(f, path, LS_CORPUS_TEXT, f->bytes, 1, folders[i], &tokens), LS_OK);
        expect_text(&tokens, "some text", 9);
        ls_tokens_close(&tokens);
    }
}

static void cache_open_refuses_ids_beyond_the_vocabulary(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "a.txt", "az");
    const ls_token_cache_options options = {
        .cache = cache_of(f, f->cache), .tokenizer = f->bytes, .vocab_size = 'z', .threads = 1};
    ls_tokens tokens = {.count = 77};
    for (int again = 0; again < 2; again++) { /* made now, and from the cache */
        assert_int_equal(
            ls_token_cache_open(&(ls_corpus_file){.path = path, .kind = LS_CORPUS_TEXT}, &options, &tokens),
            LS_ERR_INVALID);
        assert_error_has("the tokenizer gives id 122, beyond the model's vocabulary of 122");
    }
    assert_int_equal(tokens.count, 77);
}

static void cache_default_folder_follows_the_environment(void **state)
{
    fixture *f = *state;
    setenv("LOCKSTEP_HOME", "/x", 1);
    assert_string_equal(ls_token_cache_default_folder(&f->s.arena), "/x/cache/tokens");
    unsetenv("LOCKSTEP_HOME");
    setenv("HOME", "/home/me", 1);
    assert_string_equal(ls_token_cache_default_folder(&f->s.arena), "/home/me/.lockstep/cache/tokens");
    unsetenv("HOME");
    assert_string_equal(ls_token_cache_default_folder(&f->s.arena), "");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(cache_open_makes_an_entry_once),
        CASE(cache_open_separates_documents_with_end_of_text),
        CASE(cache_open_does_not_depend_on_threads),
        CASE(cache_open_cuts_long_text_for_bytes_without_a_seam),
        CASE(cache_open_reports_the_first_bad_line),
        CASE(cache_open_refuses_what_is_not_text),
        CASE(cache_open_makes_damaged_entries_again),
        CASE(tokens_read_finds_a_flipped_id),
        CASE(cache_open_lives_without_a_folder),
        CASE(cache_open_refuses_ids_beyond_the_vocabulary),
        CASE(cache_default_folder_follows_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
