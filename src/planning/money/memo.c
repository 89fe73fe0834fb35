// SPDX-License-Identifier: Apache-2.0
#include "planning/money/memo.h"

#include "planning/money/verdict_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limits that keep the memo on one page. */
enum { FLIPS_SHOWN = 3, PATHS_SHOWN = 8, RUNS_SHOWN = 8 };

#define DAY_S  86400.0
#define NO_ONE "-"

static const ls_path_outcome *chosen_outcome(const ls_verdict *v)
{
    const ls_path_outcome *o = v->chosen >= 0 ? &v->outcomes[v->chosen] : NULL;
    return o && o->path->node ? o : NULL;
}

static bool is_rent(const ls_path_outcome *o)
{
    return o->path->kind == LS_PATH_RENTED || o->path->kind == LS_PATH_CLOUD;
}

static ls_quantity span(double days)
{
    return ls_span_of(days);
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

typedef struct band {
    double low, high; /* Factors on the expected time. */
    bool known;
} band;

static band band_of(const ls_memo *m)
{
    const bool known = m->step_band_s[0] > 0.0 && m->step_s > 0.0;
    return (band){.low = known ? m->step_band_s[0] / m->step_s : 1.0,
                  .high = known ? m->step_band_s[1] / m->step_s : 1.0,
                  .known = known};
}

static void append_days(const char *what, double days, double lead_days, band b, ls_text *text)
{
    ls_text_printf(text, "| %s | %s | %s to %s |\n", what, span(lead_days + days).text,
                   span(lead_days + days * b.low).text, span(lead_days + days * b.high).text);
}

static void append_usd(const char *what, double low_usd, double usd, double high_usd, ls_text *text)
{
    ls_text_printf(text, "| %s | %s | %s to %s |\n", what, ls_usd_of(usd).text, ls_usd_of(low_usd).text,
                   ls_usd_of(high_usd).text);
}

static void append_costs(const ls_memo *m, const ls_path_outcome *o, band b, ls_text *text)
{
    const bool is_mean = m->verdict->workload_count > 1;
    const double run_days = o->run_days, lead_days = o->days - o->run_days;
    char what[96];
    snprintf(what, sizeof what, "%s on %lld GPU%s takes", is_mean ? "the longest run" : "a run",
             (long long)o->gpus, o->gpus == 1 ? "" : "s");
    append_days(what, run_days, 0.0, b, text);
    if (lead_days > 0.0) {
        append_days("done after, including delivery of the machines", run_days, lead_days, b, text);
    }
    const double low_usd = ls_path_outcome_run_usd_at(o, b.low),
                 high_usd = ls_path_outcome_run_usd_at(o, b.high);
    append_usd(is_mean ? "a run costs, on average" : "a run costs", low_usd, o->run_usd, high_usd, text);
    const double runs = m->verdict->runs_per_month;
    if (runs > 0.0) {
        snprintf(what, sizeof what, "%s runs a month cost", ls_plain_of(runs).text);
        append_usd(what, runs * low_usd, runs * o->run_usd, runs * high_usd, text);
    }
    ls_text_printf(text, "| most that can be lost | %s | |\n", ls_usd_of(o->max_loss_usd).text);
}

static void append_numbers(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    const band b = band_of(m);
    ls_text_printf(text, "| | expected | %s |\n|---|---|---|\n",
                   b.known ? "10 % to 90 % band" : "the band is not known");
    if (o) {
        append_costs(m, o, b, text);
    }
    const char *of = m->subject ? " of " : "", *subject = m->subject ? m->subject : "";
    if (m->tokens_ps > 0.0) {
        ls_text_printf(text, "| step time%s%s | %s s, %s tokens/s, MFU %.0f %% | %s to %s s |\n", of, subject,
                       ls_plain_of(m->step_s).text, ls_quantity_of(m->tokens_ps).text, 100.0 * m->mfu,
                       ls_plain_of(m->step_s * b.low).text, ls_plain_of(m->step_s * b.high).text);
    }
    if (m->memory_capacity_gib > 0.0) {
        ls_text_printf(text, "| memory of the fullest GPU%s%s | %.1f of %.0f GiB | |\n", of, subject,
                       m->memory_gib, m->memory_capacity_gib);
    }
    if (o && o->power.known) {
        ls_text_printf(text, "| power at the electricity meter | %s kW, at most %s; %lld racks, %s | |\n",
                       ls_plain_of(o->power.facility_kw).text, ls_plain_of(o->power.facility_max_kw).text,
                       (long long)o->power.racks, o->power.cooling->name);
    }
    ls_text_append(text, "\n");
    if (b.known) {
        ls_text_printf(text,
                       "Band: one run in ten is faster than the band, and one in ten is slower%s%s%s; prices "
                       "are taken as given.\n\n",
                       m->band_from ? " (errors of " : "", m->band_from ? m->band_from : "",
                       m->band_from ? ")" : "");
    }
}

/* ---- the runs of a portfolio ---- */

static void append_runs(const ls_runs *runs, ls_text *text)
{
    ls_text_append(
        text, "| run | tokens | a month | days | each | a month | share |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < runs->count && i < RUNS_SHOWN; i++) {
        const ls_run_outcome *run = &runs->items[i];
        ls_text_printf(text, "| %s | %s | %s | %s | %s | %s | %.0f %% |\n", run->workload->name,
                       ls_quantity_of(run->workload->tokens).text, ls_plain_of(run->runs_per_month).text,
                       ls_plain_of(run->days).text, ls_usd_of(run->usd).text, ls_usd_of(run->month_usd).text,
                       100.0 * run->share);
    }
    if (runs->count > RUNS_SHOWN) {
        ls_text_printf(text, "| and %zu more | | | | | | |\n", runs->count - RUNS_SHOWN);
    }
    ls_text_append(text, "\n");
}

/* ---- the paths ---- */

static void append_path(const ls_verdict *v, size_t index, ls_text *text)
{
    const ls_path_outcome *o = &v->outcomes[index];
    char gpus[24] = NO_ONE, days[40] = NO_ONE;
    const bool has_numbers = o->path->node ? isfinite(o->days) : o->month_usd > 0.0;
    if (o->machines > 0) {
        snprintf(gpus, sizeof gpus, "%lld", (long long)o->machines);
    }
    if (o->path->node && isfinite(o->days)) {
        snprintf(days, sizeof days, "%s", span(o->days).text);
    }
    ls_text_printf(text, "| %s%s | %s | %s ", o->name, (int)index == v->chosen ? " (chosen)" : "", gpus,
                   days);
    if (has_numbers) {
        ls_text_printf(text, "| %s | %s | %s | %s ", o->run_usd > 0.0 ? ls_usd_of(o->run_usd).text : NO_ONE,
                       ls_usd_of(o->upfront_usd).text,
                       o->month_usd > 0.0 ? ls_usd_of(o->month_usd).text : NO_ONE,
                       ls_usd_of(o->max_loss_usd).text);
    } else {
        ls_text_append(text, "| " NO_ONE " | " NO_ONE " | " NO_ONE " | " NO_ONE " ");
    }
    ls_text_printf(text, "| %s |\n", o->possible ? "" : o->why_not);
}

/* The order of the paths: the chosen one, the best own one, possible ones, then the closest ones;
 * cheaper ones first. */
static int rank_of(const ls_verdict *v, size_t index)
{
    const ls_path_outcome *o = &v->outcomes[index];
    return (int)index == v->chosen || (int)index == v->told ? 0
           : (int)index == v->owned                         ? 1
                                                            : 2 + (int)o->obstacle;
}

static size_t next_path(const ls_verdict *v, const bool *shown)
{
    size_t best = v->outcome_count;
    for (size_t i = 0; i < v->outcome_count; i++) {
        if (shown[i]) {
            continue;
        }
        const int rank = rank_of(v, i), best_rank = best < v->outcome_count ? rank_of(v, best) : rank + 1;
        if (rank < best_rank || (rank == best_rank && v->outcomes[i].run_usd < v->outcomes[best].run_usd)) {
            best = i;
        }
    }
    return best;
}

static void append_reservations(const ls_verdict *v, ls_text *text)
{
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        if (o->path->node && o->offer->kind == LS_OFFER_RESERVED && isfinite(o->days)) {
            ls_text_printf(text,
                           "%s is a reservation: %s months of its GPUs are paid whether they are used or "
                           "not; the upfront column shows that sum.\n\n",
                           o->name, ls_plain_of(o->offer->months).text);
        }
    }
}

