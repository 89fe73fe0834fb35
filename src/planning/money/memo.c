// SPDX-License-Identifier: Apache-2.0
#include "planning/money/memo.h"

#include <math.h>
#include <stdio.h>

enum { FLIPS_SHOWN = 4 };

static const ls_path_outcome *chosen_outcome(const ls_verdict *v)
{
    return v->chosen >= 0 ? &v->outcomes[v->chosen] : NULL;
}

static void append_head(const ls_memo *m, ls_text *text)
{
    ls_text_append(text, "# Decision: training a language model\n\n");
    ls_text_printf(text, "**Date** %s\n\n", m->date ? m->date : "________");
    ls_text_printf(text, "**Question** %s\n\n", m->question);
    ls_text_printf(text, "**Answer** %s: %s.\n\n", ls_verdict_kind_name(m->verdict->kind),
                   m->verdict->reason);
}

/* ---- numbers ---- */

static void append_time(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    const bool has_band = m->step_band_s[0] > 0.0 && m->step_s > 0.0;
    const double low = has_band ? m->step_band_s[0] / m->step_s : 1.0;
    const double high = has_band ? m->step_band_s[1] / m->step_s : 1.0;
    ls_text_append(text, "| | expected | 10 % to 90 % |\n|---|---|---|\n");
    if (o && isfinite(o->days) && o->path->node) {
        const double lead = o->offer->lead_time_s / 86400.0, run = o->days - lead;
        ls_text_printf(text, "| done in | %s days on %lld GPUs | %s to %s days |\n",
                       ls_plain_of(o->days).text, (long long)o->gpus,
                       ls_plain_of(m->days_band[0] > 0.0 ? m->days_band[0] : lead + run * low).text,
                       ls_plain_of(m->days_band[1] > 0.0 ? m->days_band[1] : lead + run * high).text);
        ls_text_printf(text, "| a run costs | %s | %s to %s |\n", ls_usd_of(o->run_usd).text,
                       ls_usd_of(o->run_usd_low * low).text, ls_usd_of(o->run_usd_high * high).text);
        ls_text_printf(text, "| at most lost | %s | |\n", ls_usd_of(o->max_loss_usd).text);
    }
    if (m->step_s > 0.0) {
        ls_text_printf(text, "| a step | %s s, %s tokens/s, MFU %.0f %% | %s to %s s |\n",
                       ls_plain_of(m->step_s).text, ls_quantity_of(m->tokens_ps).text, 100.0 * m->mfu,
                       ls_plain_of(m->step_s * low).text, ls_plain_of(m->step_s * high).text);
    }
}

static void append_machine(const ls_memo *m, ls_text *text)
{
    if (m->memory_capacity_gib > 0.0) {
        ls_text_printf(text, "| memory of the fullest GPU | %.1f of %.0f GiB | |\n", m->memory_gib,
                       m->memory_capacity_gib);
    }
    if (m->failure) {
        ls_text_printf(text, "| a failure every | %s days; goodput %.1f %% | |\n",
                       ls_plain_of(m->failure->mtbf_s / 86400.0).text, 100.0 * m->failure->goodput);
    }
    if (m->power && m->power->known) {
        ls_text_printf(text, "| power at the meter | %s kW, at most %s | |\n",
                       ls_plain_of(m->power->facility_kw).text, ls_plain_of(m->power->facility_max_kw).text);
        ls_text_printf(text, "| racks | %lld of %.0f kW, %s | |\n", (long long)m->power->racks,
                       m->power->rack_kw, m->power->cooling->name);
    }
    ls_text_append(text, "\n");
    if (m->strategy) {
        ls_text_printf(text, "Split: %s.\n\n", m->strategy);
    }
}

