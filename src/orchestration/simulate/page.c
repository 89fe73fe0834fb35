// SPDX-License-Identifier: Apache-2.0
#include "orchestration/simulate/page.h"

#include "base/svg_axes.h"
#include "telemetry/report_style.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDE = 990, PHONE = 328, HEIGHT = 320, SMOOTH_POINTS = 96 };

static const char page_style[] =
    ".answer{font-size:19px;line-height:1.45;margin:12px 0 18px;max-width:70ch}"
    ".card{margin-bottom:16px}.card h2{margin:2px 6px 8px;font-size:18px}.card p{color:var(--ink)}.tables "
    "h3{font-size:16px;margin:16px 6px 4px}"
    "td,th{text-align:right}td:first-child,th:first-child{text-align:left}.scroll{overflow-x:auto}"
    "@media(max-width:700px){main{padding:14px 8px 40px}.card{padding:6px}.answer{font-size:17px}}\n";

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

/* The mean of some intervals. */
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

/* Intervals that one point of a smooth curve stands for. */
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
        /* What is asked for beyond twice the cluster would only make the rest flat. */
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
    draw_chart("of their fair shares, what accounts had", series, 2, width, text);
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
    draw_chart("had, over its fair share (cut off at 2)", series, run->group_count, width, text);
    ls_arena_release(&arena);
}

/* ---- how long jobs took ---- */

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorted values as a curve from 0 to 1, in as many points as can be seen. */
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
    qsort(runs, ended, sizeof runs[0], compare_numbers);
    const curve run = distribution(&arena, runs, ended), jct = distribution(&arena, jcts, ended);
    const double last = ended ? fmax(fmax(runs[ended - 1], jcts[ended - 1]), 100.0) : 100.0;
    ls_svg_begin(text, width, HEIGHT, "distribution of completion times");
    ls_svg_label(text, 6, 16, LS_SVG_START, -1, "part of the jobs");
    const double y = ls_svg_legend(text, names, colors, 2, 6, 36, width - 6);
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
    ls_svg_axes_line(&axes, run.x, run.y, run.count, colors[0], true, text);
    ls_svg_axes_line(&axes, jct.x, jct.y, jct.count, colors[1], false, text);
    ls_svg_end(text);
    ls_arena_release(&arena);
}

/* ---- figures ---- */

typedef enum figure {
    USE,      /* devices allocated, and asked for, over time */
    QUEUE,    /* jobs that wait and run over time */
    JCT,      /* distribution of completion times, beside that of run times */
    FAIRNESS, /* over time: of their fair shares, what all accounts had */
    ACCOUNTS, /* the same by account */
    FIGURES
} figure;

static const struct {
    const char *id, *title, *says;
    void (*draw)(const ls_sim_summary *s, int width, ls_text *text);
} figures[FIGURES] = {
    [USE] = {"use", "GPUs over time",
             "Where the lower line stays under the cluster while the upper one is above it, devices stood "
             "idle although jobs waited.",
             draw_use},
    [QUEUE] = {"queue", "The queue", "Jobs that waited and ran, means of equal intervals.", draw_queue},
    [JCT] = {"jct", "How long jobs took",
             "The distance between the lines is waiting and what restarts lost: where they touch, jobs ran "
             "as if they were alone.",
             draw_jct},
    [FAIRNESS] = {"fairness", "Fairness over time",
                  "A fair share divides the cluster evenly between accounts that ask for it, and what one "
                  "does not ask for among the others. 1: nobody had "
                  "less than that.",
                  draw_fairness},
    [ACCOUNTS] = {"accounts", "Fairness by account",
                  "Above 1 an account had more than its fair share, because others left it free or because "
                  "it was ahead.",
                  draw_accounts},
};

static void append_section(const ls_sim_summary *s, figure which, ls_text *text)
{
    ls_text_printf(text, "<section class=\"card\" id=\"%s\"><h2>%s</h2>\n<div class=\"ls-wide\">",
                   figures[which].id, figures[which].title);
    figures[which].draw(s, WIDE, text);
    ls_text_append(text, "</div><div class=\"ls-phone\">");
    figures[which].draw(s, PHONE, text);
    ls_text_printf(text, "</div><p>%s</p></section>\n", figures[which].says);
}

/* ---- numbers ---- */