static void append_paths(const ls_memo *m, ls_text *text)
{
    const ls_verdict *v = m->verdict;
    const char *run = v->workload_count > 1 ? "a run, on average" : "a run";
    ls_text_printf(text,
                   "## Paths\n\n| path | GPUs | %s | %s | upfront | per month | most that can be lost | why "
                   "not |\n|---|---|---|---|---|---|---|---|\n",
                   v->workload_count > 1 ? "longest run done after" : "done after", run);
    bool shown[LS_PATHS_MOST] = {false};
    for (size_t k = 0; k < v->outcome_count && k < PATHS_SHOWN; k++) {
        const size_t next = next_path(v, shown);
        shown[next] = true;
        append_path(v, next, text);
    }
    if (v->outcome_count > PATHS_SHOWN) {
        ls_text_printf(text, "| and %zu more | | | | | | | |\n", v->outcome_count - PATHS_SHOWN);
    }
    ls_text_append(text, "\nA run: everything paid for it, or its share of the life of own machines. Per "
                         "month: recurring costs, including energy and staff of own machines. Most that can "
                         "be lost: the loss if the result is useless, at the worst moment.\n\n");
    append_reservations(v, text);
}

/* ---- risks, and what would change the answer ---- */

static void append_price_risk(const ls_path_outcome *o, ls_text *text)
{
    const ls_offer *offer = o->offer;
    if (offer->usd_high > offer->usd_low) {
        ls_text_printf(text,
                       "- Price: within the published range (%s, confidence: %s) a run costs %s to %s. How "
                       "likely each price is, is not known: ask for an offer (--quote).\n",
                       offer->date, offer->confidence, ls_usd_of(o->run_usd_low).text,
                       ls_usd_of(o->run_usd_high).text);
    }
}

