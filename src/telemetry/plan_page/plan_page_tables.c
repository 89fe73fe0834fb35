// SPDX-License-Identifier: Apache-2.0
#include "telemetry/plan_page/plan_page_tables.h"

#include "telemetry/plan_page/plan_page_internal.h"

#include <math.h>

enum { RIVALS_MOST = 10, NEIGHBOURS_MOST = 8 };

/* ---- cells; a number that is not finite is a dash ---- */

static void set_number(ls_values *row, const char *name, const char *format, double value) LS_PRINTF(3, 0);
static void set_number(ls_values *row, const char *name, const char *format, double value)
{
    ls_values_text(row, name, NULL);
    if (isfinite(value)) {
        ls_values_printf(row, name, format, value);
    }
}

static void set_dollars(ls_values *row, const char *name, double usd)
{
    ls_text words = {0};
    ls_page_append_dollars(usd, &words);
    ls_values_text(row, name, ls_text_string(&words));
    ls_text_release(&words);
}

/* ---- tables ---- */

static void add_term(ls_values *values, const char *name, double seconds, const char *format, double step_s)
{
    ls_values *row = ls_values_add(values, "terms");
    ls_values_text(row, "name", name);
    ls_values_text(row, "time", ls_time_of(seconds).text);
    set_number(row, "share", format, 100.0 * seconds / step_s);
}

static void add_terms(const ls_plan_page *page, ls_values *values)
{
    const ls_time_estimate *time = &page->plan->estimate.time;
    ls_values_flag(values, "has_terms", time->step_s > 0.0);
    for (int term = 0; term < LS_TERM_COUNT && time->step_s > 0.0; term++) {
        if (time->terms_s[term] > 0.0) {
            add_term(values, ls_term_name((ls_term)term), time->terms_s[term], "%.1f %%", time->step_s);
        }
    }
    if (time->step_s > 0.0) {
        add_term(values, "step", time->step_s, "%.0f %%", time->step_s);
    }
}

static void add_memory(const ls_plan_page *page, ls_values *values)
{
    const ls_memory_estimate *m = &page->plan->estimate.memory;
    const struct {
        const char *name;
        double bytes;
    } parts[] = {{"weights", m->weights},         {"gradients", m->gradients}, {"optimizer", m->optimizer},
                 {"activations", m->activations}, {"buffers", m->buffers},     {"total", m->total},
                 {"capacity", m->capacity}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        ls_values *row = ls_values_add(values, "memory");
        ls_values_text(row, "name", parts[i].name);
        set_number(row, "gib", "%.2f", parts[i].bytes / LS_PAGE_GIB);
        set_number(row, "share", "%.1f %%", 100.0 * parts[i].bytes / m->capacity);
    }
}

static void add_rivals(const ls_search_rival *rivals, size_t count, ls_values *values)
{
    for (size_t i = 0; i < count; i++) {
        char strategy[192];
        const ls_estimate *e = &rivals[i].estimate;
        ls_values *row = ls_values_add(values, "rivals");
        ls_strategy_describe(&e->strategy, strategy, sizeof strategy);
        ls_values_text(row, "strategy", strategy);
        ls_values_text(row, "step", ls_time_of(e->fit == LS_FIT_NO ? NAN : e->time.step_s).text);
        set_number(row, "gib", "%.1f", e->memory.total / LS_PAGE_GIB);
        ls_values_text(row, "why", rivals[i].why);
    }
}

static void add_alternatives(const ls_plan_page *page, ls_values *values)
{
    const ls_search_result *s = page->plan->search ? page->plan->search : page->plan->instead;
    ls_values_flag(values, "has_rivals", s && s->ranked_count + s->neighbour_count > 0);
    if (s) {
        add_rivals(s->ranked, s->ranked_count < RIVALS_MOST ? s->ranked_count : RIVALS_MOST, values);
        add_rivals(s->neighbours, s->neighbour_count < NEIGHBOURS_MOST ? s->neighbour_count : NEIGHBOURS_MOST,
                   values);
    }
}

static void add_count(const ls_scaling_point *p, ls_values *values)
{
    ls_values *row = ls_values_add(values, "counts");
    ls_page_set_count(row, "gpus", p->gpus);
    ls_values_flag(row, "fits", p->fits);
    if (p->fits) {
        set_number(row, "days", "%.3g", p->days);
        set_dollars(row, "cost", p->cost_usd > 0.0 ? p->cost_usd : NAN);
        set_number(row, "efficiency", "%.0f %%", 100.0 * p->efficiency);
        set_number(row, "marginal", "%.2f", p->marginal);
        ls_values_text(row, "grew", ls_term_name(p->grew));
    }
}

static void add_scaling(const ls_plan_page *page, ls_values *values)
{
    const ls_scaling *scaling = page->plan->curve;
    ls_values_flag(values, "has_counts", scaling != NULL);
    for (size_t i = 0; scaling && i < scaling->count; i++) {
        /* Of the counts that are too small, only the largest is listed. */
        const bool next_does_not_fit = i + 1 < scaling->count && !scaling->points[i + 1].fits;
        if (scaling->points[i].fits || !next_does_not_fit) {
            add_count(&scaling->points[i], values);
        }
    }
}

static void add_paths(const ls_plan_page *page, ls_values *values)
{
    const size_t count = page->plan->verdict.outcome_count;
    ls_values_flag(values, "has_paths", count > 0);
    for (size_t i = 0; i < count; i++) {
        const ls_path_outcome *o = &page->plan->verdict.outcomes[i];
        ls_values *row = ls_values_add(values, "paths");
        ls_values_text(row, "name", o->name);
        ls_page_set_count(row, "gpus", o->machines);
        set_number(row, "days", "%.3g", o->days);
        set_dollars(row, "run", o->run_usd);
        set_dollars(row, "upfront", o->upfront_usd);
        set_dollars(row, "loss", o->max_loss_usd);
        ls_values_text(row, "why_not", (int)i == page->plan->verdict.chosen ? "chosen" : o->why_not);
    }
}

static void add_flips(const ls_plan_page *page, ls_values *values)
{
    const size_t count = page->plan->verdict.flip_count;
    ls_values_flag(values, "has_flips", count > 0);
    for (size_t i = 0; i < count; i++) {
        ls_values_text(ls_values_add(values, "flips"), "text", page->plan->verdict.flips[i].text);
    }
}

void ls_page_add_tables(const ls_plan_page *page, ls_values *values)
{
    add_terms(page, values);
    add_memory(page, values);
    add_alternatives(page, values);
    add_scaling(page, values);
    add_paths(page, values);
    add_flips(page, values);
}
