// SPDX-License-Identifier: Apache-2.0
/* The pipeline: stages over time, simulated with the durations of the plan, for as many stages and
 * micro-batches as fit into a picture. */
#include "telemetry/plan_page/plan_page_internal.h"

#include "base/assert.h"
#include "planning/step/step_time.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define END_SHARE_MOST 0.25 /* share of the picture for what follows the pipeline */
enum { ROW_HEIGHT = 30, CELL_HEIGHT = 24, NUMBER_ROOM = 13, WEIGHTS_COLOR = 5 };

static int least(int64_t a, int64_t b)
{
    return (int)(a < b ? a : b);
}

/* The part of the plan's pipeline that is drawn. */
static ls_trace_setting trace_setting(const ls_plan_page *page, bool narrow)
{
    const ls_strategy *strategy = &page->plan->estimate.strategy;
    const ls_time_estimate *time = &page->plan->estimate.time;
    ls_step_parts parts;
    ls_step_parts_compute(&page->plan->setting, strategy, &parts);
    ls_trace_setting s = {
        .stages = least(strategy->pp, narrow ? 4 : LS_TRACE_STAGES_MOST),
        .chunks = least(strategy->vpp, narrow ? 2 : LS_TRACE_CHUNKS_MOST),
        .schedule = strategy->schedule,
    };
    /* the interleaved order works in whole groups, of as many micro-batches as there are stages */
    if (s.chunks > 1) {
        const int groups = narrow || s.stages > 4 ? 1 : 2;
        s.stages = least(s.stages, time->micro_batches);
        s.micro_batches = s.stages * least(groups, time->micro_batches / s.stages);
    } else {
        s.micro_batches = least(time->micro_batches, narrow ? 8 : LS_TRACE_MICRO_BATCHES_MOST);
    }
    s.forward_s = time->stage_forward_s / s.chunks;
    s.backward_s = time->stage_backward_s / s.chunks;
    s.weights_s = fmin(parts.layers_slowest * parts.matmul.backward_s / 2 / s.chunks, 0.9 * s.backward_s);
    s.send_s = strategy->pp > 1 ? parts.send_s * (double)strategy->vpp / s.chunks : 0.0;
    return s;
}

static bool is_whole(const ls_plan_page *page, const ls_trace_setting *s)
{
    const ls_strategy *strategy = &page->plan->estimate.strategy;
    return s->stages == strategy->pp && s->chunks == strategy->vpp &&
           s->micro_batches == page->plan->estimate.time.micro_batches;
}

/* Where the schedule is drawn. */
typedef struct frame {
    double left, right, top, height;
    double scale; /* units per second */
    ls_text *text;
} frame;

/* `exchange`: share of a cell in which its GPU waits for exchanges within its group. */
static void draw_cell(const ls_trace_setting *s, const ls_trace_cell *cell, double exchange, const frame *in)
{
    static const int colors[] = {LS_PAGE_FORWARD, LS_PAGE_BACKWARD, WEIGHTS_COLOR};
    static const char *const works[] = {"forward", "backward", "gradients of weights"};
    char said[128], number[16], duration[32];
    const double x = in->left + cell->begin_s * in->scale;
    const double width = (cell->end_s - cell->begin_s) * in->scale, y = in->top + cell->stage * ROW_HEIGHT;
    snprintf(duration, sizeof duration, "%s", ls_time_of(cell->end_s - cell->begin_s).text);
    snprintf(said, sizeof said, "%s of micro-batch %d, %s", works[cell->work], cell->micro_batch + 1,
             duration);
    /* Later chunks of an interleaved pipeline are paler. */
    const double opacity = s->chunks > 1 ? 0.8 - 0.4 * cell->chunk / (s->chunks - 1) : 0.55;
    ls_svg_cell(in->text, (ls_svg_rect){x, y, fmax(width - 0.7, 0.4), CELL_HEIGHT},
                (ls_svg_ink){.color = colors[cell->work], .opacity = opacity}, said);
    if (width * exchange >= 0.8) {
        ls_svg_cell(in->text, (ls_svg_rect){x, y + CELL_HEIGHT - 4, width * exchange, 4},
                    (ls_svg_ink){.color = LS_PAGE_COMMUNICATION}, "communication in it");
    }
    snprintf(number, sizeof number, "%d", cell->micro_batch + 1);
    if (width >= NUMBER_ROOM + (cell->micro_batch >= 9 ? 6 : 0)) {
        ls_svg_label(in->text, x + width / 2, y + 16, LS_SVG_MIDDLE, 0, number);
    }
}

