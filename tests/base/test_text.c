// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

/* Three digits; what rounds up to a thousand is one of the next unit. */
static void quantity_has_three_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.0, "0"},       {1.0, "1"},          {0.125, "0.125"},  {612.0, "612"},  {999.4, "999"},
                 {999.6, "1k"},    {68857.0, "68.9k"},  {999.4e3, "999k"}, {999.6e3, "1M"}, {8.03e9, "8.03B"},
                 {1.4e12, "1.4T"}, {15.6e15, "15600T"}, {-1500.0, "-1.5k"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(ls_quantity_of(cases[i].value).text, cases[i].text);
    }
}

static void append_printable_takes_the_teeth_out(void **state)
{
    (void)state;
    static const struct {
        const char *in, *keep, *out;
    } cases[] = {{"a job", "", "a job"},
                 {"Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8d", "",
                  "Gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x8c\x8d"},
                 {"\033[2Jgone\r", "", "\\x1b[2Jgone\\x0d"},
                 {"two\nlines\t", "", "two\\x0alines\\x09"},
                 {"two\nlines\t", "\n\t", "two\nlines\t"},
                 {"\xc2\x9b"
                  "31m",
                  "", "\\xc2\\x9b31m"}, /* the one-character form of ESC [ */
                 {"a\xe2\x80\xae"
                  "b",
                  /* right to left from here */
                  "", "a\\xe2\\x80\\xaeb"},
                 /* not UTF-8, and half of it */
                 {"\xff\xc3", "", "\\xff\\xc3"},
                 {"\xc0\xaf\xe0\x80\xaf\xed\xa0\x80\xf4\x90\x80\x80", "",
                  /* too long, a surrogate, too large */
                  "\\xc0\\xaf\\xe0\\x80\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_text text = {0};
        ls_text_append_printable(&text, cases[i].in, strlen(cases[i].in), cases[i].keep);
        assert_string_equal(ls_text_string(&text), cases[i].out);
        ls_text_release(&text);
    }
    ls_text zero = {0};
    ls_text_append_printable(&zero, "a\0b", 3, "\n");
    assert_string_equal(ls_text_string(&zero), "a\\x00b");
    ls_text_release(&zero);
}

static void text_time_of_is_one_unit_with_three_digits(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0.0, "0 us"},
                 {4.5e-4, "450 us"},
                 {0.01234, "12.3 ms"},
                 {0.9994, "999 ms"},
                 {45.0, "45 s"},
                 {599.0, "599 s"},
                 {2190.0, "36.5 min"},
                 {17712.0, "4.92 h"},
                 {23.0 * 86400, "23 days"},
                 {3652.5 * 86400, "10 years"},
                 {1e15, "31688088 years"},
                 {INFINITY, "never"},
                 {NAN, "\u2013"},
                 {-1.0, "\u2013"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(ls_time_of(cases[i].seconds).text, cases[i].text);
    }
}

static void durations_have_two_units(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0.0, "0 s"},
                 {0.25, "0.25 s"},
                 {0.0072, "7.2 ms"},
                 {9.4, "9.4 s"},
                 {12.3, "12 s"},
                 {59.7, "1 min 00 s"},
                 {200.0, "3 min 20 s"},
                 {7512.0, "2 h 05 min"},
                 {273600.0, "3 d 4 h"},
                 {-1.0, "?"},
                 {NAN, "?"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(ls_duration_of(cases[i].seconds).text, cases[i].text);
    }
}

static void plain_numbers_have_no_exponent(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0.0, "0"},          {0.04671, "0.0467"}, {12.34, "12.3"},
                 {999.4, "999"},      {999.6, "1000"},     {1294.4, "1294"},
                 {2.5e7, "25000000"}, {1e-5, "0.000010"},  {-1294.4, "-1294"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(ls_plain_of(cases[i].value).text, cases[i].text);
    }
}

static void quantity_parse_reads_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"8k", 8e3}, {"200B", 200e9},  {"1.4T", 1.4e12}, {"2 M", 2e6},
                {"3g", 3e9}, {"300e9", 300e9}, {"-5", -5.0}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double value = 0.0;
        assert_true(ls_quantity_parse(good[i].text, &value));
        assert_float_equal(value, good[i].value, 1e-6);
    }
    static const char *const bad[] = {"", "k", "1.4x", "0x1f", "8kk", "8 k ", "nan", "1e999", "--1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double value = 77.0;
        assert_false(ls_quantity_parse(bad[i], &value));
        assert_float_equal(value, 77.0, 0.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(quantity_has_three_digits),
                                       cmocka_unit_test(quantity_parse_reads_units),
                                       cmocka_unit_test(plain_numbers_have_no_exponent),
                                       cmocka_unit_test(text_time_of_is_one_unit_with_three_digits),
                                       cmocka_unit_test(durations_have_two_units),
                                       cmocka_unit_test(append_printable_takes_the_teeth_out)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
