// SPDX-License-Identifier: Apache-2.0
/* The nearest change that makes the verdict another one. For each lever the question is asked again
 * with one number changed: outward in steps until the verdict differs, then halving the step until
 * it is a thousandth. For the chosen path's own price, another path counts as a different verdict
 * too. */
#include "planning/money/verdict_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP      1.3
#define FARTHEST  16.0 /* Up to 16 times, down to a 16th. */
#define PRECISION 1e-3

const char *ls_lever_name(ls_lever lever)
{
    static const char *const names[LS_LEVER_COUNT] = {
        [LS_LEVER_RENT_PRICE] = "rent_price",
        [LS_LEVER_BUY_PRICE] = "buy_price",
        [LS_LEVER_OFFER_PRICE] = "offer_price",
        [LS_LEVER_UTILIZATION] = "utilization",
        [LS_LEVER_RUNS] = "runs_per_month",
        [LS_LEVER_DEADLINE] = "deadline",
        [LS_LEVER_TOKENS] = "tokens",
        [LS_LEVER_BUDGET] = "budget",
        [LS_LEVER_ENERGY_PRICE] = "energy_price",
        [LS_LEVER_STAFF] = "staff",
        [LS_LEVER_API_PRICE] = "api_price",
        [LS_LEVER_API_TOKENS] = "api_tokens",
    };
    return names[lever];
}

/* The number of a question that a lever moves. */
static double *number_of(ls_question *q, ls_lever lever)
{
    switch (lever) {
    case LS_LEVER_RENT_PRICE:
        return &q->rent_factor;
    case LS_LEVER_BUY_PRICE:
        return &q->buy_factor;
    case LS_LEVER_OFFER_PRICE:
        return &q->offer_factor;
    case LS_LEVER_UTILIZATION:
        return &q->utilization;
    case LS_LEVER_RUNS:
        return &q->runs_per_month;
    case LS_LEVER_DEADLINE:
        return &q->deadline_s;
    case LS_LEVER_TOKENS:
        return &q->tokens_factor;
    case LS_LEVER_BUDGET:
        return &q->budget_usd;
    case LS_LEVER_ENERGY_PRICE:
        return &q->energy_factor;
    case LS_LEVER_STAFF:
        return &q->staff_factor;
    case LS_LEVER_API_PRICE:
        return &q->api_usd_per_million;
    case LS_LEVER_API_TOKENS:
    case LS_LEVER_COUNT:
        break;
    }
    return &q->api_tokens_month;
}

/* The current value of a lever, and how far it may move. */
typedef struct range {
    double from;      /* Where the search begins. */
    double low, high; /* The ends; low = from or high = from: it does not move that way. */
    bool is_unset;    /* The question does not give this number: any value is a change. */
} range;

static bool has_path(const ls_question *q, ls_path_kind from, ls_path_kind to)
{
    for (size_t i = 0; i < q->path_count; i++) {
        if (q->paths[i].kind >= from && q->paths[i].kind <= to && !q->paths[i].is_here) {
            return true;
        }
    }
    return false;
}

static const ls_path_outcome *shown(const ls_verdict *v)
{
    return v->chosen >= 0 && v->outcomes[v->chosen].path->node ? &v->outcomes[v->chosen] : NULL;
}

static range around(double value)
{
    return (range){.from = value, .low = value / FARTHEST, .high = value * FARTHEST};
}

static range range_of_use(const ls_question *q, const ls_verdict *v)
{
    enum { LEAST_PERCENT = 2 };
    const double least = 0.01 * LEAST_PERCENT;
    double use = q->utilization;
    for (size_t i = 0; use == 0.0 && v->runs_per_month > 0.0 && i < v->outcome_count; i++) {
        use = v->outcomes[i].path->kind == LS_PATH_OWNED ? v->outcomes[i].utilization : 0.0;
    }
    if (use <= least || use > 1.0) {
        return (range){.from = least, .low = least, .high = LS_COST_UTILIZATION_MOST, .is_unset = true};
    }
    return (range){
        .from = use, .low = q->utilization > 0.0 ? least : use, .high = fmax(use, LS_COST_UTILIZATION_MOST)};
}

