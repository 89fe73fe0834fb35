// SPDX-License-Identifier: Apache-2.0
/* Scaling: speed over GPUs against the ideal; below it, the share of each term, the efficiency and
 * the knee. */
#include "telemetry/plan_page/plan_page_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* The groups of terms in the shaded areas, from bottom to top. */
enum { AREAS = 7 };
static const char *const area_names[AREAS] = {"computing", "overhead",  "inside layers", "stages",
                                              "bubble",    "gradients", "other"};
static const int area_colors[AREAS] = {0, 7, 1, 6, 4, 3, 5};

static int area_of(ls_term term)
{
    switch (term) {
    case LS_TERM_MATMUL:
    case LS_TERM_ATTENTION:
    case LS_TERM_ELEMENTWISE:
        return 0;
    case LS_TERM_LAUNCH:
    case LS_TERM_FIXED:
        return 1;
    case LS_TERM_TENSOR:
    case LS_TERM_CONTEXT:
    case LS_TERM_EXPERT:
        return 2;
    case LS_TERM_PIPELINE:
        return 3;
    case LS_TERM_BUBBLE:
        return 4;
    case LS_TERM_DATA:
        return 5;
    case LS_TERM_OPTIMIZER:
    case LS_TERM_INPUT:
    case LS_TERM_STRAGGLER:
    case LS_TERM_COUNT:
        break;
    }
    return 6;
}

/* The counts that fit, as columns. */
typedef struct curve {
    double gpus[LS_SCALING_POINTS_MAX], speed[LS_SCALING_POINTS_MAX], ideal[LS_SCALING_POINTS_MAX],
        efficiency[LS_SCALING_POINTS_MAX];
    /* upper edge of each area; 0: the bottom of all */
    double tops[AREAS + 1][LS_SCALING_POINTS_MAX];
    bool used[AREAS];
    double highest; /* of efficiencies and 1 */
    size_t count;
} curve;

static void read_curve(const ls_scaling *scaling, curve *c)
{
    *c = (curve){.highest = 1.0};
    for (size_t i = 0; i < scaling->count; i++) {
        const ls_scaling_point *point = &scaling->points[i];
        if (!point->fits || !(point->estimate.tokens_ps > 0.0)) {
            continue;
        }
        const size_t at = c->count++;
        c->gpus[at] = (double)point->gpus;
        c->speed[at] = point->estimate.tokens_ps;
        c->ideal[at] = c->speed[0] * c->gpus[at] / c->gpus[0];
        c->efficiency[at] = point->efficiency;
        c->highest = fmax(c->highest, point->efficiency);
        double shares[AREAS] = {0};
        for (int term = 0; term < LS_TERM_COUNT; term++) {
            shares[area_of((ls_term)term)] +=
                point->estimate.time.terms_s[term] / point->estimate.time.step_s;
        }
        for (int area = 0; area < AREAS; area++) {
            c->tops[area + 1][at] = c->tops[area][at] + shares[area];
            c->used[area] = c->used[area] || shares[area] >= 0.005;
        }
    }
}

/* Counts as ticks, as many as there is room for, starting with the first. */
static void append_counts(const ls_svg_axes *axes, const curve *c, ls_text *text)
{
    const size_t room = (size_t)fmax(2, axes->width / 50), stride = 1 + (c->count - 1) / room;
    for (size_t i = 0; i < c->count; i += stride) {
        char label[32];
        if (c->gpus[i] >= 10000 && fmod(c->gpus[i], 1024) == 0) {
            snprintf(label, sizeof label, "%.0fk", c->gpus[i] / 1024);
        } else {
            snprintf(label, sizeof label, "%.0f", c->gpus[i]);
        }
        ls_svg_axes_x_tick(axes, c->gpus[i], label, text);
    }
}

static void draw_knee(const ls_svg_axes *axes, const ls_scaling *scaling, bool named, ls_text *text)
{
    if (scaling->knee_gpus > 0) {
        char label[64];
        ls_svg_axes_mark(axes, (double)scaling->knee_gpus, LS_PAGE_LIMIT, text);
        snprintf(label, sizeof label, "knee: %" PRId64 " GPUs", scaling->knee_gpus);
        if (named) {
            ls_svg_label_between(text, ls_svg_axes_x(axes, (double)scaling->knee_gpus), axes->top - 5, 0,
                                 label, (ls_svg_span){axes->left, axes->left + axes->width});
        }
    }
}

