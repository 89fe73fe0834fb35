// SPDX-License-Identifier: Apache-2.0
/* One step of one GPU in lanes: what it computes, what it waits for, and what is hidden under the
 * computation. The exposed parts add up to the step. */
#include "telemetry/plan_page/plan_page_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LABEL_HEIGHT = 17, BAR_HEIGHT = 16, LANE_HEIGHT = 42, GROUPS_WIDE = 16, GROUPS_NARROW = 6 };

typedef enum lane {
    LANE_COMPUTE,
    /* inside layers: tensor, context, expert parallel */
    LANE_EXCHANGE,
    /* sends and bubble */
    LANE_STAGES,
    /* gradients and ZeRO */
    LANE_DATA,
    LANE_UPDATE,
    LANE_OTHER,
    LANES
} lane;

static const char *const lane_names[LANES] = {
    "computing", "exchange inside layers", "between stages", "gradients", "optimizer", "overhead"};

typedef struct lanes {
    const ls_time_estimate *time;
    double total_s[LANES]; /* by how much it lengthens the step */
    double left, scale;
    double y[LANES]; /* top of the bars; NAN: not drawn */
    double groups;
    ls_text *text;
} lanes;

static double sum_of(const double *terms, const ls_term *which, size_t count)
{
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += terms[which[i]];
    }
    return sum;
}

static void find_totals(const ls_time_estimate *time, double total_s[LANES])
{
    static const ls_term compute[] = {LS_TERM_MATMUL, LS_TERM_ATTENTION, LS_TERM_ELEMENTWISE};
    static const ls_term exchange[] = {LS_TERM_TENSOR, LS_TERM_CONTEXT, LS_TERM_EXPERT};
    static const ls_term stages[] = {LS_TERM_PIPELINE, LS_TERM_BUBBLE};
    static const ls_term other[] = {LS_TERM_LAUNCH, LS_TERM_FIXED, LS_TERM_STRAGGLER, LS_TERM_INPUT};
    total_s[LANE_COMPUTE] = sum_of(time->terms_s, compute, 3);
    total_s[LANE_EXCHANGE] = sum_of(time->terms_s, exchange, 3);
    total_s[LANE_STAGES] = sum_of(time->terms_s, stages, 2);
    total_s[LANE_DATA] = time->terms_s[LS_TERM_DATA];
    total_s[LANE_UPDATE] = time->terms_s[LS_TERM_OPTIMIZER];
    total_s[LANE_OTHER] = sum_of(time->terms_s, other, 4);
}

typedef struct paint {
    int color;
    double opacity;
    const char *said; /* shown when one points at it */
} paint;

/* Draws [at_s, at_s + lasts_s] and returns its end. */
static double put(const lanes *l, lane where, double at_s, double lasts_s, paint with)
{
    if (isfinite(l->y[where])) {
        ls_svg_cell(l->text,
                    (ls_svg_rect){l->left + at_s * l->scale, l->y[where], fmax(lasts_s * l->scale - 0.6, 0.0),
                                  BAR_HEIGHT},
                    (ls_svg_ink){.color = with.color, .opacity = with.opacity}, with.said);
    }
    return at_s + lasts_s;
}

