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
    } cases[] = {{0.0, "0"},        {1.0, "1"},        {0.125, "0.125"},   {612.0, "612"},
                 {999.4, "999"},    {999.6, "1k"},     {68857.0, "68.9k"}, {999.4e3, "999k"},
                 {999.6e3, "1M"},   {8.03e9, "8.03B"}, {1.4e12, "1.4T"},   {15.6e15, "1.56e+04T"},
                 {-1500.0, "-1.5k"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(ls_quantity_of(cases[i].value).text, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(quantity_has_three_digits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
