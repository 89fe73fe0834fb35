// SPDX-License-Identifier: Apache-2.0
/* Cost: what has been paid by each month, owned and rented, at three uses, and when owning has paid
 * off. */
#include "telemetry/plan_page/plan_page_internal.h"

#include "planning/money/cost.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { USES = 3, MONTHS_MOST = 48 };
static const double uses[USES] = {0.3, 0.6, 0.9};
static const int use_colors[USES] = {5, 0, 3};

typedef struct bill {
    ls_ownership ownership;
    int64_t gpus;
    /* rent in place of an owned GPU's hour; below the offer where whole nodes are bought and some
     * of their GPUs are not needed */
    double rate;
    double rent_usd_year[USES], running_usd_year[USES], months[USES];
    double life_months;
} bill;

static const ls_path_outcome *find_owned(const ls_verdict *verdict)
{
    return verdict->outcome_count > 0 && verdict->owned >= 0 ? &verdict->outcomes[verdict->owned] : NULL;
}

/* The price of an hour that is not owned: the cheaper of rented and cloud. */
static double rent_rate(const ls_verdict *verdict)
{
    double rate = 0.0;
    for (size_t i = 0; i < verdict->outcome_count; i++) {
        const ls_path_outcome *o = &verdict->outcomes[i];
        const bool rented = o->path->kind == LS_PATH_RENTED || o->path->kind == LS_PATH_CLOUD;
        if (rented && o->offer && o->offer->usd > 0.0 && (rate == 0.0 || o->offer->usd < rate)) {
            rate = o->offer->usd;
        }
    }
    return rate;
}

static bool read_bill(const ls_plan_page *page, bill *b)
{
    const ls_path_outcome *owned = find_owned(&page->plan->verdict);
    *b = (bill){0};
    if (!owned || !owned->offer) {
        return false;
    }
    b->gpus = owned->machines;
    b->ownership = ls_path_ownership(owned->path, b->gpus, 1.0, 1.0, 1.0);
    b->rate =
        owned->rent_usd_per_gpu_hour > 0.0 ? owned->rent_usd_per_gpu_hour : rent_rate(&page->plan->verdict);
    b->life_months = fmin(12.0 * b->ownership.life_years, MONTHS_MOST);
    for (int u = 0; u < USES; u++) {
        ls_ownership_year year;
        ls_ownership_compute(&b->ownership, uses[u], &year);
        b->running_usd_year[u] = year.running;
        b->rent_usd_year[u] = ls_cost_rent_usd_year(b->ownership.gpus, uses[u], b->rate);
        b->months[u] =
            ls_cost_break_even_months(b->ownership.capex_usd, b->rent_usd_year[u], b->running_usd_year[u]);
    }
    return b->rate > 0.0 && b->ownership.capex_usd > 0.0 && b->life_months >= 1.0;
}

/* Month 0 and the month at the right edge; costs are straight lines. */
static void draw_line(const ls_svg_axes *axes, double from, double per_year, int color, bool dashed,
                      ls_text *text)
{
    const double x[] = {0.0, axes->x_max}, y[] = {from, from + per_year * axes->x_max / 12.0};
    ls_svg_axes_line(axes, x, y, 2, (ls_svg_ink){.color = color, .dashed = dashed}, text);
}

static void draw_own(const bill *b, const ls_svg_axes *axes, ls_text *text)
{
    const double capex = b->ownership.capex_usd, years = axes->x_max / 12.0;
    const double x[] = {0.0, axes->x_max}, low[] = {capex, capex + b->running_usd_year[0] * years},
                 high[] = {capex, capex + b->running_usd_year[USES - 1] * years};
    ls_svg_axes_band(axes, &(ls_svg_band){x, low, high, 2}, (ls_svg_ink){.color = 1, .opacity = 0.3}, text);
    draw_line(axes, capex, b->running_usd_year[1], 1, false, text);
}

