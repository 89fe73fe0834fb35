// SPDX-License-Identifier: Apache-2.0
#include "planning/money/verdict_internal.h"

#include "planning/money/failure.h"

#include <math.h>

#define MODEL_MONTHS (12.0 * LS_VERDICT_MODEL_YEARS)
#define SERVE_MEMORY 0.8 /* Share of a GPU's memory that weights may fill while a model serves. */

void ls_question_init(ls_question *question)
{
    *question = (ls_question){
        .rent_factor = 1.0,
        .buy_factor = 1.0,
        .energy_factor = 1.0,
        .staff_factor = 1.0,
        .tokens_factor = 1.0,
        .offer_factor = 1.0,
        .storage_usd_gb_month = LS_COST_STORAGE_USD_GB_MONTH,
        .egress_usd_tb = LS_COST_EGRESS_USD_TB,
        .checkpoints_kept = LS_COST_CHECKPOINTS_KEPT,
    };
}

static bool is_rent(const ls_path_outcome *o)
{
    return o->path->kind == LS_PATH_RENTED || o->path->kind == LS_PATH_CLOUD;
}

/* ---- all paths ---- */

static void compute_outcomes(const ls_question *question, const ls_verdict_work *work, ls_verdict_pass pass,
                             ls_verdict *v)
{
    v->outcome_count = question->path_count;
    for (size_t i = 0; i < question->path_count; i++) {
        ls_path_outcome_compute(question, work, &question->paths[i], pass, &v->outcomes[i]);
    }
}

static bool is_any_possible(const ls_verdict *v)
{
    for (size_t i = 0; i < v->outcome_count; i++) {
        if (v->outcomes[i].possible && v->outcomes[i].path->node) {
            return true;
        }
    }
    return false;
}

/* Applies the strictest limits first and the most patient last, until a path is possible; if none
 * is, the outcomes are those of the strict limits. */
static void look_for_paths(const ls_question *question, const ls_verdict_work *work, ls_verdict *v)
{
    static const ls_verdict_pass passes[] = {
        {.frontier = false, .patient = false},
        {.frontier = true, .patient = false},
        {.frontier = false, .patient = true},
        {.frontier = true, .patient = true},
    };
    const size_t count = question->deadline_s > 0.0 ? 2 : 4;
    for (size_t i = 0; i < count; i++) {
        compute_outcomes(question, work, passes[i], v);
        if (is_any_possible(v)) {
            return;
        }
    }
    compute_outcomes(question, work, passes[count - 2], v);
}

/* The cheapest rented path, whether it may be used or not. */
static void find_rented(ls_verdict *v)
{
    const ls_path_outcome *best = NULL;
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        const bool is_offered = o->obstacle != LS_OBSTACLE_OFFER && o->obstacle != LS_OBSTACLE_SIZE;
        if (is_rent(o) && isfinite(o->days) && is_offered &&
            (!best || o->run_usd_slow < best->run_usd_slow)) {
            best = o;
            v->rented = (int)i;
        }
    }
}

/* What a run costs when rented, for comparison with own machines. A single run does not say what
 * else would use its month of storage, so it is charged only for the hours it takes: for a run of
 * minutes the month of storage would otherwise be most of the rent. */
static double rent_usd_of(const ls_verdict *v)
{
    if (v->rented < 0) {
        return 0.0;
    }
    const ls_path_outcome *o = &v->outcomes[v->rented];
    const double month_share = o->gpu_hours / (double)o->gpus / LS_HOURS_PER_MONTH;
    return v->runs_per_month > 0.0 ? o->run_usd
                                   : o->run_usd - o->storage_usd * (1.0 - fmin(month_share, 1.0));
}

static void compare_owned(const ls_question *question, const ls_verdict_work *work, ls_verdict *v)
{
    find_rented(v);
    const double rent_run_usd = rent_usd_of(v);
    for (size_t i = 0; i < v->outcome_count; i++) {
        ls_path_outcome *o = &v->outcomes[i];
        if (o->path->kind != LS_PATH_OWNED || isinf(o->days)) {
            continue;
        }
        if (rent_run_usd > 0.0) {
            ls_path_outcome_compare(question, work, rent_run_usd, o);
        }
        const ls_path_outcome *best = v->owned >= 0 ? &v->outcomes[v->owned] : NULL;
        if (!best || o->obstacle < best->obstacle ||
            (o->obstacle == best->obstacle && o->run_usd_slow < best->run_usd_slow)) {
            v->owned = (int)i;
        }
    }
    if (v->owned >= 0) {
        v->break_even_months = v->outcomes[v->owned].break_even_months;
        v->break_even_utilization = v->outcomes[v->owned].break_even_utilization;
    }
}

