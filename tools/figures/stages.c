// SPDX-License-Identifier: Apache-2.0
/* A leaf of a run with stages, as its trace shows it, beside the plan. */
#include "figures/drawings.h"

#include "base/json.h"
#include "base/math.h"
#include "figures/drawings_internal.h"
#include "model/pipeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    WIDTH = LS_DRAWING_WIDTH,
    MARGIN = LS_DRAWING_MARGIN,
    INNER = LS_DRAWING_INNER,
    STAGES_MAX = LS_PIPELINE_DRAWING_STAGES_MAX,
    PASSES_MAX = 2 * LS_PIPELINE_DRAWING_MICRO_BATCHES_MAX,
    NAME_WIDTH = 50,
    ROW = 20,
    FORWARD_COLOR = 0,
    BACKWARD_COLOR = 1,
};

/* One pass of a micro-batch; times in seconds. */
typedef struct pass {
    bool backward;
    double start_s, end_s;
} pass;

/* The passes of a stage in a leaf. */
typedef struct stage_track {
    pass passes[PASSES_MAX];
    uint32_t count;
} stage_track;

typedef struct leaf_passes {
    stage_track tracks[STAGES_MAX];
    uint32_t stages;
    double begin_s, end_s;
} leaf_passes;

/* ---- from slices to passes ---- */

typedef struct trace_slice {
    int64_t rank, step, leaf, number;
    bool backward;
    double start_s, end_s;
} trace_slice;

/* False: no slice of a pass. */
static bool read_slice(const json_t *event, trace_slice *slice_out)
{
    const json_t *args = json_object_get(event, "args");
    const char *name = json_string_value(json_object_get(event, "cat"));
    if (!name || (strcmp(name, "forward") != 0 && strcmp(name, "backward") != 0)) {
        return false;
    }
    const double start_s = 1e-6 * json_number_value(json_object_get(event, "ts"));
    *slice_out = (trace_slice){.rank = json_integer_value(json_object_get(event, "pid")),
                               .step = json_integer_value(json_object_get(args, "step")),
                               .leaf = json_integer_value(json_object_get(args, "leaf")),
                               .number = json_integer_value(json_object_get(args, "number")),
                               .backward = name[0] == 'b',
                               .start_s = start_s,
                               .end_s = start_s + 1e-6 * json_number_value(json_object_get(event, "dur"))};
    return slice_out->rank >= 0 && slice_out->rank < STAGES_MAX;
}

/* A pass ends where the direction changes, or the numbers of the operations begin again. Slices of
 * a rank are in the order of time. */
static void add_slice(leaf_passes *found, const trace_slice *s, int64_t last_number[STAGES_MAX])
{
    stage_track *track = &found->tracks[s->rank];
    pass *last = track->count > 0 ? &track->passes[track->count - 1] : NULL;
    if (!last || last->backward != s->backward || s->number <= last_number[s->rank]) {
        if (track->count == PASSES_MAX) {
            return;
        }
        track->passes[track->count++] = (pass){s->backward, s->start_s, s->end_s};
    } else {
        last->end_s = s->end_s;
    }
    last_number[s->rank] = s->number;
    found->stages = s->rank + 1 > found->stages ? (uint32_t)s->rank + 1 : found->stages;
}

/* All stages have as many passes in each direction. */
static bool is_whole(const leaf_passes *found)
{
    bool whole = found->stages >= 2;
    for (uint32_t stage = 0; stage < found->stages; stage++) {
        uint32_t backward = 0;
        for (uint32_t i = 0; i < found->tracks[stage].count; i++) {
            backward += found->tracks[stage].passes[i].backward;
        }
        whole = whole && backward > 0 && 2 * backward == found->tracks[stage].count &&
                found->tracks[stage].count == found->tracks[0].count;
    }
    return whole;
}

static void measure(leaf_passes *found)
{
    found->begin_s = INFINITY;
    found->end_s = 0.0;
    for (uint32_t stage = 0; stage < found->stages; stage++) {
        const stage_track *track = &found->tracks[stage];
        found->begin_s = fmin(found->begin_s, track->passes[0].start_s);
        found->end_s = fmax(found->end_s, track->passes[track->count - 1].end_s);
    }
}

static leaf_passes read_leaf(const json_t *events, int64_t step, int64_t number)
{
    leaf_passes found = {0};
    int64_t last_number[STAGES_MAX] = {0};
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        trace_slice s;
        if (read_slice(event, &s) && s.step == step && s.leaf == number) {
            add_slice(&found, &s, last_number);
        }
    }
    return found;
}

/* The leaf that took the shortest time: the one that was disturbed least. */
static bool find_leaf(const json_t *events, leaf_passes *best)
{
    int64_t step = -1, number = -1;
    bool has_one = false;
    size_t i;
    const json_t *event;
    json_array_foreach(events, i, event)
    {
        trace_slice s;
        if (!read_slice(event, &s) || s.rank != 0 || (s.step == step && s.leaf == number)) {
            continue;
        }
        step = s.step;
        number = s.leaf;
        leaf_passes found = read_leaf(events, step, number);
        if (is_whole(&found)) {
            measure(&found);
            if (!has_one || found.end_s - found.begin_s < best->end_s - best->begin_s) {
                *best = found;
            }
            has_one = true;
        }
    }
    return has_one;
}

/* ---- the plan ---- */

/* The median, which a few disturbed passes do not move. */
static double usual_s(const stage_track *track, bool backward)
{
    double times_s[PASSES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < track->count; i++) {
        const pass *p = &track->passes[i];
        if (p->backward == backward) {
            times_s[count++] = p->end_s - p->start_s;
        }
    }
    ls_sort_f64(times_s, count);
    return times_s[count / 2];
}

