// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/json.h"

#include <string.h>

/* Whole numbers beyond 64 bits become reals, wherever they are, and nothing else changes. */
static void json_parse_reads_huge_whole_numbers_as_reals(void **state)
{
    (void)state;
    static const char text[] =
        "{\"a\": 1000000000000000019884624838656, \"b\": [-9223372036854775809, 9223372036854775807,"
        " 12345678901234567890], \"c\\\" 99999999999999999999\": \"99999999999999999999\","
        "\"d\":7, \"e\":1.5e3}";
    json_t *root;
    assert_int_equal(ls_json_parse(text, sizeof text - 1, "here", &root), LS_OK);
    assert_true(json_number_value(json_object_get(root, "a")) == 1e30);
    const json_t *list = json_object_get(root, "b");
    assert_true(json_is_real(json_array_get(list, 0)) && json_real_value(json_array_get(list, 0)) < -9.2e18);
    assert_int_equal(json_integer_value(json_array_get(list, 1)), INT64_MAX);
    assert_true(json_is_real(json_array_get(list, 2)));
    assert_string_equal(json_string_value(json_object_get(root, "c\" 99999999999999999999")),
                        "99999999999999999999");
    assert_int_equal(json_integer_value(json_object_get(root, "d")), 7);
    uint64_t value = 5;
    assert_int_equal(ls_json_get_u64(root, "here", "a", 1, 10, 2, &value), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "here: a is 1e+30, allowed is 1 to 10");
    assert_int_equal(ls_json_get_u64(root, "here", "e", 1, 10, 2, &value), LS_ERR_DATA);
    assert_string_equal(ls_error_text(), "here: e must be a whole number");
    assert_int_equal(value, 5);
    json_decref(root);
}

static void json_parse_names_the_line(void **state)
{
    (void)state;
    static const char *const wrong[] = {"{\n\"a\": 99999999999999999999,\n\"b\"}", "{\n\n\"a\": 1e999}",
                                        "{\"a\":\n99999999999999999999,\n\"a\": 1}"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        json_t *root;
        assert_int_equal(ls_json_parse(wrong[i], strlen(wrong[i]), "here", &root), LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), "here:3: not valid JSON: "));
    }
    json_t *root;
    assert_int_equal(ls_json_parse("99999999999999999999", 20, "here", &root), LS_OK);
    assert_true(json_real_value(root) == 1e20);
    json_decref(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_parse_reads_huge_whole_numbers_as_reals),
        cmocka_unit_test(json_parse_names_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
