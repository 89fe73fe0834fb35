// SPDX-License-Identifier: Apache-2.0
#include "telemetry/plan_page_tables.h"

#include "telemetry/plan_page_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { RIVALS_MOST = 10, NEIGHBOURS_MOST = 8 };

/* ---- cells ---- */

/* `look`: "short", or "long", wide enough for sentences; a phone scrolls it, and is told so. */
static void table_open(ls_text *text, const char *title, const char *look, const char *columns)
{
    const bool is_wide = strcmp(look, "long") == 0;
    ls_text_printf(text, "<h3>%s</h3>%s<div class=\"scroll\"><table class=\"%s\"><tr>%s</tr>\n", title,
                   is_wide ? "<p class=\"sideways\">More to the right: push sideways \u2192</p>" : "", look,
                   columns);
}

static void table_close(ls_text *text)
{
    ls_text_append(text, "</table></div>\n");
}

static void cell(ls_text *text, const char *words)
{
    ls_text_append(text, "<td>");
    ls_text_append_escaped(text, words);
    ls_text_append(text, "</td>");
}

static void number_cell(ls_text *text, const char *format, double value) LS_PRINTF(2, 0);
static void number_cell(ls_text *text, const char *format, double value)
{
    ls_text_append(text, "<td class=\"n\">");
    if (isfinite(value)) {
        ls_text_printf(text, format, value);
    } else {
        ls_text_append(text, "\u2013");
    }
    ls_text_append(text, "</td>");
}

static void duration_cell(ls_text *text, double seconds)
{
    ls_text_append(text, "<td class=\"n\">");
    ls_page_append_duration(seconds, text);
    ls_text_append(text, "</td>");
}

static void dollar_cell(ls_text *text, double usd)
{
    ls_text_append(text, "<td class=\"n\">");
    ls_page_append_dollars(usd, text);
    ls_text_append(text, "</td>");
}

static void count_cell(ls_text *text, int64_t count)
{
    ls_text_append(text, "<td class=\"n\">");
    ls_page_append_count(count, text);
    ls_text_append(text, "</td>");
}

/* ---- tables ---- */

static void append_terms(const ls_plan_page *page, ls_text *text)
{
    const ls_time_estimate *time = &page->estimate->time;
    if (!(time->step_s > 0.0)) {
        return;
    }
    table_open(text, "Where a step's time goes", "short",
               "<th>term</th><th class=\"n\">time</th><th class=\"n\">share</th>");
    for (int term = 0; term < LS_TERM_COUNT; term++) {
        if (time->terms_s[term] > 0.0) {
            ls_text_append(text, "<tr>");
            cell(text, ls_term_name((ls_term)term));
            duration_cell(text, time->terms_s[term]);
            number_cell(text, "%.1f %%", 100.0 * time->terms_s[term] / time->step_s);
            ls_text_append(text, "</tr>\n");
        }
    }
    ls_text_append(text, "<tr>");
    cell(text, "step");
    duration_cell(text, time->step_s);
    number_cell(text, "%.0f %%", 100.0);
    ls_text_append(text, "</tr>\n");
    table_close(text);
}

static void append_memory_row(const char *name, double bytes, double capacity, ls_text *text)
{
    ls_text_append(text, "<tr>");
    cell(text, name);
    number_cell(text, "%.2f", bytes / LS_PAGE_GIB);
    number_cell(text, "%.1f %%", 100.0 * bytes / capacity);
    ls_text_append(text, "</tr>\n");
}

static void append_memory(const ls_plan_page *page, ls_text *text)
{
    const ls_memory_estimate *m = &page->estimate->memory;
    table_open(text, "Memory of the fullest GPU", "short",
               "<th>what</th><th class=\"n\">GiB</th><th class=\"n\">of the capacity</th>");
    append_memory_row("weights", m->weights, m->capacity, text);
    append_memory_row("gradients", m->gradients, m->capacity, text);
    append_memory_row("optimizer", m->optimizer, m->capacity, text);
    append_memory_row("activations", m->activations, m->capacity, text);
    append_memory_row("buffers", m->buffers, m->capacity, text);
    append_memory_row("total", m->total, m->capacity, text);
    append_memory_row("capacity", m->capacity, m->capacity, text);
    table_close(text);
}

