// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/csv.h"

#include <string.h>

static ls_arena arena;

static int release_arena(void **state)
{
    (void)state;
    ls_arena_release(&arena);
    return 0;
}

static ls_status parse(const char *text, ls_csv *csv)
{
    return ls_csv_parse(&arena, text, strlen(text), "t.csv", csv);
}

static void csv_parse_reads_quotes_comments_and_line_ends(void **state)
{
    (void)state;
    ls_csv csv;
    assert_int_equal(parse("\xef\xbb\xbf# a table\r\nname, size ,note\r\n\r\n"
                           "a,1,\"one, \"\"two\"\"\nthree\"\r\n  b ,,\n# no row\nc,2.5,\"\"",
                           &csv),
                     LS_OK);
    assert_int_equal(csv.column_count, 3);
    assert_int_equal(csv.row_count, 3);
    assert_string_equal(csv.columns[1], "size");
    assert_string_equal(ls_csv_text(&csv, &csv.rows[0], "note"), "one, \"two\"\nthree");
    assert_string_equal(ls_csv_text(&csv, &csv.rows[1], "name"), "b");
    assert_string_equal(ls_csv_text(&csv, &csv.rows[2], "note"), "");
    assert_string_equal(ls_csv_text(&csv, &csv.rows[2], "absent"), "");
    assert_int_equal(csv.rows[0].line, 4);
    assert_int_equal(csv.rows[1].line, 6);
    assert_int_equal(csv.rows[2].line, 8);
    assert_int_equal(ls_csv_column(&csv, "absent"), -1);
}

/* A row that can't be read costs one line; the ones behind it are read. */
static void csv_parse_rows_goes_on_behind_a_flaw(void **state)
{
    (void)state;
    static const char text[] = "a,b,\n1,2,3\n\"4,5,6\n7,8\n9,\"x\ny\",z\n10,11,12,13\n14,15,16";
    ls_csv csv;
    assert_int_equal(parse(text, &csv), LS_ERR_DATA);
    assert_int_equal(ls_csv_parse_rows(&arena, text, strlen(text), "t.csv", &csv), LS_OK);
    static const bool flawed[] = {false, true, true, false, true, false};
    static const uint32_t lines[] = {2, 3, 4, 5, 7, 8};
    assert_int_equal(csv.row_count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(csv.rows[i].line, lines[i]);
        assert_int_equal(csv.rows[i].flaw != NULL, flawed[i]);
    }
    assert_string_equal(csv.rows[3].cells[1], "x\ny");
    assert_string_equal(csv.rows[5].cells[2], "16");
    assert_non_null(strstr(csv.rows[4].flaw, "t.csv:7: the row has more than 3 cells"));
}

static void csv_numbers_have_ranges_and_blanks(void **state)
{
    (void)state;
    ls_csv csv;
    assert_int_equal(parse("a,b\n1.5,\n7,x\n", &csv), LS_OK);
    double real = 0.0;
    int64_t whole = 0;
    assert_int_equal(ls_csv_f64(&csv, &csv.rows[0], "a", 0.0, 2.0, 9.0, &real), LS_OK);
    assert_true(real == 1.5);
    assert_int_equal(ls_csv_f64(&csv, &csv.rows[0], "b", 0.0, 2.0, 9.0, &real), LS_OK);
    assert_true(real == 9.0);
    assert_int_equal(ls_csv_i64(&csv, &csv.rows[1], "a", 0, 7, -1, &whole), LS_OK);
    assert_int_equal(whole, 7);
    assert_int_equal(ls_csv_i64(&csv, &csv.rows[0], "a", 0, 7, -1, &whole), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "t.csv:2: a is 1.5, a whole number from 0 to 7"));
    assert_int_equal(ls_csv_f64(&csv, &csv.rows[1], "a", 0.0, 6.0, 0.0, &real), LS_ERR_DATA);
    assert_int_equal(ls_csv_f64(&csv, &csv.rows[1], "b", 0.0, 6.0, 0.0, &real), LS_ERR_DATA);
    assert_non_null(strstr(ls_error_text(), "t.csv:3: b is \"x\""));
    assert_int_equal(whole, 7);
    assert_true(real == 9.0);
}

static void csv_parse_refuses_what_is_no_table(void **state)
{
    (void)state;
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "is empty"},
        {"# nothing\n\n", "is empty"},
        {"a,b\n1\n", "t.csv:2: the row has 1 cells, but the header has 2"},
        {"a,b\n1,2,3\n", "t.csv:2: the row has more than 2 cells"},
        {"a,\"b\n1,2", "t.csv:1: a quote is opened"},
        {"a,b\n1,\"2\" 3\n", "t.csv:2: '3' after a closing quote"},
        {"a,a\n", "column a appears twice"},
        {"a,,b\n", "column 2 has no name"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ls_csv csv = {.name = "untouched"};
        assert_int_equal(parse(cases[i].text, &csv), LS_ERR_DATA);
        assert_non_null(strstr(ls_error_text(), cases[i].error));
        assert_string_equal(csv.name, "untouched");
    }
    ls_csv csv;
    assert_int_equal(ls_csv_parse(&arena, "a\0b", 3, "t.csv", &csv), LS_ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_parse_reads_quotes_comments_and_line_ends),
        cmocka_unit_test(csv_parse_rows_goes_on_behind_a_flaw),
        cmocka_unit_test(csv_numbers_have_ranges_and_blanks),
        cmocka_unit_test(csv_parse_refuses_what_is_no_table),
    };
    return cmocka_run_group_tests(tests, NULL, release_arena);
}
