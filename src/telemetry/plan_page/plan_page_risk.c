// SPDX-License-Identifier: Apache-2.0
/* Goodput over the interval between checkpoints, when machines fail; and the heat of racks against
 * what a cooling can remove. */
#include "telemetry/plan_page/plan_page_internal.h"

#include "planning/money/failure_interval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- goodput over the interval ---- */

enum { CURVE_POINTS = 97 };

typedef struct goodput_curve {
    double interval_s[CURVE_POINTS], goodput[CURVE_POINTS], slow[CURVE_POINTS];
    double worst, best;
} goodput_curve;

/* Uses the formula that the estimate used: switching between the two would make a jump in the
 * curve. */
static double goodput_at(const ls_plan_page *page, double interval_s, double stall_s)
{
    const ls_failure_estimate *f = &page->plan->failure;
    const double restart_s = page->plan->failure_setting.restart_s > 0.0
                                 ? page->plan->failure_setting.restart_s
                                 : LS_FAILURE_RESTART_S;
    const double lost = (f->exact ? ls_interval_lost_exact : ls_interval_lost_first)(interval_s, stall_s,
                                                                                     f->mtbf_s, restart_s);
    return f->scheduling * f->program * fmax(0.0, 1.0 - lost);
}

/* From a 50th of Young's interval to 50 times it. The second curve is for checkpoints that stall
 * ten times as long. */
static void read_goodput(const ls_plan_page *page, goodput_curve *c)
{
    const double stall_s = page->plan->failure.stall_s, young_s = page->plan->failure.interval_young_s;
    const double first_s = fmax(young_s / 50.0, stall_s), last_s = young_s * 50.0;
    c->worst = 1.0;
    c->best = 0.0;
    for (int i = 0; i < CURVE_POINTS; i++) {
        c->interval_s[i] = first_s * pow(last_s / first_s, (double)i / (CURVE_POINTS - 1));
        c->goodput[i] = goodput_at(page, c->interval_s[i], stall_s);
        c->slow[i] = goodput_at(page, c->interval_s[i], 10.0 * stall_s);
        c->worst = fmin(c->worst, c->goodput[i]);
        c->best = fmax(c->best, c->goodput[i]);
    }
}

static void draw_interval(const ls_svg_axes *axes, double interval_s, int color, const char *name, double y,
                          ls_text *text)
{
    char label[64], duration[32];
    snprintf(duration, sizeof duration, "%s", ls_time_of(interval_s).text);
    snprintf(label, sizeof label, "%s: %s", name, duration);
    ls_svg_axes_mark(axes, interval_s, color, text);
    ls_svg_label_between(text, ls_svg_axes_x(axes, interval_s), y, 0, label,
                         (ls_svg_span){axes->left, axes->left + axes->width});
}

static void draw_goodput(const ls_plan_page *page, ls_canvas *canvas)
{
    static const char *const names[] = {"as planned", "checkpoints stall ten times as long"};
    static const int colors[] = {0, 1};
    const ls_failure_estimate *f = &page->plan->failure;
    ls_text *text = &canvas->parts;
    goodput_curve c;
    read_goodput(page, &c);
    ls_canvas_legend(canvas, names, colors, 2);
    ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 10, LS_SVG_START, -1,
                 "goodput: share of the time that counts");
    const ls_svg_axes axes = {
        .left = LS_PAGE_MARGIN + 52,
        .top = canvas->y + 56,
        .width = canvas->width - 2 * LS_PAGE_MARGIN - 58,
        .height = ls_canvas_is_narrow(canvas) ? 180 : 240,
        .x_min = c.interval_s[0],
        .x_max = c.interval_s[CURVE_POINTS - 1],
        .y_min = fmax(0.0, c.best - 1.15 * fmax(c.best - c.worst, 1e-6)),
        .y_max = fmin(1.0, c.best + 0.08 * fmax(c.best - c.worst, 1e-6)),
        .log_x = true,
    };
    ls_svg_axes_append(&axes, ls_svg_tick_seconds, ls_svg_tick_percent, text);
    ls_svg_axes_line(&axes, c.interval_s, c.slow, CURVE_POINTS, (ls_svg_ink){.color = 1}, text);
    ls_svg_axes_line(&axes, c.interval_s, c.goodput, CURVE_POINTS, (ls_svg_ink){.color = 0}, text);
    draw_interval(&axes, f->interval_young_s, LS_PAGE_LIMIT, "Young", axes.top - 24, text);
    draw_interval(&axes, f->interval_daly_s, LS_PAGE_OPTIMIZER, "Daly", axes.top - 8, text);
    ls_svg_axes_dot(&axes, f->interval_s, f->goodput, 6, (ls_svg_ink){.color = LS_PAGE_BACKWARD}, text);
    ls_svg_label(text, axes.left + axes.width / 2, axes.top + axes.height + 34, LS_SVG_MIDDLE, -1,
                 "between checkpoints");
    canvas->y = axes.top + axes.height + 46;
}