static void append_risks(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    ls_text_append(text, "## Risks\n\n");
    if (o) {
        append_price_risk(o, text);
    }
    if (m->failure) {
        ls_text_printf(text,
                       "- Failures: one is expected every %s; with a checkpoint every %.0f minutes, %.1f %% "
                       "of the time is productive.\n",
                       span(m->failure->mtbf_s / DAY_S).text, m->failure->interval_s / 60.0,
                       100.0 * m->failure->goodput);
    }
    ls_text_printf(
        text,
        "- Data: %s tokens per parameter%s; 20 are usual. This page does not judge what the model learns.\n",
        ls_plain_of(m->verdict->tokens_per_parameter).text, m->verdict->workload_count > 1 ? " at most" : "");
    ls_text_append(text, "\n## What would change the answer\n\n");
    const size_t count = m->verdict->flip_count < FLIPS_SHOWN ? m->verdict->flip_count : FLIPS_SHOWN;
    for (size_t i = 0; i < count; i++) {
        ls_text_printf(text, "- %s.\n", m->verdict->flips[i].text);
    }
    ls_text_append(text, count > 0 ? "\n" : "No single number changes the answer within a factor of 16.\n\n");
}

static void append_ladder(const ls_ladder *ladder, ls_text *text)
{
    ls_text_append(
        text, "## Stages\n\n| stage | GPUs | takes | cost so far | continue when |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < ladder->count; i++) {
        const ls_ladder_stage *s = &ladder->stages[i];
        ls_text_printf(text, "| %s | %lld | %s | %s | %s |\n", s->name, (long long)s->gpus,
                       span(s->hours / 24.0).text,
                       s->cumulated_usd > 0.0 ? ls_usd_of(s->cumulated_usd).text : NO_ONE, s->criteria[0]);
    }
    ls_text_append(text, "\n");
}

/* ---- what it rests on ---- */

