// SPDX-License-Identifier: Apache-2.0
/* The verdict in words: why a path is ruled out, the reason in one sentence, the paths side by
 * side. */
#include "planning/money/verdict_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DAY_S 86400.0

const char *ls_verdict_kind_name(ls_verdict_kind kind)
{
    static const char *const names[] = {"LOCAL", "RENT", "OWN", "FRONTIER", "DON'T"};
    return names[kind];
}

typedef struct words {
    char text[40];
} words;

static ls_quantity span(double days)
{
    return ls_span_of(days);
}

static const char *s_of(int64_t count)
{
    return count == 1 ? "" : "s";
}

/* ---- why not ---- */

static void say_use(const ls_question *q, const ls_path_outcome *o, char *text, size_t bytes)
{
    if (q->utilization > 0.0) {
        snprintf(text, bytes, "the runs need more of its hours than the stated %.0f %%",
                 100.0 * q->utilization);
    } else {
        snprintf(text, bytes,
                 o->utilization < 10.0 ? "a month of runs would keep %.1f of these machines busy"
                                       : "a month of runs would keep %.0f of these machines busy",
                 fmax(o->utilization, 1.0));
    }
}

static void say_size(const ls_path_outcome *o, char *text, size_t bytes)
{
    const ls_offer *offer = o->offer;
    if ((uint64_t)o->machines < offer->gpus_min) {
        snprintf(text, bytes, "it takes %lld GPU%s, but the offer starts at %llu", (long long)o->machines,
                 s_of(o->machines), (unsigned long long)offer->gpus_min);
    } else {
        snprintf(text, bytes, "it takes %lld GPU%s, more than the %llu available at once",
                 (long long)o->machines, s_of(o->machines),
                 (unsigned long long)(offer->gpus_max > 0 ? offer->gpus_max : LS_OFFER_GPUS_MOST));
    }
}

static void say_deadline(const ls_question *q, const ls_path_outcome *o, char *text, size_t bytes)
{
    const ls_verdict_pass strict = {0};
    const double limit_days = ls_path_outcome_limit_s(q, o->path, strict) / DAY_S;
    const double lead_days = o->offer->lead_time_s / DAY_S;
    const char *s = s_of(o->gpus);
    if (lead_days > limit_days) {
        snprintf(text, bytes, "delivery takes %s, but the deadline is in %s", span(lead_days).text,
                 span(limit_days).text);
    } else if (q->deadline_s > 0.0 && o->days <= limit_days) {
        snprintf(text, bytes,
                 "%s with %lld GPU%s are expected, but one run in ten takes more than %s; the deadline is in "
                 "%s",
                 span(o->days).text, (long long)o->gpus, s, span(o->days_slow).text, span(limit_days).text);
    } else {
        snprintf(text, bytes, "%s with %lld GPU%s, %s %s",
                 span(q->deadline_s > 0.0 ? o->days : o->run_days).text, (long long)o->gpus, s,
                 q->deadline_s > 0.0 ? "the deadline is in" : "longer than the limit of",
                 span(limit_days).text);
    }
}

static void say_budget(const ls_question *q, const ls_path_outcome *o, char *text, size_t bytes)
{
    const double spent_usd = ls_path_outcome_spent_usd(o);
    const bool is_expected = o->path->kind != LS_PATH_API && o->path->kind != LS_PATH_OWNED &&
                             fmax(o->run_usd, o->upfront_usd) <= q->budget_usd;
    if (is_expected) {
        snprintf(text, bytes, "%s are expected, but one run in ten costs more than %s; the budget is %s",
                 ls_usd_of(o->run_usd).text, ls_usd_of(spent_usd).text, ls_usd_of(q->budget_usd).text);
    } else {
        snprintf(text, bytes, "%s, the budget is %s",
                 ls_usd_of(o->path->kind == LS_PATH_OWNED ? o->upfront_usd : spent_usd).text,
                 ls_usd_of(q->budget_usd).text);
    }
}

static void say_life(const ls_path_outcome *o, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s with %lld GPU%s, longer than the life of the machines (%s)",
             span(o->run_days).text, (long long)o->gpus, s_of(o->gpus),
             span(LS_VERDICT_LONGEST_S / DAY_S).text);
}

static void say_tokens(const ls_verdict *v, char *text, size_t bytes)
{
    const double even = v->api_break_even_tokens_month;
    snprintf(text, bytes, "the number of tokens per month is not given%s%s%s",
             even > 0.0 ? isinf(even) ? "; training is never cheaper" : "; training is cheaper above " : "",
             even > 0.0 && isfinite(even) ? ls_quantity_of(even).text : "",
             even > 0.0 && isfinite(even) ? " a month" : "");
}