/* ---- choosing ---- */

/* The cost by which paths are chosen. */
static double cost_of(const ls_path_outcome *o)
{
    return o->run_usd_slow;
}

/* The cheapest possible outcome of these kinds; -1: none. */
static int cheapest_of(const ls_verdict *v, ls_path_kind from, ls_path_kind to)
{
    int best = -1;
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        if (o->possible && o->path->kind >= from && o->path->kind <= to &&
            (best < 0 || cost_of(o) < cost_of(&v->outcomes[best]))) {
            best = (int)i;
        }
    }
    return best;
}

static int choose(const ls_question *question, const ls_verdict *v, ls_verdict_kind *kind_out)
{
    const int local = cheapest_of(v, LS_PATH_LOCAL, LS_PATH_LOCAL);
    const int rent = cheapest_of(v, LS_PATH_RENTED, LS_PATH_CLOUD);
    const int owned = cheapest_of(v, LS_PATH_OWNED, LS_PATH_OWNED);
    const bool has_work = v->runs_per_month > 0.0 || question->utilization > 0.0;
    if (local >= 0 && (rent < 0 || cost_of(&v->outcomes[local]) <= cost_of(&v->outcomes[rent]))) {
        *kind_out = LS_VERDICT_LOCAL;
        return local;
    }
    if (owned >= 0) {
        const ls_path_outcome *o = &v->outcomes[owned];
        const double half_life_months = 6.0 * o->path->terms.life_years;
        const bool has_paid =
            has_work && o->break_even_months > 0.0 && o->break_even_months <= half_life_months;
        if (rent < 0 || has_paid) {
            *kind_out = o->frontier ? LS_VERDICT_FRONTIER : LS_VERDICT_OWN;
            return owned;
        }
    }
    *kind_out = rent < 0                     ? LS_VERDICT_DONT
                : v->outcomes[rent].frontier ? LS_VERDICT_FRONTIER
                                             : LS_VERDICT_RENT;
    return rent;
}

/* Without a deadline a local machine that is slow counts as too late. Where the only other choice
 * is to buy machines that finish no sooner and cost more, the slow local machine wins after all. */
static void prefer_patience(const ls_question *question, ls_verdict *v)
{
    if (question->deadline_s > 0.0 || v->chosen < 0 || v->outcomes[v->chosen].path->kind != LS_PATH_OWNED) {
        return;
    }
    for (size_t i = 0; i < v->outcome_count; i++) {
        ls_path_outcome *o = &v->outcomes[i];
        const ls_path_outcome *owned = &v->outcomes[v->chosen];
        const bool is_slow = o->path->kind == LS_PATH_LOCAL && o->obstacle == LS_OBSTACLE_DEADLINE;
        if (is_slow && o->days_slow <= owned->days_slow && o->upfront_usd < owned->upfront_usd) {
            o->obstacle = LS_OBSTACLE_NONE;
            o->possible = true;
            v->chosen = (int)i;
            v->kind = LS_VERDICT_LOCAL;
        }
    }
}

/* ---- an outside API ---- */

/* The GPUs needed to hold the weights, and the GPU-hours that one token takes. */
static void serve_needs(const ls_verdict_work *work, const ls_accelerator *a, double *gpus_out,
                        double *hours_per_token_out)
{
    const double bytes = LS_CHECKPOINT_EXPORT_BYTES_PER_PARAMETER * work->parameters;
    *gpus_out = fmax(1.0, ceil(bytes / (SERVE_MEMORY * a->memory_bytes)));
    *hours_per_token_out = 2.0 * work->active_parameters / (LS_VERDICT_SERVE_SHARE * a->bf16_flops) / 3600.0;
}

static void set_against_api(const ls_question *question, const ls_verdict_work *work, ls_verdict *v)
{
    const double usd_per_token = question->api_usd_per_million / 1e6;
    const ls_path_outcome *o = &v->outcomes[v->chosen];
    if (!(usd_per_token > 0.0) || !(o->path->node->accelerator->bf16_flops > 0.0)) {
        return;
    }
    double gpus, hours_per_token;
    serve_needs(work, o->path->node->accelerator, &gpus, &hours_per_token);
    const double rate = o->usd_per_gpu_hour, least_usd = gpus * LS_HOURS_PER_MONTH * rate;
    v->train_usd_month = v->runs_per_month > 0.0 ? o->month_usd : o->run_usd / MODEL_MONTHS;
    v->api_usd_month = usd_per_token * question->api_tokens_month;
    v->serve_usd_month = fmax(least_usd, hours_per_token * question->api_tokens_month * rate);
    /* The machines that must exist anyway answer up to full_tokens. */
    const double full_tokens = gpus * LS_HOURS_PER_MONTH / hours_per_token;
    const double at_least = (v->train_usd_month + least_usd) / usd_per_token;
    const double gained = usd_per_token - hours_per_token * rate;
    v->api_break_even_tokens_month = at_least <= full_tokens ? at_least
                                     : gained > 0.0          ? v->train_usd_month / gained
                                                             : INFINITY;
}

