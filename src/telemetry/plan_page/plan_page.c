// SPDX-License-Identifier: Apache-2.0
/* The values of web/plan.html: the answer, tiles, each picture with its sentences, tables,
 * assumptions. */
#include "telemetry/plan_page/plan_page.h"

#include "base/web.h"
#include "planning/money/cost.h"
#include "telemetry/plan_page/plan_page_internal.h"
#include "telemetry/plan_page/plan_page_tables.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 990, PHONE = 328, WIDTH_LEAST = 320 };

static const ls_page_figure *const figures[LS_PLAN_FIGURES] = {
    [LS_PLAN_MEMORY] = &ls_page_memory,     [LS_PLAN_PIPELINE] = &ls_page_pipeline,
    [LS_PLAN_TIMELINE] = &ls_page_timeline, [LS_PLAN_SCALING] = &ls_page_scaling,
    [LS_PLAN_COST] = &ls_page_cost,         [LS_PLAN_TOPOLOGY] = &ls_page_topology,
    [LS_PLAN_GOODPUT] = &ls_page_goodput,   [LS_PLAN_POWER] = &ls_page_power,
    [LS_PLAN_ACCURACY] = &ls_page_accuracy,
};

/* ---- words for numbers ---- */

void ls_page_append_duration(double seconds, ls_text *text)
{
    ls_text_append(text, ls_time_of(seconds).text);
}

void ls_page_append_dollars(double usd, ls_text *text)
{
    char words[32];
    if (!isfinite(usd)) {
        ls_text_append(text, "\u2013");
        return;
    }
    ls_cost_format(usd, words, sizeof words);
    ls_text_append(text, words);
}

static void format_kw(double kw, char *text, size_t bytes)
{
    const bool large = kw >= 1000.0;
    snprintf(text, bytes, "%.3g %s", large ? kw / 1000.0 : kw, large ? "MW" : "kW");
}

void ls_page_append_kw(double kw, ls_text *text)
{
    char words[32];
    format_kw(kw, words, sizeof words);
    ls_text_append(text, words);
}

void ls_page_set_count(ls_values *values, const char *name, int64_t count)
{
    ls_text words = {0};
    ls_page_append_count(count, &words);
    ls_values_text(values, name, ls_text_string(&words));
    ls_text_release(&words);
}

void ls_page_append_count(int64_t count, ls_text *text)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, count);
    const size_t length = strlen(digits);
    for (size_t i = 0; i < length; i++) {
        ls_text_append_bytes(text, &digits[i], 1);
        if ((length - i) % 3 == 1 && i + 1 < length && digits[i] != '-') {
            ls_text_append(text, ",");
        }
    }
}

/* ---- canvases ---- */

void ls_canvas_legend(ls_canvas *canvas, const char *const *names, const int *colors, size_t count)
{
    canvas->y = ls_svg_legend(&canvas->parts, &(ls_svg_names){names, colors, count}, LS_PAGE_MARGIN,
                              canvas->y + 14, canvas->width - 6) +
                14;
}

void ls_canvas_note(ls_canvas *canvas, const char *format, ...)
{
    char words[400];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    canvas->y =
        ls_svg_paragraph(&canvas->parts, LS_PAGE_MARGIN, canvas->y + 12, ls_canvas_inner(canvas), -1, words) -
        6;
}

static void append_figure(const ls_plan_page *page, const ls_page_figure *figure, int width, ls_text *text)
{
    ls_canvas canvas = {.width = width, .y = 6};
    figure->draw(page, &canvas);
    ls_svg_begin(text, width, (int)canvas.y + 6, figure->title);
    ls_text_append(text, ls_text_string(&canvas.parts));
    ls_svg_end(text);
    ls_text_release(&canvas.parts);
}

/* ---- the pictures by name ---- */

const char *ls_plan_figure_name(ls_plan_figure figure)
{
    return figures[figure]->name;
}

ls_status ls_plan_figure_draw(const ls_plan_page *page, ls_plan_figure figure, int width, ls_text *text)
{
    if (width < WIDTH_LEAST) {
        return ls_fail(LS_ERR_INVALID, "the width of the picture is %d; it must be at least %d", width,
                       WIDTH_LEAST);
    }
    if (!figures[figure]->has(page)) {
        return ls_fail(LS_ERR_INVALID, "this plan has nothing to draw in the picture '%s'",
                       figures[figure]->name);
    }
    append_figure(page, figures[figure], width, text);
    return LS_OK;
}

/* ---- head ---- */

static bool has_verdict(const ls_plan_page *page)
{
    return page->plan->verdict.outcome_count > 0;
}