/* The end of the step: gradients that nothing hides, and the update. */
static void draw_end(const ls_plan_page *page, double x, const frame *in)
{
    const double *terms = page->plan->estimate.time.terms_s;
    const double exposed_s = page->plan->estimate.strategy.zero >= 3 ? 0.0 : terms[LS_TERM_DATA];
    const double data = exposed_s * in->scale, update = terms[LS_TERM_OPTIMIZER] * in->scale;
    ls_svg_cell(in->text, (ls_svg_rect){x, in->top, fmin(data, in->right - x), in->height},
                (ls_svg_ink){.color = LS_PAGE_COMMUNICATION, .opacity = 0.75},
                "gradients: communication that nothing hides");
    x += data;
    ls_svg_cell(in->text, (ls_svg_rect){x, in->top, fmin(update, in->right - x), in->height},
                (ls_svg_ink){.color = LS_PAGE_OPTIMIZER, .opacity = 0.75}, "optimizer");
}

static double exchange_share(const ls_time_estimate *time)
{
    const double *t = time->terms_s;
    const double exchange_s = t[LS_TERM_TENSOR] + t[LS_TERM_CONTEXT] + t[LS_TERM_EXPERT];
    const double all_s = (double)time->micro_batches * (time->stage_forward_s + time->stage_backward_s);
    return all_s > 0.0 ? fmin(1.0, exchange_s / all_s) : 0.0;
}

static void draw_note(const ls_plan_page *page, const ls_trace_setting *s, const ls_plan_trace *trace,
                      ls_canvas *canvas)
{
    const ls_strategy *strategy = &page->plan->estimate.strategy;
    if (s->stages == 1 && strategy->pp == 1 && !is_whole(page, s)) {
        ls_canvas_note(canvas, "Drawn: %d of %" PRId64 " micro-batches, to scale.", s->micro_batches,
                       page->plan->estimate.time.micro_batches);
        return;
    }
    if (is_whole(page, s)) {
        ls_canvas_note(canvas, "The whole step, to scale.");
        return;
    }
    char chunks[48] = "";
    if (s->chunks < strategy->vpp) {
        snprintf(chunks, sizeof chunks, ", %d of %" PRId64 " chunks on each", s->chunks, strategy->vpp);
    }
    ls_canvas_note(
        canvas,
        "Drawn: %d of %" PRId64 " stages%s, %d of %" PRId64
        " micro-batches, each to scale. Here stages wait %.0f %% of the time, in the whole step %.1f %%.",
        s->stages, strategy->pp, chunks, s->micro_batches, page->plan->estimate.time.micro_batches,
        100.0 * trace->bubble,
        100.0 * page->plan->estimate.time.terms_s[LS_TERM_BUBBLE] / page->plan->estimate.time.step_s);
}

static void draw_time_axis(double left, double width, double top, double height, double until_s,
                           ls_text *text)
{
    const ls_svg_axes axes = {
        .left = left, .top = top, .width = width, .height = height, .x_max = until_s, .y_max = 1.0};
    ls_svg_axes_append(&axes, ls_svg_tick_seconds, NULL, text);
}

