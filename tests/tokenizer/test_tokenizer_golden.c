// SPDX-License-Identifier: Apache-2.0
/* Ids and texts against what tokenizers and sentencepiece gave: tests/golden/make_tokenizers.py. */
#include "test.h"

#include "base/json.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char folder[] = LS_SOURCE_DIR "/tests/golden/tokenizers";
static json_t *cases;

static size_t from_hex(const char *hex, char *out)
{
    const size_t bytes = strlen(hex) / 2;
    for (size_t i = 0; i < bytes; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        out[i] = (char)value;
    }
    return bytes;
}

static void assert_ids(const char *file, const char *hex, const ls_token_buffer *ids, const json_t *wanted)
{
    bool equal = ids->count == json_array_size(wanted);
    for (size_t i = 0; equal && i < ids->count; i++) {
        equal = ids->ids[i] == json_integer_value(json_array_get(wanted, i));
    }
    if (!equal) {
        print_error("%s: text %s: %zu ids, wanted %zu:", file, hex, ids->count, json_array_size(wanted));
        for (size_t i = 0; i < ids->count; i++) {
            print_error(" %d", ids->ids[i]);
        }
        fail();
    }
}

static void assert_case(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch, const char *file,
                        const char *hex, const json_t *wanted, size_t index)
{
    char *text = malloc(strlen(hex) / 2 + 1), *decoded = NULL;
    const size_t bytes = from_hex(hex, text);
    ls_token_buffer ids = {0};
    assert_int_equal(ls_tokenizer_encode(tokenizer, scratch, text, bytes, true, &ids), LS_OK);
    assert_ids(file, hex, &ids, json_array_get(json_object_get(wanted, "special_ids"), index));
    ids.count = 0;
    assert_int_equal(ls_tokenizer_encode(tokenizer, scratch, text, bytes, false, &ids), LS_OK);
    assert_ids(file, hex, &ids, json_array_get(json_object_get(wanted, "ids"), index));

    /* The stream gives what the peers give: U+FFFD for what is no character. */
    const char *decoded_hex = json_string_value(json_array_get(json_object_get(wanted, "decoded"), index));
    decoded = malloc(strlen(decoded_hex) / 2 + 1);
    const size_t decoded_bytes = from_hex(decoded_hex, decoded);
    ls_text_buffer whole = {0}, streamed = {0};
    ls_tokenizer_stream stream = {0};
    assert_int_equal(ls_tokenizer_decode(tokenizer, ids.ids, ids.count, true, &whole), LS_OK);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ls_tokenizer_stream_next(tokenizer, &stream, ids.ids[i], true, &streamed), LS_OK);
        assert_true(streamed.bytes == 0 || ls_text_check_utf8(streamed.data, streamed.bytes, NULL));
    }
    assert_int_equal(ls_tokenizer_stream_end(&stream, &streamed), LS_OK);
    if (streamed.bytes != decoded_bytes ||
        (decoded_bytes && memcmp(streamed.data, decoded, decoded_bytes) != 0)) {
        print_error("%s: text %s decodes to \"%.*s\"\n", file, hex, (int)streamed.bytes, streamed.data);
        fail();
    }
    assert_int_equal(whole.bytes, streamed.bytes);
    ls_text_buffer_release(&whole);
    ls_text_buffer_release(&streamed);
    ls_token_buffer_release(&ids);
    free(decoded);
    free(text);
}

static void assert_all_cases(const ls_tokenizer *tokenizer, const char *file, const json_t *wanted)
{
    ls_tokenizer_scratch *scratch;
    assert_int_equal(ls_tokenizer_scratch_create(tokenizer, &scratch), LS_OK);
    const json_t *texts = json_object_get(cases, "texts");
    assert_true(json_array_size(texts) >= 60);
    /* Twice: the second time the word cache is warm. */
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < json_array_size(texts); i++) {
            assert_case(tokenizer, scratch, file, json_string_value(json_array_get(texts, i)), wanted, i);
        }
    }
    ls_tokenizer_scratch_destroy(scratch);
}

static void encode_gives_the_ids_of_the_peers(void **state)
{
    (void)state;
    const json_t *tokenizers = json_object_get(cases, "tokenizers");
    assert_int_equal(json_object_size(tokenizers), 9);
    const char *file;
    json_t *wanted;
    json_object_foreach((json_t *)tokenizers, file, wanted)
    {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, file);
        ls_tokenizer *tokenizer;
        assert_int_equal(ls_tokenizer_load(path, &tokenizer), LS_OK);
        assert_all_cases(tokenizer, file, wanted);
        ls_tokenizer_destroy(tokenizer);
    }
}