static void append_price(const ls_path_outcome *o, ls_text *text)
{
    const ls_offer *offer = o->offer;
    if (!(offer->usd > 0.0)) {
        return;
    }
    ls_text_printf(text, is_rent(o) ? "- %s: %.2f USD per GPU and hour (" : "- %s: %.0f USD per GPU (",
                   o->name, offer->usd);
    if (offer->usd_high > offer->usd_low) {
        ls_text_printf(text, "of %.6g to %.6g, ", offer->usd_low, offer->usd_high);
    }
    ls_text_printf(text, "%s%s%s)\n", offer->date[0] ? offer->date : "no date",
                   offer->confidence[0] ? ", " : "", offer->confidence);
}

/* Assumptions that end with the option that would have set them: "precision bf16 (--precision)". */
static bool is_choice(const char *line)
{
    const char *open = strrchr(line, '(');
    return open && open > line && strncmp(open, "(--", 3) == 0;
}

static void append_choices(const ls_assumptions *list, const char *subject, ls_text *text)
{
    size_t shown = 0;
    for (size_t i = 0; i < list->count; i++) {
        const char *line = list->items[i];
        if (is_choice(line)) {
            const size_t bytes = (size_t)(strrchr(line, '(') - line) - 1;
            if (shown++ == 0) {
                ls_text_printf(text, "- Not specified, and therefore chosen%s%s: ", subject ? " for " : "",
                               subject ? subject : "");
            } else {
                ls_text_append(text, "; ");
            }
            ls_text_append_bytes(text, line, bytes);
        }
    }
    ls_text_append(text, shown > 0 ? ".\n" : "");
}

static void append_basis(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    const ls_verdict *v = m->verdict;
    ls_text_append(text, "## What this rests on\n\n");
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *one = &v->outcomes[i];
        if (one->path->node && (one == o || one->path->kind == LS_PATH_OWNED || (!o && is_rent(one)))) {
            append_price(one, text);
        }
    }
    if (m->strategy) {
        ls_text_printf(text, "- %s is split as follows: %s.\n", m->subject ? m->subject : "The model",
                       m->strategy);
    }
    if (m->assumptions && m->strategy) {
        append_choices(m->assumptions, m->subject, text);
    }
    if (m->command) {
        ls_text_printf(text, "- All %zu assumptions, and all paths: `%s`.\n",
                       m->assumptions ? m->assumptions->count : 0, m->command);
    }
    ls_text_append(text, "\n");
}

/* The sum to approve. */
static void append_request(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    const double slow_usd = ls_path_outcome_run_usd_at(o, band_of(m).high), runs = m->verdict->runs_per_month;
    if (!is_rent(o) && o->upfront_usd > 0.0) {
        ls_text_printf(text, "%s at once", ls_usd_of(o->upfront_usd).text);
        if (o->month_usd > 0.0) {
            ls_text_printf(text, ", %s a month", ls_usd_of(o->month_usd).text);
        }
    } else {
        ls_text_printf(text, "up to %s%s", ls_usd_of(runs > 0.0 ? runs * slow_usd : slow_usd).text,
                       runs > 0.0 ? " a month" : "");
    }
}

static void append_signatures(const ls_memo *m, const ls_path_outcome *o, ls_text *text)
{
    const char *rest = "______________   Name ______________   Date ______________\n";
    ls_text_printf(text, "Decision (yes or no): %s\n", rest);
    if (o) {
        ls_text_append(text, "Money, ");
        append_request(m, o, text);
        ls_text_printf(text, ": %s", rest);
    } else {
        ls_text_append(text, "Money: no spending is requested.\n");
    }
}

void ls_memo_append(const ls_memo *memo, ls_text *text)
{
    const ls_path_outcome *o = chosen_outcome(memo->verdict);
    append_head(memo, text);
    append_numbers(memo, o, text);
    if (memo->runs && memo->runs->count > 0) {
        append_runs(memo->runs, text);
    }
    if (memo->verdict->outcome_count > 0) {
        append_paths(memo, text);
    }
    append_risks(memo, o, text);
    if (memo->ladder && memo->ladder->count > 0) {
        append_ladder(memo->ladder, text);
    }
    append_basis(memo, o, text);
    append_signatures(memo, o, text);
}
