// SPDX-License-Identifier: Apache-2.0
#include "telemetry/report/report_figures.h"

#include "base/web.h"

enum { WIDE = 1000, HALF = 490, SMOOTH_STEPS_MIN = 40 };

/* ---- curves ---- */

/*
 * A noisy column as a pale line behind a smoothed one; a short column as it is. Returns the number
 * of series. series_out: room for 2.
 */
static size_t smoothed_series(ls_report_data *data, const char *name, const double *values,
                              ls_svg_series *series_out)
{
    const ls_svg_series raw = {.name = name, .x = data->step, .y = values, .count = data->count};
    if (data->count < SMOOTH_STEPS_MIN) {
        series_out[0] = raw;
        return 1;
    }
    double *smooth = ls_arena_alloc(&data->arena, data->count * sizeof *smooth);
    ls_report_smooth(values, data->count, 2 + (data->count < 4000 ? data->count / 80 : 50), smooth);
    series_out[0] = raw;
    series_out[0].faint = true;
    series_out[1] = raw;
    series_out[1].y = smooth;
    return 2;
}

/* The points of a series whose x is `from` or more. */
static ls_svg_series series_from(ls_svg_series series, double from)
{
    while (series.count > 0 && *series.x < from) {
        series.x++;
        series.y++;
        series.count--;
    }
    return series;
}

/* The steep first steps flatten the rest of the curve, so the rest is drawn once more, closer. */
static void add_loss_closer(const ls_report_data *data, const ls_svg_series *series, size_t count,
                            ls_values *page)
{
    enum { CLOSER_STEPS_MIN = 200 };
    if (data->count < CLOSER_STEPS_MIN) {
        return;
    }
    const double from = data->step[data->count / 4];
    ls_svg_series closer[3];
    for (size_t i = 0; i < count; i++) {
        closer[i] = series_from(series[i], from);
    }
    const ls_svg_chart chart = {.title = "Loss, the last three quarters closer",
                                .x_label = "step",
                                .y_label = "nats per token",
                                .series = closer,
                                .series_count = count};
    ls_web_chart(ls_values_add(page, "loss"), &chart, WIDE, 320);
}

static void add_loss(ls_report_data *data, ls_values *page)
{
    ls_svg_series series[3];
    size_t count = smoothed_series(data, "training", data->loss, series);
    if (data->val_count > 0) {
        series[count++] = (ls_svg_series){
            .name = "validation", .x = data->val_step, .y = data->val_loss, .count = data->val_count};
    }
    const ls_svg_chart chart = {.title = "Loss",
                                .x_label = "step",
                                .y_label = "nats per token",
                                .series = series,
                                .series_count = count};
    ls_web_chart(ls_values_add(page, "loss"), &chart, WIDE, 360);
    add_loss_closer(data, series, count, page);
}

/* One column of metrics over steps, half as wide as the page. `list`: the name in the template. */
typedef struct half {
    const char *list, *title, *y_label;
    const double *values;
    bool smooth;
} half;

static void add_half(ls_report_data *data, half of, ls_values *page)
{
    ls_svg_series series[2] = {{.name = of.title, .x = data->step, .y = of.values, .count = data->count}};
    const size_t count = of.smooth ? smoothed_series(data, of.title, of.values, series) : 1;
    const ls_svg_chart chart = {.title = of.title,
                                .x_label = "step",
                                .y_label = of.y_label,
                                .series = series,
                                .series_count = count,
                                .from_zero = true};
    ls_web_chart(ls_values_add(page, of.list), &chart, HALF, 280);
}

static double *percent_of(ls_report_data *data, const double *fractions)
{
    double *percent = ls_arena_alloc(&data->arena, (data->count + 1) * sizeof *percent);
    for (size_t i = 0; i < data->count; i++) {
        percent[i] = 100.0 * fractions[i];
    }
    return percent;
}

static bool exceeds(const double *values, size_t count, double limit)
{
    for (size_t i = 0; i < count; i++) {
        if (values[i] > limit) {
            return true;
        }
    }
    return false;
}

static void add_curves(ls_report_data *data, ls_values *page)
{
    const double *percent = percent_of(data, data->mfu);
    add_half(data, (half){"lr", "Learning rate", NULL, data->lr, false}, page);
    add_half(data, (half){"grad_norm", "Gradient norm", NULL, data->grad_norm, true}, page);
    if (exceeds(data->residual_norm, data->count, 0.0)) {
        add_half(data, (half){"left_over", "Left over by compression", NULL, data->residual_norm, true},
                 page);
    }
    add_half(data, (half){"speed", "Speed", "tokens per second", data->tokens_per_s, true}, page);
    add_half(data, (half){"use", "Use of the machine", "MFU, %", percent, true}, page);
    ls_values_flag(page, "above_peak", exceeds(percent, data->count, 105.0));
}

/* ---- where the time goes ---- */

/* Mean milliseconds of each part over the steps from..to. */
static void mean_parts(const ls_report_data *data, size_t from, size_t to, double ms_out[LS_STEP_PARTS])
{
    for (int part = 0; part < LS_STEP_PARTS; part++) {
        double sum_s = 0.0;
        for (size_t i = from; i < to; i++) {
            sum_s += data->parts_s[i][part];
        }
        ms_out[part] = to > from ? 1e3 * sum_s / (double)(to - from) : 0.0;
    }
}

static void add_step_parts(ls_report_data *data, ls_values *page)
{
    static const char *const names[] = {"all steps", "first tenth", "last tenth"};
    double ms[3][LS_STEP_PARTS];
    const size_t tenth = data->count / 10;
    mean_parts(data, 0, data->count, ms[0]);
    mean_parts(data, 0, tenth, ms[1]);
    mean_parts(data, data->count - tenth, data->count, ms[2]);
    const ls_svg_bars bars = {.title = "Time of a step",
                              .unit = "ms",
                              .bar_names = names,
                              .part_names = ls_step_part_names,
                              .values = &ms[0][0],
                              .bar_count = tenth >= 3 ? 3 : 1,
                              .part_count = LS_STEP_PARTS};
    ls_web_bars(ls_values_add(page, "parts"), &bars, WIDE);
}

void ls_report_add_figures(ls_report_data *data, ls_values *page)
{
    add_loss(data, page);
    add_curves(data, page);
    if (data->count > 0) {
        add_step_parts(data, page);
    }
    ls_values_flag(page, "has_time", data->has_goodput);
    if (data->has_goodput) {
        ls_report_add_time(data, page);
    }
}