static void draw_break_even(const bill *b, int u, const ls_svg_axes *axes, ls_text *text)
{
    if (!(b->months[u] <= axes->x_max)) {
        return;
    }
    char label[32];
    const double usd = b->ownership.capex_usd + b->running_usd_year[u] * b->months[u] / 12.0;
    ls_svg_axes_dot(axes, b->months[u], usd, 6, (ls_svg_ink){.color = use_colors[u]}, text);
    snprintf(label, sizeof label, "month %.0f", b->months[u]);
    ls_svg_label_between(text, ls_svg_axes_x(axes, b->months[u]), ls_svg_axes_y_inside(axes, usd) + 22, 0,
                         label, (ls_svg_span){axes->left + 4, axes->left + axes->width});
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    static const char *const names[] = {"own", "rent at 30 % use", "at 60 %", "at 90 %"};
    static const int colors[] = {1, 5, 0, 3};
    ls_text *text = &canvas->parts;
    bill b;
    if (!read_bill(page, &b)) {
        return;
    }
    ls_canvas_legend(canvas, names, colors, 4);
    ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 10, LS_SVG_START, -1, "paid so far, USD");
    const double years = b.life_months / 12.0;
    const ls_svg_axes axes = {
        .left = LS_PAGE_MARGIN + 48,
        .top = canvas->y + 22,
        .width = canvas->width - 2 * LS_PAGE_MARGIN - 54,
        .height = ls_canvas_is_narrow(canvas) ? 220 : 300,
        .x_max = b.life_months,
        .y_max = 1.05 * fmax(b.ownership.capex_usd + b.running_usd_year[USES - 1] * years,
                             fmin(b.rent_usd_year[USES - 1] * years, 3 * b.ownership.capex_usd)),
    };
    ls_svg_axes_append(&axes, ls_svg_tick_number, ls_svg_tick_dollars, text);
    draw_own(&b, &axes, text);
    for (int u = 0; u < USES; u++) {
        draw_line(&axes, 0.0, b.rent_usd_year[u], use_colors[u], true, text);
    }
    for (int u = 0; u < USES; u++) {
        draw_break_even(&b, u, &axes, text);
    }
    ls_svg_label(text, axes.left + axes.width / 2, axes.top + axes.height + 34, LS_SVG_MIDDLE, -1, "months");
    canvas->y = axes.top + axes.height + 46;
    ls_canvas_note(canvas, "The band of owning covers 30 to 90 %% use, which changes the energy bill. "
                           "Interest is included; resale and depreciation are not.");
}

static void append_months(double months, ls_text *text)
{
    if (isfinite(months) && months < 1200.0) {
        ls_text_printf(text, "after **%.0f months**", months);
    } else {
        ls_text_append(text, "**never**");
    }
}

static void say(const ls_plan_page *page, ls_text *text)
{
    bill b;
    if (!read_bill(page, &b)) {
        return;
    }
    ls_text_append(text, "Buying ");
    ls_page_append_count(b.ownership.gpus, text);
    ls_text_printf(text, " GPU%s%s costs ", b.ownership.gpus == 1 ? "" : "s",
                   b.ownership.gpus > b.gpus ? " (whole nodes)" : "");
    ls_page_append_dollars(b.ownership.capex_usd, text);
    ls_text_printf(
        text,
        " at the start. Renting costs nothing at the start and %.2f USD for each hour that an owned GPU "
        "would work, so it rises faster the more the GPUs are used. Owning has paid off ",
        b.rate);
    for (int u = 0; u < USES; u++) {
        append_months(b.months[u], text);
        ls_text_printf(text, " at %.0f %% use%s", 100.0 * uses[u],
                       u + 2 < USES   ? ", "
                       : u + 1 < USES ? " and "
                                      : "");
    }
    const double half = b.life_months / 2;
    const double use = ls_cost_break_even_utilization(&b.ownership, b.rate, half);
    if (isfinite(use) && use <= 1.0) {
        ls_text_printf(
            text, ". To pay off within half of its life (%.0f months) it must be used %.0f %% of the hours.",
            half, 100.0 * use);
    } else {
        ls_text_printf(
            text, ". Within half of its life (%.0f months) it can't pay off, however much it is used.", half);
    }
}

static bool has(const ls_plan_page *page)
{
    bill b;
    return read_bill(page, &b);
}

const ls_page_figure ls_page_cost = {
    .name = "cost",
    .title = "Owning and renting",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "There is nothing to compare: buying and renting are not both possible, or have no price. "
               "Put prices of your own into a file of offers: --quote FILE.",
};
