// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char work[] = "/tmp/ls-tokenizer-XXXXXX";

static const char *write_file(const char *name, const char *text)
{
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", work, name);
    assert_int_equal(ls_file_write_atomic(path, text, strlen(text)), LS_OK);
    return path;
}

static ls_tokenizer *parse(const char *json)
{
    ls_tokenizer *tokenizer = NULL;
    if (ls_tokenizer_parse(json, strlen(json), "test", &tokenizer) != LS_OK) {
        fail_msg("%s", ls_error_text());
    }
    return tokenizer;
}

static void assert_refused(const char *data, size_t bytes, ls_status status, const char *text)
{
    ls_tokenizer *untouched = (ls_tokenizer *)work;
    assert_int_equal(ls_tokenizer_parse(data, bytes, "test", &untouched), status);
    assert_ptr_equal(untouched, work);
    if (!strstr(ls_error_text(), text)) {
        fail_msg("\"%s\" does not mention \"%s\"", ls_error_text(), text);
    }
}

static void assert_encodes(const ls_tokenizer *tokenizer, const char *text, const int32_t *wanted,
                           size_t count)
{
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, strlen(text), false, &ids), LS_OK);
    assert_int_equal(ids.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ids.ids[i], wanted[i]);
    }
    ls_token_buffer_release(&ids);
}

/* ---- bytes ---- */

static void bytes_encode_gives_every_byte_and_back(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_create_bytes(&tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 256);
    assert_int_equal(ls_tokenizer_eos(tokenizer), -1);
    char text[256];
    for (int i = 0; i < 256; i++) {
        text[i] = (char)i;
    }
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, 256, true, &ids), LS_OK);
    assert_int_equal(ids.count, 256);
    for (int i = 0; i < 256; i++) {
        assert_int_equal(ids.ids[i], i);
    }
    ls_text_buffer back = {0};
    assert_int_equal(ls_tokenizer_decode(tokenizer, ids.ids, ids.count, true, &back), LS_OK);
    assert_int_equal(back.bytes, 256);
    assert_memory_equal(back.data, text, 256);
    ls_text_buffer_release(&back);
    ls_token_buffer_release(&ids);
    ls_tokenizer_destroy(tokenizer);
}

static void bytes_source_parses_to_the_same_tokenizer(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer, *again;
    assert_int_equal(ls_tokenizer_create_bytes(&tokenizer), LS_OK);
    const char *name;
    const void *data;
    size_t bytes;
    ls_tokenizer_source(tokenizer, &name, &data, &bytes);
    assert_string_equal(name, "tokenizer.json");
    assert_int_equal(ls_tokenizer_parse(data, bytes, name, &again), LS_OK);
    assert_string_equal(ls_tokenizer_kind(again), "bytes");
    assert_string_equal(ls_tokenizer_hash(tokenizer), ls_tokenizer_hash(again));
    assert_int_equal(strlen(ls_tokenizer_hash(again)), 64);
    assert_encodes(again, "\xff\x80 a", (const int32_t[]){255, 128, 32, 97}, 4);
    ls_tokenizer_destroy(again);
    ls_tokenizer_destroy(tokenizer);
}

/* ---- a tiny tokenizer.json ---- */

#define TINY(added, normalizer, splitter, decoder, settings)                                                 \
    "{\"added_tokens\":[" added "],\"normalizer\":" normalizer ",\"pre_tokenizer\":" splitter                \
    ",\"decoder\":" decoder ",\"model\":{\"type\":\"BPE\"" settings                                          \
    ",\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4,\"\xc4\xa0\":5},"                                \
    "\"merges\":[\"a b\",[\"ab\",\"c\"]]}}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"

static void json_merges_by_rank_and_drops_what_it_lacks(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = parse(TINY("", "null", BYTE_LEVEL, "null", ""));
    assert_encodes(tokenizer, "abcab", (const int32_t[]){4, 3}, 2);
    assert_encodes(tokenizer, "bca", (const int32_t[]){1, 2, 0}, 3);
    /* No unknown token: x is dropped and its neighbours join, as in Hugging Face. */
    assert_encodes(tokenizer, "axb", (const int32_t[]){3}, 1);
    assert_encodes(tokenizer, "", NULL, 0);
    assert_string_equal(ls_tokenizer_piece(tokenizer, 4), "abc");
    assert_null(ls_tokenizer_piece(tokenizer, 6));
    assert_null(ls_tokenizer_piece(tokenizer, -1));
    assert_int_equal(ls_tokenizer_id(tokenizer, "ab"), 3);
    assert_int_equal(ls_tokenizer_id(tokenizer, "zz"), -1);
    ls_tokenizer_destroy(tokenizer);
}

