// SPDX-License-Identifier: Apache-2.0
#include "telemetry/report_figures.h"

#include "base/svg.h"

enum { WIDE = 1000, HALF = 490, PHONE = 370, SMOOTH_STEPS_MIN = 40 };

/* ---- frames ---- */

static void card_open(ls_text *page)
{
    ls_text_append(page, "<div class=\"card\">");
}

/* `words` are our own and may hold markup. */
static void card_close(ls_text *page, const char *words)
{
    ls_text_printf(page, "<p>%s</p></div>\n", words);
}

/* The chart twice: `width` wide for a screen, and for a phone. */
static void append_chart(ls_svg_chart chart, int width, int height, ls_text *page)
{
    chart.width = width;
    chart.height = height;
    ls_text_append(page, "<div class=\"ls-wide\">");
    ls_svg_line_chart(&chart, page);
    chart.width = PHONE;
    chart.height = 260;
    ls_text_append(page, "</div><div class=\"ls-phone\">");
    ls_svg_line_chart(&chart, page);
    ls_text_append(page, "</div>");
}

static void append_bars(ls_svg_bars bars, ls_text *page)
{
    bars.width = WIDE;
    ls_text_append(page, "<div class=\"ls-wide\">");
    ls_svg_stacked_bars(&bars, page);
    bars.width = PHONE;
    ls_text_append(page, "</div><div class=\"ls-phone\">");
    ls_svg_stacked_bars(&bars, page);
    ls_text_append(page, "</div>");
}

/* ---- curves ---- */

/*
 * A noisy column as a pale line behind its smoothed self; few values as they are. Returns how many series that makes.
 * series_out: room for 2.
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

/* The points of a series from x = `from` on. */
static ls_svg_series series_from(ls_svg_series series, double from)
{
    while (series.count > 0 && *series.x < from) {
        series.x++;
        series.y++;
        series.count--;
    }
    return series;
}

/* The fall of the first steps flattens all that follows: the rest is drawn once more, closer. */
static void append_loss_closer(const ls_report_data *data, const ls_svg_series *series, size_t count,
                               ls_text *page)
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
    append_chart(chart, WIDE, 320, page);
}

static void append_loss(ls_report_data *data, ls_text *page)
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
    ls_text_append(page, "<h2>Is it learning?</h2>\n");
    card_open(page);
    append_chart(chart, WIDE, 360, page);
    append_loss_closer(data, series, count, page);
    card_close(page, "How surprised the model is by the next token; lower is better, and a fall early on "
                     "that flattens later is what a "
                     "healthy run looks like. <b>Training</b> is text it learns from (pale: every step, "
                     "strong: smoothed). "
                     "<b>Validation</b> is text it never learns from: when that one turns upwards while "
                     "training still falls, the model has "
                     "begun to learn by heart, and more data or fewer steps help.");
}

static void append_half(ls_report_data *data, const char *title, const char *y_label, const double *values,
                        bool smooth, bool from_zero, const char *words, ls_text *page)
{
    ls_svg_series series[2];
    size_t count = 1;
    if (smooth) {
        count = smoothed_series(data, title, values, series);
    } else {
        series[0] = (ls_svg_series){.name = title, .x = data->step, .y = values, .count = data->count};
    }
    const ls_svg_chart chart = {.title = title,
                                .x_label = "step",
                                .y_label = y_label,
                                .series = series,
                                .series_count = count,
                                .from_zero = from_zero};
    card_open(page);
    append_chart(chart, HALF, 280, page);
    card_close(page, words);
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

static void append_curves(ls_report_data *data, ls_text *page)
{
    ls_text_append(page, "<div class=\"pair\">\n");
    append_half(data, "Learning rate", NULL, data->lr, false, true,
                "How far each step moves the weights. It rises during the warm-up and falls towards the end, "
                "as the run file's "
                "schedule says.",
                page);
    append_half(data, "Gradient norm", NULL, data->grad_norm, true, true,
                "How steep the loss is where the model stands, before clipping. Single peaks are harmless; a "
                "steady climb "
                "foretells a run that falls apart: lower the learning rate.",
                page);
    ls_text_append(page, "</div>\n<h2>Is the machine busy?</h2>\n<div class=\"pair\">\n");
    append_half(data, "Speed", "tokens per second", data->tokens_per_s, true, true,
                "Within steps. Dips are other work on the same machine, or data that came late.", page);
    const double *percent = percent_of(data, data->mfu);
    append_half(data, "Use of the machine", "MFU, %", percent, true, true,
                exceeds(percent, data->count, 105.0)
                    ? "The model's arithmetic per second, as a share of what this machine's matrix products "
                      "reached by "
                      "themselves. Values above 100 mean that the machine was busy with other work while "
                      "that peak was "
                      "measured: the shape of the curve holds, its height does not."
                    : "The model's arithmetic per second, as a share of what this machine's matrix products "
                      "reached by "
                      "themselves. Recomputed work does not count.",
                page);
    ls_text_append(page, "</div>\n");
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

static void append_step_parts(ls_report_data *data, ls_text *page)
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
    card_open(page);
    append_bars(bars, page);
    card_close(page,
               "<b>Forward</b> computes the loss, <b>backward</b> how each weight should change, <b>adding "
               "leaves</b> sums "
               "the gradients of the batch's parts in a fixed order, the <b>optimizer</b> changes the "
               "weights. Backward "
               "takes about twice the time of forward; if data take a visible share, the disk is too slow.");
}

void ls_report_append_figures(ls_report_data *data, ls_text *page)
{
    append_loss(data, page);
    append_curves(data, page);
    if (data->count > 0) {
        append_step_parts(data, page);
    }
    if (data->has_goodput) {
        ls_report_append_time(data, page);
    }
}
