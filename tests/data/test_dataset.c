// SPDX-License-Identifier: Apache-2.0
#include "data/scratch.h"

#include "base/assert.h"
#include "base/log.h"
#include "data/dataset.h"
#include "data/split.h"
#include "tokenizer/tokenizer.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>

typedef struct fixture {
    scratch s;
    ls_tokenizer *bytes, *with_end;
} fixture;

static int fixture_setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    strcpy(f->s.folder, "/tmp/lockstep-data-XXXXXX");
    if (!mkdtemp(f->s.folder) || ls_tokenizer_create_bytes(&f->bytes) != LS_OK ||
        make_tokenizer_with_end(&f->with_end) != LS_OK) {
        return -1;
    }
    ls_log_init(&(ls_log_settings){.level = LS_LOG_ERROR, .rank = -1});
    *state = f;
    return 0;
}

static int fixture_teardown(void **state)
{
    fixture *f = *state;
    ls_tokenizer_destroy(f->bytes);
    ls_tokenizer_destroy(f->with_end);
    const ls_status status = ls_dir_remove(f->s.folder);
    ls_arena_release(&f->s.arena);
    free(f);
    return status == LS_OK ? 0 : -1;
}

/* A token file (nanoGPT's kind) with ids first, first + 1, ... */
static const char *write_ids(fixture *f, const char *name, int first, int count)
{
    uint16_t *ids = calloc((size_t)count, sizeof *ids);
    for (int i = 0; i < count; i++) {
        ids[i] = (uint16_t)(first + i);
    }
    const char *path = scratch_write(&f->s, name, ids, (size_t)count * sizeof *ids);
    free(ids);
    return path;
}

/* Options for one source of one file without validation and cache. */
static ls_dataset_options one_file(const char *const *path, ls_dataset_source *source, uint32_t context)
{
    *source = (ls_dataset_source){.patterns = path, .pattern_count = 1, .weight = 1.0};
    return (ls_dataset_options){
        .sources = source, .source_count = 1, .context = context, .vocab_size = 65536, .cache_dir = ""};
}

/* Reads a sample into an array of T + 1: the inputs and, after them, the last target. */
#define read_sample(dataset, split, seed, position, tokens_out)                                              \
    read_joined(dataset, split, seed, position, tokens_out, sizeof(tokens_out) / sizeof(int32_t) - 1)

/* Fails unless the other targets are the inputs shifted by one, in one record that starts at 0. */
static ls_status read_joined(const ls_dataset *d, ls_split split, uint64_t seed, uint64_t position,
                             int32_t *tokens_out, size_t context)
{
    int32_t targets[128], first[128], record[128];
    LS_ASSERT(context <= 128);
    const ls_sample sample = {tokens_out, targets, first, record};
    LS_TRY(ls_dataset_sample(d, split, seed, position, &sample));
    bool is_plain = memcmp(targets, tokens_out + 1, (context - 1) * sizeof *targets) == 0;
    for (size_t i = 0; i < context; i++) {
        is_plain = is_plain && first[i] == 0 && record[i] >= 0 && record[i] == record[0];
    }
    tokens_out[context] = targets[context - 1];
    return is_plain ? LS_OK : ls_fail(LS_ERR_FAILED, "sample %llu is torn", (unsigned long long)position);
}

static void expect_consecutive(const int32_t *tokens, int32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(tokens[i], first + (int32_t)i);
    }
}

