// SPDX-License-Identifier: Apache-2.0
#include "data/scratch.h"

#include "data/token_file.h"

#include <stdbool.h>

static const ls_token_file_options plain = {.vocab_size = 1000, .end_of_text = -1};
static const ls_token_file_options with_end = {.vocab_size = 1000, .end_of_text = 999};

static void expect_ids(const ls_tokens *tokens, const int32_t *ids, size_t count)
{
    int32_t got[64];
    assert_int_equal(tokens->count, count);
    assert_int_equal(ls_tokens_read(tokens, 0, count, got), LS_OK);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(got[i], ids[i]);
        assert_int_equal(ls_tokens_at(tokens, i), ids[i]);
    }
}

static void expect_starts(const ls_tokens *tokens, const uint64_t *starts, size_t count)
{
    assert_int_equal(tokens->document_count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(tokens->document_starts[i], starts[i]);
    }
}

/* ---- llm.c ---- */

static size_t llmc_file(unsigned char *out, int magic, int version, const int32_t *ids, int count,
                        int promised)
{
    int32_t header[256] = {magic, version, promised};
    memcpy(out, header, sizeof header);
    size_t at = sizeof header;
    for (int i = 0; i < count; i++) {
        if (magic == 20240520) {
            const uint16_t id = (uint16_t)ids[i];
            memcpy(out + at, &id, 2);
            at += 2;
        } else {
            memcpy(out + at, &ids[i], 4);
            at += 4;
        }
    }
    return at;
}

static void llmc_both_widths_are_read(void **state)
{
    scratch *s = *state;
    const int32_t ids[] = {999, 5, 6, 999, 7};
    const int formats[][2] = {{20240520, 1}, {20240801, 7}};
    for (size_t f = 0; f < 2; f++) {
        unsigned char data[2048];
        const size_t bytes = llmc_file(data, formats[f][0], formats[f][1], ids, 5, 5);
        const char *path = scratch_write(s, "a.bin", data, bytes);
        ls_tokens tokens;
        assert_int_equal(ls_token_file_open(path, &with_end, &tokens), LS_OK);
        expect_ids(&tokens, ids, 5);
        /* the end-of-text token begins a document */
        expect_starts(&tokens, (const uint64_t[]){0, 3}, 2);
        ls_tokens_close(&tokens);
    }
}

