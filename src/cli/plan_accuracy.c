// SPDX-License-Identifier: Apache-2.0
/* plan --accuracy: predictions beside measurements, worst rows included. */
#include "base/file.h"
#include "cli/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_MOST  ((size_t)64 << 20)
#define WORST_MOST 12

/* ---- the keys of the contract: rows, median_error, mean_error, by_stack ---- */

static int compare_errors(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of the rows of one stack, all with NULL; the fully specified ones, where there are any. The object is new. */
static json_t *summarise(const ls_accuracy *accuracy, const char *stack, double *scratch)
{
    const size_t rows = accuracy->full_count > 0 ? accuracy->full_count : accuracy->row_count;
    size_t count = 0;
    double sum = 0.0;
    for (size_t i = 0; i < rows; i++) {
        const ls_accuracy_row *row = &accuracy->rows[i];
        if (!stack || strcmp(row->run->stack_name, stack) == 0) {
            scratch[count] = fabs(row->error);
            sum += scratch[count++];
        }
    }
    if (count == 0) {
        return json_pack("{s:i, s:n, s:n}", "rows", 0, "median_error", "mean_error");
    }
    qsort(scratch, count, sizeof *scratch, compare_errors);
    const double median = 0.5 * (scratch[(count - 1) / 2] + scratch[count / 2]);
    return json_pack("{s:I, s:f, s:f, s:f}", "rows", (json_int_t)count, "median_error", median, "mean_error",
                     sum / (double)count, "worst_error", scratch[count - 1]);
}

static json_t *accuracy_to_json(ls_arena *arena, const ls_accuracy *accuracy)
{
    double *scratch = ls_arena_new(arena, double, accuracy->row_count + 1);
    json_t *root = ls_accuracy_json(accuracy), *by_stack = json_object();
    json_t *all = summarise(accuracy, NULL, scratch);
    json_object_update(root, all);
    json_decref(all);
    const size_t rows = accuracy->full_count > 0 ? accuracy->full_count : accuracy->row_count;
    for (size_t i = 0; i < rows; i++) {
        const char *stack = accuracy->rows[i].run->stack_name;
        if (!json_object_get(by_stack, stack)) {
            json_object_set_new(by_stack, stack, summarise(accuracy, stack, scratch));
        }
    }
    json_object_set_new(root, "by_stack", by_stack);
    return root;
}

/* ---- all ---- */

static ls_status load_runs(ls_arena *arena, const ls_catalogue *catalogue, const char *path,
                           ls_published *published)
{
    char *text = NULL;
    size_t bytes = 0;
    if (!path[0]) {
        return ls_published_shipped(arena, catalogue, published);
    }
    LS_TRY(ls_file_read(arena, path, FILE_MOST, &text, &bytes));
    return ls_published_parse(arena, catalogue, text, bytes, path, published);
}

ls_status ls_plan_print_accuracy(ls_arena *arena, const ls_plan_settings *settings)
{
    ls_catalogue catalogue;
    ls_published published;
    ls_accuracy accuracy;
    LS_TRY(ls_catalogue_load(arena, settings->catalogue.items, settings->catalogue.count, &catalogue));
    LS_TRY(load_runs(arena, &catalogue, settings->data, &published));
    ls_accuracy_compute(arena, &published, &accuracy);
    if (settings->json) {
        json_t *root = accuracy_to_json(arena, &accuracy);
        ls_print_json(root);
        json_decref(root);
    } else {
        ls_text text = {0};
        ls_accuracy_print(&accuracy, WORST_MOST, &text);
        fputs(ls_text_string(&text), stdout);
        ls_text_release(&text);
    }
    return LS_OK;
}
