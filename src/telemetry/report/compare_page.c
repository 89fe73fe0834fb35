// SPDX-License-Identifier: Apache-2.0
/* The values of web/compare.html. */
#include "base/web.h"
#include "base/yaml.h"
#include "telemetry/record/metrics_reader.h"
#include "telemetry/report/run_page.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SETTINGS_MAX = 40, CELL_BYTES_MAX = 120 };

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void set_number(ls_values *row, const json_t *run, const char *key)
{
    const json_t *value = json_object_get(run, key);
    ls_values_text(row, key, NULL);
    if (json_is_number(value)) {
        ls_values_printf(row, key, json_is_integer(value) ? "%.0f" : "%.5g", json_number_value(value));
    }
}

static void set_address(ls_values *row, const char *id)
{
    ls_text text = {0};
    ls_run_address_append(&text, id, "");
    ls_values_text(row, "address", ls_text_string(&text));
    ls_text_release(&text);
}

/* ---- the table without script ---- */

static void add_runs(const json_t *runs, size_t count, ls_values *page)
{
    static const char *const numbers[] = {"step", "loss", "val_loss", "tokens_per_s"};
    const size_t shown = json_array_size(runs);
    for (size_t i = 0; i < shown; i++) {
        const json_t *run = json_array_get(runs, i);
        ls_values *row = ls_values_add(page, "runs");
        set_address(row, text_of(run, "id"));
        ls_values_cut(row, "name", text_of(run, "name"), 80);
        ls_values_cut(row, "status", text_of(run, "status"), 32);
        for (size_t k = 0; k < sizeof numbers / sizeof numbers[0]; k++) {
            set_number(row, run, numbers[k]);
        }
    }
    ls_values_printf(page, "count", "%zu %s", count, count == 1 ? "run" : "runs");
    if (count > shown) {
        ls_values_printf(page, "more", "%zu", count - shown);
    }
}

/* ---- settings of the chosen runs, flat: "train.optimizer.lr": "0.001" ---- */

static void flatten(const json_t *value, const char *path, ls_arena *arena, json_t *flat)
{
    const char *key = NULL;
    json_t *member = NULL;
    if (json_is_object(value)) {
        json_object_foreach((json_t *)(uintptr_t)value, key, member)
        {
            flatten(member, path[0] ? ls_arena_printf(arena, "%s.%s", path, key) : key, arena, flat);
        }
        return;
    }
    char *text = json_is_string(value)
                     ? NULL
                     : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_object_set_new(flat, path, json_string(text ? text : json_string_value(value)));
    free(text);
}

/* What is known of a run as a row: its settings, the version that trained it, and its results. */
static json_t *row_of(const ls_run_view *run, ls_arena *arena)
{
    json_t *flat = json_object();
    ls_document doc;
    const ls_text *yaml = &run->files->texts[LS_REPORT_RUN_YAML];
    if (yaml->bytes > 0 && ls_yaml_parse(yaml->data, yaml->bytes, "run.yaml", &doc) == LS_OK) {
        flatten(doc.root, "", arena, flat);
        json_object_del(flat, "name"); /* the first column */
        ls_document_release(&doc);
    }
    ls_error_clear();
    json_t *summary = json_loads(ls_text_string(&run->files->texts[LS_REPORT_SUMMARY]), 0, NULL);
    if (json_is_string(json_object_get(summary, "code"))) {
        json_object_set(flat, "code", json_object_get(summary, "code"));
    }
    json_decref(summary);
    static const char *const results[] = {"tokens_per_s", "cost_usd", "loss", "val_loss"};
    for (size_t k = 0; k < sizeof results / sizeof results[0]; k++) {
        const json_t *value = json_object_get(run->row, results[k]);
        if (json_is_number(value)) {
            const double number = json_number_value(value);
            json_object_set_new(
                flat, results[k],
                json_string(ls_arena_printf(arena, fabs(number) >= 1e5 ? "%.0f" : "%.6g", number)));
        }
    }
    return flat;
}

