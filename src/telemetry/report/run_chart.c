// SPDX-License-Identifier: Apache-2.0
/* Charts of metrics as the server draws them, from the columns that the script would get. */
#include "base/arena.h"
#include "base/svg.h"
#include "telemetry/report/run_page.h"

#include <math.h>
#include <string.h>

enum { COLUMNS = 400, WIDTH = 660, HEIGHT = 360, RUNS_MAX = 24 };

/* The steps that any of the runs has. False: there are no points. */
static bool find_range(const ls_run_view *runs, size_t count, const char *key, uint64_t *from, uint64_t *to)
{
    *from = UINT64_MAX;
    *to = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_series *series = runs[i].metrics ? ls_run_metrics_find(runs[i].metrics, key) : NULL;
        if (series && series->points > 0) {
            const uint64_t first = ls_series_first_step(series);
            *from = first < *from ? first : *from;
            *to = series->last.step > *to ? series->last.step : *to;
        }
    }
    return *from <= *to;
}

/* One pale line through lowest and highest, which the chart draws as the range of a pixel, and one
 * of the means. A single run shows both; of several, the means alone. */
static void add_series(const ls_steps_span *columns, size_t count, const char *name, bool is_pale,
                       ls_arena *arena, ls_svg_chart *chart)
{
    double *x = ls_arena_new(arena, double, 2 * count), *y = ls_arena_new(arena, double, 2 * count);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        const ls_steps_span *span = &columns[i];
        if (span->count == 0) {
            continue;
        }
        const double values[] = {is_pale ? span->low : span->sum / (double)span->count, span->high};
        for (int k = 0; k < (is_pale ? 2 : 1); k++) {
            x[used] = (double)span->last_step;
            y[used++] = values[k];
        }
    }
    ((ls_svg_series *)(uintptr_t)chart->series)[chart->series_count++] =
        (ls_svg_series){.name = name, .x = x, .y = y, .count = used, .faint = is_pale};
}

void ls_run_chart_append(const ls_run_view *runs, size_t count, const char *key, ls_text *svg)
{
    ls_arena arena = {0};
    uint64_t from = 0, to = 0;
    ls_svg_series *all = ls_arena_new(&arena, ls_svg_series, 2 * RUNS_MAX);
    ls_svg_chart chart = {.title = key, .x_label = "step", .series = all, .width = WIDTH, .height = HEIGHT};
    count = count < RUNS_MAX ? count : RUNS_MAX;
    if (find_range(runs, count, key, &from, &to)) {
        const uint64_t width = ls_columns_width(from, to, COLUMNS);
        const size_t columns = ls_columns_count(from, to, width);
        ls_steps_span *spans = ls_arena_new(&arena, ls_steps_span, columns);
        for (size_t i = 0; i < count; i++) {
            const ls_series *series = runs[i].metrics ? ls_run_metrics_find(runs[i].metrics, key) : NULL;
            if (series && series->points > 0) {
                ls_series_columns(series, from, to, width, spans);
                if (count == 1) {
                    add_series(spans, columns, "lowest to highest", true, &arena, &chart);
                }
                add_series(spans, columns, count == 1 ? "mean" : runs[i].name, false, &arena, &chart);
            }
        }
    }
    ls_svg_line_chart(&chart, svg);
    ls_arena_release(&arena);
}
