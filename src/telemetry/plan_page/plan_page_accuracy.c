// SPDX-License-Identifier: Apache-2.0
/* Predicted against measured: every run of the shipped table, good predictions and bad. */
#include "telemetry/plan_page/plan_page_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STACKS_MOST = 6 };

typedef struct stacks {
    const char *names[STACKS_MOST + 1];
    int colors[STACKS_MOST + 1];
    size_t count;
} stacks;

/* The stacks in the order of the rows; those for which there is no room are "others". */
static int color_of(stacks *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->names[i], name) == 0) {
            return s->colors[i];
        }
    }
    if (s->count < STACKS_MOST) {
        s->names[s->count] = name;
        s->colors[s->count] = (int)s->count;
        return s->colors[s->count++];
    }
    if (s->count == STACKS_MOST) {
        s->names[s->count] = "others";
        s->colors[s->count++] = LS_PAGE_WAITING;
    }
    return LS_PAGE_WAITING;
}

static bool is_usable(const ls_accuracy_row *row)
{
    return row->run->measured_step_s > 0.0 && row->predicted_step_s > 0.0 && isfinite(row->predicted_step_s);
}

static const ls_accuracy_row *worst_of(const ls_accuracy *accuracy)
{
    const ls_accuracy_row *worst = NULL;
    for (size_t i = 0; i < accuracy->full_count; i++) {
        const ls_accuracy_row *row = &accuracy->rows[i];
        worst = is_usable(row) && (!worst || fabs(row->error) > fabs(worst->error)) ? row : worst;
    }
    return worst;
}

static void find_range(const ls_accuracy *accuracy, double *low, double *high)
{
    *low = INFINITY;
    *high = 0.0;
    for (size_t i = 0; i < accuracy->row_count; i++) {
        if (is_usable(&accuracy->rows[i])) {
            const double a = accuracy->rows[i].run->measured_step_s, b = accuracy->rows[i].predicted_step_s;
            *low = fmin(*low, fmin(a, b));
            *high = fmax(*high, fmax(a, b));
        }
    }
    *low /= 1.3;
    *high *= 1.3;
}

/* The diagonal and a band of 10 % around it. */
static void draw_diagonal(const ls_svg_axes *axes, ls_text *text)
{
    const double x[] = {axes->x_min, axes->x_max}, low[] = {0.9 * x[0], 0.9 * x[1]},
                 high[] = {1.1 * x[0], 1.1 * x[1]};
    ls_svg_axes_band(axes, &(ls_svg_band){x, low, high, 2},
                     (ls_svg_ink){.color = LS_PAGE_WAITING, .opacity = 0.25}, text);
    ls_svg_axes_line(axes, x, x, 2, (ls_svg_ink){.color = LS_PAGE_WAITING, .dashed = true}, text);
}

static void draw_worst(const ls_svg_axes *axes, const ls_accuracy_row *worst, ls_text *text)
{
    char label[64];
    const double x = worst->run->measured_step_s, y = worst->predicted_step_s;
    ls_text_printf(
        text, "<circle class=\"ls-s%d\" fill=\"none\" stroke-width=\"2\" cx=\"%.1f\" cy=\"%.1f\" r=\"8\"/>\n",
        LS_PAGE_LIMIT, ls_svg_axes_x(axes, x), ls_svg_axes_y(axes, y));
    snprintf(label, sizeof label, "worst: %+.0f %%", 100.0 * worst->error);
    ls_svg_label_between(text, ls_svg_axes_x(axes, x), ls_svg_axes_y(axes, y) + (y > x ? -14 : 24), 0, label,
                         (ls_svg_span){axes->left + 4, axes->left + axes->width});
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    const ls_accuracy *accuracy = page->accuracy;
    ls_text *text = &canvas->parts;
    stacks s = {0};
    double low, high;
    find_range(accuracy, &low, &high);
    for (size_t i = 0; i < accuracy->row_count; i++) {
        color_of(&s, accuracy->rows[i].run->stack_name);
    }
    ls_canvas_legend(canvas, s.names, s.colors, s.count);
    ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 10, LS_SVG_START, -1,
                 "vertical: predicted step; horizontal: measured step");
    const double side = fmin(ls_canvas_inner(canvas) - 58, 460);
    const ls_svg_axes axes = {
        .left = LS_PAGE_MARGIN + 52 + (ls_canvas_inner(canvas) - 58 - side) / 2,
        .top = canvas->y + 22,
        .width = side,
        .height = side,
        .x_min = low,
        .x_max = high,
        .y_min = low,
        .y_max = high,
        .log_x = true,
        .log_y = true,
    };
    ls_svg_axes_append(&axes, ls_svg_tick_seconds, ls_svg_tick_seconds, text);
    draw_diagonal(&axes, text);
    for (size_t i = accuracy->row_count; i-- > 0;) { /* fully specified runs on top */
        const ls_accuracy_row *row = &accuracy->rows[i];
        if (is_usable(row)) {
            const bool full = i < accuracy->full_count;
            ls_svg_axes_dot(
                &axes, row->run->measured_step_s, row->predicted_step_s, full ? 3.2 : 2.4,
                (ls_svg_ink){.color = color_of(&s, row->run->stack_name), .opacity = full ? 0.8 : 0.3}, text);
        }
    }
    char median[64];
    snprintf(median, sizeof median, "median error: %.1f %%", 100.0 * accuracy->full.median);
    ls_svg_label_on_back(text, axes.left + 8, axes.top + 16, LS_SVG_START, 0, median);
    const ls_accuracy_row *worst = worst_of(accuracy);
    if (worst) {
        draw_worst(&axes, worst, text);
    }
    canvas->y = axes.top + axes.height + 32;
}

static void say(const ls_plan_page *page, ls_text *text)
{
    const ls_accuracy *a = page->accuracy;
    const ls_accuracy_row *worst = worst_of(a);
    ls_text_printf(
        text,
        "Every dot is a published run. On the dashed line the prediction is right; in the band it is within "
        "10 %%. Over %zu fully specified runs the median error is **%.1f %%**, the mean %.1f %%",
        a->full.count, 100.0 * a->full.median, 100.0 * a->full.mean);
    if (a->full_held_out.count > 0) {
        ls_text_printf(text, " (on the %zu that no constant was fitted to: median %.1f %%, mean %.1f %%)",
                       a->full_held_out.count, 100.0 * a->full_held_out.median,
                       100.0 * a->full_held_out.mean);
    }
    if (worst) {
        ls_text_printf(text, ". The worst is off by **%+.0f %%**: ", 100.0 * worst->error);
        ls_text_append(text, worst->run->model);
        ls_text_printf(text, " on %lld ", (long long)worst->run->setting.gpus);
        ls_text_append(text, worst->run->accelerator);
        ls_text_append(text, " (");
        ls_text_append(text, worst->run->source);
        ls_text_append(text, ")");
    }
    ls_text_printf(text, ". Pale dots are runs that were not fully published: what was missing was assumed.");
}

static bool has(const ls_plan_page *page)
{
    const ls_accuracy *accuracy = page->accuracy;
    for (size_t i = 0; accuracy && i < accuracy->row_count; i++) {
        if (is_usable(&accuracy->rows[i])) {
            return true;
        }
    }
    return false;
}

const ls_page_figure ls_page_accuracy = {
    .name = "accuracy",
    .title = "Predicted and measured",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "There is no measured run to compare predictions with.",
};