static void dataset_sample_sees_each_window_once_per_epoch(void **state)
{
    fixture *f = *state;
    /* T = 10: 100 windows use 1001 tokens, 2 are left */
    const char *path = write_ids(f, "a.bin", 0, 1003);
    ls_dataset_source source;
    const ls_dataset_options options = one_file(&path, &source, 10);
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_TRAIN), 100);
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_VALIDATION), 0);
    assert_int_equal(ls_dataset_token_count(d, LS_SPLIT_TRAIN), 1003);
    int order[3][100];
    for (int epoch = 0; epoch < 3; epoch++) {
        bool seen[100] = {false};
        for (int i = 0; i < 100; i++) {
            int32_t tokens[11];
            assert_int_equal(read_sample(d, LS_SPLIT_TRAIN, 42, (uint64_t)(epoch * 100 + i), tokens), LS_OK);
            assert_int_equal(tokens[0] % 10, 0);
            expect_consecutive(tokens, tokens[0], 11);
            const int window = tokens[0] / 10;
            assert_in_range(window, 0, 99);
            assert_false(seen[window]);
            seen[window] = true;
            order[epoch][i] = window;
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    assert_memory_not_equal(order[1], order[2], sizeof order[0]);
    ls_dataset_close(d);
}

static void dataset_sample_depends_on_nothing_but_its_arguments(void **state)
{
    fixture *f = *state;
    const char *path = write_ids(f, "a.bin", 0, 5000);
    ls_dataset_source source;
    const ls_dataset_options options = one_file(&path, &source, 16);
    ls_dataset *a = NULL, *b = NULL;
    assert_int_equal(ls_dataset_open(&options, &a), LS_OK);
    assert_int_equal(ls_dataset_open(&options, &b), LS_OK);
    assert_string_equal(ls_dataset_hash(a), ls_dataset_hash(b));
    int differing_seeds = 0;
    for (uint64_t k = 0; k < 1000; k++) {
        const uint64_t position = (k * 7919) % 1000; /* another order of asking */
        int32_t x[17], y[17], z[17];
        assert_int_equal(read_sample(a, LS_SPLIT_TRAIN, 1, position, x), LS_OK);
        assert_int_equal(read_sample(b, LS_SPLIT_TRAIN, 1, k, y), LS_OK);
        assert_int_equal(read_sample(b, LS_SPLIT_TRAIN, 1, position, y), LS_OK);
        assert_memory_equal(x, y, sizeof x);
        assert_int_equal(read_sample(b, LS_SPLIT_TRAIN, 2, position, z), LS_OK);
        differing_seeds += memcmp(x, z, sizeof x) != 0;
    }
    assert_true(differing_seeds > 900);
    ls_dataset_close(a);
    ls_dataset_close(b);
}

/* Walks both splits and marks each token; every token must be in one of them, none in both. */
static void expect_disjoint_cover(const ls_dataset *d, uint64_t total)
{
    const uint64_t train = ls_dataset_stream_tokens(d, LS_SPLIT_TRAIN, 0);
    const uint64_t validation = ls_dataset_stream_tokens(d, LS_SPLIT_VALIDATION, 0);
    assert_int_equal(train + validation, total);
    int32_t *ids = calloc(total, sizeof *ids);
    unsigned char *seen = calloc(total, 1);
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_TRAIN, 0, 0, train, ids), LS_OK);
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_VALIDATION, 0, 0, validation, ids + train), LS_OK);
    for (uint64_t i = 0; i < total; i++) {
        assert_in_range(ids[i], 0, total - 1);
        assert_int_equal(seen[ids[i]], 0);
        seen[ids[i]] = 1;
    }
    free(ids);
    free(seen);
}

static void dataset_split_of_one_document_cuts_stripes(void **state)
{
    fixture *f = *state;
    const char *path = write_ids(f, "a.bin", 0, 60000);
    ls_dataset_source source;
    ls_dataset_options options = one_file(&path, &source, 32);
    /* 15000 tokens: 3 stripes of 20000, of which the last 5000 each */
    options.validation_fraction = 0.25;
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_token_count(d, LS_SPLIT_VALIDATION), 15000);
    assert_int_equal(ls_dataset_token_count(d, LS_SPLIT_TRAIN), 45000);
    expect_disjoint_cover(d, 60000);
    int32_t tokens[33];
    assert_int_equal(read_sample(d, LS_SPLIT_VALIDATION, 9, 0, tokens), LS_OK);
    expect_consecutive(tokens, 15000, 33);
    assert_int_equal(read_sample(d, LS_SPLIT_VALIDATION, 9, 1, tokens), LS_OK);
    expect_consecutive(tokens, 15032, 33);
    /* Window 156 begins at stream token 4992: eight tokens of the first stripe, then the second. */
    assert_int_equal(read_sample(d, LS_SPLIT_VALIDATION, 9, 156, tokens), LS_OK);
    expect_consecutive(tokens, 19992, 8);
    expect_consecutive(tokens + 8, 35000, 25);
    ls_dataset_close(d);

    options.context = 100; /* the split does not depend on the context */
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    int32_t longer[101];
    assert_int_equal(read_sample(d, LS_SPLIT_VALIDATION, 9, 0, longer), LS_OK);
    expect_consecutive(longer, 15000, 101);
    ls_dataset_close(d);
}