/* A few micro-batches as one block: forward, backward, and their waits. */
static double put_group(const lanes *l, double at_s, double gather_s)
{
    const double all_s = l->time->stage_forward_s + l->time->stage_backward_s;
    const double forward = all_s > 0.0 ? l->time->stage_forward_s / all_s : 1.0 / 3;
    const double compute_s = l->total_s[LANE_COMPUTE] / l->groups,
                 exchange_s = l->total_s[LANE_EXCHANGE] / l->groups;
    at_s = put(l, LANE_DATA, at_s, gather_s,
               (paint){LS_PAGE_COMMUNICATION, 1.0, "gathered weights and scattered gradients, exposed"});
    at_s = put(l, LANE_COMPUTE, at_s, compute_s * forward, (paint){LS_PAGE_FORWARD, 1.0, "forward"});
    at_s = put(l, LANE_EXCHANGE, at_s, exchange_s * forward,
               (paint){LS_PAGE_COMMUNICATION, 1.0, "forward: exchange inside layers"});
    at_s = put(l, LANE_COMPUTE, at_s, compute_s * (1 - forward), (paint){LS_PAGE_BACKWARD, 1.0, "backward"});
    at_s = put(l, LANE_EXCHANGE, at_s, exchange_s * (1 - forward),
               (paint){LS_PAGE_COMMUNICATION, 1.0, "backward: exchange inside layers"});
    at_s = put(l, LANE_STAGES, at_s, l->time->terms_s[LS_TERM_PIPELINE] / l->groups,
               (paint){LS_PAGE_COMMUNICATION, 1.0, "sends between stages"});
    return put(l, LANE_OTHER, at_s, l->time->terms_s[LS_TERM_LAUNCH] / l->groups,
               (paint){LS_PAGE_WAITING, 1.0, "waiting for kernels to be launched"});
}

static void put_step(const lanes *l, bool gathers)
{
    const double *terms = l->time->terms_s;
    const double hidden_s = fmax(l->time->hidden_data_s, 0.0), gather_s = gathers ? terms[LS_TERM_DATA] : 0.0;
    double at_s = put(l, LANE_STAGES, 0.0, terms[LS_TERM_BUBBLE] / 2,
                      (paint){LS_PAGE_WAITING, 0.6, "bubble: the pipeline fills"});
    for (int i = 0; i < (int)l->groups; i++) {
        const double begin_s = at_s;
        at_s = put_group(l, at_s, gather_s / l->groups);
        if (gathers) {
            const double from_s = begin_s + gather_s / l->groups;
            put(l, LANE_DATA, from_s, fmin(hidden_s / l->groups, at_s - from_s),
                (paint){LS_PAGE_COMMUNICATION, LS_SVG_PALE_OPACITY, "under the computation"});
        }
    }
    at_s = put(l, LANE_STAGES, at_s, terms[LS_TERM_BUBBLE] / 2,
               (paint){LS_PAGE_WAITING, 0.6, "bubble: the pipeline drains"});
    if (!gathers) {
        const double under_s = fmin(hidden_s, at_s);
        put(l, LANE_DATA, at_s - under_s, under_s,
            (paint){LS_PAGE_COMMUNICATION, LS_SVG_PALE_OPACITY, "gradients under the computation"});
        at_s = put(l, LANE_DATA, at_s, terms[LS_TERM_DATA],
                   (paint){LS_PAGE_COMMUNICATION, 1.0, "gradients that nothing hides"});
    }
    at_s = put(l, LANE_UPDATE, at_s, terms[LS_TERM_OPTIMIZER], (paint){LS_PAGE_OPTIMIZER, 1.0, "optimizer"});
    put(l, LANE_OTHER, at_s, terms[LS_TERM_FIXED] + terms[LS_TERM_STRAGGLER] + terms[LS_TERM_INPUT],
        (paint){LS_PAGE_WAITING, 1.0, "fixed, stragglers, data feed"});
}

