// SPDX-License-Identifier: Apache-2.0
/* What is shown of an answer: never a part of a stop or of a character; and the calls of tools in one. */
#include "test.h"

#include "base/random.h"
#include "execution/serve/answer_text.h"
#include "execution/serve/tool_calls.h"

#include <stdlib.h>
#include <string.h>

typedef struct fixture {
    ls_tokenizer *tokenizer;
    ls_answer_text answer;
} fixture;

static int open_bytes(void **state)
{
    static fixture f;
    f = (fixture){0};
    assert_int_equal(ls_tokenizer_create_bytes(&f.tokenizer), LS_OK);
    f.answer.tokenizer = f.tokenizer;
    *state = &f;
    return 0;
}

static int close_bytes(void **state)
{
    fixture *f = *state;
    ls_answer_text_release(&f->answer);
    ls_tokenizer_destroy(f->tokenizer);
    return 0;
}

static void add(ls_answer_text *a, const char *bytes)
{
    for (const unsigned char *at = (const unsigned char *)bytes; *at; at++) {
        assert_int_equal(ls_answer_text_add(a, *at), LS_OK);
    }
}

static void expect_shown(const ls_answer_text *a, const char *text)
{
    assert_int_equal(a->shown_bytes, strlen(text));
    assert_memory_equal(a->text.data ? a->text.data : "", text, a->shown_bytes);
}

static void answer_text_holds_back_what_could_be_a_stop(void **state)
{
    fixture *f = *state;
    static const char *const stops[] = {"abac", "\n\nUser:"};
    f->answer.stops = stops;
    f->answer.stop_count = 2;
    add(&f->answer, "one aba");
    expect_shown(&f->answer, "one ");
    add(&f->answer, "b"); /* "ab" may still begin one */
    expect_shown(&f->answer, "one ab");
    add(&f->answer, " \n");
    expect_shown(&f->answer, "one abab ");
    add(&f->answer, "\nUse!");
    expect_shown(&f->answer, "one abab \n\nUse!");
    add(&f->answer, "\n\nUser: and more abac");
    expect_shown(&f->answer, "one abab \n\nUse!");
    assert_true(f->answer.is_stopped);
    assert_int_equal(f->answer.text.bytes, f->answer.shown_bytes);
    assert_int_equal(ls_answer_text_end(&f->answer), LS_OK);
    expect_shown(&f->answer, "one abab \n\nUse!");
}

static void answer_text_shows_all_at_the_end(void **state)
{
    fixture *f = *state;
    static const char *const stops[] = {"stop"};
    f->answer.stops = stops;
    f->answer.stop_count = 1;
    add(&f->answer, "do not sto");
    expect_shown(&f->answer, "do not ");
    assert_int_equal(ls_answer_text_end(&f->answer), LS_OK);
    expect_shown(&f->answer, "do not sto");
    assert_false(f->answer.is_stopped);
}

static void answer_text_never_cuts_a_character(void **state)
{
    fixture *f = *state;
    add(&f->answer, "a\xe2\x82");
    expect_shown(&f->answer, "a");
    add(&f->answer, "\xac");
    expect_shown(&f->answer, "a\xe2\x82\xac");
    add(&f->answer, "\xf0\x9f");
    assert_int_equal(ls_answer_text_add(&f->answer, 300), LS_OK); /* an id without text */
    assert_int_equal(ls_answer_text_end(&f->answer), LS_OK);
    expect_shown(&f->answer, "a\xe2\x82\xac\xef\xbf\xbd");
}

/* Against the obvious: cut at the first stop in the whole text; whatever was shown stays shown. */
static void answer_text_is_the_text_before_the_first_stop(void **state)
{
    fixture *f = *state;
    static const char *const stops[] = {"aab", "ba", "abba", "bbb"};
    for (uint64_t round = 0; round < 300; round++) {
        char text[25] = {0};
        ls_answer_text a = {
            .tokenizer = f->tokenizer, .stops = stops + round % 2, .stop_count = 1 + round % 3};
        const ls_random_key key = ls_random_stream(5, LS_RANDOM_TEST);
        for (size_t i = 0; i + 1 < sizeof text; i++) {
            text[i] = "aabc"[ls_random_below(key, round, (uint32_t)i, 4)];
        }
        size_t shown = 0;
        for (size_t i = 0; text[i]; i++) {
            assert_int_equal(ls_answer_text_add(&a, text[i]), LS_OK);
            assert_true(a.shown_bytes >= shown);
            shown = a.shown_bytes;
        }
        assert_int_equal(ls_answer_text_end(&a), LS_OK);
        /* the stop that is complete first ends the text, and of those the one that begins first */
        size_t end = strlen(text);
        for (size_t last = 1; last <= strlen(text) && end == strlen(text); last++) {
            for (size_t i = 0; i < a.stop_count; i++) {
                const size_t bytes = strlen(a.stops[i]);
                if (last >= bytes && memcmp(text + last - bytes, a.stops[i], bytes) == 0 &&
                    last - bytes < end) {
                    end = last - bytes;
                }
            }
        }
        text[end] = '\0';
        expect_shown(&a, text);
        ls_answer_text_release(&a);
    }
}