static void draw_speed(const ls_plan_page *page, const curve *c, ls_canvas *canvas)
{
    static const char *const names[] = {"ideal", "predicted", "this plan"};
    static const int colors[] = {LS_PAGE_WAITING, 0, LS_PAGE_BACKWARD};
    ls_text *text = &canvas->parts;
    ls_canvas_legend(canvas, names, colors, 3);
    ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 10, LS_SVG_START, -1, "tokens per second");
    const size_t last = c->count - 1;
    const ls_svg_axes axes = {
        .left = LS_PAGE_MARGIN + 40,
        .top = canvas->y + 30,
        .width = canvas->width - 2 * LS_PAGE_MARGIN - 46,
        .height = ls_canvas_is_narrow(canvas) ? 170 : 240,
        .x_min = c->gpus[0],
        .x_max = c->gpus[last],
        .y_min = c->speed[0] / 1.3,
        .y_max = c->ideal[last] * 1.3,
        .log_x = true,
        .log_y = true,
    };
    ls_svg_axes_append(&axes, NULL, ls_svg_tick_number, text);
    append_counts(&axes, c, text);
    draw_knee(&axes, page->plan->curve, true, text);
    ls_svg_axes_line(&axes, c->gpus, c->ideal, c->count,
                     (ls_svg_ink){.color = LS_PAGE_WAITING, .dashed = true}, text);
    ls_svg_axes_line(&axes, c->gpus, c->speed, c->count, (ls_svg_ink){.color = 0}, text);
    for (size_t i = 0; i < c->count; i++) {
        const bool own = c->gpus[i] == (double)page->plan->setting.gpus;
        ls_svg_axes_dot(&axes, c->gpus[i], c->speed[i], own ? 6 : 3.5,
                        (ls_svg_ink){.color = own ? LS_PAGE_BACKWARD : 0}, text);
    }
    canvas->y = axes.top + axes.height + 34;
}

static void draw_shares(const ls_plan_page *page, const curve *c, ls_canvas *canvas)
{
    const char *names[AREAS + 1];
    int colors[AREAS + 1];
    size_t count = 0;
    ls_text *text = &canvas->parts;
    for (int area = 0; area < AREAS; area++) {
        if (c->used[area]) {
            names[count] = area_names[area];
            colors[count++] = area_colors[area];
        }
    }
    names[count] = "line: efficiency";
    colors[count++] = LS_PAGE_BACKWARD;
    ls_canvas_legend(canvas, names, colors, count);
    ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 10, LS_SVG_START, -1, "shares of a step; efficiency");
    const ls_svg_axes axes = {
        .left = LS_PAGE_MARGIN + 40,
        .top = canvas->y + 22,
        .width = canvas->width - 2 * LS_PAGE_MARGIN - 46,
        .height = ls_canvas_is_narrow(canvas) ? 150 : 190,
        .x_min = c->gpus[0],
        .x_max = c->gpus[c->count - 1],
        .y_max = c->highest,
        .log_x = true,
    };
    ls_svg_axes_append(&axes, NULL, ls_svg_tick_percent, text);
    append_counts(&axes, c, text);
    for (int area = 0; area < AREAS; area++) {
        ls_svg_axes_band(&axes, &(ls_svg_band){c->gpus, c->tops[area], c->tops[area + 1], c->count},
                         (ls_svg_ink){.color = area_colors[area], .opacity = area == 0 ? 0.16 : 0.5}, text);
    }
    ls_svg_axes_line(&axes, c->gpus, c->efficiency, c->count, (ls_svg_ink){.color = LS_PAGE_BACKWARD}, text);
    draw_knee(&axes, page->plan->curve, false, text);
    ls_svg_label(text, axes.left + axes.width / 2, axes.top + axes.height + 34, LS_SVG_MIDDLE, -1, "GPUs");
    canvas->y = axes.top + axes.height + 46;
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    curve c;
    read_curve(page->plan->curve, &c);
    draw_speed(page, &c, canvas);
    draw_shares(page, &c, canvas);
}

static void say(const ls_plan_page *page, ls_text *text)
{
    const ls_scaling *scaling = page->plan->curve;
    const ls_scaling_point *own = NULL, *first = NULL, *last = NULL;
    for (size_t i = 0; i < scaling->count; i++) {
        const ls_scaling_point *point = &scaling->points[i];
        own = point->fits && point->gpus == page->plan->setting.gpus ? point : own;
        first = point->fits && !first ? point : first;
        last = point->fits ? point : last;
    }
    ls_text_printf(text,
                   "Both axes of the upper picture are logarithmic: an ideal machine would follow the dashed "
                   "line. The batch stays at %" PRId64 " sequences. ",
                   page->plan->setting.global_batch);
    if (own && own != first) {
        ls_text_printf(text,
                       "With **%" PRId64 " GPUs** each GPU does %.0f %% of what it does with %" PRId64 ". ",
                       own->gpus, 100.0 * own->efficiency, first->gpus);
    }
    if (scaling->knee_gpus > 0) {
        ls_text_printf(text,
                       "From **%" PRId64
                       " GPUs** on, a GPU that is added is worth less than half: **%s** takes over.",
                       scaling->knee_gpus, ls_term_name(scaling->takes_over));
    } else if (last) {
        ls_text_printf(text, "There is no knee up to %" PRId64 " GPUs; the term that grows most is %s.",
                       last->gpus, ls_term_name(scaling->takes_over));
    }
}

static bool has(const ls_plan_page *page)
{
    curve c;
    if (!page->plan->curve) {
        return false;
    }
    read_curve(page->plan->curve, &c);
    return c.count >= 2;
}

const ls_page_figure ls_page_scaling = {
    .name = "scaling",
    .title = "More GPUs",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "This model can be trained with this batch on fewer than two counts of GPUs, so there is "
               "nothing to compare.",
};