static void tile(ls_text *text, const char *name, const char *format, double value)
{
    char number[48];
    snprintf(number, sizeof number, format, value);
    ls_text_printf(text, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", number, name);
}

static void append_tiles(const ls_sim_summary *s, ls_text *text)
{
    ls_text_append(text, "<div class=\"tiles\">\n");
    tile(text, "average JCT: from submission to end", "%.2f h", s->all.jct_h);
    tile(text, "average wait", "%.2f h", s->all.wait_h);
    tile(text, "99 % waited no longer than", "%.1f h", s->all.wait_p99_h);
    tile(text, "utilisation until the last end", "%.1f %%", 100.0 * s->utilization);
    tile(text, "of GPU-hours allocated while the queue asked for more than was free", "%.1f %%",
         100.0 * s->allocated_when_short);
    if (!s->run->pooled) {
        tile(text, "preemptions", "%.0f", (double)s->preemptions);
        tile(text, "resizes", "%.0f", (double)s->resizes);
        tile(text, "GPU-hours lost by restarts and resizes", "%.0f", s->lost_device_h);
    }
    tile(text, "fairness", "%.3f", s->fairness);
    ls_text_append(text, "</div>\n");
}

static void append_table(const ls_sim_part *parts, size_t count, const char *what, ls_text *text)
{
    ls_text_printf(
        text,
        "<h3>By %s</h3><div class=\"scroll\"><table><thead><tr><th>%s</th><th>jobs</th><th>JCT, h</th>"
        "<th>wait, h</th><th>99 %% of waits, h</th><th>GPU-hours</th><th>JCT / run time</th></tr></thead>"
        "<tbody>\n",
        what, what);
    for (size_t i = 0; i < count; i++) {
        const ls_sim_part *p = &parts[i];
        if (p->jobs > 0) {
            ls_text_append(text, "<tr><td>");
            ls_text_append_escaped(text, p->name);
            ls_text_printf(
                text,
                "</td><td>%zu</td><td>%.2f</td><td>%.2f</td><td>%.1f</td><td>%.0f</td><td>%.1f</td>"
                "</tr>\n",
                p->jobs, p->jct_h, p->wait_h, p->wait_p99_h, p->device_h, p->slowdown);
        }
    }
    ls_text_append(text, "</tbody></table></div>\n");
}

/* ---- the page ---- */

static void append_head(const ls_sim_summary *s, const char *command, ls_text *text)
{
    ls_text_append(text, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                         "style-src 'unsafe-inline'; img-src data:\">\n"
                         "<link rel=\"icon\" href=\"data:,\">\n<title>");
    ls_text_printf(text, "%s on %u GPUs \u00b7 Lockstep simulate</title>\n<style>", s->run->policy,
                   s->run->devices);
    ls_text_append(text, ls_report_style);
    ls_text_append(text, page_style);
    ls_text_printf(text,
                   "</style></head>\n<body><main>\n<div class=\"head\"><h1>%zu jobs on %u GPUs%s</h1>"
                   "<span class=\"badge good\">%s</span></div>\n<p class=\"sub\">",
                   s->all.jobs, s->run->devices, s->run->pooled ? ", pooled" : "", s->run->policy);
    ls_text_append_escaped(text, s->run->trace->name);
    if (command) {
        ls_text_append(text, "<br><code>");
        ls_text_append_escaped(text, command);
        ls_text_append(text, "</code>");
    }
    ls_text_append(text, "</p>\n");
    if (s->refused || s->run->unfinished) {
        ls_text_printf(text,
                       "<p class=\"answer\">Jobs refused, because they can never run there: %zu; that did "
                       "not end: %zu.</p>\n",
                       s->refused, s->run->unfinished);
    }
}

void ls_sim_page_append(const ls_sim_summary *summary, const char *command, ls_text *text)
{
    append_head(summary, command, text);
    append_tiles(summary, text);
    for (figure which = 0; which < FIGURES; which++) {
        if (which != ACCOUNTS || summary->run->group_count > 1) {
            append_section(summary, which, text);
        }
    }
    ls_text_append(text, "<section class=\"card tables\" id=\"tables\"><h2>Parts</h2>\n");
    append_table(summary->sizes, LS_SIM_SIZES, "GPUs", text);
    append_table(summary->groups, summary->run->group_count, "account", text);
    ls_text_append(text, "</section>\n</main></body></html>\n");
}