static void dataset_split_of_many_documents_keeps_them_whole(void **state)
{
    fixture *f = *state;
    /* 300 Megatron documents of 20 to 99 ids; ids count up, so a document is known by its first
     * id. */
    enum { DOCUMENTS = 300 };
    static unsigned char index[34 + 12 * DOCUMENTS + 8 * (DOCUMENTS + 1)];
    static int32_t starts[DOCUMENTS + 1];
    const uint64_t version = 1, sequences = DOCUMENTS, entries = DOCUMENTS + 1;
    memcpy(index, "MMIDIDX\0", 9);
    memcpy(index + 9, &version, 8);
    index[17] = 8;
    memcpy(index + 18, &sequences, 8);
    memcpy(index + 26, &entries, 8);
    for (int i = 0; i <= DOCUMENTS; i++) {
        const int32_t length = 20 + i * 37 % 80;
        const int64_t offset = (int64_t)starts[i] * 2, first = i;
        if (i < DOCUMENTS) {
            memcpy(index + 34 + 4 * i, &length, 4);
            memcpy(index + 34 + 4 * DOCUMENTS + 8 * i, &offset, 8);
            starts[i + 1] = starts[i] + length;
        }
        memcpy(index + 34 + 12 * DOCUMENTS + 8 * i, &first, 8);
    }
    const int total = starts[DOCUMENTS];
    const char *path = write_ids(f, "m.bin", 0, total);
    scratch_write(&f->s, "m.idx", index, sizeof index);

    ls_dataset_source source;
    ls_dataset_options options = one_file(&path, &source, 16);
    options.validation_fraction = 0.1;
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_document_count(d), DOCUMENTS);
    expect_disjoint_cover(d, (uint64_t)total);

    const uint64_t validation = ls_dataset_token_count(d, LS_SPLIT_VALIDATION);
    assert_in_range(validation, total / 20, total / 5);
    int32_t *ids = calloc(validation, sizeof *ids);
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_VALIDATION, 0, 0, validation, ids), LS_OK);
    for (uint64_t i = 0; i < validation; i++) {
        if (i > 0 && ids[i] == ids[i - 1] + 1) {
            continue;
        }
        bool at_start = false, before_at_end = i == 0;
        for (int k = 0; k <= DOCUMENTS; k++) {
            at_start = at_start || ids[i] == starts[k];
            before_at_end = before_at_end || ids[i - 1] + 1 == starts[k];
        }
        assert_true(at_start && before_at_end);
    }
    free(ids);
    ls_dataset_close(d);
}

static void dataset_sample_mixes_by_weight(void **state)
{
    fixture *f = *state;
    const char *small = write_ids(f, "small.bin", 0, 101), *large = write_ids(f, "large.bin", 10000, 4001);
    const ls_dataset_source sources[] = {{.patterns = &small, .pattern_count = 1, .weight = 1.0},
                                         {.patterns = &large, .pattern_count = 1, .weight = 3.0}};
    const ls_dataset_options options = {
        .sources = sources, .source_count = 2, .context = 10, .vocab_size = 65536, .cache_dir = ""};
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_TRAIN), 410);
    int seen_small[10] = {0}, seen_large[400] = {0};
    for (uint64_t position = 0; position < 400; position++) {
        int32_t tokens[11];
        assert_int_equal(read_sample(d, LS_SPLIT_TRAIN, 3, position, tokens), LS_OK);
        const ls_dataset_draw draw = ls_dataset_draw_at(d, 3, position);
        assert_int_equal(tokens[0], draw.source * 10000 + draw.window * 10);
        if (draw.source == 0) {
            seen_small[draw.window]++;
        } else {
            seen_large[draw.window]++;
        }
    }
    for (int i = 0; i < 10; i++) {
        assert_int_equal(seen_small[i], 10); /* 100 draws of 10 windows: ten whole epochs */
    }
    for (int i = 0; i < 400; i++) {
        assert_in_range(seen_large[i], 0, 1); /* 300 of 400: none twice */
    }
    ls_dataset_close(d);
}