static void append_paths(const ls_verdict *v, ls_text *text)
{
    ls_text_append(text,
                   "## Paths\n\n| path | GPUs | done in | a run | upfront | a month | at most lost | |\n"
                   "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        char days[40] = "";
        if (isfinite(o->days) && o->days > 0.0) {
            snprintf(days, sizeof days, "%s days", ls_plain_of(o->days).text);
        }
        ls_text_printf(text, "| %s%s | %lld | %s | %s | %s | %s | %s | %s |\n", o->name,
                       (int)i == v->chosen ? " (chosen)" : "", (long long)o->machines, days,
                       ls_usd_of(o->run_usd).text, ls_usd_of(o->upfront_usd).text,
                       ls_usd_of(o->month_usd).text, ls_usd_of(o->max_loss_usd).text, o->why_not);
    }
    ls_text_append(text, "\n");
}

/* ---- risks, and what would change the answer ---- */

static void append_risks(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    ls_text_append(text, "## Risks\n\n");
    if (o && o->path->node) {
        ls_text_printf(text,
                       "- Price: a run costs %s to %s within the published range of prices. Rents move: an "
                       "H100 fell from about "
                       "8 to 2 USD an hour, and rose again by 40 %% up to 2026-03.\n",
                       ls_usd_of(o->run_usd_low).text, ls_usd_of(o->run_usd_high).text);
    }
    if (m->failure) {
        ls_text_printf(text,
                       "- Failures: one every %s hours is expected; a checkpoint every %.0f minutes keeps "
                       "%.1f %% of the "
                       "time.\n",
                       ls_plain_of(m->failure->mtbf_s / 3600.0).text, m->failure->interval_s / 60.0,
                       100.0 * m->failure->goodput);
    }
    if (m->power && !m->power->possible) {
        ls_text_printf(text, "- Site: %s.\n", m->power->why_not);
    }
    ls_text_printf(text,
                   "- Data: %s tokens per parameter; 20 are usual, and what a model learns is not part of "
                   "this page.\n",
                   ls_plain_of(m->verdict->tokens_per_parameter).text);
    ls_text_append(text, "\n## What would change the answer\n\n");
    const size_t count = m->verdict->flip_count < FLIPS_SHOWN ? m->verdict->flip_count : FLIPS_SHOWN;
    for (size_t i = 0; i < count; i++) {
        ls_text_printf(text, "- %s.\n", m->verdict->flips[i].text);
    }
    ls_text_append(text, count > 0 ? "\n" : "Nothing within a factor of 16 of any one number.\n\n");
}

static void append_ladder(const ls_ladder *ladder, ls_text *text)
{
    ls_text_append(
        text, "## Stages\n\n| stage | GPUs | hours | cost, in all | goes on when |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < ladder->count; i++) {
        const ls_ladder_stage *s = &ladder->stages[i];
        ls_text_printf(text, "| %s | %lld | %.2g | %s | %s |\n", s->name, (long long)s->gpus, s->hours,
                       ls_usd_of(s->cumulated_usd).text, s->criteria[0]);
    }
    ls_text_append(text, "\n");
}

static void append_foot(const ls_memo *m, ls_text *text)
{
    if (m->assumptions && m->assumptions->count > 0) {
        ls_text_append(text, "## What this rests on\n\n");
        for (size_t i = 0; i < m->assumptions->count; i++) {
            ls_text_printf(text, "- %s\n", m->assumptions->items[i]);
        }
        ls_text_append(text, "\n");
    }
    if (m->command) {
        ls_text_printf(text, "Made with `%s`.\n\n", m->command);
    }
    ls_text_append(text, "Decided: yes / no ______________   Name ______________   Date ______________\n\n"
                         "Money:             ______________   Name ______________   Date ______________\n");
}

void ls_memo_append(const ls_memo *memo, ls_text *text)
{
    const ls_path_outcome *o = chosen_outcome(memo->verdict);
    append_head(memo, text);
    append_time(memo, o, text);
    append_machine(memo, text);
    append_paths(memo->verdict, text);
    append_risks(memo, o, text);
    if (memo->ladder && memo->ladder->count > 0) {
        append_ladder(memo->ladder, text);
    }
    append_foot(memo, text);
}
