// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/simulation_page.h"

#include "base/math.h"
#include "base/svg_axes.h"
#include "base/web.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDE = 990, PHONE = 328, HEIGHT = 320, SMOOTH_POINTS = 96 };

/* ---- over time ---- */

/* Points of a curve over days: (count). */
typedef struct curve {
    double *x, *y;
    size_t count;
} curve;

static curve curve_create(ls_arena *arena, size_t most)
{
    return (curve){ls_arena_new(arena, double, most), ls_arena_new(arena, double, most), 0};
}

static void curve_add(curve *to, double x, double y)
{
    if (isfinite(y)) {
        to->x[to->count] = x;
        to->y[to->count++] = y;
    }
}

static double day_of(const ls_sim_run *run, size_t bucket)
{
    return (double)bucket * (double)run->bucket_ms / 86.4e6;
}

/* The mean over the intervals first..end. */
static ls_sim_state mean_of(const ls_sim_run *run, size_t first, size_t end)
{
    ls_sim_state sum = {0};
    double *to = (double *)&sum;
    for (size_t i = first; i < end; i++) {
        const ls_sim_state mean = ls_sim_run_mean(run, i);
        for (size_t k = 0; k < sizeof sum / sizeof(double); k++) {
            to[k] += ((const double *)&mean)[k] / (double)(end - first);
        }
    }
    return sum;
}

/* Number of intervals that one point of a smoothed curve averages. */
static size_t stride_of(const ls_sim_run *run)
{
    return run->bucket_count / SMOOTH_POINTS + 1;
}

static void draw_chart(const char *label, const ls_svg_series *series, size_t count, int width, ls_text *text)
{
    const ls_svg_chart chart = {.x_label = "day",
                                .y_label = label,
                                .series = series,
                                .series_count = count,
                                .from_zero = true,
                                .width = width,
                                .height = HEIGHT};
    ls_svg_line_chart(&chart, text);
}

static void draw_use(const ls_sim_summary *s, int width, ls_text *text)
{
    const ls_sim_run *run = s->run;
    ls_arena arena = {0};
    curve had = curve_create(&arena, run->bucket_count), asked = curve_create(&arena, run->bucket_count);
    for (size_t i = 0; i < run->bucket_count; i++) {
        const ls_sim_state mean = ls_sim_run_mean(run, i);
        curve_add(&had, day_of(run, i), mean.allocated);
        /* Requests beyond twice the cluster are cut off: they would flatten the rest. */
        curve_add(&asked, day_of(run, i), fmin(mean.allocated + mean.wanted, 2.0 * run->devices));
    }
    const ls_svg_series series[] = {{.name = "asked for (cut off at twice the cluster)",
                                     .x = asked.x,
                                     .y = asked.y,
                                     .count = asked.count},
                                    {.name = "allocated", .x = had.x, .y = had.y, .count = had.count}};
    draw_chart("GPUs", series, 2, width, text);
    ls_arena_release(&arena);
}

static void draw_queue(const ls_sim_summary *s, int width, ls_text *text)
{
    const ls_sim_run *run = s->run;
    ls_arena arena = {0};
    curve waiting = curve_create(&arena, run->bucket_count),
          running = curve_create(&arena, run->bucket_count);
    for (size_t i = 0; i < run->bucket_count; i++) {
        const ls_sim_state mean = ls_sim_run_mean(run, i);
        curve_add(&waiting, day_of(run, i), mean.waiting);
        curve_add(&running, day_of(run, i), mean.running);
    }
    const ls_svg_series series[] = {
        {.name = "running", .x = running.x, .y = running.y, .count = running.count},
        {.name = "waiting", .x = waiting.x, .y = waiting.y, .count = waiting.count}};
    draw_chart("jobs", series, 2, width, text);
    ls_arena_release(&arena);
}