static double busy_s(const stage_track *track)
{
    double sum_s = 0.0;
    for (uint32_t i = 0; i < track->count; i++) {
        sum_s += track->passes[i].end_s - track->passes[i].start_s;
    }
    return sum_s;
}

/* When micro-batch `micro_batch` ends on a stage; infinity: not known yet. */
static double end_of(const leaf_passes *plan, uint32_t stage, bool backward, uint32_t micro_batch)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < plan->tracks[stage].count; i++) {
        const pass *p = &plan->tracks[stage].passes[i];
        if (p->backward == backward && seen++ == micro_batch) {
            return p->end_s;
        }
    }
    return INFINITY;
}

/* The next entry of a stage's list, as soon as what it waits for is there; false: it is not. */
static bool plan_next(leaf_passes *plan, uint32_t stage, const ls_pipeline_work *work, double took_s)
{
    stage_track *track = &plan->tracks[stage];
    const bool backward = work->pass != LS_PIPELINE_FORWARD;
    double start_s = track->count > 0 ? track->passes[track->count - 1].end_s : 0.0;
    if (!backward && stage > 0) {
        start_s = fmax(start_s, end_of(plan, stage - 1, false, work->micro_batch));
    }
    if (backward && stage + 1 < plan->stages) {
        start_s = fmax(start_s, end_of(plan, stage + 1, true, work->micro_batch));
    }
    if (isfinite(start_s)) {
        track->passes[track->count++] = (pass){backward, start_s, start_s + took_s};
    }
    return isfinite(start_s);
}

/* The lists of 1F1B, each pass as long as such a pass usually took. */
static leaf_passes plan_leaf(ls_arena *arena, const leaf_passes *measured)
{
    const uint32_t count = measured->tracks[0].count;
    const ls_pipeline pipeline = {LS_PIPELINE_ONE_BY_ONE, measured->stages, 1, count / 2};
    leaf_passes plan = {.stages = measured->stages};
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t stage = 0; stage < plan.stages; stage++) {
            const ls_pipeline_work *list = ls_pipeline_list(arena, &pipeline, stage);
            const uint32_t at = plan.tracks[stage].count;
            moved = (at < count &&
                     plan_next(&plan, stage, &list[at],
                               usual_s(&measured->tracks[stage], list[at].pass != LS_PIPELINE_FORWARD))) ||
                    moved;
        }
    }
    measure(&plan);
    return plan;
}

/* ---- drawing ---- */

/* Of the stage that idles least. */
static double idle_share(const leaf_passes *drawn)
{
    const double whole_s = drawn->end_s - drawn->begin_s;
    double least_s = INFINITY;
    for (uint32_t stage = 0; stage < drawn->stages; stage++) {
        least_s = fmin(least_s, whole_s - busy_s(&drawn->tracks[stage]));
    }
    return least_s / whole_s;
}

static double draw_leaf(const char *title, const leaf_passes *drawn, double widest_s, double y, ls_text *text)
{
    const double unit = (INNER - NAME_WIDTH) / widest_s;
    char words[96];
    snprintf(words, sizeof words, "%.1f ms; the stage that idles least idles for %.1f %%",
             1e3 * (drawn->end_s - drawn->begin_s), 100.0 * idle_share(drawn));
    y = ls_drawing_heading(text, y, title, words);
    for (uint32_t stage = 0; stage < drawn->stages; stage++, y += ROW) {
        uint32_t numbers[2] = {0};
        snprintf(words, sizeof words, "stage %" PRIu32, stage);
        ls_svg_label(text, MARGIN, y + 13, LS_SVG_START, -1, words);
        for (uint32_t i = 0; i < drawn->tracks[stage].count; i++) {
            const pass *p = &drawn->tracks[stage].passes[i];
            const double x = MARGIN + NAME_WIDTH + unit * (p->start_s - drawn->begin_s);
            const double width = fmax(1.0, unit * (p->end_s - p->start_s) - 1);
            ls_svg_box(text, (ls_svg_rect){x, y, width, ROW - 4},
                       p->backward ? BACKWARD_COLOR : FORWARD_COLOR, NULL);
            snprintf(words, sizeof words, "%" PRIu32, ++numbers[p->backward]);
            if (width >= 12) {
                ls_svg_label(text, x + width / 2, y + 12, LS_SVG_MIDDLE, -1, words);
            }
        }
    }
    return y + 14;
}

ls_status ls_drawing_stages(ls_arena *arena, const json_t *trace, ls_text *text)
{
    static const char *const names[] = {"forward", "backward"};
    static const int colors[] = {FORWARD_COLOR, BACKWARD_COLOR};
    leaf_passes measured;
    if (!find_leaf(json_object_get(trace, "traceEvents"), &measured)) {
        return ls_fail(LS_ERR_INVALID,
                       "the trace has no leaf of a run with 2 to %d stages, schedule 1f1b and up to %d "
                       "micro-batches",
                       STAGES_MAX, PASSES_MAX / 2);
    }
    const leaf_passes plan = plan_leaf(arena, &measured);
    const double widest_s = fmax(measured.end_s - measured.begin_s, plan.end_s - plan.begin_s);
    ls_text parts = {0};
    double y = draw_leaf("1 · planned", &plan, widest_s, 14, &parts);
    y = draw_leaf("2 · measured", &measured, widest_s, y, &parts);
    y = ls_svg_legend(&parts, &(ls_svg_names){names, colors, 2}, MARGIN, y + 6, WIDTH - MARGIN);
    ls_drawing_finish(text, y + 20, "A pipeline as planned, and as it ran", &parts);
    return LS_OK;
}
