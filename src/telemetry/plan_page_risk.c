// SPDX-License-Identifier: Apache-2.0
/* What is left of the time when machines fail, by the interval between checkpoints; and the heat of racks against what cooling carries. */
#include "telemetry/plan_page_internal.h"

#include "planning/money/interval.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* ---- goodput over the interval ---- */

enum { CURVE_POINTS = 97 };

typedef struct goodput_curve {
    double interval_s[CURVE_POINTS], goodput[CURVE_POINTS], slow[CURVE_POINTS];
    double worst, best;
} goodput_curve;

/* With the form that the estimate took: switching between the two would make a step in the curve. */
static double goodput_at(const ls_plan_page *page, double interval_s, double stall_s)
{
    const ls_failure_estimate *f = page->failure;
    const double restart_s =
        page->failure_setting->restart_s > 0.0 ? page->failure_setting->restart_s : LS_FAILURE_RESTART_S;
    const double lost = (f->exact ? ls_interval_lost_exact : ls_interval_lost_first)(interval_s, stall_s,
                                                                                     f->mtbf_s, restart_s);
    return f->scheduling * f->program * fmax(0.0, 1.0 - lost);
}

/* From a 50th of Young's to 50 times it; the second curve: a checkpoint that stalls ten times as long. */
static void read_goodput(const ls_plan_page *page, goodput_curve *c)
{
    const double stall_s = page->failure->stall_s, young_s = page->failure->interval_young_s;
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
    ls_svg_label_between(text, ls_svg_axes_x(axes, interval_s), y, 0, label, axes->left,
                         axes->left + axes->width);
}

static void draw_goodput(const ls_plan_page *page, ls_canvas *canvas)
{
    static const char *const names[] = {"as planned", "a checkpoint stalls ten times as long"};
    static const int colors[] = {0, 1};
    const ls_failure_estimate *f = page->failure;
    ls_text *text = &canvas->parts;
    goodput_curve c;
    read_goodput(page, &c);
    ls_canvas_legend(canvas, names, colors, 2);
    ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 10, LS_SVG_START, -1,
                 "goodput: share of the time that is kept");
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
    ls_svg_axes_line(&axes, c.interval_s, c.slow, CURVE_POINTS, 1, false, text);
    ls_svg_axes_line(&axes, c.interval_s, c.goodput, CURVE_POINTS, 0, false, text);
    draw_interval(&axes, f->interval_young_s, LS_PAGE_LIMIT, "Young", axes.top - 24, text);
    draw_interval(&axes, f->interval_daly_s, LS_PAGE_OPTIMIZER, "Daly", axes.top - 8, text);
    ls_svg_axes_dot(&axes, f->interval_s, f->goodput, LS_PAGE_BACKWARD, 6, 1.0, text);
    ls_svg_label(text, axes.left + axes.width / 2, axes.top + axes.height + 34, LS_SVG_MIDDLE, -1,
                 "between checkpoints");
    canvas->y = axes.top + axes.height + 46;
}

static void say_goodput(const ls_plan_page *page, ls_text *text)
{
    const ls_failure_estimate *f = page->failure;
    ls_text_append(text, "Something fails every ");
    ls_page_append_duration(f->mtbf_s, text);
    ls_text_append(text, ", and a checkpoint stalls training for ");
    ls_page_append_duration(f->stall_s, text);
    ls_text_append(
        text,
        ". Saving too often wastes time in stalls (left), too seldom loses work (right). One every <b>");
    ls_page_append_duration(f->interval_s, text);
    const int digits = f->goodput > 0.9995 ? 3 : 1; /* 99.98 % are not 100 % */
    ls_text_printf(text,
                   "</b> (the dot) keeps <b>%.*f %%</b> of the time: scheduling %.1f %%, runtime %.1f %%, "
                   "program %.1f %%. ",
                   digits, 100.0 * f->goodput, 100.0 * f->scheduling, 100.0 * f->runtime, 100.0 * f->program);
    const bool large = f->checkpoint_bytes >= 1e12;
    ls_text_printf(text, "A checkpoint has %.3g %s.", f->checkpoint_bytes * (large ? 1e-12 : 1e-9),
                   large ? "TB" : "GB");
}

static bool has_goodput(const ls_plan_page *page)
{
    const ls_failure_estimate *f = page->failure;
    return f && page->failure_setting && f->interval_young_s > 0.0 && isfinite(f->interval_young_s) &&
           f->stall_s > 0.0;
}

const ls_page_figure ls_page_goodput = {
    .name = "goodput",
    .title = "Failures and checkpoints",
    .has = has_goodput,
    .draw = draw_goodput,
    .say = say_goodput,
    .missing = "Failures were not looked at.",
};

/* ---- racks ---- */

