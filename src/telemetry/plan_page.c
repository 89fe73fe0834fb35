// SPDX-License-Identifier: Apache-2.0
/* The page around the pictures: the answer, a few numbers, each picture with its sentence, tables, what it all rests on. */
#include "telemetry/plan_page.h"

#include "planning/money/cost.h"
#include "telemetry/plan_page_internal.h"
#include "telemetry/plan_page_tables.h"
#include "telemetry/report_style.h"

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

/* What the plan's page adds to the style of reports. */
static const char page_style[] =
    ".answer{font-size:19px;line-height:1.45;margin:12px 0 18px;max-width:70ch}"
    ".card h2{margin:2px 6px 8px;font-size:18px}"
    ".card p{color:var(--ink)}.tables h3{font-size:16px;margin:16px 6px 4px}"
    ".tables .short{max-width:430px}.card li{margin:3px 0;overflow-wrap:anywhere}"
    ".sideways{display:none;margin:0 6px 4px;font-size:14px}"
    "@media(max-width:700px){.tables .sideways{display:block}main{padding:14px 8px "
    "40px}.card{padding:6px}.answer{font-size:17px}}\n";

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

void ls_page_kw(double kw, char *text, size_t bytes)
{
    const bool large = kw >= 1000.0;
    snprintf(text, bytes, "%.3g %s", large ? kw / 1000.0 : kw, large ? "MW" : "kW");
}

void ls_page_append_kw(double kw, ls_text *text)
{
    char words[32];
    ls_page_kw(kw, words, sizeof words);
    ls_text_append(text, words);
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
    canvas->y = ls_svg_legend(&canvas->parts, names, colors, count, LS_PAGE_MARGIN, canvas->y + 14,
                              canvas->width - 6) +
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
        return ls_fail(LS_ERR_INVALID, "a picture %d wide can't be read: at least %d", width, WIDTH_LEAST);
    }
    if (!figures[figure]->has(page)) {
        return ls_fail(LS_ERR_INVALID, "there is nothing to draw for '%s'", figures[figure]->name);
    }
    append_figure(page, figures[figure], width, text);
    return LS_OK;
}

/* ---- head ---- */

static bool has_verdict(const ls_plan_page *page)
{
    return page->verdict && page->verdict->outcome_count > 0;
}

static void append_head(const ls_plan_page *page, ls_text *text)
{
    ls_text_append(text, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                         "style-src 'unsafe-inline'; img-src data:\">\n"
                         "<link rel=\"icon\" href=\"data:,\">\n<title>");
    ls_text_append_escaped(text, page->setting->shape->name);
    ls_text_append(text, " \u00b7 Lockstep plan</title>\n<style>");
    ls_text_append(text, ls_report_style);
    ls_text_append(text, page_style);
    ls_text_append(text, "</style></head>\n<body><main>\n");
}

/* The verdict with its reason; where no price is known, whether it fits. */
static void append_answer(const ls_plan_page *page, ls_text *text)
{
    const bool bad =
        has_verdict(page) ? page->verdict->kind == LS_VERDICT_DONT : page->estimate->fit == LS_FIT_NO;
    const char *const fits[] = {"FITS", "TIGHT", "DOES NOT FIT"};
    ls_text_append(text, "<div class=\"head\"><h1>");
    ls_text_append_escaped(text, page->setting->shape->name);
    ls_text_append(text, " on ");
    ls_page_append_count(page->setting->gpus, text);
    ls_text_append(text, " \u00d7 ");
    ls_text_append_escaped(text, page->setting->node->accelerator->name);
    ls_text_printf(text, "</h1><span class=\"badge %s\">", bad ? "bad" : "good");
    ls_text_append_escaped(text, page->refusal       ? ls_verdict_kind_name(LS_VERDICT_DONT)
                                 : has_verdict(page) ? ls_verdict_kind_name(page->verdict->kind)
                                                     : fits[page->estimate->fit]);
    ls_text_append(text, "</span></div>\n<p class=\"answer\">");
    ls_text_append_escaped(text, page->refusal ? page->refusal
                                 : has_verdict(page)
                                     ? page->verdict->reason
                                     : "No price is known for this machine: what it costs is left out.");
    ls_text_append(text, "</p>\n");
}

/* ---- tiles ---- */

static void tile(ls_text *text, const char *name, const char *format, ...) LS_PRINTF(3, 4);
static void tile(ls_text *text, const char *name, const char *format, ...)
{
    char number[96];
    va_list args;
    va_start(args, format);
    vsnprintf(number, sizeof number, format, args);
    va_end(args);
    ls_text_append(text, "<div class=\"tile\"><b>");
    ls_text_append_escaped(text, number);
    ls_text_append(text, "</b><span>");
    ls_text_append_escaped(text, name);
    ls_text_append(text, "</span></div>\n");
}