static void say_why_not(const ls_question *q, const ls_verdict *v, ls_path_outcome *o)
{
    char *text = o->why_not;
    const size_t bytes = sizeof o->why_not;
    switch (o->obstacle) {
    case LS_OBSTACLE_NONE:
        break;
    case LS_OBSTACLE_BUDGET:
        say_budget(q, o, text, bytes);
        break;
    case LS_OBSTACLE_LIFE:
        say_life(o, text, bytes);
        break;
    case LS_OBSTACLE_DEADLINE:
        say_deadline(q, o, text, bytes);
        break;
    case LS_OBSTACLE_USE:
        say_use(q, o, text, bytes);
        break;
    case LS_OBSTACLE_SITE:
        snprintf(text, bytes, "%s", o->power.why_not);
        break;
    case LS_OBSTACLE_SIZE:
        say_size(o, text, bytes);
        break;
    case LS_OBSTACLE_MEMORY:
        snprintf(text, bytes, "the model does not fit in memory");
        break;
    case LS_OBSTACLE_CONTROL:
        snprintf(text, bytes, "the data must not leave your control");
        break;
    case LS_OBSTACLE_TOKENS:
        say_tokens(v, text, bytes);
        break;
    case LS_OBSTACLE_OFFER:
        snprintf(text, bytes, "your own offer replaces this price");
        break;
    }
}

/* ---- the reason ---- */

/* "64 x H100": the size that was chosen. */
static words machines(const ls_path_outcome *o)
{
    words m;
    snprintf(m.text, sizeof m.text, "%lld x %s", (long long)o->machines, o->path->short_name);
    return m;
}

/* "; buying never pays at 60 % use", "; buying pays after 27 months at 60 % use". */
static void append_buying(const ls_verdict *v, char *text, size_t bytes)
{
    const ls_path_outcome *o = v->owned >= 0 ? &v->outcomes[v->owned] : NULL;
    if (!o || o->break_even_months == 0.0) {
        return;
    }
    const size_t used = strlen(text);
    const double months = o->break_even_months, percent = 100.0 * o->utilization;
    const double life_months = 12.0 * o->path->terms.life_years;
    text += used;
    bytes -= used;
    if (isinf(months)) {
        snprintf(text, bytes, "; buying never pays back at %.0f %% use", percent);
    } else if (months > life_months) {
        snprintf(text, bytes,
                 "; buying would take %.0f months to pay back at %.0f %% use, and machines last %.0f", months,
                 percent, life_months);
    } else {
        snprintf(text, bytes, "; buying would pay back after %.0f months at %.0f %% use%s", months, percent,
                 v->runs_per_month > 0.0 || months > 0.5 * life_months ? "" : ", if there is enough work");
    }
}

/* "takes 4.9 hours after a delivery time of 7.0 days", "takes 12 days". */
static void append_time(const ls_path_outcome *o, char *text, size_t bytes)
{
    const double lead_days = o->days - o->run_days;
    const size_t used = strlen(text);
    if (lead_days > 0.0) {
        snprintf(text + used, bytes - used, "takes %s after a delivery time of %s", span(o->run_days).text,
                 span(lead_days).text);
    } else {
        snprintf(text + used, bytes - used, "takes %s", span(o->run_days).text);
    }
}

static void say_local(const ls_question *q, const ls_path_outcome *o, char *text, size_t bytes)
{
    const ls_verdict_pass strict = {0};
    snprintf(text, bytes, "it fits on %s (%s), ",
             o->path->is_here ? "this machine" : "one machine under a desk", machines(o).text);
    append_time(o, text, bytes);
    const size_t used = strlen(text);
    const double limit_days = ls_path_outcome_limit_s(q, o->path, strict) / DAY_S;
    if (o->run_days > limit_days) {
        snprintf(text + used, bytes - used, ", sooner than bought machines could, for %s",
                 ls_usd_of(o->run_usd).text);
    } else {
        snprintf(text + used, bytes - used, ", within the %.0f days %s, for %s", limit_days,
                 q->deadline_s > 0.0 ? "until the deadline" : "that are acceptable",
                 ls_usd_of(o->run_usd).text);
    }
}