static int find_api(const ls_verdict *v)
{
    return cheapest_of(v, LS_PATH_API, LS_PATH_API);
}

/* Chooses the API where it is cheaper, or where nothing else is possible. */
static void turn_to_api(ls_verdict *v)
{
    const int api = find_api(v);
    if (api < 0) {
        return;
    }
    v->api_usd_month = v->outcomes[api].month_usd;
    if (v->chosen < 0 || v->api_usd_month < v->train_usd_month + v->serve_usd_month) {
        v->kind = LS_VERDICT_DONT;
        v->chosen = api;
    }
}

/* ---- together ---- */

/* For a portfolio, the best of its runs: the others may continue training from that model. */
static double most_tokens_per_parameter(const ls_question *question)
{
    double most = 0.0;
    for (size_t i = 0; i < question->workload_count; i++) {
        const ls_workload *one = &question->workloads[i];
        most = fmax(most, question->tokens_factor * one->tokens / one->active_parameters);
    }
    return most;
}

/* How far a path is from possible: days where time is short, USD where money is, else its cost. */
static double distance_of(const ls_path_outcome *o)
{
    return o->obstacle == LS_OBSTACLE_DEADLINE ? o->days_slow
           : o->obstacle == LS_OBSTACLE_BUDGET ? ls_path_outcome_spent_usd(o)
                                               : cost_of(o);
}

static bool is_nearer(const ls_path_outcome *a, const ls_path_outcome *b)
{
    return a->obstacle != b->obstacle ? a->obstacle < b->obstacle : distance_of(a) < distance_of(b);
}

static int find_nearest(const ls_verdict *v)
{
    int best = -1;
    for (size_t i = 0; i < v->outcome_count; i++) {
        const ls_path_outcome *o = &v->outcomes[i];
        if (o->path->node && isfinite(o->days) && (best < 0 || is_nearer(o, &v->outcomes[best]))) {
            best = (int)i;
        }
    }
    return best;
}

void ls_verdict_reckon(const ls_question *question, ls_verdict *verdict_out)
{
    ls_verdict_work work;
    ls_verdict_work_compute(question, &work);
    ls_verdict *v = verdict_out;
    *v = (ls_verdict){.kind = LS_VERDICT_DONT,
                      .chosen = -1,
                      .told = -1,
                      .rented = -1,
                      .owned = -1,
                      .runs_per_month = work.runs_per_month};
    v->workload_count = question->workload_count;
    v->tokens_per_parameter = most_tokens_per_parameter(question);
    look_for_paths(question, &work, v);
    compare_owned(question, &work, v);
    v->chosen = choose(question, v, &v->kind);
    prefer_patience(question, v);
    v->told = v->chosen >= 0 ? v->chosen : find_nearest(v);
    if (v->chosen >= 0) {
        set_against_api(question, &work, v);
    }
    turn_to_api(v);
    if (v->tokens_per_parameter < 1.0) {
        v->kind = LS_VERDICT_DONT;
        v->chosen = -1;
    }
}

/* ---- what it rests on ---- */

static bool has_kind(const ls_verdict *v, ls_path_kind kind)
{
    for (size_t i = 0; i < v->outcome_count; i++) {
        if (v->outcomes[i].path->kind == kind) {
            return true;
        }
    }
    return false;
}

static bool has_sizes(const ls_verdict *v)
{
    for (size_t i = 0; i < v->outcome_count; i++) {
        if (v->outcomes[i].path->point_count > 1) {
            return true;
        }
    }
    return false;
}