static void draw_fairness(const ls_sim_summary *s, int width, ls_text *text)
{
    const ls_sim_run *run = s->run;
    const size_t stride = stride_of(run);
    ls_arena arena = {0};
    curve raw = curve_create(&arena, run->bucket_count), smooth = curve_create(&arena, run->bucket_count);
    for (size_t i = 0; i < run->bucket_count; i++) {
        curve_add(&raw, day_of(run, i), s->fair_over[i]);
    }
    for (size_t i = 0; i < run->bucket_count; i += stride) {
        const size_t end = i + stride < run->bucket_count ? i + stride : run->bucket_count;
        double sum = 0.0, count = 0.0;
        for (size_t k = i; k < end; k++) {
            sum += isfinite(s->fair_over[k]) ? s->fair_over[k] : 0.0;
            count += isfinite(s->fair_over[k]);
        }
        curve_add(&smooth, day_of(run, i), count > 0.0 ? sum / count : NAN);
    }
    const ls_svg_series series[] = {
        {.name = "each interval", .x = raw.x, .y = raw.y, .count = raw.count, .faint = true},
        {.name = "smoothed", .x = smooth.x, .y = smooth.y, .count = smooth.count}};
    draw_chart("what accounts had of their fair shares", series, 2, width, text);
    ls_arena_release(&arena);
}

static void draw_accounts(const ls_sim_summary *s, int width, ls_text *text)
{
    const ls_sim_run *run = s->run;
    const size_t stride = stride_of(run);
    ls_arena arena = {0};
    curve curves[LS_SIM_GROUPS];
    ls_svg_series series[LS_SIM_GROUPS];
    for (uint32_t g = 0; g < run->group_count; g++) {
        curves[g] = curve_create(&arena, run->bucket_count);
    }
    for (size_t i = 0; i < run->bucket_count; i += stride) {
        const size_t end = i + stride < run->bucket_count ? i + stride : run->bucket_count;
        const ls_sim_state mean = mean_of(run, i, end);
        double had[LS_SIM_GROUPS], fair[LS_SIM_GROUPS];
        ls_sim_fair_shares(run, &mean, had, fair);
        for (uint32_t g = 0; g < run->group_count; g++) {
            curve_add(&curves[g], day_of(run, i), fair[g] > 0.5 ? fmin(had[g] / fair[g], 2.0) : NAN);
        }
    }
    for (uint32_t g = 0; g < run->group_count; g++) {
        series[g] = (ls_svg_series){
            .name = run->group_names[g], .x = curves[g].x, .y = curves[g].y, .count = curves[g].count};
    }
    draw_chart("allocation over fair share (cut off at 2)", series, run->group_count, width, text);
    ls_arena_release(&arena);
}

/* ---- how long jobs took ---- */

/* Sorted values as a cumulative curve from 0 to 1, in as many points as can be seen. */
static curve distribution(ls_arena *arena, const double *sorted, size_t count)
{
    enum { POINTS = 400 };
    curve result = curve_create(arena, POINTS + 1);
    for (size_t i = 0; i <= POINTS && count > 0; i++) {
        const size_t at = (size_t)((double)i / POINTS * (double)(count - 1));
        curve_add(&result, fmax(sorted[at], 1.0), (double)(at + 1) / (double)count);
    }
    return result;
}