static void draw_legend(const ls_trace_setting *s, ls_canvas *canvas)
{
    static const char *const names[] = {"forward",       "backward",  "waiting",
                                        "communication", "optimizer", "gradients of weights"};
    static const int colors[] = {LS_PAGE_FORWARD,       LS_PAGE_BACKWARD,  LS_PAGE_WAITING,
                                 LS_PAGE_COMMUNICATION, LS_PAGE_OPTIMIZER, WEIGHTS_COLOR};
    const bool zero_bubble = s->schedule == LS_PIPELINE_ZB_H1 || s->schedule == LS_PIPELINE_ZB_H2;
    ls_canvas_legend(canvas, names, colors, zero_bubble ? 6 : 5);
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    ls_text *text = &canvas->parts;
    const ls_trace_setting s = trace_setting(page, ls_canvas_is_narrow(canvas));
    ls_plan_trace *trace = malloc(sizeof *trace);
    LS_ASSERT(trace);
    ls_trace_compute(&s, trace);
    const double exchange = exchange_share(&page->plan->estimate.time);
    const double *terms = page->plan->estimate.time.terms_s;
    const double end_s =
        (page->plan->estimate.strategy.zero >= 3 ? 0.0 : terms[LS_TERM_DATA]) + terms[LS_TERM_OPTIMIZER];
    const double until_s = trace->end_s + fmin(end_s, END_SHARE_MOST * trace->end_s);
    const double left = LS_PAGE_MARGIN + 56, width = canvas->width - LS_PAGE_MARGIN - left,
                 scale = width / until_s;
    draw_legend(&s, canvas);
    const double top = canvas->y + 4, height = s.stages * ROW_HEIGHT;
    for (int stage = 0; stage < s.stages; stage++) {
        char name[32];
        snprintf(name, sizeof name, "stage %d", stage + 1);
        ls_svg_label(text, LS_PAGE_MARGIN, top + stage * ROW_HEIGHT + 16, LS_SVG_START, -1, name);
        ls_svg_cell(text, (ls_svg_rect){left, top + stage * ROW_HEIGHT, trace->end_s * scale, CELL_HEIGHT},
                    (ls_svg_ink){.color = LS_PAGE_WAITING, .opacity = 0.22}, "waiting");
    }
    const frame in = {.left = left,
                      .right = left + width,
                      .top = top,
                      .height = height - (ROW_HEIGHT - CELL_HEIGHT),
                      .scale = scale,
                      .text = text};
    for (size_t i = 0; i < trace->count; i++) {
        draw_cell(&s, &trace->cells[i], exchange, &in);
    }
    draw_end(page, left + trace->end_s * scale, &in);
    draw_time_axis(left, width, top, height, until_s, text);
    canvas->y = top + height + 30;
    draw_note(page, &s, trace, canvas);
    if (end_s > END_SHARE_MOST * trace->end_s) {
        ls_canvas_note(canvas, "What follows the last backward is cut off on the right.");
    }
    free(trace);
}

static void say(const ls_plan_page *page, ls_text *text)
{
    const ls_strategy *s = &page->plan->estimate.strategy;
    const ls_time_estimate *time = &page->plan->estimate.time;
    char forward[32], backward[32];
    snprintf(forward, sizeof forward, "%s", ls_time_of(time->stage_forward_s).text);
    snprintf(backward, sizeof backward, "%s", ls_time_of(time->stage_backward_s).text);
    const double bubble = time->terms_s[LS_TERM_BUBBLE] / time->step_s;
    if (s->pp == 1) {
        ls_text_printf(text,
                       "There is one stage, so no stage waits for another. A step is **%" PRId64
                       " micro-batch%s** one after the other, each %s forward and %s backward. ",
                       time->micro_batches, time->micro_batches == 1 ? "" : "es", forward, backward);
        ls_text_append(text, "Numbers are micro-batches.");
        return;
    }
    ls_text_printf(
        text,
        "Each row is a pipeline stage, each number (where there is room) a micro-batch: %s forward and %s "
        "backward on a stage. Stages wait while the pipeline fills and drains: **%.1f %% of the step**. ",
        forward, backward, 100.0 * bubble);
    if (s->vpp > 1) {
        ls_text_printf(text,
                       "Each stage holds %" PRId64
                       " chunks of layers (paler: later ones), so it waits for 1/%" PRId64 " of that time. ",
                       s->vpp, s->vpp);
    }
    ls_text_printf(text, "More micro-batches per step than the %" PRId64 " here would shorten that wait.",
                   time->micro_batches);
}

static bool has(const ls_plan_page *page)
{
    return page->plan->estimate.fit != LS_FIT_NO || page->plan->estimate.time.step_s > 0.0;
}

const ls_page_figure ls_page_pipeline = {
    .name = "pipeline",
    .title = "The pipeline",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "No step time was computed: the model does not fit.",
};
