// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "tokenizer/vocabulary.h"

#include <stdio.h>
#include <string.h>

#define GOLDEN LS_SOURCE_DIR "/tests/golden/tokenizers/"

static ls_vocabulary read(ls_arena *arena, const char *name, ls_tokenizer **tokenizer_out)
{
    ls_vocabulary v;
    assert_int_equal(ls_tokenizer_load(name, tokenizer_out), LS_OK);
    assert_int_equal(ls_tokenizer_vocabulary(*tokenizer_out, arena, &v), LS_OK);
    assert_int_equal(v.count, ls_tokenizer_vocab_size(*tokenizer_out));
    return v;
}

static void vocabulary_of_byte_level_names_its_split(void **state)
{
    (void)state;
    static const char *const known[][2] = {
        {"gpt2.json", "gpt-2"}, {"llama3.json", "llama-bpe"}, {"qwen2.json", "qwen2"}};
    for (size_t i = 0; i < 3; i++) {
        ls_arena arena = {0};
        ls_tokenizer *tokenizer = NULL;
        char path[512];
        (void)snprintf(path, sizeof path, "%s%s", GOLDEN, known[i][0]);
        const ls_vocabulary v = read(&arena, path, &tokenizer);
        assert_true(v.byte_level);
        assert_string_equal(v.split, known[i][1]);
        assert_null(v.scores);
        /* Each merge is two tokens whose union is a token. */
        for (size_t k = 0; k < v.merge_count; k++) {
            char left[512], joined[512];
            const char *space = strchr(v.merges[k], ' ');
            assert_non_null(space);
            (void)snprintf(left, sizeof left, "%.*s", (int)(space - v.merges[k]), v.merges[k]);
            (void)snprintf(joined, sizeof joined, "%s%s", left, space + 1);
            assert_true(ls_tokenizer_id(tokenizer, left) >= 0);
            assert_true(ls_tokenizer_id(tokenizer, joined) >= 0);
        }
        const int32_t end = ls_tokenizer_eos(tokenizer);
        assert_true(end >= 0);
        assert_int_equal(v.types[end], LS_TOKEN_CONTROL);
        assert_int_equal(v.types[ls_tokenizer_id(tokenizer, "a")], LS_TOKEN_NORMAL);
        ls_tokenizer_destroy(tokenizer);
        ls_arena_release(&arena);
    }
}

static void vocabulary_of_bytes_has_no_merges(void **state)
{
    (void)state;
    ls_arena arena = {0};
    ls_tokenizer *tokenizer = NULL;
    ls_vocabulary v;
    assert_int_equal(ls_tokenizer_create_bytes(&tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer, &arena, &v), LS_OK);
    assert_int_equal(v.count, 256);
    assert_int_equal(v.merge_count, 0);
    assert_string_equal(v.texts[' '], "\xc4\xa0");
    assert_string_equal(v.texts['a'], "a");
    assert_false(v.adds_bos || v.adds_eos);
    ls_tokenizer_destroy(tokenizer);
    ls_arena_release(&arena);
}

/* Joining by scores makes the same steps as the merges: of two merges, the earlier one has the
 * higher score. */
static void vocabulary_scores_follow_the_merges(void **state)
{
    (void)state;
    static const char *const names[] = {GOLDEN "llama2.json", GOLDEN "plain.model"};
    for (size_t i = 0; i < 2; i++) {
        ls_arena arena = {0};
        ls_tokenizer *tokenizer = NULL;
        const ls_vocabulary v = read(&arena, names[i], &tokenizer);
        assert_false(v.byte_level);
        assert_true(v.space_prefix && v.adds_bos);
        assert_int_equal(v.types[v.unknown], LS_TOKEN_UNKNOWN);
        const int32_t byte = ls_tokenizer_id(tokenizer, "<0x0A>");
        assert_int_equal(v.types[byte], LS_TOKEN_BYTE);
        /* "▁the" is joined of "▁t" and "he", both of which come before it. */
        const int32_t whole = ls_tokenizer_id(tokenizer, "\xe2\x96\x81the");
        const int32_t start = ls_tokenizer_id(tokenizer, "\xe2\x96\x81t");
        assert_true(whole >= 0 && start >= 0);
        assert_true(v.scores[start] > v.scores[whole]);
        ls_tokenizer_destroy(tokenizer);
        ls_arena_release(&arena);
    }
}

static void vocabulary_tells_where_ids_differ(void **state)
{
    (void)state;
    static const char *const names[] = {GOLDEN "mistral.json", GOLDEN "qwen2.json"};
    static const char *const words[] = {"begins with a space", "NFC"};
    for (size_t i = 0; i < 2; i++) {
        ls_arena arena = {0};
        ls_tokenizer *tokenizer = NULL;
        const ls_vocabulary v = read(&arena, names[i], &tokenizer);
        assert_non_null(v.difference);
        assert_non_null(strstr(v.difference, words[i]));
        ls_tokenizer_destroy(tokenizer);
        ls_arena_release(&arena);
    }
}

static void expect_refused(const char *name, const char *words)
{
    ls_arena arena = {0};
    ls_tokenizer *tokenizer = NULL;
    ls_vocabulary v = {.count = 77};
    assert_int_equal(ls_tokenizer_load(name, &tokenizer), LS_OK);
    assert_int_equal(ls_tokenizer_vocabulary(tokenizer, &arena, &v), LS_ERR_UNSUPPORTED);
    assert_int_equal(v.count, 77);
    if (!strstr(ls_error_text(), words)) {
        fail_msg("\"%s\" does not say \"%s\"", ls_error_text(), words);
    }
    ls_tokenizer_destroy(tokenizer);
    ls_arena_release(&arena);
}

static void vocabulary_refuses_what_lists_can_not_express(void **state)
{
    (void)state;
    expect_refused(GOLDEN "smollm.json", "pre_tokenizer"); /* a space before the text */
    expect_refused(GOLDEN "o200k.json", "normalizer");     /* NFD */
    expect_refused(GOLDEN "nfkc.model", "normalises");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vocabulary_of_byte_level_names_its_split),
        cmocka_unit_test(vocabulary_of_bytes_has_no_merges),
        cmocka_unit_test(vocabulary_scores_follow_the_merges),
        cmocka_unit_test(vocabulary_tells_where_ids_differ),
        cmocka_unit_test(vocabulary_refuses_what_lists_can_not_express),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