static void json_added_tokens_follow_their_flags(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer =
        parse(TINY("{\"id\":6,\"content\":\"<x>\",\"lstrip\":true,\"special\":true,\"normalized\":false},"
                   "{\"id\":7,\"content\":\"[w]\",\"single_word\":true,\"normalized\":false},"
                   "{\"id\":8,\"content\":\"<x>b\",\"rstrip\":true,\"normalized\":false}",
                   "null", BYTE_LEVEL, "null", ""));
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 9);
    assert_encodes(tokenizer, "a <x> b", (const int32_t[]){0, 6, 5, 1}, 4);
    /* the longest at a place wins */
    assert_encodes(tokenizer, "a<x>b c", (const int32_t[]){0, 8, 2}, 3);
    assert_encodes(tokenizer, "[w] a[w]", (const int32_t[]){7, 5, 0}, 3);
    ls_text_buffer text = {0};
    assert_int_equal(ls_tokenizer_decode(tokenizer, (const int32_t[]){0, 6, 7}, 3, true, &text), LS_OK);
    assert_string_equal(text.data, "a[w]");
    assert_int_equal(ls_tokenizer_decode(tokenizer, (const int32_t[]){6}, 1, false, &text), LS_OK);
    assert_string_equal(text.data, "a[w]<x>");
    ls_text_buffer_release(&text);
    ls_tokenizer_destroy(tokenizer);
}

#define SPLIT(regex) "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex "\"},\"behavior\":\"Isolated\"}"

static void json_names_what_it_does_not_support(void **state)
{
    (void)state;
    static const struct {
        const char *json, *names;
    } cases[] = {
        {TINY("", "{\"type\":\"Lowercase\"}", BYTE_LEVEL, "null", ""), "Lowercase"},
        {TINY("", "null", "{\"type\":\"BertPreTokenizer\"}", "null", ""), "BertPreTokenizer"},
        {TINY("", "null", SPLIT("\\\\w+"), "null", ""), "has \\w, which is supported only in"},
        {TINY("", "null", SPLIT("a{1,2}+"), "null", ""), "has }+"},
        {TINY("", "null", SPLIT("[a-z&&[b]]"), "null", ""), "has &&"},
        {TINY("", "null", SPLIT("(?m:.)"), "null", ""), "has (?m:"},
        {TINY("", "null", SPLIT("[[:alpha:]]"), "null", ""), "has [:"},
        {TINY("", "null", SPLIT("(a"), "null", ""), "(a of a Split step is not supported: missing closing"},
        {TINY("", "null", SPLIT("\\\\p{Klingon}"), "null", ""), "unknown property"},
        {TINY("", "null", BYTE_LEVEL, "{\"type\":\"WordPiece\"}", ""), "WordPiece"},
        {TINY("", "null", BYTE_LEVEL, "null", ",\"dropout\":0.1"), "dropout"},
        {TINY("", "null", BYTE_LEVEL, "null", ",\"end_of_word_suffix\":\"</w>\""), "end_of_word_suffix"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", "Unigram"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_refused(cases[i].json, strlen(cases[i].json), LS_ERR_UNSUPPORTED, cases[i].names);
    }
}

static void parse_refuses_broken_files(void **state)
{
    (void)state;
    static const struct {
        const char *data, *names;
    } cases[] = {
        {"", "empty"},
        {" \n\t", "empty"},
        {"{", "JSON"},
        {"{}", "model"},
        {"{\"model\":{\"type\":\"BPE\"}}", "vocab"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "merges"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":999999999},\"merges\":[]}}", "id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "same id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "lacks"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", "merge"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "vocabulary"},
        {"hello, I am a text", "neither"},
        {"\x0a\x7f", "neither"},
        {"\x0a\x05\x0a\x09"
         "a\x18\x01",
         "neither"},
        {"\x0a\x03\x0a\x01"
         "a",
         "unigram"},
        {"\x0a\x03\x0a\x01"
         "a\x12\x02\x18\x02",
         "unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool unigram = strcmp(cases[i].names, "unigram") == 0;
        assert_refused(cases[i].data, strlen(cases[i].data), unigram ? LS_ERR_UNSUPPORTED : LS_ERR_DATA,
                       cases[i].names);
    }
}

static void decode_refuses_ids_outside_the_vocabulary(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = parse(TINY("", "null", BYTE_LEVEL, "null", ""));
    ls_text_buffer text = {0};
    assert_int_equal(ls_tokenizer_decode(tokenizer, (const int32_t[]){0}, 1, true, &text), LS_OK);
    const int32_t bad[] = {6, -1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        const int32_t ids[] = {1, bad[i]};
        assert_int_equal(ls_tokenizer_decode(tokenizer, ids, 2, true, &text), LS_ERR_DATA);
        assert_string_equal(text.data, "a");
        assert_non_null(strstr(ls_error_text(), "position 1"));
    }
    ls_text_buffer_release(&text);
    ls_tokenizer_destroy(tokenizer);
}

/* ---- streaming ---- */

static void stream_never_splits_characters(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_create_bytes(&tokenizer), LS_OK);
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"a\xf0\x9f\x98\x80z", "a\xf0\x9f\x98\x80z"},
        {"\xe2\x82\xac\xc3\xa9", "\xe2\x82\xac\xc3\xa9"},
        {"\xf0\x9f\x98", "\xef\xbf\xbd"},
        {"\xf0\x9f"
         "a",
         "\xef\xbf\xbd"
         "a"},
        {"\x80\xff", "\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xc3\xc3\xa9", "\xef\xbf\xbd\xc3\xa9"},
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_tokenizer_stream stream = {0};
        ls_text_buffer text = {0};
        for (const char *at = cases[i].in; *at; at++) {
            assert_int_equal(ls_tokenizer_stream_next(tokenizer, &stream, (unsigned char)*at, true, &text),
                             LS_OK);
            assert_true(text.bytes == 0 || ls_text_check_utf8(text.data, text.bytes, NULL));
        }
        assert_int_equal(ls_tokenizer_stream_end(&stream, &text), LS_OK);
        assert_string_equal(text.data, cases[i].out);
        ls_text_buffer_release(&text);
    }
    ls_tokenizer_destroy(tokenizer);
}

