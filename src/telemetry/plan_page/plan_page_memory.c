// SPDX-License-Identifier: Apache-2.0
/* Memory of a GPU: a bar for each pipeline stage, divided by use, against the capacity. */
#include "telemetry/plan_page/plan_page_internal.h"

#include "planning/step/memory.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PARTS = 5, ROW_HEIGHT = 32, BAR_HEIGHT = 22, STAGES_WIDE = 10, STAGES_NARROW = 6 };

static const char *const part_names[PARTS] = {"weights", "gradients", "optimizer", "activations", "buffers"};
static const int part_colors[PARTS] = {0, 2, 3, 1, 7};

static void parts_of(const ls_memory_estimate *memory, double parts_out[PARTS])
{
    const double parts[PARTS] = {memory->weights, memory->gradients, memory->optimizer, memory->activations,
                                 memory->buffers};
    memcpy(parts_out, parts, sizeof parts);
}

/* The runtime's own stack has one stage, whose memory is that of the estimate itself. */
static ls_memory_estimate memory_of(const ls_plan_page *page, int64_t stage)
{
    const ls_memory_estimate *fullest = &page->plan->estimate.memory;
    return stage == fullest->stage
               ? *fullest
               : ls_memory_of_stage(&page->plan->setting, &page->plan->estimate.strategy, stage);
}

/* Stages in order; when there are too many for the picture, the first ones and the last. */
static size_t choose_stages(const ls_plan_page *page, size_t most, int64_t *stages)
{
    const int64_t count = page->plan->estimate.strategy.pp;
    size_t chosen = 0;
    for (int64_t stage = 0; stage < count && chosen < most; stage++) {
        stages[chosen++] = stage;
    }
    if (count > (int64_t)most) {
        stages[most - 1] = count - 1;
    }
    return chosen;
}

static void draw_row(const ls_memory_estimate *memory, double left, double y, double scale, ls_text *text)
{
    double parts[PARTS], x = left;
    parts_of(memory, parts);
    for (int k = 0; k < PARTS; k++) {
        char said[64];
        snprintf(said, sizeof said, "%s: %.2f GiB", part_names[k], parts[k] / LS_PAGE_GIB);
        ls_svg_cell(text, (ls_svg_rect){x, y, fmax(parts[k] * scale - 0.8, 0.0), BAR_HEIGHT},
                    (ls_svg_ink){.color = part_colors[k]}, said);
        x += parts[k] * scale;
    }
}

static void draw_capacity(const ls_memory_estimate *memory, double left, double top, double bottom,
                          double scale, ls_canvas *canvas)
{
    char label[64];
    ls_text *text = &canvas->parts;
    const double x = left + memory->capacity * scale;
    ls_svg_stroke(text, x, top, x, bottom, (ls_svg_ink){.color = LS_PAGE_LIMIT});
    snprintf(label, sizeof label, "%.4g GiB", memory->capacity / LS_PAGE_GIB);
    ls_svg_label_between(text, x, top - 6, 0, label, (ls_svg_span){left, canvas->width - LS_PAGE_MARGIN});
}

static void draw(const ls_plan_page *page, ls_canvas *canvas)
{
    int64_t stages[STAGES_WIDE];
    const size_t count =
        choose_stages(page, ls_canvas_is_narrow(canvas) ? STAGES_NARROW : STAGES_WIDE, stages);
    const ls_memory_estimate *fullest = &page->plan->estimate.memory;
    const double left = LS_PAGE_MARGIN + (page->plan->estimate.strategy.pp > 1 ? 62 : 0), number = 68;
    const double scale =
        (canvas->width - LS_PAGE_MARGIN - number - left) / fmax(fullest->capacity, fullest->total);
    ls_text *text = &canvas->parts;
    ls_canvas_legend(canvas, part_names, part_colors, PARTS);
    canvas->y += 22;
    const double top = canvas->y;
    for (size_t i = 0; i < count; i++) {
        const ls_memory_estimate memory = memory_of(page, stages[i]);
        const bool is_fullest = stages[i] == fullest->stage && page->plan->estimate.strategy.pp > 1;
        char name[32], total[32];
        snprintf(name, sizeof name, "stage %" PRId64, stages[i] + 1);
        snprintf(total, sizeof total, "%.1f GiB", memory.total / LS_PAGE_GIB);
        if (page->plan->estimate.strategy.pp > 1) {
            ls_svg_label(text, LS_PAGE_MARGIN, canvas->y + 16, LS_SVG_START, is_fullest ? 0 : -1, name);
        }
        draw_row(&memory, left, canvas->y, scale, text);
        ls_svg_label(text, canvas->width - LS_PAGE_MARGIN, canvas->y + 16, LS_SVG_END,
                     is_fullest || count == 1 ? 0 : -1, total);
        canvas->y += ROW_HEIGHT;
    }
    draw_capacity(fullest, left, top - 4, canvas->y - 4, scale, canvas);
    if ((int64_t)count < page->plan->estimate.strategy.pp) {
        ls_canvas_note(canvas, "%zu of %" PRId64 " stages are drawn.", count,
                       page->plan->estimate.strategy.pp);
    }
}

static void say(const ls_plan_page *page, ls_text *text)
{
    const ls_memory_estimate *m = &page->plan->estimate.memory;
    double parts[PARTS];
    int most = 0;
    parts_of(m, parts);
    for (int k = 1; k < PARTS; k++) {
        most = parts[k] > parts[most] ? k : most;
    }
    const char *const verdicts[] = {"it fits with room to spare",
                                    "it fits, but tightly: fragmentation may end the run", "it does not fit"};
    ls_text_printf(text, "The fullest GPU%s needs **%.1f of %.4g GiB** (%.0f %%): %s. ",
                   page->plan->estimate.strategy.pp > 1 ? "" : " (all need the same)", m->total / LS_PAGE_GIB,
                   m->capacity / LS_PAGE_GIB, 100.0 * m->total / m->capacity,
                   verdicts[page->plan->estimate.fit]);
    if (page->plan->estimate.strategy.pp > 1) {
        ls_text_printf(text,
                       "It belongs to stage %" PRId64
                       ": earlier stages hold more micro-batches in flight, the last one holds the loss. ",
                       m->stage + 1);
    }
    ls_text_printf(text,
                   "The largest part is %s, %.1f GiB. Up to 85 %% of the capacity counts as a fit, up to 95 "
                   "%% as tight.",
                   part_names[most], parts[most] / LS_PAGE_GIB);
}

static bool has(const ls_plan_page *page)
{
    return page->plan->estimate.memory.capacity > 0.0;
}

const ls_page_figure ls_page_memory = {
    .name = "memory",
    .title = "Memory of a GPU",
    .has = has,
    .draw = draw,
    .say = say,
    .missing = "The catalogue has no memory size for this accelerator.",
};
