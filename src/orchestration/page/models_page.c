// SPDX-License-Identifier: Apache-2.0
#include "orchestration/page/page_values.h"

#include "base/text.h"
#include "orchestration/page/page.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 500, FACTS_BYTES_MAX = 300, EVALUATIONS_MAX = 20 };

static bool is_model(const json_t *row)
{
    const char *kind = ls_page_string(row, "kind");
    return strcmp(kind, "model") == 0 || strcmp(kind, "adapter") == 0;
}

static bool is_evaluation(const json_t *row)
{
    return strcmp(ls_page_string(row, "kind"), "evaluation") == 0;
}

static bool has_parent(const json_t *row, const char *entry)
{
    const json_t *list = json_object_get(row, "parents");
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (strcmp(ls_page_string(json_array_get(list, i), "entry"), entry) == 0) {
            return true;
        }
    }
    return false;
}

/* The texts of a list with commas; those of an evaluation are its numbers alone. */
static void set_joined(ls_values *values, const char *name, const json_t *list, bool only_numbers)
{
    ls_text text = {0};
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *word = json_string_value(json_array_get(list, i));
        if (!only_numbers || (strncmp(word, "by ", 3) != 0 && strncmp(word, "lockstep ", 9) != 0)) {
            ls_text_printf(&text, "%s%s", text.bytes > 0 ? ", " : "", word);
        }
    }
    ls_values_cut(values, name, ls_text_string(&text), FACTS_BYTES_MAX);
    ls_text_release(&text);
}

static void add_evaluations(const json_t *rows, const char *entry, ls_values *values)
{
    size_t count = 0;
    for (size_t i = 0; i < json_array_size(rows) && count < EVALUATIONS_MAX; i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_evaluation(row) && has_parent(row, entry)) {
            ls_values *evaluation = ls_values_add(values, "evaluations");
            ls_values_cut(evaluation, "label", ls_page_string(row, "label"), 160);
            set_joined(evaluation, "numbers", json_object_get(row, "lines"), true);
            count++;
        }
    }
}

static void add_row(const json_t *rows, const json_t *row, ls_values *part)
{
    const char *stage = ls_page_string(row, "stage");
    ls_values *values = ls_values_add(part, "entries");
    ls_values_cut(values, "label", ls_page_string(row, "label"), 160);
    ls_values_cut(values, "entry", ls_page_string(row, "entry"), 64);
    ls_values_cut(values, "kind", ls_page_string(row, "kind"), 20);
    ls_values_cut(values, "stage", stage, 20);
    ls_values_cut(values, "who", ls_page_string(row, "who"), 100);
    ls_values_text(values, "look",
                   strcmp(stage, "approved") == 0  ? "good"
                   : strcmp(stage, "retired") == 0 ? "dim"
                                                   : "going");
    ls_web_time(values, "when", ls_page_number(row, "when"), "%Y-%m-%d %H:%M");
    set_joined(values, "facts", json_object_get(row, "lines"), false);
    const json_t *serving = json_object_get(row, "serving");
    for (size_t i = 0; i < json_array_size(serving); i++) {
        ls_values *served = ls_values_add(values, "serving");
        ls_values_cut(served, "address", ls_page_string(json_array_get(serving, i), "address"), 200);
    }
    if (is_model(row)) {
        add_evaluations(rows, ls_page_string(row, "entry"), values);
    }
}

static void add_part(const json_t *rows, bool of_models, ls_values *page)
{
    size_t count = 0;
    ls_values *part = ls_values_add(page, "parts");
    ls_values_text(part, "heading", of_models ? "Models and adapters" : "Data and tokenizers");
    ls_values_text(part, "id", of_models ? "models" : "others");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        if (is_evaluation(row) || is_model(row) != of_models) {
            continue;
        }
        if (count++ < ROWS_MAX) {
            add_row(rows, row, part);
        }
    }
    ls_values_flag(part, "is_cut", count > ROWS_MAX);
    ls_values_printf(part, "more", "%zu", count > ROWS_MAX ? count - ROWS_MAX : 0);
}

static int newest_first(const void *a, const void *b)
{
    const double x = ls_page_number(*(json_t *const *)a, "when"),
                 y = ls_page_number(*(json_t *const *)b, "when");
    return (x < y) - (x > y);
}

/* A new array of the same rows. */
static json_t *sorted_rows(ls_arena *arena, const json_t *rows)
{
    const size_t count = json_array_size(rows);
    json_t **sorted = ls_arena_new(arena, json_t *, count + 1), *list = json_array();
    for (size_t i = 0; i < count; i++) {
        sorted[i] = json_array_get(rows, i);
    }
    qsort(sorted, count, sizeof *sorted, newest_first);
    for (size_t i = 0; i < count; i++) {
        json_array_append(list, sorted[i]);
    }
    return list;
}

void ls_page_models(const json_t *unsorted, const char *address, const char *user, bool has_queue,
                    ls_text *text)
{
    ls_arena arena = {0};
    json_t *rows = sorted_rows(&arena, unsorted);
    ls_values *page = ls_web_begin(&arena, "models", has_queue);
    ls_values_text(page, "title", "Models");
    ls_values_cut(page, "address", address, 300);
    ls_values_text(page, "user", user);
    ls_values_flag(page, "is_own", *user != '\0');
    add_part(rows, true, page);
    add_part(rows, false, page);
    ls_web_append("models.html", page, text);
    json_decref(rows);
    ls_arena_release(&arena);
}