static void append_rivals(const ls_search_rival *rivals, size_t count, ls_text *text)
{
    for (size_t i = 0; i < count; i++) {
        char strategy[192];
        ls_strategy_describe(&rivals[i].estimate.strategy, strategy, sizeof strategy);
        ls_text_append(text, "<tr>");
        cell(text, strategy);
        duration_cell(text, rivals[i].estimate.fit == LS_FIT_NO ? NAN : rivals[i].estimate.time.step_s);
        number_cell(text, "%.1f", rivals[i].estimate.memory.total / LS_PAGE_GIB);
        cell(text, rivals[i].why);
        ls_text_append(text, "</tr>\n");
    }
}

static void append_alternatives(const ls_plan_page *page, ls_text *text)
{
    const ls_search_result *s = page->search;
    if (!s || s->ranked_count + s->neighbour_count == 0) {
        return;
    }
    table_open(text, "What lost, and why", "long",
               "<th>strategy</th><th class=\"n\">step</th><th class=\"n\">GiB</th><th>against the best</th>");
    append_rivals(s->ranked, s->ranked_count < RIVALS_MOST ? s->ranked_count : RIVALS_MOST, text);
    append_rivals(s->neighbours, s->neighbour_count < NEIGHBOURS_MOST ? s->neighbour_count : NEIGHBOURS_MOST,
                  text);
    table_close(text);
}

static void append_scaling(const ls_plan_page *page, ls_text *text)
{
    if (!page->scaling) {
        return;
    }
    table_open(text, "Other counts", "long",
               "<th class=\"n\">GPUs</th><th class=\"n\">days</th><th class=\"n\">cost</th><th "
               "class=\"n\">efficiency</th><th class=\"n\">marginal</th><th>grew most</th>");
    for (size_t i = 0; i < page->scaling->count; i++) {
        const ls_scaling_point *p = &page->scaling->points[i];
        if (!p->fits && i + 1 < page->scaling->count && !page->scaling->points[i + 1].fits) {
            continue; /* of those that are too few only the most */
        }
        ls_text_append(text, "<tr>");
        count_cell(text, p->gpus);
        if (p->fits) {
            number_cell(text, "%.3g", p->days);
            dollar_cell(text, p->cost_usd > 0.0 ? p->cost_usd : NAN);
            number_cell(text, "%.0f %%", 100.0 * p->efficiency);
            number_cell(text, "%.2f", p->marginal);
            cell(text, ls_term_name(p->grew));
        } else {
            ls_text_append(text, "<td colspan=\"5\">does not fit</td>");
        }
        ls_text_append(text, "</tr>\n");
    }
    table_close(text);
}

static void append_paths(const ls_plan_page *page, ls_text *text)
{
    if (!page->verdict || page->verdict->outcome_count == 0) {
        return;
    }
    table_open(text, "Paths side by side", "long",
               "<th>path</th><th class=\"n\">GPUs</th><th class=\"n\">days</th><th class=\"n\">a run</th><th "
               "class=\"n\">upfront</th><th class=\"n\">at most lost</th><th>why not</th>");
    for (size_t i = 0; i < page->verdict->outcome_count; i++) {
        const ls_path_outcome *o = &page->verdict->outcomes[i];
        ls_text_append(text, "<tr>");
        cell(text, o->name);
        count_cell(text, o->machines);
        number_cell(text, "%.3g", o->days);
        dollar_cell(text, o->run_usd);
        dollar_cell(text, o->upfront_usd);
        dollar_cell(text, o->max_loss_usd);
        cell(text, (int)i == page->verdict->chosen ? "chosen" : o->why_not);
        ls_text_append(text, "</tr>\n");
    }
    table_close(text);
}

static void append_flips(const ls_plan_page *page, ls_text *text)
{
    if (!page->verdict || page->verdict->flip_count == 0) {
        return;
    }
    ls_text_append(text, "<h3>What would change the answer</h3><ul>\n");
    for (size_t i = 0; i < page->verdict->flip_count; i++) {
        ls_text_append(text, "<li>");
        ls_text_append_escaped(text, page->verdict->flips[i].text);
        ls_text_append(text, "</li>\n");
    }
    ls_text_append(text, "</ul>\n");
}

void ls_page_append_tables(const ls_plan_page *page, ls_text *text)
{
    ls_text_append(text, "<section class=\"card tables\" id=\"numbers\"><h2>The numbers</h2>\n");
    append_terms(page, text);
    append_memory(page, text);
    append_alternatives(page, text);
    append_scaling(page, text);
    append_paths(page, text);
    append_flips(page, text);
    ls_text_append(text, "</section>\n");
}