static void dataset_open_keeps_validation_shorter_than_a_window(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "a.txt", "forty bytes of text, of which 4 are held");
    ls_dataset_source source;
    ls_dataset_options options = one_file(&path, &source, 8);
    options.tokenizer = f->bytes;
    options.validation_fraction = 0.1;
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_VALIDATION), 0);
    assert_int_equal(ls_dataset_token_count(d, LS_SPLIT_VALIDATION), 4);
    assert_true(ls_dataset_bytes_per_token(d, LS_SPLIT_VALIDATION) == 1.0);
    int32_t ids[4];
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_VALIDATION, 0, 0, 4, ids), LS_OK);
    assert_int_equal(ids[0], 'h');
    assert_int_equal(ids[3], 'd');
    ls_dataset_close(d);
}

/* Stream: abcd|e|fghijkl|mn, in windows of 5. */
static void dataset_sample_makes_documents_records(void **state)
{
    fixture *f = *state;
    const char *path = scratch_text(&f->s, "d.jsonl",
                                    "{\"text\": \"abcd\"}\n{\"text\": \"e\"}\n"
                                    "{\"text\": \"fghijkl\"}\n{\"text\": \"mn\"}\n");
    ls_dataset_options options = {.validation_patterns = &path,
                                  .validation_pattern_count = 1,
                                  .context = 5,
                                  .cache_dir = "",
                                  .tokenizer = f->bytes};
    static const struct {
        int32_t tokens[5], targets[5], first[5], record[5];
    } wanted[3] = {
        {{'a', 'b', 'c', 'd', 'e'}, {'b', 'c', 'd', -1, -1}, {0, 0, 0, 0, 4}, {0, 0, 0, 0, 4}},
        {{'f', 'g', 'h', 'i', 'j'}, {'g', 'h', 'i', 'j', 'k'}, {0, 0, 0, 0, 0}, {5, 5, 5, 5, 5}},
        {{'k', 'l', 'm', 0, 0}, {'l', -1, 'n', -1, -1}, {0, 0, 2, 3, 3}, {5, 5, 12, -1, -1}},
    };
    char plain[LS_SHA256_HEX_BYTES];
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_false(ls_dataset_has_documents(d));
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_VALIDATION), 2);
    strcpy(plain, ls_dataset_hash(d));
    int32_t rows[4][5];
    assert_int_equal(
        ls_dataset_sample(d, LS_SPLIT_VALIDATION, 0, 1, &(ls_sample){rows[0], rows[1], rows[2], rows[3]}),
        LS_OK);
    assert_int_equal(rows[3][4], 5); /* numbered as the sources divide the stream, by tokens */
    ls_dataset_close(d);

    options.document_masks = true;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_true(ls_dataset_has_documents(d));
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_VALIDATION), 3);
    assert_string_not_equal(plain, ls_dataset_hash(d));
    for (uint64_t i = 0; i < 3; i++) {
        int32_t tokens[5], targets[5], first[5], record[5];
        const ls_sample sample = {tokens, targets, first, record};
        assert_int_equal(ls_dataset_sample(d, LS_SPLIT_VALIDATION, 0, i, &sample), LS_OK);
        assert_memory_equal(tokens, wanted[i].tokens, sizeof tokens);
        assert_memory_equal(targets, wanted[i].targets, sizeof targets);
        assert_memory_equal(first, wanted[i].first, sizeof first);
        assert_memory_equal(record, wanted[i].record, sizeof record);
    }
    ls_dataset_close(d);
}