/* The verdict with its reason; without a price, whether the model fits. */
static void set_head(const ls_plan_page *page, ls_values *values)
{
    static const char *const fits[] = {"FITS", "TIGHT", "DOES NOT FIT"};
    const ls_setting *setting = &page->plan->setting;
    const bool is_bad = has_verdict(page) ? page->plan->verdict.kind == LS_VERDICT_DONT
                                          : page->plan->estimate.fit == LS_FIT_NO;
    char strategy[192];
    ls_strategy_describe(&page->plan->estimate.strategy, strategy, sizeof strategy);
    ls_values_text(values, "page", "plan");
    ls_values_printf(values, "title", "%s \u00b7 Lockstep plan", setting->shape->name);
    ls_values_text(values, "model", setting->shape->name);
    ls_page_set_count(values, "gpus", setting->gpus);
    ls_values_text(values, "accelerator", setting->node->accelerator->name);
    ls_values_text(values, "look", is_bad ? "bad" : "good");
    ls_values_text(values, "answer",
                   page->plan->refusal ? ls_verdict_kind_name(LS_VERDICT_DONT)
                   : has_verdict(page) ? ls_verdict_kind_name(page->plan->verdict.kind)
                                       : fits[page->plan->estimate.fit]);
    ls_values_text(values, "reason",
                   page->plan->refusal ? page->plan->refusal
                   : has_verdict(page) ? page->plan->verdict.reason
                                       : "No price is known for this machine, so costs are left out.");
    ls_values_text(values, "strategy", strategy);
    ls_values_printf(values, "batch", "%" PRId64, setting->global_batch);
    ls_values_printf(values, "length", "%" PRId64, setting->length);
    ls_values_text(values, "stack", setting->stack->name);
    ls_values_text(values, "command", page->plan->command ? page->plan->command : "");
    ls_values_text(values, "date", page->date ? page->date : "");
}

/* ---- tiles ---- */

static void tile(ls_values *values, const char *large, const char *format, ...) LS_PRINTF(3, 4);
static void tile(ls_values *values, const char *large, const char *format, ...)
{
    char small[128];
    va_list args;
    va_start(args, format);
    vsnprintf(small, sizeof small, format, args);
    va_end(args);
    ls_web_tile(values, large, small);
}

static void add_time_tiles(const ls_plan_page *page, ls_values *values)
{
    char mfu[32];
    const ls_estimate *e = &page->plan->estimate;
    if (page->plan->days > 0.0 && isfinite(page->plan->days)) {
        tile(values, ls_time_of(86400.0 * page->plan->days).text, "for %s tokens, failures included",
             ls_quantity_of(page->plan->tokens).text);
    }
    if (!(e->time.step_s > 0.0)) {
        return;
    }
    if (page->plan->band.high_s > 0.0) {
        tile(values, ls_time_of(e->time.step_s).text, "per step; 10 to 90 %%: %s to %s",
             ls_time_of(page->plan->band.low_s).text, ls_time_of(page->plan->band.high_s).text);
    } else {
        tile(values, ls_time_of(e->time.step_s).text, "per step");
    }
    snprintf(mfu, sizeof mfu, "%.1f %%", 100.0 * e->mfu);
    tile(values, ls_quantity_of(e->tokens_ps).text, "tokens per second");
    tile(values, mfu, "of the peak (MFU), %.4g TFLOP/s per GPU", e->tflops_per_gpu);
}

static void add_tiles(const ls_plan_page *page, ls_values *values)
{
    char large[32];
    const ls_memory_estimate *m = &page->plan->estimate.memory;
    add_time_tiles(page, values);
    snprintf(large, sizeof large, "%.1f GiB", m->total / LS_PAGE_GIB);
    tile(values, large, "of %.4g GiB on the fullest GPU", m->capacity / LS_PAGE_GIB);
    if (page->plan->outcome && isfinite(page->plan->outcome->run_usd)) {
        ls_cost_format(page->plan->outcome->run_usd, large, sizeof large);
        tile(values, large, "%s (%s)",
             page->plan->verdict.workload_count > 1 ? "per run on average" : "per run",
             page->plan->outcome->name);
    }
    snprintf(large, sizeof large, "%.1f %%", 100.0 * page->plan->failure.goodput);
    tile(values, large, "goodput: share of the time that counts");
    if (page->plan->power.known) {
        format_kw(page->plan->power.facility_kw, large, sizeof large);
        tile(values, large, "at the meter during training");
    }
}

/* ---- figures and assumptions ---- */

static void add_figure(const ls_plan_page *page, int number, const ls_page_figure *figure, ls_values *values)
{
    ls_values *row = ls_values_add(values, "figures");
    ls_text made = {0};
    ls_values_text(row, "id", figure->name);
    ls_values_printf(row, "number", "%d", number);
    ls_values_text(row, "heading", figure->title);
    ls_values_flag(row, "is_drawn", figure->has(page));
    ls_values_text(row, "missing", figure->missing);
    if (figure->has(page)) {
        append_figure(page, figure, WIDE, &made);
        ls_values_markup(row, "wide", &made);
        append_figure(page, figure, PHONE, &made);
        ls_values_markup(row, "phone", &made);
        figure->say(page, &made);
        ls_values_prose(row, "says", ls_text_string(&made));
    }
    ls_text_release(&made);
}

static void add_assumptions(const ls_plan_page *page, ls_values *values)
{
    const ls_stack *stack = page->plan->setting.stack;
    for (size_t i = 0; i < page->plan->assumptions.count; i++) {
        ls_values_text(ls_values_add(values, "assumptions"), "text", page->plan->assumptions.items[i]);
    }
    ls_values_text(values, "stack_source", stack->source ? stack->source : "source not given");
    ls_values_text(values, "band_from", page->plan->band.from);
}

void ls_plan_page_append(const ls_plan_page *page, ls_text *text)
{
    ls_arena arena = {0};
    ls_values *values = ls_values_create(&arena);
    set_head(page, values);
    add_tiles(page, values);
    for (int i = 0; i < LS_PLAN_FIGURES; i++) {
        add_figure(page, i + 1, figures[i], values);
    }
    ls_page_add_tables(page, values);
    add_assumptions(page, values);
    ls_web_append("plan.html", values, text);
    ls_arena_release(&arena);
}