static void draw_jct(const ls_sim_summary *s, int width, ls_text *text)
{
    static const char *const names[] = {"run time alone", "from submission to end"};
    static const int colors[] = {7, 0};
    const ls_trace *trace = s->run->trace;
    ls_arena arena = {0};
    double *runs = ls_arena_new(&arena, double, trace->job_count),
           *jcts = ls_arena_new(&arena, double, s->all.jobs + 1);
    size_t ended = 0;
    for (size_t i = 0; i < trace->job_count; i++) {
        if (s->run->jobs[i].end_ms != LS_SIM_NEVER) {
            runs[ended] = 1e-3 * (double)trace->jobs[i].run_ms;
            jcts[ended] = 3600.0 * s->jcts_h[ended];
            ended++;
        }
    }
    ls_sort_f64(runs, ended);
    const curve run = distribution(&arena, runs, ended), jct = distribution(&arena, jcts, ended);
    const double last = ended ? fmax(fmax(runs[ended - 1], jcts[ended - 1]), 100.0) : 100.0;
    ls_svg_begin(text, width, HEIGHT, "distribution of completion times");
    ls_svg_label(text, 6, 16, LS_SVG_START, -1, "share of the jobs");
    const double y = ls_svg_legend(text, &(ls_svg_names){names, colors, 2}, 6, 36, width - 6);
    const ls_svg_axes axes = {.left = 48,
                              .top = y + 12,
                              .width = width - 66,
                              .height = HEIGHT - y - 48,
                              .x_min = 1.0,
                              .x_max = 1.3 * last,
                              .y_min = 0.0,
                              .y_max = 1.0,
                              .log_x = true};
    ls_svg_axes_append(&axes, NULL, ls_svg_tick_percent, text);
    static const struct {
        double seconds;
        const char *label;
    } ticks[] = {{1, "1 s"},      {60, "1 min"},   {600, "10 min"},   {3600, "1 h"},
                 {36000, "10 h"}, {345600, "4 d"}, {3456000, "40 d"}, {31536000, "1 y"}};
    for (size_t i = 0; i < sizeof ticks / sizeof ticks[0]; i++) {
        if (ticks[i].seconds < axes.x_max && (width > 600 || i % 2 == 1)) {
            ls_svg_axes_x_tick(&axes, ticks[i].seconds, ticks[i].label, text);
        }
    }
    ls_svg_axes_line(&axes, run.x, run.y, run.count, (ls_svg_ink){.color = colors[0], .dashed = true}, text);
    ls_svg_axes_line(&axes, jct.x, jct.y, jct.count, (ls_svg_ink){.color = colors[1]}, text);
    ls_svg_end(text);
    ls_arena_release(&arena);
}

/* ---- figures ---- */

typedef enum figure {
    USE,      /* devices allocated, and asked for, over time */
    QUEUE,    /* waiting and running jobs over time */
    JCT,      /* distribution of completion times, beside that of run times */
    FAIRNESS, /* over time: what all accounts had of their fair shares */
    ACCOUNTS, /* the same by account */
    FIGURES
} figure;

static const struct {
    const char *id, *title, *says;
    void (*draw)(const ls_sim_summary *s, int width, ls_text *text);
} figures[FIGURES] = {
    [USE] = {"use", "GPUs over time",
             "Where the lower line is below the size of the cluster while the upper one is above it, devices "
             "were idle although jobs waited.",
             draw_use},
    [QUEUE] = {"queue", "The queue", "Waiting and running jobs, as means over equal intervals.", draw_queue},
    [JCT] = {"jct", "How long jobs took",
             "The distance between the lines is time spent waiting and work lost to restarts. Where they "
             "touch, jobs ran as if they were alone.",
             draw_jct},
    [FAIRNESS] = {"fairness", "Fairness over time",
                  "A fair share divides the cluster evenly among the accounts that ask for it; what an "
                  "account does not ask for is divided among the others. 1 means that no account had less.",
                  draw_fairness},
    [ACCOUNTS] = {"accounts", "Fairness by account",
                  "Above 1 an account had more than its fair share, because others left it free or because "
                  "it was served first.",
                  draw_accounts},
};

static void add_figure(const ls_sim_summary *s, figure which, ls_values *page)
{
    ls_values *row = ls_values_add(page, "figures");
    ls_text made = {0};
    ls_values_text(row, "id", figures[which].id);
    ls_values_text(row, "heading", figures[which].title);
    ls_values_text(row, "says", figures[which].says);
    figures[which].draw(s, WIDE, &made);
    ls_values_markup(row, "wide", &made);
    figures[which].draw(s, PHONE, &made);
    ls_values_markup(row, "phone", &made);
}