static void say_goodput(const ls_plan_page *page, ls_text *text)
{
    const ls_failure_estimate *f = &page->plan->failure;
    ls_text_append(text, "Something fails every ");
    ls_page_append_duration(f->mtbf_s, text);
    ls_text_append(text, ", and a checkpoint stalls training for ");
    ls_page_append_duration(f->stall_s, text);
    ls_text_append(text, ". Checkpoints that are too frequent waste time in stalls (left); too rare, they "
                         "lose work (right). One every **");
    ls_page_append_duration(f->interval_s, text);
    const int digits = f->goodput > 0.9995 ? 3 : 1; /* 99.98 % is not printed as 100 % */
    ls_text_printf(text,
                   "** (the dot) keeps **%.*f %%** of the time: scheduling %.1f %%, runtime %.1f %%, "
                   "program %.1f %%. ",
                   digits, 100.0 * f->goodput, 100.0 * f->scheduling, 100.0 * f->runtime, 100.0 * f->program);
    const bool large = f->checkpoint_bytes >= 1e12;
    ls_text_printf(text, "A checkpoint is %.3g %s.", f->checkpoint_bytes * (large ? 1e-12 : 1e-9),
                   large ? "TB" : "GB");
}

static bool has_goodput(const ls_plan_page *page)
{
    const ls_failure_estimate *f = &page->plan->failure;
    return f->interval_young_s > 0.0 && isfinite(f->interval_young_s) && f->stall_s > 0.0;
}

const ls_page_figure ls_page_goodput = {
    .name = "goodput",
    .title = "Failures and checkpoints",
    .has = has_goodput,
    .draw = draw_goodput,
    .say = say_goodput,
    .missing = "Failures were not modelled.",
};

/* ---- racks ---- */

enum { RACK_ROWS_MOST = 5, RACK_ROW = 34, RACK_BAR = 22, RACK_NAMES = 108 };

typedef struct rack_rows {
    int64_t nodes[RACK_ROWS_MOST];
    double kw[RACK_ROWS_MOST];
    size_t count;
    double most_kw; /* of the scale */
} rack_rows;

/* 1, 2, 4, ... nodes per rack, as far as they are worth drawing, and the number that the site takes
 * among them. */
static rack_rows read_racks(const ls_plan_page *page)
{
    rack_rows r = {0};
    const ls_power *p = &page->plan->power;
    const int64_t own = p->nodes_per_rack < p->nodes ? p->nodes_per_rack : p->nodes;
    const double node_kw = p->node_max_w / 1e3;
    for (int64_t nodes = 1; r.count < RACK_ROWS_MOST && nodes <= LS_POWER_NODES_PER_RACK_MOST; nodes *= 2) {
        if (own > nodes / 2 && own < nodes && r.count + 1 < RACK_ROWS_MOST) {
            r.nodes[r.count++] = own;
        }
        if ((double)nodes * node_kw > 1.3 * LS_POWER_RACK_MOST_KW && nodes > 1) {
            break;
        }
        r.nodes[r.count++] = nodes;
        if (nodes >= p->nodes) {
            break; /* there are no more */
        }
    }
    for (size_t i = 0; i < r.count; i++) {
        r.kw[i] = (double)r.nodes[i] * node_kw;
        r.most_kw = fmax(r.most_kw, r.kw[i]);
    }
    return r;
}

/* The coolings up to the end of the scale: lines, then names on rows of their own, so that they do
 * not overlap. */