/* False: the lever changes nothing in this question. */
static bool range_of(const ls_question *q, const ls_verdict *v, ls_lever lever, range *range_out)
{
    const ls_path_outcome *o = shown(v);
    const bool has_api = q->api_usd_per_million > 0.0;
    switch (lever) {
    case LS_LEVER_RENT_PRICE:
        *range_out = around(1.0);
        return has_path(q, LS_PATH_RENTED, LS_PATH_CLOUD);
    case LS_LEVER_BUY_PRICE:
    case LS_LEVER_STAFF:
        *range_out = around(1.0);
        return has_path(q, LS_PATH_OWNED, LS_PATH_OWNED) ||
               (lever == LS_LEVER_BUY_PRICE && has_path(q, LS_PATH_LOCAL, LS_PATH_LOCAL));
    case LS_LEVER_OFFER_PRICE: /* Only upwards: it is the best already. */
        *range_out = (range){.from = 1.0, .low = 1.0, .high = FARTHEST};
        return o && !o->path->is_here;
    case LS_LEVER_ENERGY_PRICE:
        *range_out = around(1.0);
        return true;
    case LS_LEVER_UTILIZATION:
        *range_out = range_of_use(q, v);
        return has_path(q, LS_PATH_OWNED, LS_PATH_OWNED);
    case LS_LEVER_RUNS:
        *range_out = v->runs_per_month > 0.0
                         ? around(v->runs_per_month)
                         : (range){.from = 0.02, .low = 0.02, .high = 1e3, .is_unset = true};
        return true;
    case LS_LEVER_DEADLINE:
        *range_out = q->deadline_s > 0.0 ? around(q->deadline_s)
                     : o                 ? (range){.from = o->days_slow * 86400.0,
                                                   .low = o->days_slow * 86400.0 / FARTHEST,
                                                   .high = o->days_slow * 86400.0,
                                                   .is_unset = true}
                                         : around(0.0);
        return range_out->from > 0.0;
    case LS_LEVER_TOKENS:
        *range_out = (range){.from = 1.0, .low = 1e-3, .high = 1e3};
        return true;
    case LS_LEVER_BUDGET:
        *range_out = around(q->budget_usd);
        return q->budget_usd > 0.0;
    case LS_LEVER_API_PRICE:
        *range_out = around(q->api_usd_per_million);
        return has_api && q->api_tokens_month > 0.0;
    case LS_LEVER_API_TOKENS:
        *range_out = q->api_tokens_month > 0.0
                         ? around(q->api_tokens_month)
                         : (range){.from = 1e15, .low = 1e5, .high = 1e15, .is_unset = true};
        return has_api;
    case LS_LEVER_COUNT:
        break;
    }
    return false;
}

typedef struct answer {
    ls_verdict_kind kind;
    int path; /* -1: none */
} answer;

static answer answer_of(const ls_verdict *v)
{
    return (answer){.kind = v->kind, .path = v->chosen};
}

static answer ask(const ls_question *question, ls_lever lever, double value)
{
    ls_question changed = *question;
    *number_of(&changed, lever) = value;
    ls_verdict verdict;
    ls_verdict_reckon(&changed, &verdict);
    return answer_of(&verdict);
}

static bool is_same(ls_lever lever, answer a, answer b)
{
    return a.kind == b.kind && (lever != LS_LEVER_OFFER_PRICE || a.path == b.path);
}

/* Finds the first value from `from` towards `end` that changes the verdict. */
static bool search(const ls_question *question, ls_lever lever, answer now, double from, double end,
                   ls_tipping_point *flip)
{
    const double step = end > from ? STEP : 1.0 / STEP;
    double same = from, other = from;
    while (same != end) {
        other = end > from ? fmin(same * step, end) : fmax(same * step, end);
        if (!is_same(lever, ask(question, lever, other), now)) {
            break;
        }
        same = other;
    }
    if (same == end) {
        return false;
    }
    while (fabs(other - same) > PRECISION * fmax(other, same)) {
        const double middle = sqrt(same * other);
        *(is_same(lever, ask(question, lever, middle), now) ? &same : &other) = middle;
    }
    const answer then = ask(question, lever, other);
    *flip = (ls_tipping_point){
        .lever = lever, .from = from, .to = other, .becomes = then.kind, .path = then.path};
    return true;
}