static void llmc_bad_files_are_refused(void **state)
{
    scratch *s = *state;
    const int32_t ids[] = {1, 2, 3};
    unsigned char data[2048];
    ls_tokens tokens = {.count = 77};
    size_t bytes = llmc_file(data, 20240520, 1, ids, 3, 4);
    const char *path = scratch_write(s, "short.bin", data, bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("short.bin is truncated: it has 1030 bytes, but 1032 are needed for the 4 tokens");

    bytes = llmc_file(data, 20240520, 1, ids, 3, 2);
    path = scratch_write(s, "long.bin", data, bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("too long");

    path = scratch_write(s, "header.bin", data, 100);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("the header alone has 1024");

    bytes = llmc_file(data, 20240520, 2, ids, 3, 3);
    path = scratch_write(s, "version.bin", data, bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("of version 2; for files with magic number");

    bytes = llmc_file(data, 20240522, 1, ids, 3, 3);
    path = scratch_write(s, "eval.bin", data, bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("eval.bin is multiple-choice evaluation data of llm.c");

    bytes = llmc_file(data, 20240520, 1, ids, 0, 0);
    path = scratch_write(s, "none.bin", data, bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("holds no tokens");
    assert_int_equal(tokens.count, 77);
}

static void ids_beyond_the_vocabulary_are_named(void **state)
{
    scratch *s = *state;
    const int32_t ids[] = {1, 2, 1000, 3};
    unsigned char data[2048];
    ls_tokens tokens = {.count = 77};
    const size_t bytes = llmc_file(data, 20240520, 1, ids, 4, 4);
    const char *path = scratch_write(s, "a.bin", data, bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("a.bin: token 2 has id 1000, beyond the vocabulary of 1000 (ids 0 to 999)");
    assert_int_equal(tokens.count, 77);
    const ls_token_file_options larger = {.vocab_size = 1001, .end_of_text = -1};
    assert_int_equal(ls_token_file_open(path, &larger, &tokens), LS_OK);
    ls_tokens_close(&tokens);
}

/* ---- nanoGPT ---- */

static void nanogpt_raw_ids_are_read(void **state)
{
    scratch *s = *state;
    const uint16_t raw[] = {4, 5, 999, 6, 999};
    const char *path = scratch_write(s, "train.bin", raw, sizeof raw);
    ls_tokens tokens;
    assert_int_equal(ls_token_file_open(path, &with_end, &tokens), LS_OK);
    expect_ids(&tokens, (const int32_t[]){4, 5, 999, 6, 999}, 5);
    expect_starts(&tokens, (const uint64_t[]){0, 3}, 2); /* the end-of-text token ends a document */
    ls_tokens_close(&tokens);

    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_OK);
    expect_starts(&tokens, (const uint64_t[]){0}, 1);
    assert_int_equal(strlen(tokens.content_hash), 64);
    ls_tokens_close(&tokens);
}

static void nanogpt_odd_and_empty_files_are_refused(void **state)
{
    scratch *s = *state;
    ls_tokens tokens = {.count = 77};
    const char *path = scratch_write(s, "odd.bin", "abc", 3);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("its size of 3 bytes is odd");
    path = scratch_write(s, "empty.bin", "", 0);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("empty.bin is empty");
    assert_int_equal(ls_token_file_open("/nowhere/x.bin", &plain, &tokens), LS_ERR_NOT_FOUND);
    assert_int_equal(tokens.count, 77);
}

/* Wider ids without a header would be read as uint16, every second one 0. */
static void nanogpt_wide_ids_are_refused(void **state)
{
    scratch *s = *state;
    ls_tokens tokens = {.count = 77};
    uint32_t words[64];
    int64_t longs[32];
    for (uint32_t i = 0; i < 64; i++) {
        words[i] = i + 1;
        longs[i / 2] = 100 + i;
    }
    const char *path = scratch_write(s, "words.bin", words, sizeof words);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("words.bin looks like uint32 ids");
    assert_error_has("astype(\"uint16\")");
    const ls_token_file_options unknown = {.vocab_size = LS_TOKEN_FILE_VOCAB_UNKNOWN, .end_of_text = -1};
    assert_int_equal(ls_token_file_open(path, &unknown, &tokens), LS_ERR_DATA);
    assert_error_has("looks like uint32 ids");
    path = scratch_write(s, "longs.bin", longs, sizeof longs);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("longs.bin looks like int64 ids");
    assert_int_equal(tokens.count, 77);

    /* One number less may be chance, and so may a file of zeros. */
    path = scratch_write(s, "few.bin", words, sizeof words - 2);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_OK);
    ls_tokens_close(&tokens);
    words[20] |= 7 << 16;
    path = scratch_write(s, "narrow.bin", words, sizeof words);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_OK);
    ls_tokens_close(&tokens);
    memset(words, 0, sizeof words);
    path = scratch_write(s, "zeros.bin", words, sizeof words);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_OK);
    ls_tokens_close(&tokens);
}

static void nanogpt_large_vocabularies_are_refused(void **state)
{
    scratch *s = *state;
    ls_tokens tokens = {.count = 77};
    const uint16_t raw[] = {4, 5, 6};
    const char *path = scratch_write(s, "raw.bin", raw, sizeof raw);
    ls_token_file_options options = {.vocab_size = 65537, .end_of_text = -1};
    assert_int_equal(ls_token_file_open(path, &options, &tokens), LS_ERR_DATA);
    assert_error_has("which cannot hold a vocabulary of 65537: store the ids as uint32");
    assert_int_equal(tokens.count, 77);
    const uint32_t readable[] = {65536, LS_TOKEN_FILE_VOCAB_UNKNOWN};
    for (size_t i = 0; i < 2; i++) {
        options.vocab_size = readable[i];
        assert_int_equal(ls_token_file_open(path, &options, &tokens), LS_OK);
        ls_tokens_close(&tokens);
    }
}

/* ---- Megatron ---- */

typedef struct index_file {
    unsigned char data[512];
    size_t bytes;
} index_file;

static void put(index_file *index, const void *data, size_t bytes)
{
    memcpy(index->data + index->bytes, data, bytes);
    index->bytes += bytes;
}

static index_file megatron_index(unsigned char type, const int32_t *lengths, const int64_t *offsets,
                                 uint64_t sequences, const int64_t *documents, uint64_t document_entries)
{
    index_file index = {.bytes = 0};
    const uint64_t version = 1;
    put(&index, "MMIDIDX\0", 9);
    put(&index, &version, 8);
    put(&index, &type, 1);
    put(&index, &sequences, 8);
    put(&index, &document_entries, 8);
    put(&index, lengths, 4 * sequences);
    put(&index, offsets, 8 * sequences);
    put(&index, documents, 8 * document_entries);
    return index;
}

static void megatron_in_place_keeps_documents(void **state)
{
    scratch *s = *state;
    const uint16_t raw[] = {10, 11, 12, 13, 14, 15};
    const index_file index = megatron_index(8, (const int32_t[]){2, 1, 3}, (const int64_t[]){0, 4, 6}, 3,
                                            (const int64_t[]){0, 2, 3}, 3);
    const char *path = scratch_write(s, "m.bin", raw, sizeof raw);
    scratch_write(s, "m.idx", index.data, index.bytes);
    ls_tokens tokens;
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_OK);
    assert_null(tokens.owned_ids); /* used where it is */
    expect_ids(&tokens, (const int32_t[]){10, 11, 12, 13, 14, 15}, 6);
    expect_starts(&tokens, (const uint64_t[]){0, 3}, 2); /* sequences 0 and 1 are document 0 */
    ls_tokens_close(&tokens);
}

static void megatron_out_of_order_and_other_types_are_gathered(void **state)
{
    scratch *s = *state;
    const int64_t raw[] = {10, 11, 12};
    const index_file index = megatron_index(5, (const int32_t[]){1, 2}, (const int64_t[]){16, 0}, 2,
                                            (const int64_t[]){0, 1, 2}, 3);
    const char *path = scratch_write(s, "m.bin", raw, sizeof raw);
    scratch_write(s, "m.idx", index.data, index.bytes);
    ls_tokens tokens;
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_OK);
    expect_ids(&tokens, (const int32_t[]){12, 10, 11}, 3);
    expect_starts(&tokens, (const uint64_t[]){0, 1}, 2);
    ls_tokens_close(&tokens);

    const int64_t negative[] = {10, -1, 12};
    scratch_write(s, "m.bin", negative, sizeof negative);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has("beyond the vocabulary");
}