static double place_lanes(lanes *l, double y, double hidden_s)
{
    for (int k = 0; k < LANES; k++) {
        l->y[k] = NAN;
        if (l->total_s[k] <= 0.0 && !(k == LANE_DATA && hidden_s > 0.0)) {
            continue;
        }
        char label[128], duration[32], hidden[64] = "";
        snprintf(duration, sizeof duration, "%s", ls_time_of(l->total_s[k]).text);
        if (k == LANE_DATA && hidden_s > 0.0) {
            char under[32];
            snprintf(under, sizeof under, "%s", ls_time_of(hidden_s).text);
            snprintf(hidden, sizeof hidden, " + %s hidden", under);
        }
        snprintf(label, sizeof label, "%s: %s, %.1f %%%s", lane_names[k], duration,
                 100.0 * l->total_s[k] / l->time->step_s, hidden);
        ls_svg_label(l->text, LS_PAGE_MARGIN, y + 12, LS_SVG_START, 0, label);
        ls_svg_cell(l->text, (ls_svg_rect){l->left, y + LABEL_HEIGHT, l->time->step_s * l->scale, BAR_HEIGHT},
                    (ls_svg_ink){.color = LS_PAGE_WAITING, .opacity = 0.1}, NULL);
        l->y[k] = y + LABEL_HEIGHT;
        y += LANE_HEIGHT;
    }
    return y;
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    static const char *const names[] = {"forward", "backward", "communication", "pale: hidden", "waiting"};
    static const int colors[] = {LS_PAGE_FORWARD, LS_PAGE_BACKWARD, LS_PAGE_COMMUNICATION,
                                 LS_PAGE_COMMUNICATION + LS_SVG_PALE, LS_PAGE_WAITING};
    const ls_time_estimate *time = &page->plan->estimate.time;
    const double most = ls_canvas_is_narrow(canvas) ? GROUPS_NARROW : GROUPS_WIDE;
    lanes l = {.time = time, .left = LS_PAGE_MARGIN, .text = &canvas->parts};
    l.groups = fmax(1.0, fmin(most, (double)time->micro_batches));
    l.scale = ls_canvas_inner(canvas) / time->step_s;
    find_totals(time, l.total_s);
    ls_canvas_legend(canvas, names, colors, 5);
    canvas->y = place_lanes(&l, canvas->y, time->hidden_data_s);
    put_step(&l, page->plan->estimate.strategy.zero >= 3);
    const ls_svg_axes axes = {.left = l.left,
                              .top = canvas->y - 12,
                              .width = ls_canvas_inner(canvas),
                              .height = 4,
                              .x_max = time->step_s,
                              .y_max = 1};
    ls_svg_axes_append(&axes, ls_svg_tick_seconds, NULL, l.text);
    canvas->y += 24;
    if (l.groups < (double)time->micro_batches) {
        ls_canvas_note(canvas,
                       "To scale; a block of forward and backward stands for about %.3g of %" PRId64
                       " micro-batches. Half of the bubble is drawn before them, half after.",
                       (double)time->micro_batches / l.groups, time->micro_batches);
    }
}

static void say(const ls_plan_page *page, ls_text *text)
{
    const ls_time_estimate *time = &page->plan->estimate.time;
    double total_s[LANES];
    char step[32], hidden[32];
    find_totals(time, total_s);
    lane worst = LANE_EXCHANGE;
    for (int k = LANE_EXCHANGE; k < LANES; k++) {
        worst = total_s[k] > total_s[worst] ? (lane)k : worst;
    }
    snprintf(step, sizeof step, "%s", ls_time_of(time->step_s).text);
    snprintf(hidden, sizeof hidden, "%s", ls_time_of(time->hidden_data_s).text);
    ls_text_printf(text, "A step takes **%s** and computes for %.0f %% of it. ", step,
                   100.0 * total_s[LANE_COMPUTE] / time->step_s);
    if (total_s[worst] >= 0.005 * time->step_s) {
        ls_text_printf(text, "The longest wait is for %s: %.1f %%. ", lane_names[worst],
                       100.0 * total_s[worst] / time->step_s);
    } else {
        ls_text_append(text, "It hardly waits for anything. ");
    }
    if (time->hidden_data_s > 0.0) {
        ls_text_printf(
            text,
            "%s of communication is hidden under computation and costs nothing; only what sticks out "
            "makes the step longer.",
            hidden);
    }
}

static bool has(const ls_plan_page *page)
{
    return page->plan->estimate.time.step_s > 0.0;
}

const ls_page_figure ls_page_timeline = {
    .name = "timeline",
    .title = "One step",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "No step time was computed: the model does not fit.",
};
