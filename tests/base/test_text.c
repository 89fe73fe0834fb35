// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/text.h"

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
                                       cmocka_unit_test(plain_numbers_have_no_exponent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