static bool differs(json_t *const *rows, size_t count, const char *key)
{
    const json_t *first = json_object_get(rows[0], key);
    for (size_t i = 1; i < count; i++) {
        const json_t *other = json_object_get(rows[i], key);
        if (!first != !other || (first && !json_equal(first, other))) {
            return true;
        }
    }
    return false;
}

/* The keys in which the rows differ, in the order in which the rows have them. Files of any content
 * may be compared: each key is looked at once. */
static json_t *find_differences(json_t *const *rows, size_t count)
{
    json_t *keys = json_object(), *seen = json_object();
    const char *key = NULL;
    json_t *value = NULL;
    for (size_t i = 0; i < count; i++) {
        json_object_foreach(rows[i], key, value)
        {
            const bool is_new = !json_object_get(seen, key) && json_object_size(keys) < SETTINGS_MAX;
            if (is_new && differs(rows, count, key)) {
                json_object_set_new(keys, key, json_true());
            }
            if (is_new) {
                json_object_set_new(seen, key, json_true());
            }
        }
    }
    json_decref(seen);
    return keys;
}

/* With its id when another one has the same name, as the jobs of a sweep do. */
static const char *label_of(const ls_run_view *chosen, size_t count, size_t index, ls_arena *arena)
{
    for (size_t i = 0; i < count; i++) {
        if (i != index && strcmp(chosen[i].name, chosen[index].name) == 0) {
            return ls_arena_printf(arena, "%.64s (%s)", chosen[index].name, chosen[index].id);
        }
    }
    return chosen[index].name;
}

static void add_differences(const ls_run_view *chosen, size_t count, ls_arena *arena, ls_values *page)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_t **rows = ls_arena_new(arena, json_t *, count);
    for (size_t i = 0; i < count; i++) {
        rows[i] = row_of(&chosen[i], arena);
    }
    json_t *keys = find_differences(rows, count);
    ls_values_flag(page, "has_differences", json_object_size(keys) > 0);
    json_object_foreach(keys, key, value)
    {
        ls_values_cut(ls_values_add(page, "columns"), "column", key, CELL_BYTES_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        ls_values *row = ls_values_add(page, "rows");
        ls_values_cut(row, "name", label_of(chosen, count, i, arena), 80);
        set_address(row, chosen[i].id);
        json_object_foreach(keys, key, value)
        {
            ls_values_cut(ls_values_add(row, "cells"), "cell", text_of(rows[i], key), CELL_BYTES_MAX);
        }
        json_decref(rows[i]);
    }
    json_decref(keys);
}

/* ---- the page ---- */

static void add_pictures(const ls_run_view *chosen, size_t count, ls_values *page)
{
    static const char *const keys[] = {"loss", "val_loss"};
    for (size_t k = 0; k < 2 && count > 0; k++) {
        ls_text address = {0};
        ls_text_printf(&address, "/compare.svg?key=%s&runs=", keys[k]);
        for (size_t i = 0; i < count; i++) {
            ls_text_append(&address, i > 0 ? "," : "");
            ls_run_id_append(&address, chosen[i].id);
        }
        ls_values *row = ls_values_add(page, "pictures");
        ls_values_text(row, "key", keys[k]);
        ls_values_text(row, "address", ls_text_string(&address));
        ls_text_release(&address);
    }
}

void ls_compare_page_append(const ls_compare_view *view, ls_text *page_out)
{
    ls_arena arena = {0};
    ls_values *page = ls_web_begin(&arena, "compare", view->has_queue);
    ls_values_text(page, "title", "Runs \u00b7 Lockstep");
    add_runs(view->rows, view->run_count, page);
    ls_values_flag(page, "has_chosen", view->chosen_count > 0);
    ls_values_flag(page, "has_differences", false);
    add_pictures(view->chosen, view->chosen_count, page);
    if (view->chosen_count > 1) {
        add_differences(view->chosen, view->chosen_count, &arena, page);
    }
    ls_web_append("compare.html", page, page_out);
    ls_arena_release(&arena);
}
