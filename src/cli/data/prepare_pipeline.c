// SPDX-License-Identifier: Apache-2.0
#include "cli/data/prepare_pipeline.h"

#include "base/file.h"
#include "cli/command.h"
#include "cli/data/preparation_page.h"
#include "cli/registered.h"
#include "cli/table.h"
#include "data/preparation/preparation.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static void show_progress(void *context, const char *part, size_t done, size_t total)
{
    (void)context;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s: file %zu of %zu", part, done + 1, total);
    }
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void print_steps(ls_arena *arena, const json_t *report)
{
    static const char *const titles[] = {"STEP", "DOCUMENTS", "REMOVED", "%", "CHANGED"};
    static const bool right[] = {false, true, true, true, true};
    ls_table table = {.titles = titles, .right = right, .columns = 5, .arena = arena};
    size_t index;
    const json_t *step;
    json_array_foreach(json_object_get(report, "steps"), index, step)
    {
        const uint64_t documents = number_of(step, "documents"), removed = number_of(step, "removed");
        const double share = documents > 0 ? 100.0 * (double)removed / (double)documents : 0.0;
        ls_table_add(&table, json_string_value(json_object_get(step, "step")));
        ls_table_add(&table, ls_arena_printf(arena, "%" PRIu64, documents));
        ls_table_add(&table, ls_arena_printf(arena, "%" PRIu64, removed));
        ls_table_add(&table, ls_arena_printf(arena, "%.2f", share));
        ls_table_add(&table, ls_arena_printf(arena, "%" PRIu64, number_of(step, "changed")));
    }
    ls_table_print(&table);
}

/* Megabytes per second of one thread. */
static double rate_of(uint64_t bytes, double seconds)
{
    return seconds > 0.0 ? (double)bytes / seconds / 1e6 : 0.0;
}

static json_t *figures_of(const ls_data_pipeline *pipeline, const ls_preparation_figures *figures)
{
    json_t *steps = json_array();
    for (size_t i = 1; i < pipeline->step_count; i++) {
        json_array_append_new(steps, json_pack("{s:s, s:f}", "step", pipeline->steps[i].name, "mb_per_s",
                                               rate_of(figures->step_bytes[i], figures->step_s[i])));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:I, s:o}", "bytes", (json_int_t)figures->bytes, "wall_s",
                     figures->wall_s, "mb_per_s", rate_of(figures->bytes, figures->wall_s), "read_mb_per_s",
                     rate_of(figures->read_bytes, figures->read_s), "write_mb_per_s",
                     rate_of(figures->bytes, figures->write_s), "scratch_bytes",
                     (json_int_t)figures->scratch_bytes, "steps", steps);
}

static void print_report(ls_arena *arena, const char *folder, const ls_preparation_figures *figures,
                         const json_t *report)
{
    print_steps(arena, report);
    printf("\nkept %" PRIu64 " of %" PRIu64
           " documents, %s of %s bytes of text, in %s/data; report: %s/report.html\n",
           number_of(report, "kept"), number_of(report, "documents"),
           ls_quantity_of((double)number_of(report, "kept_bytes")).text,
           ls_quantity_of((double)number_of(report, "bytes")).text, folder, folder);
    if (figures->bytes > 0) {
        printf("%.1f s, %.0f MB/s\n", figures->wall_s, rate_of(figures->bytes, figures->wall_s));
    }
}

/* A misspelt field or a threshold for other texts is a mistake that shows in the result alone. */
static ls_status check_kept(const char *folder, const json_t *report)
{
    size_t index;
    const json_t *step, *most = NULL;
    json_array_foreach(json_object_get(report, "steps"), index, step)
    {
        most = !most || number_of(step, "removed") > number_of(most, "removed") ? step : most;
    }
    return number_of(report, "kept") > 0
               ? LS_OK
               : ls_fail(LS_ERR_DATA,
                         "nothing is left of %" PRIu64 " documents: the step %s removed %" PRIu64
                         " of them. 'lockstep data removed %s -n 5' tells why",
                         number_of(report, "documents"), json_string_value(json_object_get(most, "step")),
                         number_of(most, "removed"), folder);
}

ls_status ls_prepare_pipeline(ls_arena *arena, const char *path, const char *folder, uint64_t threads,
                              bool json)
{
    ls_data_pipeline *pipeline;
    ls_preparation_figures figures = {0};
    json_t *report = NULL;
    if (!folder[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "a pipeline needs --output DIR, the folder for what is left of the data");
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    LS_TRY(ls_data_pipeline_load(arena, path, &pipeline));
    const ls_preparation_options options = {.pipeline = pipeline,
                                            .folder = folder,
                                            .threads = threads > 0 ? (uint32_t)threads
                                                       : cores > 0 ? (uint32_t)cores
                                                                   : 1,
                                            .progress = show_progress,
                                            .page = ls_preparation_page_write};
    const ls_status status = ls_preparation_run(&options, &figures);
    if (isatty(STDERR_FILENO)) {
        fputs("\r\033[K", stderr);
    }
    LS_TRY(status);
    LS_TRY(ls_preparation_report(folder, &report));
    if (json) {
        json_object_set_new(report, "figures", figures_of(pipeline, &figures));
        ls_print_json(report);
    } else {
        print_report(arena, folder, &figures, report);
    }
    const ls_status kept = check_kept(folder, report);
    json_decref(report);
    LS_TRY(kept);
    const ls_registry_add_options made = {.path = ls_path_join(arena, folder, "data"),
                                          .name = ls_registry_name_of(arena, folder),
                                          .kind = LS_ENTRY_DATA};
    ls_registered(arena, made, json_pack("{s:s, s:s}", "by", "data prepare", "pipeline", path));
    return LS_OK;
}