static void say_rent(const ls_verdict *v, const ls_path_outcome *o, char *text, size_t bytes)
{
    const double lead_days = o->days - o->run_days;
    const char *kind = ls_offer_kind_name((ls_offer_kind)o->offer->kind);
    const bool is_named = o->offer->is_own && strcmp(o->offer->name, kind) != 0;
    char wait[64] = "";
    if (lead_days > 0.0) {
        snprintf(wait, sizeof wait, ", available after %s,", span(lead_days).text);
    }
    snprintf(text, bytes, "%s for %s%s cost %s%s (%s%s%s, %.2f USD per GPU and hour)", machines(o).text,
             span(o->run_days).text, wait, ls_usd_of(o->run_usd).text,
             v->runs_per_month > 0.0 ? " a run" : "", is_named ? o->offer->name : "", is_named ? ", " : "",
             kind, o->usd_per_gpu_hour);
    append_buying(v, text, bytes);
}

static void say_own(const ls_verdict *v, const ls_path_outcome *o, char *text, size_t bytes)
{
    if (o->break_even_months > 0.0 && o->break_even_months <= 6.0 * o->path->terms.life_years) {
        snprintf(text, bytes,
                 "%s for %s pay back after %.0f months at %.0f %% use, within half of their life of %.0f "
                 "years (%.2f USD per GPU-hour; the same work rented costs %.2f)",
                 machines(o).text, ls_usd_of(o->upfront_usd).text, o->break_even_months,
                 100.0 * o->utilization, o->path->terms.life_years, o->usd_per_gpu_hour,
                 o->rent_usd_per_gpu_hour);
        return;
    }
    const ls_path_outcome *other = NULL;
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *one = &v->outcomes[i];
        const bool is_rent = one->path->kind == LS_PATH_RENTED || one->path->kind == LS_PATH_CLOUD;
        other = is_rent && (!other || one->obstacle < other->obstacle) ? one : other;
    }
    snprintf(text, bytes, "only %s bought for %s can do it%s%s%s", machines(o).text,
             ls_usd_of(o->upfront_usd).text, other ? " (rented: " : "", other ? other->why_not : "",
             other ? ")" : "");
}

static void say_frontier(const ls_path_outcome *o, char *text, size_t bytes)
{
    const ls_accelerator *a = o->path->node->accelerator;
    const int64_t domain = a->scaleup_domain > 0 ? a->scaleup_domain : 1;
    /* Rented machines share a hall with others: only their own power draw is known. */
    ls_power power;
    ls_power_of_machines(o->path->node, o->machines, &power);
    snprintf(text, bytes,
             "%s for %s: %lld scale-up domains on one network, up to %.1f MW of machines, about %s of staff "
             "a year, and a negotiated contract; a run costs about %s",
             machines(o).text, span(o->run_days).text, (long long)((o->machines + domain - 1) / domain),
             power.it_max_kw / 1e3,
             ls_usd_of(o->path->terms.staff_usd_year > 0.0 ? o->path->terms.staff_usd_year
                                                           : ls_cost_staff_usd_year(o->machines))
                 .text,
             ls_usd_of(o->run_usd).text);
}

/* "14.5 runs of 3 models, the longest takes 7.6 days". */
static void append_work(const ls_verdict *v, const ls_path_outcome *o, char *text, size_t bytes)
{
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s runs of %zu models, the longest takes %s",
             ls_plain_of(v->runs_per_month).text, v->workload_count, span(o->run_days).text);
}

/* For a portfolio the question is about a month. */
static void say_rent_month(const ls_verdict *v, const ls_path_outcome *o, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s cost %s a month for ", machines(o).text, ls_usd_of(o->month_usd).text);
    append_work(v, o, text, bytes);
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, " (%s, %.2f USD per GPU and hour)",
             ls_offer_kind_name((ls_offer_kind)o->offer->kind), o->usd_per_gpu_hour);
    append_buying(v, text, bytes);
}

/* "the closest is H100, rented: 90 days ...". Where nothing fits, any path serves. */
static void say_nearest(const ls_verdict *v, char *text, size_t bytes)
{
    const ls_path_outcome *o = &v->outcomes[v->told >= 0 ? v->told : 0];
    snprintf(text, bytes, "the closest is %s: %s", o->name, o->why_not);
}