enum { RACK_ROWS_MOST = 5, RACK_ROW = 34, RACK_BAR = 22, RACK_NAMES = 108 };

typedef struct rack_rows {
    int64_t nodes[RACK_ROWS_MOST];
    double kw[RACK_ROWS_MOST];
    size_t count;
    double most_kw; /* of the scale */
} rack_rows;

/* 1, 2, 4, ... nodes in a rack, as far as one is worth drawing, and what the site takes among them. */
static rack_rows read_racks(const ls_plan_page *page)
{
    rack_rows r = {0};
    const ls_power *p = page->power;
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

/* The coolings up to the end of the scale: lines, then names on rows of their own, so that they don't meet. */
static double draw_coolings(const ls_plan_page *page, double left, double top, double bottom, double scale,
                            ls_canvas *canvas)
{
    ls_text *text = &canvas->parts;
    const double right = canvas->width - LS_PAGE_MARGIN;
    size_t count = 0;
    while (count < page->catalogue->cooling_count &&
           left + page->catalogue->coolings[count].rack_w / 1e3 * scale <= right + 0.5) {
        const double x = left + page->catalogue->coolings[count].rack_w / 1e3 * scale;
        ls_svg_stroke(text, x, top - 6, x, bottom + 3 + 15.0 * (double)count, LS_PAGE_LIMIT, true);
        count++;
    }
    for (size_t i = 0; i < count; i++) {
        char label[64];
        const ls_cooling *cooling = &page->catalogue->coolings[i];
        snprintf(label, sizeof label, "%s: %.3g kW", cooling->name, cooling->rack_w / 1e3);
        ls_svg_label_between(text, left + cooling->rack_w / 1e3 * scale, bottom + 14 + 15.0 * (double)i, -1,
                             label, LS_PAGE_MARGIN, right);
    }
    return bottom + 14 + 15.0 * (double)count;
}

/* The scale ends behind the first cooling that carries the largest rack. */
static double scale_end_kw(const ls_plan_page *page, const rack_rows *r)
{
    double end = r->most_kw;
    for (size_t i = 0; i < page->catalogue->cooling_count; i++) {
        const double kw = page->catalogue->coolings[i].rack_w / 1e3;
        if (kw >= r->most_kw) {
            end = kw;
            break;
        }
    }
    return 1.04 * end;
}

static void draw_power(const ls_plan_page *page, ls_canvas *canvas)
{
    static const char *const names[] = {"this plan's rack", "other fillings", "what a cooling carries"};
    static const int colors[] = {LS_PAGE_BACKWARD, LS_PAGE_FORWARD, LS_PAGE_LIMIT};
    const rack_rows r = read_racks(page);
    const ls_power *p = page->power;
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
        ls_svg_cell(text, left, y, r.kw[i] * scale, RACK_BAR,
                    r.nodes[i] == own ? LS_PAGE_BACKWARD : LS_PAGE_FORWARD, r.nodes[i] == own ? 0.8 : 0.4,
                    name);
    }
    canvas->y = bottom + 4;
}

static void say_power(const ls_plan_page *page, ls_text *text)
{
    const ls_power *p = page->power;
    ls_text_printf(text, "A node draws up to <b>%.3g kW</b>, about %.3g kW while it trains. ",
                   p->node_max_w / 1e3, p->node_w / 1e3);
    if (p->nodes_per_rack > 0) {
        ls_text_printf(text,
                       "The site%s%s%s takes %" PRId64 " in a rack: <b>%" PRId64
                       " rack%s of %.3g kW</b>, cooled by %s. ",
                       page->site ? " (" : "", page->site ? page->site->name : "", page->site ? ")" : "",
                       p->nodes_per_rack < p->nodes ? p->nodes_per_rack : p->nodes, p->racks,
                       p->racks == 1 ? "" : "s", p->rack_kw, p->cooling ? p->cooling->name : "nothing known");
    }
    ls_text_append(text, "All together ");
    ls_page_append_kw(p->facility_kw, text);
    ls_text_append(text, " at the meter while it trains, ");
    ls_page_append_kw(p->facility_max_kw, text);
    ls_text_append(text, " at most.");
    if (!p->possible && p->why_not[0]) {
        ls_text_append(text, " <b class=\"bad\">Not there: ");
        ls_text_append_escaped(text, p->why_not);
        ls_text_append(text, ".</b>");
    }
}

static bool has_power(const ls_plan_page *page)
{
    return page->power && page->power->known && page->power->node_max_w > 0.0 && page->catalogue;
}

const ls_page_figure ls_page_power = {
    .name = "power",
    .title = "Power and cooling",
    .has = has_power,
    .draw = draw_power,
    .say = say_power,
    .missing = "The catalogue has no power for this accelerator: what it draws is not guessed. A row of your "
               "own goes into <code>--catalogue FILE</code>.",
};