static void assume_limits(const ls_question *question, const ls_verdict *v, ls_assumptions *list)
{
    if (question->deadline_s > 0.0) {
        ls_assumptions_add(
            list,
            "a deadline counts as met when the 90 %% end of the band meets it: one run in ten takes longer");
    } else if (has_kind(v, LS_PATH_LOCAL)) {
        ls_assumptions_add(list, "a machine under a desk may take at most %.0f days (--deadline)",
                           LS_VERDICT_LOCAL_S / 86400.0);
    }
    if (!(question->deadline_s > 0.0) && has_sizes(v)) {
        ls_assumptions_add(list, "sizes that finish a run within %.0f days are preferred (--deadline)",
                           LS_VERDICT_SIZE_S / 86400.0);
    }
    if (has_kind(v, LS_PATH_RENTED) || has_kind(v, LS_PATH_CLOUD)) {
        ls_assumptions_add(
            list,
            "more than %d GPUs need a negotiated contract (FRONTIER), unless your own offer covers them",
            LS_OFFER_GPUS_MOST);
    }
    if (question->budget_usd > 0.0) {
        ls_assumptions_add(list, "a budget counts as met when the 90 %% end of the band meets it");
    }
    ls_assumptions_add(list, "a run must be shorter than the life of machines, %.0f years",
                       LS_COST_LIFE_YEARS);
    ls_assumptions_add(list, "paths are compared by the cost of a run at the 90 %% end of the band");
}

static void assume_api(const ls_question *question, const ls_verdict *v, ls_assumptions *list)
{
    if (!(question->api_tokens_month > 0.0)) {
        ls_assumptions_add(list, "the API cost is not computed: give --api-tokens, the tokens per month");
    }
    ls_assumptions_add(list,
                       "API: a model is used for %.0f months; serving reaches %.0f %% of the GPUs' peak, and "
                       "weights may fill %.0f %% of their memory",
                       MODEL_MONTHS, 100.0 * LS_VERDICT_SERVE_SHARE, 100.0 * SERVE_MEMORY);
    if (v->api_break_even_tokens_month > 0.0 && isfinite(v->api_break_even_tokens_month)) {
        ls_assumptions_add(list, "API: training is cheaper above %s tokens a month",
                           ls_quantity_of(v->api_break_even_tokens_month).text);
    }
}

/* The known runs pay for own machines, whatever use was stated. */
static void assume_fill(const ls_question *question, const ls_path_outcome *o, ls_assumptions *list)
{
    const double stated = question->utilization;
    if (o->copies > 1) {
        ls_assumptions_add(list,
                           "owning: %lld GPUs, for %lld runs at a time on %lld each, so that none is in use "
                           "more than %.0f %% of the hours (--utilization)",
                           (long long)o->machines, (long long)o->copies, (long long)o->gpus,
                           100.0 * (stated > 0.0 ? stated : LS_COST_UTILIZATION_MOST));
    }
    if (o->copies == 1 && stated > 0.0 && o->utilization < stated - 0.005) {
        ls_assumptions_add(list,
                           "owning: the runs use %.0f %% of the hours and pay all costs of owning; %.0f %% "
                           "(--utilization) would need other work, which is not counted",
                           100.0 * o->utilization, 100.0 * stated);
    }
}

static void assume_owning(const ls_question *question, const ls_verdict *v, ls_assumptions *list)
{
    ls_assumptions_add(list, "own machines that are idle draw %.0f %% of the power they draw in use",
                       100.0 * LS_COST_IDLE_SHARE);
    if (question->utilization == 0.0 && v->runs_per_month == 0.0) {
        ls_assumptions_add(list, "own machines are in use %.0f %% of the hours (--utilization)",
                           100.0 * LS_COST_UTILIZATION);
    } else if (question->utilization == 0.0) {
        ls_assumptions_add(list, "own machines are in use at most %.0f %% of the hours (--utilization)",
                           100.0 * LS_COST_UTILIZATION_MOST);
    }
    if (v->runs_per_month > 0.0 && v->owned >= 0) {
        assume_fill(question, &v->outcomes[v->owned], list);
    }
}

void ls_verdict_assume(const ls_question *question, const ls_verdict *verdict, ls_assumptions *list)
{
    assume_limits(question, verdict, list);
    if (has_kind(verdict, LS_PATH_OWNED)) {
        assume_owning(question, verdict, list);
    }
    if (question->api_usd_per_million > 0.0) {
        assume_api(question, verdict, list);
    }
}

void ls_verdict_decide(const ls_question *question, ls_verdict *verdict_out)
{
    ls_verdict_reckon(question, verdict_out);
    ls_verdict_describe(question, verdict_out);
}

void ls_verdict_compute(const ls_question *question, ls_verdict *verdict_out)
{
    ls_verdict_decide(question, verdict_out);
    ls_verdict_find_flips(question, verdict_out);
}
