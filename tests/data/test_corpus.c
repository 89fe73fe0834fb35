// SPDX-License-Identifier: Apache-2.0
#include "scratch.h"

#include "data/corpus.h"
#include "data/jsonl.h"
#include "data/text.h"

#include <stdbool.h>

static void corpus_expand_sorts_drops_repeats_and_tells_kinds(void **state)
{
    scratch *s = *state;
    scratch_text(s, "b.txt", "b");
    scratch_text(s, "a.txt", "a");
    scratch_text(s, "c.jsonl", "{}");
    scratch_text(s, "m.bin", "xx");
    scratch_text(s, "m.idx", "xx");
    const int32_t magic[2] = {20240520, 1};
    scratch_write(s, "noname", magic, sizeof magic);
    const char *all = ls_path_join(&s->arena, s->folder, "*");
    const char *first = ls_path_join(&s->arena, s->folder, "b.txt");
    const char *patterns[] = {first, all};
    ls_corpus_file *files;
    size_t count = 0;
    assert_int_equal(ls_corpus_expand(&s->arena, patterns, 2, &files, &count), LS_OK);
    const char *names[] = {"b.txt", "a.txt", "c.jsonl", "m.bin", "noname"};
    const ls_corpus_kind kinds[] = {LS_CORPUS_TEXT, LS_CORPUS_TEXT, LS_CORPUS_JSONL, LS_CORPUS_TOKENS,
                                    LS_CORPUS_TOKENS};
    assert_int_equal(count, 5);
    for (size_t i = 0; i < count; i++) {
        assert_string_equal(ls_path_basename(files[i].path), names[i]);
        assert_int_equal(files[i].kind, kinds[i]);
    }
}

static void corpus_expand_refuses_what_is_not_there(void **state)
{
    scratch *s = *state;
    ls_corpus_file *files = NULL;
    size_t count = 77;
    const char *missing = ls_path_join(&s->arena, s->folder, "*.txt");
    assert_int_equal(ls_corpus_expand(&s->arena, &missing, 1, &files, &count), LS_ERR_NOT_FOUND);
    assert_error_has("no file matches");
    const char *folder = s->folder;
    assert_int_equal(ls_corpus_expand(&s->arena, &folder, 1, &files, &count), LS_ERR_INVALID);
    assert_error_has("is a folder");
    const char *empty = scratch_text(s, "empty.txt", "");
    assert_int_equal(ls_corpus_expand(&s->arena, &empty, 1, &files, &count), LS_ERR_DATA);
    assert_error_has("empty.txt is empty");
    assert_int_equal(ls_corpus_expand(&s->arena, &empty, 0, &files, &count), LS_ERR_INVALID);
    assert_int_equal(count, 77);
}