static void check_utf8_finds_the_first_bad_byte(void **state)
{
    (void)state;
    size_t offset = 77;
    assert_true(ls_text_check_utf8("na\xc3\xafve", 6, &offset));
    assert_true(ls_text_check_utf8(NULL, 0, &offset));
    assert_int_equal(offset, 77);
    assert_false(ls_text_check_utf8("abcdefgh\xc0\xaf", 10, &offset));
    assert_int_equal(offset, 8);
    assert_false(ls_text_check_utf8("abcdefghi\xe2\x82", 11, &offset));
    assert_int_equal(offset, 9);
}

/* ---- training ---- */

static ls_status train(const char *const *texts, size_t count, const ls_tokenizer_train_options *options,
                       ls_tokenizer **tokenizer_out)
{
    ls_tokenizer_trainer *trainer;
    LS_TRY(ls_tokenizer_trainer_create(options, &trainer));
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(ls_tokenizer_trainer_add(trainer, texts[i], strlen(texts[i])), LS_OK);
    }
    const ls_status status = ls_tokenizer_trainer_finish(trainer, tokenizer_out);
    ls_tokenizer_trainer_destroy(trainer);
    return status;
}

static void train_joins_the_most_frequent_pair_first(void **state)
{
    (void)state;
    /* Words: "ab" 3 times, " ab" once, "bc" twice. Pairs: ab 4, bc 2, " a" 1. */
    static const char *const texts[] = {"ab", "ab", "bc", "ab ab", "bc"};
    const ls_tokenizer_train_options options = {.vocab_size = 300};
    ls_tokenizer *tokenizer;
    assert_int_equal(train(texts, 5, &options, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 1 + 256 + 2);
    assert_string_equal(ls_tokenizer_piece(tokenizer, 0), "<|endoftext|>");
    assert_string_equal(ls_tokenizer_piece(tokenizer, 1), "!");
    assert_string_equal(ls_tokenizer_piece(tokenizer, 257), "ab");
    assert_string_equal(ls_tokenizer_piece(tokenizer, 258), "bc");
    assert_int_equal(ls_tokenizer_eos(tokenizer), 0);
    assert_encodes(tokenizer, "abc<|endoftext|>", (const int32_t[]){257, ls_tokenizer_id(tokenizer, "c"), 0},
                   3);
    ls_tokenizer_destroy(tokenizer);
}

static void train_refuses_what_it_can_not_do(void **state)
{
    (void)state;
    static const char *const text[] = {"some text"}, *const twice[] = {"<s>", "<s>"},
                             *const learned[] = {"a"};
    ls_tokenizer *untouched = NULL;
    const ls_tokenizer_train_options small = {.vocab_size = 256};
    assert_int_equal(train(text, 1, &small, &untouched), LS_ERR_INVALID);
    const ls_tokenizer_train_options large = {.vocab_size = (1u << 20) + 1};
    assert_int_equal(train(text, 1, &large, &untouched), LS_ERR_INVALID);
    const ls_tokenizer_train_options same = {.vocab_size = 300, .specials = twice, .special_count = 2};
    assert_int_equal(train(text, 1, &same, &untouched), LS_ERR_INVALID);
    const ls_tokenizer_train_options byte = {.vocab_size = 300, .specials = learned, .special_count = 1};
    assert_int_equal(train(text, 1, &byte, &untouched), LS_ERR_INVALID);
    const ls_tokenizer_train_options fine = {.vocab_size = 300};
    assert_int_equal(train(text, 0, &fine, &untouched), LS_ERR_DATA);
    assert_null(untouched);
}

static void save_and_load_keep_the_hash(void **state)
{
    (void)state;
    static const char *const texts[] = {"the cat sat on the mat, the cat sat",
                                        "na\xc3\xafve \xff\xfe text\n\n\n"};
    const ls_tokenizer_train_options options = {.vocab_size = 280};
    ls_tokenizer *trained, *loaded;
    assert_int_equal(train(texts, 2, &options, &trained), LS_OK);
    char path[4096];
    snprintf(path, sizeof path, "%s/trained.json", work);
    assert_int_equal(ls_tokenizer_save(trained, path), LS_OK);
    assert_int_equal(ls_tokenizer_load(path, &loaded), LS_OK);
    assert_string_equal(ls_tokenizer_hash(trained), ls_tokenizer_hash(loaded));
    assert_int_equal(ls_tokenizer_eos(loaded), 0);
    ls_token_buffer a = {0}, b = {0};
    assert_int_equal(ls_tokenizer_encode(trained, NULL, texts[0], strlen(texts[0]), false, &a), LS_OK);
    assert_int_equal(ls_tokenizer_encode(loaded, NULL, texts[0], strlen(texts[0]), false, &b), LS_OK);
    assert_int_equal(a.count, b.count);
    assert_true(a.count < strlen(texts[0]));
    assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
    ls_token_buffer_release(&a);
    ls_token_buffer_release(&b);
    ls_tokenizer_destroy(trained);
    ls_tokenizer_destroy(loaded);
}

/* ---- files ---- */

static void load_reads_a_folder_with_its_config(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = NULL;
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_ERR_NOT_FOUND);
    assert_int_equal(ls_tokenizer_load("/nonexistent/tokenizer.json", &tokenizer), LS_ERR_NOT_FOUND);
    write_file("vocab.json", "{\"a\":0,\"b\":1,\"ab\":2,\"<|endoftext|>\":3}");
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_ERR_NOT_FOUND);
    write_file("merges.txt", "#version: 0.2\r\na b\r\n");
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_eos(tokenizer), 3);
    assert_encodes(tokenizer, "abb<|endoftext|>", (const int32_t[]){2, 1, 3}, 3);
    char hash[LS_SHA256_HEX_BYTES];
    memcpy(hash, ls_tokenizer_hash(tokenizer), sizeof hash);
    ls_tokenizer_destroy(tokenizer);

    write_file("tokenizer_config.json", "{\"bos_token\":null,\"eos_token\":{\"content\":\"ab\"}}");
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_bos(tokenizer), -1);
    assert_int_equal(ls_tokenizer_eos(tokenizer), 2);
    assert_string_not_equal(hash, ls_tokenizer_hash(tokenizer));
    ls_tokenizer_destroy(tokenizer);

    /* Added tokens of the files beside. */
    write_file("added_tokens.json", "{\"<y>\":5,\"<x>\":4}");
    write_file("tokenizer_config.json",
               "{\"added_tokens_decoder\":{\"4\":{\"content\":\"<x>\",\"special\":true,\"rstrip\":true}}}");
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(tokenizer), 6);
    assert_encodes(tokenizer, "ab<x> b<y>", (const int32_t[]){2, 4, 1, 5}, 4);
    ls_tokenizer_destroy(tokenizer);
    tokenizer = NULL;
    write_file("added_tokens.json", "{\"<x>\":5}");
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "added_tokens.json: the added token \"<x>\" has the id 5"));
    write_file("added_tokens.json", "{\"<y>\":6}");
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "the next id that is free is 5"));
    write_file("added_tokens.json", "{}");

    write_file("merges.txt", "#version: 0.2\na b\na c\n");
    tokenizer = NULL;
    assert_int_equal(ls_tokenizer_load(work, &tokenizer), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "merges.txt:3"));
    assert_null(tokenizer);
}