static double distance(const ls_tipping_point *flip)
{
    return fabs(log(flip->to / flip->from));
}

/* The nearer of the two directions. */
static bool find_around(const ls_question *question, answer now, ls_lever lever, const range *r,
                        ls_tipping_point *flip_out)
{
    ls_tipping_point up, down;
    const bool is_up = r->high > r->from && search(question, lever, now, r->from, r->high, &up);
    const bool is_down = r->low < r->from && search(question, lever, now, r->from, r->low, &down);
    if (is_up || is_down) {
        *flip_out = !is_down || (is_up && distance(&up) <= distance(&down)) ? up : down;
    }
    return is_up || is_down;
}

/* Where no work is known for own machines, no price makes them pay. This finds the price at which
 * they would pay if they were in use. */
static bool find_used(const ls_question *question, const ls_verdict *v, ls_lever lever, const range *r,
                      ls_tipping_point *flip_out)
{
    const bool is_price = lever == LS_LEVER_RENT_PRICE || lever == LS_LEVER_BUY_PRICE;
    if (!is_price || v->runs_per_month > 0.0 || question->utilization > 0.0 ||
        !has_path(question, LS_PATH_OWNED, LS_PATH_OWNED)) {
        return false;
    }
    ls_question used = *question;
    used.utilization = LS_COST_UTILIZATION_MOST;
    if (!is_same(lever, ask(&used, lever, r->from), answer_of(v)) ||
        !find_around(&used, answer_of(v), lever, r, flip_out)) {
        return false;
    }
    flip_out->utilization = used.utilization;
    return true;
}

static bool find_flip(const ls_question *question, const ls_verdict *v, ls_lever lever,
                      ls_tipping_point *flip_out)
{
    range r;
    if (!range_of(question, v, lever, &r)) {
        return false;
    }
    ls_question priced = *question;
    priced.priced_path = lever == LS_LEVER_OFFER_PRICE ? shown(v)->path : NULL;
    if (!find_around(&priced, answer_of(v), lever, &r, flip_out)) {
        return find_used(question, v, lever, &r, flip_out);
    }
    if (r.is_unset && lever != LS_LEVER_DEADLINE) {
        flip_out->from = 0.0;
    }
    return true;
}

/* ---- in words ---- */

static ls_quantity percent_of(double share)
{
    return ls_plain_of(round(100.0 * share));
}

/* "cost 36 % more". */
static void say_price(const ls_tipping_point *f, const char *what, const char *verb, char *text, size_t bytes)
{
    const double percent = 100.0 * (f->to / f->from - 1.0);
    if (percent > 300.0) {
        snprintf(text, bytes, "%s %s %.1f times as much", what, verb, f->to / f->from);
    } else {
        snprintf(text, bytes, "%s %s %.*f %% %s", what, verb, fabs(percent) < 9.5 ? 1 : 0, fabs(percent),
                 percent > 0.0 ? "more" : "less");
    }
}

/* Appends what one offer then costs: " (H100, rented: 4.10 USD an hour)"; without the name where
 * the text has it already. */
static void append_usd(const ls_path_outcome *o, const char *name, double factor, char *text, size_t bytes)
{
    const bool is_rent = o->path->kind == LS_PATH_RENTED || o->path->kind == LS_PATH_CLOUD;
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, is_rent ? " (%.30s%s%.2f USD an hour)" : " (%.30s%s%.0f USD per GPU)",
             name, name[0] ? ": " : "", o->offer->usd * factor);
}

/* The cheapest available path of these kinds; NULL: none. */
static const ls_path_outcome *cheapest(const ls_verdict *v, ls_path_kind from, ls_path_kind to)
{
    const ls_path_outcome *best = NULL;
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        if (o->path->kind >= from && o->path->kind <= to && isfinite(o->days) &&
            (!best || o->obstacle < best->obstacle ||
             (o->obstacle == best->obstacle && o->run_usd_slow < best->run_usd_slow))) {
            best = o;
        }
    }
    return best;
}