static void append_time_tiles(const ls_plan_page *page, ls_text *text)
{
    char words[32], low[32], high[32], name[96];
    const ls_estimate *e = page->estimate;
    if (page->days > 0.0 && isfinite(page->days)) {
        snprintf(words, sizeof words, "%s", ls_time_of(86400.0 * page->days).text);
        snprintf(name, sizeof name, "for %s tokens, failures and all", ls_quantity_of(page->tokens).text);
        tile(text, name, "%s", words);
    }
    if (e->time.step_s > 0.0) {
        snprintf(words, sizeof words, "%s", ls_time_of(e->time.step_s).text);
        snprintf(low, sizeof low, "%s", ls_time_of(page->step_s_low).text);
        snprintf(high, sizeof high, "%s", ls_time_of(page->step_s_high).text);
        snprintf(name, sizeof name, page->step_s_high > 0.0 ? "a step; 10 to 90 %%: %s to %s" : "a step", low,
                 high);
        tile(text, name, "%s", words);
        tile(text, "tokens a second", "%s", ls_quantity_of(e->tokens_ps).text);
        snprintf(name, sizeof name, "of the peak (MFU), %.4g TFLOP/s a GPU", e->tflops_per_gpu);
        tile(text, name, "%.1f %%", 100.0 * e->mfu);
    }
}

static void append_tiles(const ls_plan_page *page, ls_text *text)
{
    char name[128], cost[32];
    const ls_memory_estimate *m = &page->estimate->memory;
    ls_text_append(text, "<div class=\"tiles\">\n");
    append_time_tiles(page, text);
    snprintf(name, sizeof name, "of %.4g GiB on the fullest GPU", m->capacity / LS_PAGE_GIB);
    tile(text, name, "%.1f GiB", m->total / LS_PAGE_GIB);
    if (page->outcome && isfinite(page->outcome->run_usd)) {
        ls_cost_format(page->outcome->run_usd, cost, sizeof cost);
        snprintf(name, sizeof name, "%s (%s)",
                 page->verdict && page->verdict->workload_count > 1 ? "a run on average" : "a run",
                 page->outcome->name);
        tile(text, name, "%s", cost);
    }
    if (page->failure) {
        tile(text, "goodput: time that is kept", "%.1f %%", 100.0 * page->failure->goodput);
    }
    if (page->power && page->power->known) {
        ls_page_kw(page->power->facility_kw, cost, sizeof cost);
        tile(text, "at the meter while it trains", "%s", cost);
    }
    ls_text_append(text, "</div>\n");
}

static void append_strategy(const ls_plan_page *page, ls_text *text)
{
    char strategy[192];
    ls_strategy_describe(&page->estimate->strategy, strategy, sizeof strategy);
    ls_text_append(text, "<p class=\"sub\">");
    ls_text_append_escaped(text, strategy);
    ls_text_printf(text, "; %" PRId64 " sequences of %" PRId64 " tokens a step; stack ",
                   page->setting->global_batch, page->setting->length);
    ls_text_append_escaped(text, page->setting->stack->name);
    if (page->command) {
        ls_text_append(text, "<br><code>");
        ls_text_append_escaped(text, page->command);
        ls_text_append(text, "</code>");
    }
    ls_text_append(text, "</p>\n");
}

/* ---- pictures ---- */

/* Each picture twice: wide for a screen, narrow for a phone; the style shows the one that fits. */
static void append_section(const ls_plan_page *page, int number, const ls_page_figure *figure, ls_text *text)
{
    ls_text_printf(text, "<section class=\"card\" id=\"%s\"><h2>%d \u00b7 %s</h2>\n", figure->name, number,
                   figure->title);
    if (figure->has(page)) {
        ls_text_append(text, "<div class=\"ls-wide\">");
        append_figure(page, figure, WIDE, text);
        ls_text_append(text, "</div><div class=\"ls-phone\">");
        append_figure(page, figure, PHONE, text);
        ls_text_append(text, "</div><p>");
        figure->say(page, text);
        ls_text_append(text, "</p>");
    } else {
        ls_text_printf(text, "<p class=\"missing\">%s</p>", figure->missing);
    }
    ls_text_append(text, "</section>\n");
}

/* ---- end ---- */

static void append_assumptions(const ls_plan_page *page, ls_text *text)
{
    ls_text_append(text, "<section class=\"card\" id=\"assumptions\"><h2>What it rests on</h2><ul>\n");
    for (size_t i = 0; page->assumptions && i < page->assumptions->count; i++) {
        ls_text_append(text, "<li>");
        ls_text_append_escaped(text, page->assumptions->items[i]);
        ls_text_append(text, "</li>\n");
    }
    ls_text_append(text, "<li>constants of ");
    ls_text_append_escaped(text, page->setting->stack->name);
    ls_text_append(text, ": ");
    ls_text_append_escaped(text, page->setting->stack->source ? page->setting->stack->source : "not said");
    ls_text_append(text, "</li>\n");
    if (page->band_from) {
        ls_text_append(text, "<li>the band of the step time: ");
        ls_text_append_escaped(text, page->band_from);
        ls_text_append(text, "</li>\n");
    }
    ls_text_append(text, "</ul></section>\n");
}

void ls_plan_page_append(const ls_plan_page *page, ls_text *text)
{
    append_head(page, text);
    append_answer(page, text);
    append_strategy(page, text);
    append_tiles(page, text);
    ls_text_append(text, "<h2>Nine pictures</h2>\n");
    for (int i = 0; i < LS_PLAN_FIGURES; i++) {
        append_section(page, i + 1, figures[i], text);
    }
    ls_page_append_tables(page, text);
    append_assumptions(page, text);
    ls_text_append(text, "<footer>Lockstep plan");
    if (page->date) {
        ls_text_append(text, ", ");
        ls_text_append_escaped(text, page->date);
    }
    ls_text_append(text, ". Predictions: the last picture shows how far they have been "
                         "off.</footer>\n</main></body></html>\n");
}