static void expect_megatron_refused(scratch *s, const index_file *index, const char *part)
{
    const uint16_t raw[] = {1, 2, 3, 4};
    ls_tokens tokens = {.count = 77};
    const char *path = scratch_write(s, "m.bin", raw, sizeof raw);
    scratch_write(s, "m.idx", index->data, index->bytes);
    assert_int_equal(ls_token_file_open(path, &plain, &tokens), LS_ERR_DATA);
    assert_error_has(part);
    assert_int_equal(tokens.count, 77);
}

static void megatron_bad_indexes_are_refused(void **state)
{
    scratch *s = *state;
    const int32_t lengths[] = {2, 2};
    const int64_t offsets[] = {0, 4}, documents[] = {0, 2};
    const index_file good = megatron_index(8, lengths, offsets, 2, documents, 2);
    index_file bad = good;
    bad.data[0] = 'X';
    expect_megatron_refused(s, &bad, "MMIDIDX");
    bad = good;
    bad.data[9] = 2;
    expect_megatron_refused(s, &bad, "version 2; only version 1 can be read");
    bad = good;
    bad.data[17] = 7;
    expect_megatron_refused(s, &bad, "type 7");
    bad = good;
    bad.bytes -= 1;
    expect_megatron_refused(s, &bad, "truncated or corrupt");
    bad = good;
    bad.data[18 + 7] = 0xff; /* 2^63 sequences */
    expect_megatron_refused(s, &bad, "truncated or corrupt");
    bad = good;
    const uint64_t wrapping = bad.bytes + 1; /* added to UINT64_MAX it gives the file's size */
    memcpy(bad.data + 18, &wrapping, 8);
    expect_megatron_refused(s, &bad, "truncated or corrupt");
    bad = megatron_index(8, (const int32_t[]){2, 3}, offsets, 2, documents, 2);
    expect_megatron_refused(s, &bad, "outside the 8 bytes");
    bad = megatron_index(8, (const int32_t[]){-1, 3}, offsets, 2, documents, 2);
    expect_megatron_refused(s, &bad, "outside the 8 bytes");
    bad = megatron_index(8, lengths, (const int64_t[]){0, -2}, 2, documents, 2);
    expect_megatron_refused(s, &bad, "outside the 8 bytes");
    bad = megatron_index(8, lengths, offsets, 2, (const int64_t[]){0, 3}, 2);
    expect_megatron_refused(s, &bad, "document 1 of its index begins at sequence 3");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        CASE(llmc_both_widths_are_read),
        CASE(llmc_bad_files_are_refused),
        CASE(ids_beyond_the_vocabulary_are_named),
        CASE(nanogpt_raw_ids_are_read),
        CASE(nanogpt_odd_and_empty_files_are_refused),
        CASE(nanogpt_wide_ids_are_refused),
        CASE(nanogpt_large_vocabularies_are_refused),
        CASE(megatron_in_place_keeps_documents),
        CASE(megatron_out_of_order_and_other_types_are_gathered),
        CASE(megatron_bad_indexes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
