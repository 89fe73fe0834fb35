// SPDX-License-Identifier: Apache-2.0
/*
 * Tables of others have blanks. The published runs of which everything is known, with cells taken
 * out at random: every one must still be predicted, not far off, and what was chosen must be said.
 */
#include "test.h"

#include "base/csv.h"
#include "base/text.h"
#include "planning/accuracy/accuracy.h"
#include "planning/hardware/data_file.h"
#include "planning/shipped.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ls_csv csv;

static int set_up(void **state)
{
    const ls_embedded_file *file = ls_data_file_find("published_runs.csv");
    return load_shipped(state) == 0 &&
                   ls_csv_parse(&arena, file->text, file->bytes, file->name, &csv) == LS_OK
               ? 0
               : -1;
}

static uint32_t draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

static void append_cell(ls_text *text, const char *cell, bool last)
{
    ls_text_append(text, "\"");
    for (const char *at = cell; *at; at++) {
        ls_text_printf(text, *at == '"' ? "\"\"" : "%c", *at);
    }
    ls_text_append(text, last ? "\"\n" : "\",");
}

/* The fully specified rows; of each, cells of `columns` are left out with a chance of `percent`. A
 * program becomes one nobody knows. */
static void write_table(const char *const *columns, uint32_t percent, uint32_t seed, ls_text *text)
{
    for (uint32_t c = 0; c < csv.column_count; c++) {
        append_cell(text, csv.columns[c], c + 1 == csv.column_count);
    }
    for (size_t i = 0; i < csv.row_count; i++) {
        if (strcmp(ls_csv_text(&csv, &csv.rows[i], "fully_specified"), "1") != 0) {
            continue;
        }
        for (uint32_t c = 0; c < csv.column_count; c++) {
            const char *cell = csv.rows[i].cells[c];
            for (const char *const *name = columns; *name; name++) {
                if (strcmp(csv.columns[c], *name) == 0 && draw(&seed) % 100 < percent) {
                    cell = strcmp(*name, "stack") == 0 ? "unheard-of" : "";
                }
            }
            append_cell(text, cell, c + 1 == csv.column_count);
        }
    }
}

static int compare_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* None left out; errors without sign: half at most `median`, nine in ten at most `most`, none above
 * `worst`. */
static void check_table(const char *const *columns, uint32_t percent, uint32_t seed, double median,
                        double most, double worst)
{
    ls_text text = {0};
    ls_published published;
    ls_accuracy accuracy;
    write_table(columns, percent, seed, &text);
    assert_int_equal(ls_published_parse(&arena, &catalogue, ls_text_string(&text),
                                        strlen(ls_text_string(&text)), "blanks.csv", &published),
                     LS_OK);
    ls_text_release(&text);
    ls_accuracy_compute(&arena, &published, &accuracy);
    assert_true(accuracy.row_count >= 200);
    for (size_t i = 0; i < published.count; i++) {
        if (published.runs[i].left_out) {
            fail_msg("%s: %s", published.runs[i].model, published.runs[i].left_out);
        }
    }
    double *errors = ls_arena_new(&arena, double, accuracy.row_count);
    for (size_t i = 0; i < accuracy.row_count; i++) {
        const ls_accuracy_row *row = &accuracy.rows[i];
        errors[i] = fabs(row->error);
        if (!(errors[i] <= worst)) {
            fail_msg("%s without %s ..: error %.2f, assumed %s", row->run->model, columns[0], errors[i],
                     row->run->assumed ? row->run->assumed : "nothing");
        }
        assert_true(percent < 100 || row->run->assumed);
    }
    qsort(errors, accuracy.row_count, sizeof *errors, compare_f64);
    assert_true(errors[accuracy.row_count / 2] <= median);
    assert_true(errors[accuracy.row_count * 9 / 10] <= most);
}

/* What is left out one at a time: each row says what was chosen instead. */
static void a_column_without_cells_is_chosen(void **state)
{
    (void)state;
    static const char *const columns[][3] = {
        {"micro_batch"}, {"recompute"}, {"sharding"}, {"stack"}, {"tp", "pp"}};
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        check_table(columns[i], 100, 1, 0.05, 0.30, 0.80);
    }
}

static void cells_at_random_are_chosen(void **state)
{
    (void)state;
    static const char *const columns[] = {
        "vpp", "cp",     "dp",    "ep",       "micro_batch", "recompute", "sharding",  "stack", "tp",
        "pp",  "layers", "heads", "kv_heads", "ffn",         "vocab",     "precision", NULL};
    for (uint32_t seed = 1; seed <= 12; seed++) {
        check_table(columns, 25, seed, 0.06, 0.30, 3.0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_column_without_cells_is_chosen),
        cmocka_unit_test(cells_at_random_are_chosen),
    };
    return cmocka_run_group_tests(tests, set_up, release_shipped);
}