static void token_name_is_unique(void **state)
{
    const fixture *f = *state;
    ls_text names = {0};
    ls_answer_token_name(f->tokenizer, 'a', &names);
    ls_answer_token_name(f->tokenizer, 0xe2, &names);
    ls_answer_token_name(f->tokenizer, 0xff, &names);
    ls_answer_token_name(f->tokenizer, 300, &names);
    assert_string_equal(ls_text_string(&names), "abytes:\\xe2bytes:\\xffid:300");
    ls_text_release(&names);
}

static void expect_calls(const char *text, const char *calls, size_t content)
{
    size_t bytes = 999;
    json_t *tools = json_pack("[{s:s, s:{s:s}}, {s:s}]", "type", "function", "function", "name", "f", "name",
                              "g"); /* in the form of the API, and flat */
    json_t *found = ls_tool_calls_find(tools, text, strlen(text), &bytes);
    json_decref(tools);
    if (!calls) {
        assert_null(found);
        assert_int_equal(bytes, 999);
        return;
    }
    assert_non_null(found);
    ls_text list = {0};
    size_t i = 0;
    json_t *call = NULL;
    json_array_foreach(found, i, call)
    {
        const json_t *function = json_object_get(call, "function");
        ls_text_printf(&list, "%s%s", json_string_value(json_object_get(function, "name")),
                       json_string_value(json_object_get(function, "arguments")));
    }
    assert_string_equal(ls_text_string(&list), calls);
    assert_int_equal(bytes, content);
    ls_text_release(&list);
    json_decref(found);
}

static void tool_calls_are_found_in_their_forms(void **state)
{
    (void)state;
    expect_calls("Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, 2]}}\n</tool_call>",
                 "f{\"a\":[1,2]}", 11);
    expect_calls("<tool_call>{\"name\": \"f\"}</tool_call> <tool_call>{\"name\": \"g\", \"arguments\": {}}",
                 "f{}g{}", 0);
    expect_calls(" {\"name\": \"f\", \"parameters\": {\"q\": \"x\"}}", "f{\"q\":\"x\"}", 0);
    expect_calls("[{\"name\": \"f\", \"arguments\": {\"x\": 0.1}}, {\"name\": \"g\"}]",
                 "f{\"x\":0.10000000000000001}g{}", 0);
    static const char *const none[] = {"",
                                       "f(1)",
                                       "{}",
                                       "[]",
                                       "5",
                                       "{\"name\": 5}",
                                       "{\"name\": \"Ada\", \"age\": 36}",
                                       "[{\"name\": \"f\"}, {\"name\": \"Ada\"}]",
                                       "<tool_call>{\"name\": \"h\"}</tool_call>",
                                       "{\"name\": \"f\", \"arguments\": 5}",
                                       "{\"name\": \"f\"} and more",
                                       "<tool_call>f()</tool_call>",
                                       "<tool_call>{\"name\": \"f\"}</tool_call><tool_call>{</tool_call>"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        expect_calls(none[i], NULL, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(answer_text_holds_back_what_could_be_a_stop, open_bytes, close_bytes),
        cmocka_unit_test_setup_teardown(answer_text_shows_all_at_the_end, open_bytes, close_bytes),
        cmocka_unit_test_setup_teardown(answer_text_never_cuts_a_character, open_bytes, close_bytes),
        cmocka_unit_test_setup_teardown(answer_text_is_the_text_before_the_first_stop, open_bytes,
                                        close_bytes),
        cmocka_unit_test_setup_teardown(token_name_is_unique, open_bytes, close_bytes),
        cmocka_unit_test(tool_calls_are_found_in_their_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