/* ---- numbers ---- */

static void tile(ls_values *page, const char *small, const char *format, double value) LS_PRINTF(3, 0);
static void tile(ls_values *page, const char *small, const char *format, double value)
{
    char large[48];
    snprintf(large, sizeof large, format, value);
    ls_web_tile(page, large, small);
}

static void add_tiles(const ls_sim_summary *s, ls_values *page)
{
    tile(page, "average JCT: from submission to end", "%.2f h", s->all.jct_h);
    tile(page, "average wait", "%.2f h", s->all.wait_h);
    tile(page, "99 % of the jobs waited no longer", "%.1f h", s->all.wait_p99_h);
    tile(page, "utilisation until the last end", "%.1f %%", 100.0 * s->utilization);
    tile(page, "of GPU-hours allocated while the queue asked for more than was free", "%.1f %%",
         100.0 * s->allocated_when_short);
    if (!s->run->pooled) {
        tile(page, "preemptions", "%.0f", (double)s->preemptions);
        tile(page, "resizes", "%.0f", (double)s->resizes);
        tile(page, "GPU-hours lost to restarts and resizes", "%.0f", s->lost_device_h);
    }
    tile(page, "fairness", "%.3f", s->fairness);
}

static void add_table(const ls_sim_part *parts, size_t count, const char *by, ls_values *page)
{
    ls_values *table = ls_values_add(page, "tables");
    ls_values_text(table, "part", by);
    for (size_t i = 0; i < count; i++) {
        const ls_sim_part *p = &parts[i];
        if (p->jobs > 0) {
            ls_values *row = ls_values_add(table, "rows");
            ls_values_text(row, "name", p->name);
            ls_values_printf(row, "jobs", "%zu", p->jobs);
            ls_values_printf(row, "jct", "%.2f", p->jct_h);
            ls_values_printf(row, "wait", "%.2f", p->wait_h);
            ls_values_printf(row, "wait_p99", "%.1f", p->wait_p99_h);
            ls_values_printf(row, "gpu_hours", "%.0f", p->device_h);
            ls_values_printf(row, "slowdown", "%.1f", p->slowdown);
        }
    }
}

/* ---- the page ---- */

static void set_head(const ls_sim_summary *s, const char *command, ls_values *page)
{
    const ls_sim_run *run = s->run;
    ls_values_text(page, "page", "simulation");
    ls_values_printf(page, "title", "%s on %u GPUs \u00b7 Lockstep simulate", run->policy, run->devices);
    ls_values_printf(page, "jobs", "%zu", s->all.jobs);
    ls_values_printf(page, "gpus", "%u", run->devices);
    ls_values_flag(page, "pooled", run->pooled);
    ls_values_text(page, "policy", run->policy);
    ls_values_text(page, "trace", run->trace->name);
    ls_values_text(page, "command", command ? command : "");
    ls_values_flag(page, "has_lost", s->refused || run->unfinished);
    ls_values_printf(page, "refused", "%zu", s->refused);
    ls_values_printf(page, "unfinished", "%zu", run->unfinished);
}

void ls_sim_page_append(const ls_sim_summary *summary, const char *command, ls_text *text)
{
    ls_arena arena = {0};
    ls_values *page = ls_values_create(&arena);
    set_head(summary, command, page);
    add_tiles(summary, page);
    for (figure which = 0; which < FIGURES; which++) {
        if (which != ACCOUNTS || summary->run->group_count > 1) {
            add_figure(summary, which, page);
        }
    }
    add_table(summary->sizes, LS_SIM_SIZES, "GPUs", page);
    add_table(summary->groups, summary->run->group_count, "account", page);
    ls_web_append("simulation.html", page, text);
    ls_arena_release(&arena);
}