static void utf8_valid_bytes_knows_the_edges(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t valid;
    } cases[] = {
        {"", 0},
        {"plain ascii, longer than eight bytes", 36},
        {"\xc2\x80", 2},                 /* U+0080 */
        {"\xdf\xbf", 2},                 /* U+07FF */
        {"\xe0\xa0\x80", 3},             /* U+0800 */
        {"\xed\x9f\xbf", 3},             /* U+D7FF */
        {"\xee\x80\x80", 3},             /* U+E000 */
        {"\xf0\x90\x80\x80", 4},         /* U+10000 */
        {"\xf4\x8f\xbf\xbf", 4},         /* U+10FFFF */
        {"abcdefghij\xc3\xa4 \xff", 13}, /* stray byte after good text */
        {"\x80", 0},                     /* continuation alone */
        {"\xc0\xaf", 0},                 /* overlong */
        {"\xc1\xbf", 0},
        {"\xe0\x9f\xbf", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xed\xa0\x80", 0},     /* surrogate */
        {"\xf4\x90\x80\x80", 0}, /* above U+10FFFF */
        {"\xf5\x80\x80\x80", 0},
        {"a\xe2\x82", 1}, /* cut off */
        {"a\xe2\x82z", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(ls_text_utf8_valid_bytes(cases[i].text, strlen(cases[i].text)), cases[i].valid);
    }
}

static void text_check_names_the_offset_and_a_remedy(void **state)
{
    (void)state;
    assert_int_equal(ls_text_check("ab\0cd", 5, "x.txt", false), LS_ERR_DATA);
    assert_error_has("x.txt is not text: NUL byte at offset 2");
    assert_int_equal(ls_text_check("\xff\xfe"
                                   "a\0b\0",
                                   6, "x.txt", false),
                     LS_ERR_DATA);
    assert_error_has("iconv -f UTF-16");
    assert_int_equal(ls_text_check("\x1f\x8b\x08\0", 4, "x.txt.gz", false), LS_ERR_DATA);
    assert_error_has("gunzip");
    assert_int_equal(ls_text_check("one\ntwo\xe4\n", 9, "x.txt", true), LS_ERR_DATA);
    assert_error_has("x.txt:2: broken UTF-8, byte 0xe4 at offset 7");
    assert_int_equal(ls_text_check("one\ntwo\xe4\n", 9, "x.txt", false), LS_OK);
    assert_int_equal(ls_text_check("", 0, "x.txt", true), LS_OK);
}

static void expect_line(const char *line, const char *text, size_t text_bytes)
{
    json_t *root = NULL;
    const char *got = NULL;
    size_t bytes = 0;
    assert_int_equal(ls_jsonl_read(line, strlen(line), "f.jsonl", 1, &root, &got, &bytes), LS_OK);
    assert_int_equal(bytes, text_bytes);
    assert_memory_equal(got, text, text_bytes);
    json_decref(root);
}

static void jsonl_read_finds_the_text(void **state)
{
    (void)state;
    expect_line("{\"text\": \"hello\"}", "hello", 5);
    expect_line("{\"id\": 123456789012345678901234567890, \"text\": \"a\\n\\u00e4\\ud83d\\ude00\"}\r",
                "a\n\xc3\xa4\xf0\x9f\x98\x80", 8);
    expect_line("{\"text\": \"\"}", "", 0);
    assert_true(ls_jsonl_is_blank(" \t\r", 3));
    assert_true(ls_jsonl_is_blank("", 0));
    assert_false(ls_jsonl_is_blank(" x", 2));
}

static void expect_refused_line(const char *line, size_t bytes, const char *part)
{
    json_t *root = NULL;
    const char *text = NULL;
    size_t text_bytes = 77;
    assert_int_equal(ls_jsonl_read(line, bytes, "f.jsonl", 12, &root, &text, &text_bytes), LS_ERR_DATA);
    assert_error_has("f.jsonl:12: ");
    assert_error_has(part);
    assert_null(root);
    assert_null(text);
    assert_int_equal(text_bytes, 77);
}

static void jsonl_read_refuses_bad_lines(void **state)
{
    (void)state;
    static const struct {
        const char *line, *part;
    } cases[] = {
        {"{\"text\": \"cut", "not valid JSON"},
        {"{\"text\": \"a\"} {\"text\": \"b\"}", "not valid JSON"},
        {"{\"text\": \"a\", \"text\": \"b\"}", "duplicate"},
        {"{\"text\": \"\\ud800\"}", "not valid JSON"},
        {"[1, 2]", "must be one JSON object"},
        {"\"text\"", "must be one JSON object"},
        {"{\"content\": \"a\"}", "no key `text`"},
        {"{\"text\": 7}", "`text` must be a string"},
        {"{\"text\": null}", "`text` must be a string"},
        {"{\"messages\": []}", "`messages` but no `text`"},
        {"{\"prompt\": \"a\", \"completion\": \"b\"}", "`prompt` but no `text`"},
        {"{\"text\": \"a\xff\"}", "broken UTF-8, byte 0xff in column 12"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused_line(cases[i].line, strlen(cases[i].line), cases[i].part);
    }
    expect_refused_line("{\"text\": \"a\0\"}", 14, "NUL byte");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        CASE(corpus_expand_sorts_drops_repeats_and_tells_kinds),
        CASE(corpus_expand_refuses_what_is_not_there),
        CASE(utf8_valid_bytes_knows_the_edges),
        CASE(text_check_names_the_offset_and_a_remedy),
        CASE(jsonl_read_finds_the_text),
        CASE(jsonl_read_refuses_bad_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