/* ---- threads ---- */

typedef struct job {
    const ls_tokenizer *tokenizer;
    const char *text;
    ls_token_buffer ids;
    ls_status status;
} job;

static void *encode_often(void *argument)
{
    job *j = argument;
    ls_tokenizer_scratch *scratch;
    j->status = ls_tokenizer_scratch_create(j->tokenizer, &scratch);
    for (int i = 0; j->status == LS_OK && i < 200; i++) {
        j->ids.count = 0;
        j->status = ls_tokenizer_encode(j->tokenizer, scratch, j->text, strlen(j->text), false, &j->ids);
    }
    ls_tokenizer_scratch_destroy(scratch);
    return NULL;
}

static void encode_from_two_threads_gives_the_same_ids(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = parse(TINY("", "{\"type\":\"NFC\"}", BYTE_LEVEL, "null", ""));
    job jobs[2] = {{.tokenizer = tokenizer, .text = "abc ab cab aabbcc abcabcabcabcabcabcabcabc"}};
    jobs[1] = jobs[0];
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, encode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(jobs[0].status, LS_OK);
    assert_int_equal(jobs[1].status, LS_OK);
    assert_true(jobs[0].ids.count > 0);
    assert_int_equal(jobs[0].ids.count, jobs[1].ids.count);
    assert_memory_equal(jobs[0].ids.ids, jobs[1].ids.ids, jobs[0].ids.count * sizeof(int32_t));
    ls_token_buffer_release(&jobs[0].ids);
    ls_token_buffer_release(&jobs[1].ids);
    ls_tokenizer_destroy(tokenizer);
}