/* Pre-tokenizers with patterns of other models: tests/golden/make_splits.py. */
static void encode_splits_as_the_peer_does(void **state)
{
    (void)state;
    char path[4096];
    json_t *splits, *base;
    snprintf(path, sizeof path, "%s/splits.json", folder);
    assert_int_equal(ls_json_load(path, 64 << 20, &splits), LS_OK);
    snprintf(path, sizeof path, "%s/gpt2.json", folder);
    assert_int_equal(ls_json_load(path, 64 << 20, &base), LS_OK);
    const json_t *texts = json_object_get(cases, "texts"), *list = json_object_get(splits, "cases");
    assert_true(json_array_size(list) >= 15);
    for (size_t k = 0; k < json_array_size(list); k++) {
        json_t *split = json_array_get(list, k);
        const char *name = json_string_value(json_object_get(split, "name"));
        json_object_set(base, "pre_tokenizer", json_object_get(split, "pre_tokenizer"));
        char *text = json_dumps(base, 0);
        ls_tokenizer *tokenizer;
        if (ls_tokenizer_parse(text, strlen(text), name, &tokenizer) != LS_OK) {
            fail_msg("%s", ls_error_text());
        }
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const char *hex = json_string_value(json_array_get(texts, i));
            char *bytes = malloc(strlen(hex) / 2 + 1);
            const size_t count = from_hex(hex, bytes);
            ls_token_buffer ids = {0};
            assert_int_equal(ls_tokenizer_encode(tokenizer, NULL, bytes, count, false, &ids), LS_OK);
            assert_ids(name, hex, &ids, json_array_get(json_object_get(split, "ids"), i));
            ls_token_buffer_release(&ids);
            free(bytes);
        }
        ls_tokenizer_destroy(tokenizer);
        free(text);
    }
    json_decref(splits);
    json_decref(base);
}

static void expect_same_ids(const ls_tokenizer *one, const ls_tokenizer *other, const char *text)
{
    ls_token_buffer a = {0}, b = {0};
    assert_int_equal(ls_tokenizer_encode(one, NULL, text, strlen(text), true, &a), LS_OK);
    assert_int_equal(ls_tokenizer_encode(other, NULL, text, strlen(text), true, &b), LS_OK);
    assert_int_equal(a.count, b.count);
    assert_memory_equal(a.ids, b.ids, a.count * sizeof *a.ids);
    ls_token_buffer_release(&a);
    ls_token_buffer_release(&b);
}

/* A tokenizer.model saved as tokenizer.json is another file with the same ids, special tokens in
 * the text apart. */
static void save_of_a_sentencepiece_model_keeps_ids(void **state)
{
    (void)state;
    char path[4096], saved[] = "/tmp/ls-tokenizer-XXXXXX";
    snprintf(path, sizeof path, "%s/plain.model", folder);
    const int fd = mkstemp(saved);
    assert_true(fd >= 0);
    close(fd);
    ls_tokenizer *model, *json;
    assert_int_equal(ls_tokenizer_load(path, &model), LS_OK);
    assert_int_equal(ls_tokenizer_save(model, saved), LS_OK);
    assert_int_equal(ls_tokenizer_load(saved, &json), LS_OK);
    assert_int_equal(ls_tokenizer_vocab_size(model), ls_tokenizer_vocab_size(json));
    assert_int_equal(ls_tokenizer_bos(json), ls_tokenizer_bos(model));
    assert_int_equal(ls_tokenizer_eos(json), ls_tokenizer_eos(model));
    static const char *const texts[] = {"The model walks.", " two  spaces", "Привет, мир! 😀\n\n\tend",
                                        "naïve \xc3\xbc"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        expect_same_ids(model, json, texts[i]);
    }
    static const char *const bits[] = {
        "the", " ",  "  ",   "\n", "\t", "\xc3\xbc", "\xf0\x9f\x98\x80", "\xe2\x96\x81",
        "mod", "el", "\r\n", "12", ".,", "\xc2\xa0", "e\xcc\x81",        "\xd0\xbf\xd1\x80"};
    uint32_t random = 1;
    for (int i = 0; i < 1000; i++) {
        char text[256] = "";
        for (random = random * 1664525u + 1013904223u; (random >> 16) % 13 > 0;
             random = random * 1664525u + 1013904223u) {
            if (strlen(text) < 240) {
                strcat(text, bits[(random >> 20) % (sizeof bits / sizeof *bits)]);
            }
        }
        expect_same_ids(model, json, text);
    }
    unlink(saved);
    ls_tokenizer_destroy(model);
    ls_tokenizer_destroy(json);
}

static void save_of_a_normalising_model_is_refused(void **state)
{
    (void)state;
    char path[4096];
    snprintf(path, sizeof path, "%s/nfkc.model", folder);
    ls_tokenizer *model;
    assert_int_equal(ls_tokenizer_load(path, &model), LS_OK);
    assert_int_equal(ls_tokenizer_save(model, "/tmp/never-written.json"), LS_ERR_UNSUPPORTED);
    const char *name;
    const void *data;
    size_t bytes;
    ls_tokenizer_source(model, &name, &data, &bytes);
    assert_string_equal(name, "tokenizer.model");
    ls_tokenizer *again;
    assert_int_equal(ls_tokenizer_parse(data, bytes, "copy", &again), LS_OK);
    assert_string_equal(ls_tokenizer_hash(model), ls_tokenizer_hash(again));
    ls_tokenizer_destroy(model);
    ls_tokenizer_destroy(again);
}

int main(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/cases.json", folder);
    if (ls_json_load(path, 64 << 20, &cases) != LS_OK) {
        fprintf(stderr, "%s\n", ls_error_text());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encode_gives_the_ids_of_the_peers),
        cmocka_unit_test(encode_splits_as_the_peer_does),
        cmocka_unit_test(save_of_a_sentencepiece_model_keeps_ids),
        cmocka_unit_test(save_of_a_normalising_model_is_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_decref(cases);
    return failed;
}