static double draw_coolings(const ls_plan_page *page, double left, double top, double bottom, double scale,
                            ls_canvas *canvas)
{
    ls_text *text = &canvas->parts;
    const double right = canvas->width - LS_PAGE_MARGIN;
    size_t count = 0;
    while (count < page->plan->catalogue.cooling_count &&
           left + page->plan->catalogue.coolings[count].rack_w / 1e3 * scale <= right + 0.5) {
        const double x = left + page->plan->catalogue.coolings[count].rack_w / 1e3 * scale;
        ls_svg_stroke(text, x, top - 6, x, bottom + 3 + 15.0 * (double)count,
                      (ls_svg_ink){.color = LS_PAGE_LIMIT, .dashed = true});
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        char label[64];
        const ls_cooling *cooling = &page->plan->catalogue.coolings[i];
        snprintf(label, sizeof label, "%s: %.3g kW", cooling->name, cooling->rack_w / 1e3);
        ls_svg_label_between(text, left + cooling->rack_w / 1e3 * scale, bottom + 14 + 15.0 * (double)i, -1,
                             label, (ls_svg_span){LS_PAGE_MARGIN, right});
    }
    return bottom + 14 + 15.0 * (double)count;
}

/* The scale ends just after the first cooling that is enough for the largest rack. */
static double scale_end_kw(const ls_plan_page *page, const rack_rows *r)
{
    double end = r->most_kw;
    for (size_t i = 0; i < page->plan->catalogue.cooling_count; i++) {
        const double kw = page->plan->catalogue.coolings[i].rack_w / 1e3;
        if (kw >= r->most_kw) {
            end = kw;
            break;
        }
    }
    return 1.04 * end;
}

static void draw_power(const ls_plan_page *page, ls_canvas *canvas)
{
    static const char *const names[] = {"this plan's rack", "other numbers of nodes", "limit of a cooling"};
    static const int colors[] = {LS_PAGE_BACKWARD, LS_PAGE_FORWARD, LS_PAGE_LIMIT};
    const rack_rows r = read_racks(page);
    const ls_power *p = &page->plan->power;
    const int64_t own = p->nodes_per_rack < p->nodes ? p->nodes_per_rack : p->nodes;
    ls_text *text = &canvas->parts;
    ls_canvas_legend(canvas, names, colors, 3);
    const double left = LS_PAGE_MARGIN + RACK_NAMES, top = canvas->y + 10;
    const double scale = (ls_canvas_inner(canvas) - RACK_NAMES) / scale_end_kw(page, &r);
    const double bottom = draw_coolings(page, left, top, top + (double)r.count * RACK_ROW, scale, canvas);
    for (size_t i = 0; i < r.count; i++) {
        char name[64];
        const double y = top + (double)i * RACK_ROW;
        snprintf(name, sizeof name, "%" PRId64 " node%s: %.3g kW", r.nodes[i], r.nodes[i] == 1 ? "" : "s",
                 r.kw[i]);
        ls_svg_label(text, LS_PAGE_MARGIN, y + 16, LS_SVG_START, -1, name);
        ls_svg_cell(text, (ls_svg_rect){left, y, r.kw[i] * scale, RACK_BAR},
                    (ls_svg_ink){.color = r.nodes[i] == own ? LS_PAGE_BACKWARD : LS_PAGE_FORWARD,
                                 .opacity = r.nodes[i] == own ? 0.8 : 0.4},
                    name);
    }
    canvas->y = bottom + 4;
}

static void say_power(const ls_plan_page *page, ls_text *text)
{
    const ls_power *p = &page->plan->power;
    ls_text_printf(text, "A node draws up to **%.3g kW**, and about %.3g kW while it trains. ",
                   p->node_max_w / 1e3, p->node_w / 1e3);
    if (p->nodes_per_rack > 0) {
        ls_text_printf(
            text,
            "The site (%s) takes %" PRId64 " in a rack: **%" PRId64 " rack%s of %.3g kW**, cooled by %s. ",
            page->plan->site.name, p->nodes_per_rack < p->nodes ? p->nodes_per_rack : p->nodes, p->racks,
            p->racks == 1 ? "" : "s", p->rack_kw, p->cooling ? p->cooling->name : "nothing known");
    }
    ls_text_append(text, "All racks together draw ");
    ls_page_append_kw(p->facility_kw, text);
    ls_text_append(text, " at the meter during training, ");
    ls_page_append_kw(p->facility_max_kw, text);
    ls_text_append(text, " at most.");
    if (!p->possible && p->why_not[0]) {
        ls_text_printf(text, " **That site can't take it: %s.**", p->why_not);
    }
}

static bool has_power(const ls_plan_page *page)
{
    return page->plan->power.known && page->plan->power.node_max_w > 0.0;
}

const ls_page_figure ls_page_power = {
    .name = "power",
    .title = "Power and cooling",
    .has = has_power,
    .draw = draw_power,
    .say = say_power,
    .missing =
        "The catalogue has no power for this accelerator, and it is not guessed. Add a row of your own "
        "with --catalogue FILE.",
};