static void say_api(const ls_verdict *v, char *text, size_t bytes)
{
    char until[64] = "at any number of tokens";
    if (!(v->train_usd_month > 0.0)) {
        char near[360];
        say_nearest(v, near, sizeof near);
        snprintf(text, bytes, "training is not possible (%s); an outside API costs %s a month", near,
                 ls_usd_of(v->api_usd_month).text);
        return;
    }
    if (isfinite(v->api_break_even_tokens_month)) {
        snprintf(until, sizeof until, "below %s tokens a month",
                 ls_quantity_of(v->api_break_even_tokens_month).text);
    }
    snprintf(
        text, bytes,
        "an outside API costs %s a month; training costs %s a month and serving %s; the API is cheaper %s",
        ls_usd_of(v->api_usd_month).text, ls_usd_of(v->train_usd_month).text,
        ls_usd_of(v->serve_usd_month).text, until);
}

static void say_dont(const ls_verdict *v, char *text, size_t bytes)
{
    if (v->tokens_per_parameter < 1.0) {
        snprintf(text, bytes,
                 "%.2g tokens per parameter are too few to train from scratch (20 are usual): fine-tune an "
                 "existing model, choose a smaller one, or find more text",
                 v->tokens_per_parameter);
    } else if (v->chosen >= 0) {
        say_api(v, text, bytes);
    } else {
        char near[360];
        say_nearest(v, near, sizeof near);
        snprintf(text, bytes, "no path is possible; %s", near);
    }
}

void ls_verdict_describe(const ls_question *question, ls_verdict *v)
{
    for (size_t i = 0; i < v->outcome_count; i++) {
        v->outcomes[i].name = v->outcomes[i].path->name;
        say_why_not(question, v, &v->outcomes[i]);
    }
    const ls_path_outcome *o = v->chosen >= 0 ? &v->outcomes[v->chosen] : NULL;
    switch (v->kind) {
    case LS_VERDICT_LOCAL:
        say_local(question, o, v->reason, sizeof v->reason);
        break;
    case LS_VERDICT_RENT:
        (v->workload_count > 1 ? say_rent_month : say_rent)(v, o, v->reason, sizeof v->reason);
        break;
    case LS_VERDICT_OWN:
        say_own(v, o, v->reason, sizeof v->reason);
        break;
    case LS_VERDICT_FRONTIER:
        say_frontier(o, v->reason, sizeof v->reason);
        break;
    case LS_VERDICT_DONT:
        say_dont(v, v->reason, sizeof v->reason);
        break;
    }
    /* The cost of one run is a mean over the portfolio. */
    if (v->workload_count > 1 && o && o->path->node && v->kind != LS_VERDICT_RENT) {
        const size_t used = strlen(v->reason);
        snprintf(v->reason + used, sizeof v->reason - used, "; ");
        append_work(v, o, v->reason, sizeof v->reason);
        const size_t end = strlen(v->reason);
        snprintf(v->reason + end, sizeof v->reason - end, ", %s on average", ls_usd_of(o->run_usd).text);
    }
}

/* ---- the table ---- */

static void append_outcome(const ls_path_outcome *o, bool is_chosen, ls_text *text)
{
    ls_text_printf(text, "%c %-28.28s", is_chosen ? '*' : ' ', o->name);
    if (o->path->kind == LS_PATH_API) {
        const bool has_bill = o->month_usd > 0.0;
        ls_text_printf(text, " %6s %10s %9s %9s %9s %9s", "", "", "", "",
                       has_bill ? ls_usd_of(o->month_usd).text : "",
                       has_bill ? ls_usd_of(o->max_loss_usd).text : "");
    } else if (isinf(o->days)) {
        ls_text_printf(text, " %6lld %10s %9s %9s %9s %9s", (long long)o->machines, "", "", "", "", "");
    } else {
        ls_text_printf(text, " %6lld %10s %9s %9s %9s %9s", (long long)o->machines, span(o->days).text,
                       ls_usd_of(o->run_usd).text, ls_usd_of(o->upfront_usd).text,
                       ls_usd_of(o->month_usd).text, ls_usd_of(o->max_loss_usd).text);
    }
    ls_text_printf(text, o->why_not[0] ? "  %s\n" : "\n", o->why_not);
}

void ls_verdict_append_paths(const ls_verdict *verdict, ls_text *text)
{
    ls_text_printf(text, "  %-28s %6s %10s %9s %9s %9s %9s  %s\n", "path", "GPUs",
                   verdict->workload_count > 1 ? "longest in" : "done in",
                   verdict->workload_count > 1 ? "mean run" : "a run", "upfront", "a month", "at risk",
                   "why not");
    for (size_t i = 0; i < verdict->outcome_count; i++) {
        append_outcome(&verdict->outcomes[i], (int)i == verdict->chosen, text);
    }
}