/* A word of a million letters takes the heap, one of 64 the scan: both join the same way. */
static void encode_very_long_words(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = parse(TINY("", "null", BYTE_LEVEL, "null", ""));
    const size_t bytes = 3 * 400000;
    char *text = malloc(bytes);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = (char)('a' + i % 3);
    }
    ls_token_buffer ids = {0};
    for (size_t length = 60; length <= bytes; length = length < 72 ? length + 3 : bytes + (length == bytes)) {
        ids.count = 0;
        assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, length, false, &ids), LS_OK);
        assert_int_equal(ids.count, length / 3);
        for (size_t i = 0; i < ids.count; i++) {
            assert_int_equal(ids.ids[i], 4);
        }
    }
    ls_token_buffer_release(&ids);
    free(text);
    ls_tokenizer_destroy(tokenizer);
}

/* A pattern that needs exponential time ends with an error. */
static void encode_limits_the_work_of_a_pattern(void **state)
{
    (void)state;
    static const char json[] = TINY("", "null", SPLIT("(?:a+)+[0-9]"), "null", "");
    ls_tokenizer *tokenizer;
    assert_int_equal(ls_tokenizer_parse(json, sizeof json - 1, "slow", &tokenizer), LS_OK);
    char text[61];
    memset(text, 'a', 60);
    text[60] = ' ';
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, text, sizeof text, false, &ids), LS_ERR_DATA);
    assert_non_null(
        strstr(ls_error_text(), "regular expression for splitting fails at byte 0 of a text of 61"));
    assert_int_equal(ids.count, 0);
    ls_token_buffer_release(&ids);
    ls_tokenizer_destroy(tokenizer);
}

int main(void)
{
    if (!mkdtemp(work)) {
        perror("mkdtemp");
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_encode_gives_every_byte_and_back),
        cmocka_unit_test(bytes_source_parses_to_the_same_tokenizer),
        cmocka_unit_test(json_merges_by_rank_and_drops_what_it_lacks),
        cmocka_unit_test(json_added_tokens_follow_their_flags),
        cmocka_unit_test(json_names_what_it_does_not_support),
        cmocka_unit_test(encode_limits_the_work_of_a_pattern),
        cmocka_unit_test(parse_refuses_broken_files),
        cmocka_unit_test(decode_refuses_ids_outside_the_vocabulary),
        cmocka_unit_test(stream_never_splits_characters),
        cmocka_unit_test(check_utf8_finds_the_first_bad_byte),
        cmocka_unit_test(train_joins_the_most_frequent_pair_first),
        cmocka_unit_test(train_refuses_what_it_can_not_do),
        cmocka_unit_test(save_and_load_keep_the_hash),
        cmocka_unit_test(load_reads_a_folder_with_its_config),
        cmocka_unit_test(encode_from_two_threads_gives_the_same_ids),
        cmocka_unit_test(encode_very_long_words),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    const ls_status removed = ls_dir_remove(work);
    return failed || removed != LS_OK;
}
