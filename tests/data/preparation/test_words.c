// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/words.h"

#include "test.h"

#include <stdio.h>
#include <string.h>

/* The words of a text, joined by "|". */
static void check_words(const char *text, const char *expected)
{
    ls_words words = {0};
    char joined[1024] = "";
    assert_int_equal(ls_words_cut(&words, text, strlen(text)), LS_OK);
    for (size_t i = 0; i < words.count; i++) {
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%.*s", i > 0 ? "|" : "",
                 (int)words.items[i].bytes, text + words.items[i].at);
    }
    ls_words_release(&words);
    assert_string_equal(joined, expected);
}

/* Expected cuts are those of spaCy 3.8, spacy.blank("en"). */
static void words_cut_as_spacy(void **state)
{
    (void)state;
    check_words("", "");
    check_words(" \n\t ", "");
    check_words("The quick, brown fox.", "The|quick|,|brown|fox|.");
    check_words("I don't think we're Dr. Smith's dogs", "I|do|n't|think|we|'re|Dr.|Smith|'s|dogs");
    check_words("cannot gonna its Its theyre", "can|not|gon|na|its|Its|they|re");
    check_words("(well-known) end... \"x\"", "(|well|-|known|)|end|...|\"|x|\"");
    check_words("see http://foo.com/bar, a@b.org and foo.Bar",
                "see|http://foo.com/bar|,|a@b.org|and|foo|.|Bar");
    check_words("10km 3.5% $100 5pm U.S.A. e.g.", "10|km|3.5|%|$|100|5|pm|U.S.A.|e.g.");
    check_words("x=y a/b 2+3 C# *x*", "x|=|y|a|/|b|2|+|3|C|#|*|x|*");
    check_words("d\u00e9j\u00e0 vu \u2014 \u00abx\u00bb don\u2019t",
                "d\u00e9j\u00e0|vu|\u2014|\u00ab|x|\u00bb|do|n\u2019t");
}

static void words_know_their_characters(void **state)
{
    (void)state;
    ls_words words = {0};
    const char *text = "na\u00efve 42 !";
    assert_int_equal(ls_words_cut(&words, text, strlen(text)), LS_OK);
    assert_int_equal(words.count, 3);
    assert_int_equal(words.items[0].chars, 5);
    assert_int_equal(words.items[0].bytes, 6);
    assert_true(words.items[0].has_letter && words.items[0].has_content);
    assert_true(!words.items[1].has_letter && words.items[1].has_content);
    assert_true(!words.items[2].has_letter && !words.items[2].has_content);
    ls_words_release(&words);
}

static void words_count_sentences(void **state)
{
    (void)state;
    ls_words words = {0};
    uint64_t count = 9;
    const char *text = "One. Two! Is it \"three\"? Dr. Who said four.";
    assert_int_equal(ls_words_sentences(&words, text, strlen(text), &count), LS_OK);
    assert_int_equal(count, 4);
    assert_int_equal(ls_words_sentences(&words, "", 0, &count), LS_OK);
    assert_int_equal(count, 0);
    ls_words_release(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_cut_as_spacy),
        cmocka_unit_test(words_know_their_characters),
        cmocka_unit_test(words_count_sentences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
