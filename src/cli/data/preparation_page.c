// SPDX-License-Identifier: Apache-2.0
#include "cli/data/preparation_page.h"

#include "base/file.h"
#include "base/web.h"

#include <inttypes.h>
#include <string.h>

enum { WIDE = 990, STEPS_MAX = 32, EXCERPT = 200 };

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double share_of(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

static void add_tiles(ls_values *page, const json_t *report)
{
    const uint64_t documents = number_of(report, "documents"), kept = number_of(report, "kept");
    const uint64_t bytes = number_of(report, "bytes"), left = number_of(report, "kept_bytes");
    ls_text small = {0};
    ls_web_tile(page, ls_quantity_of((double)documents).text, "documents read");
    ls_text_printf(&small, "kept, %.1f %%", share_of(kept, documents));
    ls_web_tile(page, ls_quantity_of((double)kept).text, ls_text_string(&small));
    ls_web_tile(page, ls_quantity_of((double)bytes).text, "bytes of text read");
    ls_text_clear(&small);
    ls_text_printf(&small, "bytes left, %.1f %%", share_of(left, bytes));
    ls_web_tile(page, ls_quantity_of((double)left).text, ls_text_string(&small));
    ls_text_release(&small);
}

/* A bar for each step: what it left, and what it removed. */
static void add_bars(ls_values *page, const json_t *report)
{
    static const char *const parts[] = {"left", "removed"};
    const char *names[STEPS_MAX];
    double values[STEPS_MAX][2];
    size_t index, count = 0;
    const json_t *step;
    json_array_foreach(json_object_get(report, "steps"), index, step)
    {
        if (count < STEPS_MAX) {
            names[count] = text_of(step, "step");
            values[count][0] = (double)(number_of(step, "documents") - number_of(step, "removed"));
            values[count++][1] = (double)number_of(step, "removed");
        }
    }
    ls_web_bars(ls_values_add(page, "bars"),
                &(ls_svg_bars){.title = "Documents after each step",
                               .unit = "",
                               .bar_names = names,
                               .part_names = parts,
                               .values = values[0],
                               .bar_count = count,
                               .part_count = 2},
                WIDE);
}

static void add_step(ls_values *page, const json_t *step)
{
    ls_values *row = ls_values_add(page, "steps");
    const uint64_t documents = number_of(step, "documents"), removed = number_of(step, "removed");
    ls_values_text(row, "step", text_of(step, "step"));
    ls_values_printf(row, "documents", "%" PRIu64, documents);
    ls_values_printf(row, "removed", "%" PRIu64, removed);
    ls_values_printf(row, "share", "%.2f", share_of(removed, documents));
    ls_values_printf(row, "changed", "%" PRIu64, number_of(step, "changed"));
    ls_values_printf(
        row, "bytes", "%+" PRId64,
        (int64_t)(number_of(step, "changed_bytes_after") - number_of(step, "changed_bytes_before")));
}

static void add_example(ls_values *reason, const json_t *example)
{
    ls_values *row = ls_values_add(reason, "examples");
    ls_values_printf(row, "place", "%s:%" PRIu64, text_of(example, "file"), number_of(example, "line"));
    ls_values_text(row, "why", text_of(example, "why"));
    ls_values_cut(row, "text", text_of(example, "text"), EXCERPT);
}

static void add_reasons(ls_values *page, const json_t *step)
{
    const char *name;
    const json_t *count, *example;
    size_t index;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(step, "reasons"), name, count)
    {
        ls_values *reason = ls_values_add(page, "reasons");
        ls_values_text(reason, "step", text_of(step, "step"));
        ls_values_text(reason, "reason", name);
        ls_values_printf(reason, "count", "%" PRIu64 " document%s", (uint64_t)json_integer_value(count),
                         json_integer_value(count) == 1 ? "" : "s");
        json_array_foreach(json_object_get(step, "examples"), index, example)
        {
            if (strcmp(text_of(example, "reason"), name) == 0) {
                add_example(reason, example);
            }
        }
    }
}

static void add_changes(ls_values *page, const json_t *step)
{
    const json_t *list = json_object_get(step, "changes"), *example;
    size_t index;
    if (json_array_size(list) == 0) {
        return;
    }
    ls_values *changes = ls_values_add(page, "changes");
    ls_values_text(changes, "step", text_of(step, "step"));
    json_array_foreach(list, index, example)
    {
        ls_values *row = ls_values_add(changes, "examples");
        ls_values_cut(row, "before", text_of(example, "before"), EXCERPT);
        ls_values_cut(row, "after", text_of(example, "after"), EXCERPT);
    }
}

ls_status ls_preparation_page_write(const char *folder, const json_t *report)
{
    ls_arena arena = {0};
    ls_text text = {0};
    size_t index;
    const json_t *step;
    ls_values *page = ls_values_create(&arena);
    const size_t files = json_array_size(json_object_get(report, "files"));
    ls_values_text(page, "page", "preparation");
    ls_values_text(page, "title", "Prepared data");
    ls_values_flag(page, "refresh", false);
    ls_values_printf(page, "files", "%zu file%s", files, files == 1 ? "" : "s");
    ls_values_text(page, "identity", text_of(report, "identity"));
    ls_values_flag(page, "reasons", false);
    ls_values_flag(page, "changes", false);
    add_tiles(page, report);
    add_bars(page, report);
    json_array_foreach(json_object_get(report, "steps"), index, step)
    {
        add_step(page, step);
        add_reasons(page, step);
        add_changes(page, step);
    }
    ls_web_append("preparation.html", page, &text);
    const ls_status status =
        ls_file_write_atomic(ls_path_join(&arena, folder, "report.html"), ls_text_string(&text), text.bytes);
    ls_text_release(&text);
    ls_arena_release(&arena);
    return status;
}