static void dataset_open_with_validation_files(void **state)
{
    fixture *f = *state;
    const char *train = write_ids(f, "train.bin", 0, 500), *val = write_ids(f, "val.bin", 1000, 95);
    ls_dataset_source source;
    ls_dataset_options options = one_file(&train, &source, 10);
    options.validation_patterns = &val;
    options.validation_pattern_count = 1;
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_samples(d, LS_SPLIT_VALIDATION), 9);
    assert_int_equal(ls_dataset_token_count(d, LS_SPLIT_TRAIN), 500);
    ls_dataset_close(d);

    options.source_count = 0; /* what `eval` does */
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    int32_t tokens[11];
    assert_int_equal(read_sample(d, LS_SPLIT_VALIDATION, 0, 8, tokens), LS_OK);
    expect_consecutive(tokens, 1080, 11);
    /* the tail */
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_VALIDATION, 0, 90, 5, tokens), LS_OK);
    expect_consecutive(tokens, 1090, 5);
    ls_dataset_close(d);

    options.source_count = 1;
    options.validation_fraction = 0.1;
    assert_int_equal(ls_dataset_open(&options, &d), LS_ERR_INVALID);
    assert_error_has("choose one of the two");
    options.validation_fraction = 0.0;
    options.validation_patterns = &train;
    assert_int_equal(ls_dataset_open(&options, &d), LS_ERR_INVALID);
    assert_error_has("has the same content");
}

static void dataset_open_reads_text_with_end_of_text(void **state)
{
    fixture *f = *state;
    scratch_text(&f->s, "a.txt", "the cat and the dog");
    scratch_text(&f->s, "b.txt", "and the cat");
    const char *pattern = ls_path_join(&f->s.arena, f->s.folder, "*.txt");
    ls_dataset_source source;
    ls_dataset_options options = one_file(&pattern, &source, 4);
    options.tokenizer = f->with_end;
    options.vocab_size = 0;
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_file_count(d), 2);
    assert_int_equal(ls_dataset_document_count(d), 2);
    const uint64_t count = ls_dataset_token_count(d, LS_SPLIT_TRAIN);
    int32_t ids[64];
    assert_in_range(count, 8, 32);
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_TRAIN, 0, 0, count, ids), LS_OK);
    assert_int_equal(ids[count - 1], ls_tokenizer_eos(f->with_end));
    assert_true(fabs(ls_dataset_bytes_per_token(d, LS_SPLIT_TRAIN) - 30.0 / (double)count) < 1e-12);
    ls_dataset_close(d);

    options.tokenizer = f->bytes;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    assert_int_equal(ls_dataset_token_count(d, LS_SPLIT_TRAIN), 30);
    assert_true(ls_dataset_bytes_per_token(d, LS_SPLIT_TRAIN) == 1.0);
    assert_int_equal(ls_dataset_tokens(d, LS_SPLIT_TRAIN, 0, 17, 4, ids), LS_OK);
    assert_int_equal(ids[0], 'o');
    assert_int_equal(ids[1], 'g');
    assert_int_equal(ids[2], 'a'); /* no separator: bytes have none */
    ls_dataset_close(d);
}

static void dataset_open_refuses_bad_options_and_short_text(void **state)
{
    fixture *f = *state;
    const char *path = write_ids(f, "a.bin", 0, 100);
    ls_dataset_source source;
    const ls_dataset_options good = one_file(&path, &source, 10);
    ls_dataset *d = NULL;

    ls_dataset_options bad = good;
    bad.context = 0;
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_INVALID);
    assert_error_has("context is 0 tokens");
    bad = good;
    bad.validation_fraction = 0.6;
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_INVALID);
    assert_error_has("validation_fraction is 0.6, allowed is 0 to 0.5");
    bad = good;
    bad.source_count = 0;
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_INVALID);
    bad = good;
    bad.context = 100;
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_DATA);
    assert_error_has("has 100 tokens for training, but one sample needs context + 1 = 101");
    bad = good;
    bad.validation_fraction = 0.005;
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_DATA);
    assert_error_has("the validation data has only 1 tokens; at least 2 are needed");
    bad = good;
    bad.vocab_size = 99;
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_DATA);
    assert_error_has("token 99 has id 99");
    const char *text = scratch_text(&f->s, "a.txt", "text");
    bad = one_file(&text, &source, 2);
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_INVALID);
    assert_error_has("needs a tokenizer");
    const char *missing = "/nowhere/*.txt";
    bad = one_file(&missing, &source, 2);
    assert_int_equal(ls_dataset_open(&bad, &d), LS_ERR_NOT_FOUND);
    assert_null(d);
}