static void say_prices(const ls_verdict *v, const ls_tipping_point *f, char *text, size_t bytes)
{
    char alone[48];
    const ls_path_outcome *o = shown(v);
    if (f->lever == LS_LEVER_OFFER_PRICE) {
        snprintf(alone, sizeof alone, "%.36s alone", o->name);
        say_price(f, alone, "costs", text, bytes);
        append_usd(o, "", f->to, text, bytes);
        return;
    }
    const bool is_rent = f->lever == LS_LEVER_RENT_PRICE;
    say_price(f, is_rent ? "rented GPUs" : "machines to buy", "cost", text, bytes);
    o = is_rent ? cheapest(v, LS_PATH_RENTED, LS_PATH_CLOUD) : cheapest(v, LS_PATH_OWNED, LS_PATH_OWNED);
    if (o) {
        append_usd(o, o->name, f->to, text, bytes);
    }
}

static void say_change(const ls_question *q, const ls_verdict *v, const ls_tipping_point *f, char *text,
                       size_t bytes)
{
    char amount[24];
    switch (f->lever) {
    case LS_LEVER_RENT_PRICE:
    case LS_LEVER_BUY_PRICE:
    case LS_LEVER_OFFER_PRICE:
        say_prices(v, f, text, bytes);
        break;
    case LS_LEVER_ENERGY_PRICE:
        say_price(f, "kilowatt-hours", "cost", text, bytes);
        break;
    case LS_LEVER_STAFF:
        say_price(f, "the staff who operate machines", "cost", text, bytes);
        break;
    case LS_LEVER_UTILIZATION:
        snprintf(text, bytes, "own machines are in use %s %% of the hours", percent_of(f->to).text);
        break;
    case LS_LEVER_RUNS:
        snprintf(text, bytes, "there are %s runs a month", ls_plain_of(f->to).text);
        break;
    case LS_LEVER_DEADLINE:
        snprintf(text, bytes, "it must be done within %s", ls_span_of(f->to / 86400.0).text);
        break;
    case LS_LEVER_TOKENS:
        if (q->workload_count == 1) {
            snprintf(text, bytes, "a run has %s tokens", ls_quantity_of(q->workloads[0].tokens * f->to).text);
        } else {
            snprintf(text, bytes, "runs have %.2g %s the tokens", f->to < 1.0 ? 100.0 * f->to : f->to,
                     f->to < 1.0 ? "% of" : "times");
        }
        break;
    case LS_LEVER_BUDGET:
        ls_cost_format(f->to, amount, sizeof amount);
        snprintf(text, bytes, "the budget is %s", amount);
        break;
    case LS_LEVER_API_PRICE:
        snprintf(text, bytes, "the API costs %.3g USD per million tokens", f->to);
        break;
    case LS_LEVER_API_TOKENS:
    case LS_LEVER_COUNT:
        snprintf(text, bytes, "the API answers %s tokens a month", ls_quantity_of(f->to).text);
        break;
    }
}

/* The order of the list: values that were given first, then those that were not, then double
 * changes. */
static double rank(const ls_tipping_point *flip)
{
    return flip->utilization > 0.0 ? 1e9 + distance(flip) : flip->from > 0.0 ? distance(flip) : 1e6;
}

static int by_distance(const void *a, const void *b)
{
    const ls_tipping_point *left = a, *right = b;
    const double x = rank(left), y = rank(right);
    return x < y ? -1 : x > y ? 1 : (int)left->lever - (int)right->lever;
}

void ls_verdict_find_flips(const ls_question *question, ls_verdict *verdict)
{
    verdict->flip_count = 0;
    for (ls_lever lever = 0; lever < LS_LEVER_COUNT; lever++) {
        ls_tipping_point *flip = &verdict->flips[verdict->flip_count];
        if (!find_flip(question, verdict, lever, flip)) {
            continue;
        }
        char change[140], use[80] = "", path[48] = "";
        say_change(question, verdict, flip, change, sizeof change);
        if (flip->utilization > 0.0) {
            snprintf(use, sizeof use, " and own machines are in use %s %% of the hours",
                     percent_of(flip->utilization).text);
        }
        if (flip->path >= 0) {
            snprintf(path, sizeof path, " (%.40s)", verdict->outcomes[flip->path].name);
        }
        snprintf(flip->text, sizeof flip->text, "%s%s when %s%s", ls_verdict_kind_name(flip->becomes), path,
                 change, use);
        verdict->flip_count++;
    }
    qsort(verdict->flips, verdict->flip_count, sizeof *verdict->flips, by_distance);
}