static void dataset_hash_changes_with_what_decides_samples(void **state)
{
    fixture *f = *state;
    const char *path = write_ids(f, "a.bin", 0, 1000), *same = write_ids(f, "renamed.bin", 0, 1000);
    const char *other = write_ids(f, "b.bin", 1, 1000);
    ls_dataset_source source, source_same, source_other;
    ls_dataset_options options[5];
    options[0] = one_file(&path, &source, 10);
    options[1] = one_file(&same, &source_same, 10);
    options[2] = one_file(&other, &source_other, 10);
    options[3] = options[0];
    options[3].context = 11;
    options[4] = options[0];
    options[4].validation_fraction = 0.1;
    char hashes[5][LS_SHA256_HEX_BYTES];
    for (int i = 0; i < 5; i++) {
        ls_dataset *d = NULL;
        assert_int_equal(ls_dataset_open(&options[i], &d), LS_OK);
        assert_int_equal(strlen(ls_dataset_hash(d)), 64);
        strcpy(hashes[i], ls_dataset_hash(d));
        ls_dataset_close(d);
    }
    assert_string_equal(hashes[0], hashes[1]); /* not the name */
    for (int i = 2; i < 5; i++) {
        assert_string_not_equal(hashes[0], hashes[i]);
    }
}

typedef struct reader {
    const ls_dataset *dataset;
    uint64_t first, sum;
    ls_status status;
} reader;

static void *read_samples(void *argument)
{
    reader *r = argument;
    for (uint64_t i = 0; i < 2000 && r->status == LS_OK; i++) {
        int32_t tokens[65];
        r->status = read_sample(r->dataset, LS_SPLIT_TRAIN, 5, (r->first + i) % 2000, tokens);
        for (int k = 0; k < 65; k++) {
            r->sum += (uint64_t)tokens[k];
        }
    }
    return NULL;
}

static void dataset_sample_is_thread_safe(void **state)
{
    fixture *f = *state;
    char *text = malloc(300000);
    for (int i = 0; i < 300000; i++) {
        text[i] = (char)(32 + i * 31 % 90);
    }
    const char *path = scratch_write(&f->s, "a.txt", text, 300000);
    free(text);
    ls_dataset_source source;
    ls_dataset_options options = one_file(&path, &source, 64);
    options.tokenizer = f->bytes;
    ls_dataset *d = NULL;
    assert_int_equal(ls_dataset_open(&options, &d), LS_OK);
    reader readers[4];
    pthread_t threads[4];
    for (uint64_t i = 0; i < 4; i++) { /* all at once, so that the lazy checks race */
        readers[i] = (reader){.dataset = d, .first = i * 500};
        assert_int_equal(pthread_create(&threads[i], NULL, read_samples, &readers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].status, LS_OK);
        /* the same 2000 samples, begun elsewhere */
        assert_int_equal(readers[i].sum, readers[0].sum);
    }
    ls_dataset_close(d);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        CASE(dataset_sample_sees_each_window_once_per_epoch),
        CASE(dataset_sample_depends_on_nothing_but_its_arguments),
        CASE(dataset_split_of_one_document_cuts_stripes),
        CASE(dataset_split_of_many_documents_keeps_them_whole),
        CASE(dataset_sample_mixes_by_weight),
        CASE(dataset_open_keeps_validation_shorter_than_a_window),
        CASE(dataset_sample_makes_documents_records),
        CASE(dataset_open_with_validation_files),
        CASE(dataset_open_reads_text_with_end_of_text),
        CASE(dataset_open_refuses_bad_options_and_short_text),
        CASE(dataset_hash_changes_with_what_decides_samples),
        CASE(dataset_sample_is_thread_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
