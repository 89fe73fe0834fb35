// SPDX-License-Identifier: Apache-2.0
/* One path of a question: what each of its sizes costs and how long it takes, and which size is
 * best. */
#include "planning/money/verdict_internal.h"

#include "planning/money/failure.h"

#include <math.h>

#define SECONDS_PER_DAY 86400.0
#define LIFE_MONTHS     (12.0 * LS_COST_LIFE_YEARS)
#define COPIES_MOST     1e9

void ls_verdict_work_compute(const ls_question *question, ls_verdict_work *work_out)
{
    ls_verdict_work work = {0};
    double said = 0.0;
    for (size_t i = 0; i < question->workload_count; i++) {
        said += question->workloads[i].runs_per_month;
    }
    work.runs_per_month = question->runs_per_month > 0.0 ? question->runs_per_month : said;
    for (size_t i = 0; i < question->workload_count; i++) {
        const ls_workload *one = &question->workloads[i];
        work.share[i] = said > 0.0 ? one->runs_per_month / said : 1.0 / (double)question->workload_count;
        work.parameters += work.share[i] * one->parameters;
        work.tokens += work.share[i] * one->tokens * question->tokens_factor;
        work.active_parameters += work.share[i] * one->active_parameters;
    }
    *work_out = work;
}

/* One size of a path while it is evaluated. */
typedef struct look {
    const ls_question *question;
    const ls_verdict_work *work;
    const ls_path *path;
    const ls_path_point *point;
    const ls_offer *offer; /* the path's */
    ls_verdict_pass pass;
    double mean_h, longest_s; /* For one run. */
    int64_t copies;
} look;

/* Computes how long the runs take. False: a workload does not fit. */
static bool time_runs(look *l)
{
    for (size_t i = 0; i < l->question->workload_count; i++) {
        const double tokens_ps = l->point->tokens_ps[i] * l->point->goodput;
        if (!(tokens_ps > 0.0)) {
            return false;
        }
        const double run_s = l->question->workloads[i].tokens * l->question->tokens_factor / tokens_ps;
        l->mean_h += l->work->share[i] * run_s / 3600.0;
        l->longest_s = fmax(l->longest_s, run_s);
    }
    return true;
}

/* How many machines of this size the runs would keep busy all the time. */
static double needed_machines(const look *l)
{
    return l->work->runs_per_month * l->mean_h / LS_HOURS_PER_MONTH;
}

/* How many runs must be in progress at a time so that no machine that is owned or paid by the month
 * is used more than possible. */
static int64_t needed_copies(const look *l)
{
    const double stated = l->question->utilization;
    double most = INFINITY;
    if (l->path->kind == LS_PATH_OWNED || (l->path->kind == LS_PATH_LOCAL && !l->path->is_here)) {
        most = stated > 0.0 ? stated : LS_COST_UTILIZATION_MOST;
    } else if (l->offer->kind == LS_OFFER_RESERVED) {
        most = 1.0;
    }
    return (int64_t)fmin(fmax(1.0, ceil(needed_machines(l) / most - 1e-9)), COPIES_MOST);
}

static double offer_factor(const ls_question *question, const ls_path *path)
{
    return path == question->priced_path ? question->offer_factor : 1.0;
}

/* What a run costs that takes `factor` times as long. Under a desk only the energy grows; a
 * reservation is paid to its end in any case. */
double ls_path_outcome_run_usd_at(const ls_path_outcome *o, double factor)
{
    if (o->path->kind == LS_PATH_LOCAL) {
        return o->run_usd + o->energy_usd * (factor - 1.0);
    }
    if (o->path->kind == LS_PATH_OWNED) {
        return o->run_usd * factor;
    }
    return o->run_usd - o->compute_usd +
           (o->offer->kind == LS_OFFER_RESERVED
                ? fmax(o->compute_usd, o->gpu_hours * factor * o->usd_per_gpu_hour)
                : o->compute_usd * factor);
}

/* The cost of the longest run over that of the mean run, where cost follows the hours. */
static double dearest_over_mean(const look *l)
{
    return l->longest_s / 3600.0 / l->mean_h;
}

/* ---- rented, cloud ---- */

/* GPU-hours billed to a run; a reservation is paid whether it is used or not. */
static double paid_hours(const look *l, const ls_path_outcome *o)
{
    const double month_hours = (double)(o->gpus * o->copies) * LS_HOURS_PER_MONTH;
    const double committed = month_hours * l->offer->months;
    const double runs = l->work->runs_per_month;
    return committed == 0.0 ? o->gpu_hours
           : runs > 0.0     ? fmax(o->gpu_hours, month_hours / runs)
                            : fmax(o->gpu_hours, committed);
}

static void cost_rented(const look *l, ls_path_outcome *o)
{
    const ls_question *q = l->question;
    const ls_offer *offer = l->offer;
    const double runs = l->work->runs_per_month;
    const double kept_bytes = q->checkpoints_kept * LS_CHECKPOINT_BYTES_PER_PARAMETER * l->work->parameters;
    const double data_bytes = LS_COST_BYTES_PER_TOKEN * l->work->tokens;
    const double months = fmax(1.0, l->mean_h / LS_HOURS_PER_MONTH);
    o->storage_usd = ls_cost_storage_usd(kept_bytes + data_bytes, q->storage_usd_gb_month, months);
    o->egress_usd =
        ls_cost_egress_usd(LS_CHECKPOINT_EXPORT_BYTES_PER_PARAMETER * l->work->parameters, q->egress_usd_tb);
    o->usd_per_gpu_hour = offer->usd * q->rent_factor * offer_factor(q, l->path);
    o->compute_usd = paid_hours(l, o) * o->usd_per_gpu_hour;
    o->run_usd = o->compute_usd + o->storage_usd + o->egress_usd;
    const double commitment_usd =
        (double)(o->gpus * o->copies) * LS_HOURS_PER_MONTH * offer->months * o->usd_per_gpu_hour;
    o->upfront_usd = offer->kind == LS_OFFER_CAPACITY_BLOCK ? o->compute_usd : commitment_usd;
    o->run_usd_low = o->run_usd + o->compute_usd * (offer->usd_low / offer->usd - 1.0);
    o->run_usd_high = o->run_usd + o->compute_usd * (offer->usd_high / offer->usd - 1.0);
    o->month_usd = runs * o->run_usd;
    o->total_usd = runs > 0.0 ? LIFE_MONTHS * o->month_usd : o->run_usd;
    o->max_loss_usd = commitment_usd;
}

/* ---- owned ---- */

/* The share of hours in use. The known runs decide it; a higher stated use would need other work,
 * which is not counted. */
static double use_of(const look *l)
{
    const double needed = needed_machines(l), stated = l->question->utilization;
    return needed > 0.0 ? needed / (double)l->copies : stated > 0.0 ? stated : LS_COST_UTILIZATION;
}

static ls_ownership ownership_of(const look *l)
{
    const double factor = l->question->buy_factor * offer_factor(l->question, l->path);
    return ls_path_ownership(l->path, l->point->gpus * l->copies, factor, l->question->energy_factor,
                             l->question->staff_factor);
}

/* The cost at both ends of the price range. `by_price_usd` is the part of a run's cost that follows
 * the price of a GPU, host included. */
static void set_range(const look *l, double by_price_usd, ls_path_outcome *o)
{
    const ls_offer *offer = l->offer;
    const double usd = offer->usd + l->path->host_usd;
    o->run_usd_low = o->run_usd_high = o->run_usd;
    if (usd > 0.0) {
        o->run_usd_low += by_price_usd * (offer->usd_low - offer->usd) / usd;
        o->run_usd_high += by_price_usd * (offer->usd_high - offer->usd) / usd;
    }
}

static void cost_owned(const look *l, ls_path_outcome *o)
{
    const double u = o->utilization = use_of(l);
    const ls_ownership own = ownership_of(l);
    ls_ownership_year year;
    ls_ownership_compute(&own, u, &year);
    /* Share of a year's cost that a run pays. */
    const double share = l->mean_h / (LS_HOURS_PER_YEAR * u * (double)l->copies);
    o->run_usd = year.total * share;
    o->depreciation_usd = year.depreciation * share;
    o->energy_usd = year.energy * share;
    o->staff_usd = year.staff * share;
    o->other_usd = (year.capital + year.maintenance + year.colo) * share;
    o->usd_per_gpu_hour = year.usd_per_gpu_hour;
    o->upfront_usd = own.capex_usd;
    o->month_usd = year.running / 12.0;
    const bool is_for_years = l->work->runs_per_month > 0.0 || l->question->utilization > 0.0;
    o->total_usd =
        is_for_years ? own.capex_usd * (1.0 - own.resale_share) + year.running * own.life_years : o->run_usd;
    o->max_loss_usd = own.capex_usd * (1.0 - own.resale_share) + year.running - year.energy +
                      o->energy_usd * l->point->slow;
    set_range(l, (year.depreciation + year.capital + year.maintenance) * share, o);
}

void ls_path_outcome_compare(const ls_question *question, const ls_verdict_work *work, double rent_run_usd,
                             ls_path_outcome *o)
{
    look l = {.question = question,
              .work = work,
              .path = o->path,
              .point = o->point,
              .offer = o->offer,
              .copies = o->copies};
    if (!time_runs(&l)) {
        return;
    }
    const ls_ownership own = ownership_of(&l);
    ls_ownership_year year;
    ls_ownership_compute(&own, o->utilization, &year);
    o->rent_usd_per_gpu_hour = rent_run_usd * (double)o->copies / (l.mean_h * (double)own.gpus);
    const double rent_usd_year = ls_cost_rent_usd_year(own.gpus, o->utilization, o->rent_usd_per_gpu_hour);
    const double half_life_months = 6.0 * own.life_years;
    o->break_even_months = ls_cost_break_even_months(own.capex_usd, rent_usd_year, year.running);
    o->break_even_utilization =
        ls_cost_break_even_utilization(&own, o->rent_usd_per_gpu_hour, half_life_months);
    o->break_even_rate = ls_cost_break_even_rate(&own, o->utilization, half_life_months);
}

/* ---- local ---- */

/* One machine under a desk for each that the runs would keep busy. The cost is that of all of them,
 * although only one fits there. */
static void cost_local(const look *l, ls_path_outcome *o)
{
    look one = *l;
    one.copies = 1;
    const ls_ownership own = ownership_of(&one);
    const double copies = (double)l->copies;
    const double runs = l->work->runs_per_month;
    const double gone_usd = copies * own.capex_usd * (1.0 - own.resale_share);
    ls_ownership_year year;
    ls_ownership_compute(&own, 1.0, &year);
    o->energy_usd = year.energy * l->mean_h / LS_HOURS_PER_YEAR;
    /* Bought for one run, the machine is paid by that run; for several, its years are shared. */
    o->depreciation_usd = runs > 0.0 ? copies * year.depreciation / 12.0 / runs : own.capex_usd;
    o->other_usd = runs > 0.0 ? copies * year.capital / 12.0 / runs : 0.0;
    o->run_usd = o->energy_usd + o->depreciation_usd + o->other_usd;
    o->upfront_usd = copies * own.capex_usd;
    o->month_usd = runs * o->energy_usd + (runs > 0.0 ? copies * year.capital / 12.0 : 0.0);
    o->max_loss_usd = gone_usd + o->energy_usd * l->point->slow;
    o->total_usd = runs > 0.0 ? gone_usd + LIFE_MONTHS * o->month_usd : own.capex_usd + o->energy_usd;
    o->utilization = runs * l->mean_h / LS_HOURS_PER_MONTH;
    o->usd_per_gpu_hour = o->run_usd / o->gpu_hours;
    set_range(l, o->depreciation_usd + o->other_usd, o);
}

/* ---- what stands in the way ---- */

double ls_path_outcome_limit_s(const ls_question *question, const ls_path *path, ls_verdict_pass pass)
{
    if (question->deadline_s > 0.0) {
        return question->deadline_s;
    }
    if (path->kind == LS_PATH_LOCAL) {
        return LS_VERDICT_LOCAL_S;
    }
    return pass.patient || path->point_count == 1 ? INFINITY : LS_VERDICT_SIZE_S;
}

/* Whether a run is longer than any machine lives: the size is at fault, whatever it costs. */
static bool is_beyond_life(const look *l)
{
    return l->longest_s > LS_VERDICT_LONGEST_S;
}

/* A deadline must hold at the slow end of the band; without one, the expected time counts. */
static bool is_too_late(const look *l, const ls_path_outcome *o)
{
    const double limit_s = ls_path_outcome_limit_s(l->question, l->path, l->pass);
    const double taken_s = l->question->deadline_s > 0.0 ? o->days_slow * SECONDS_PER_DAY : l->longest_s;
    return taken_s > limit_s * (1.0 + 1e-9);
}

static bool is_kept_from(const ls_question *q, const ls_path *path, const ls_offer *offer)
{
    const bool is_own = path->kind == LS_PATH_LOCAL || path->kind == LS_PATH_OWNED;
    return (q->data_control == LS_DATA_OWN && !is_own) ||
           (q->data_control == LS_DATA_CONTRACT &&
            (path->kind == LS_PATH_API || offer->kind == LS_OFFER_SPOT));
}

static bool is_size_refused(const look *l, const ls_path_outcome *o)
{
    const ls_offer *offer = l->offer;
    return (uint64_t)o->machines < offer->gpus_min ||
           (offer->gpus_max > 0 && (uint64_t)o->machines > offer->gpus_max) ||
           (o->frontier && !l->pass.frontier);
}

/* Whether the runs need more hours than one machine under a desk has. */
static bool is_overused(const look *l)
{
    const double stated = l->question->utilization;
    return l->path->kind == LS_PATH_LOCAL &&
           needed_machines(l) > (stated > 0.0 ? stated : LS_COST_UTILIZATION_MOST) + 1e-9;
}

/* A budget, too, must hold at the slow end of the band. */
double ls_path_outcome_spent_usd(const ls_path_outcome *o)
{
    return o->path->kind == LS_PATH_API     ? o->total_usd
           : o->path->kind == LS_PATH_OWNED ? o->upfront_usd + o->energy_usd * o->point->slow
                                            : fmax(o->run_usd_slow, o->upfront_usd);
}

static ls_obstacle find_obstacle(const look *l, const ls_path_outcome *o)
{
    const bool is_own = l->path->kind == LS_PATH_LOCAL || l->path->kind == LS_PATH_OWNED;
    const double budget_usd = l->question->budget_usd;
    return ls_path_is_replaced(l->path, o->machines)                       ? LS_OBSTACLE_OFFER
           : is_size_refused(l, o)                                         ? LS_OBSTACLE_SIZE
           : is_own && !o->power.possible                                  ? LS_OBSTACLE_SITE
           : is_overused(l)                                                ? LS_OBSTACLE_USE
           : is_too_late(l, o)                                             ? LS_OBSTACLE_DEADLINE
           : is_beyond_life(l)                                             ? LS_OBSTACLE_LIFE
           : budget_usd > 0.0 && ls_path_outcome_spent_usd(o) > budget_usd ? LS_OBSTACLE_BUDGET
                                                                           : LS_OBSTACLE_NONE;
}

/* ---- a size, and the best of them ---- */

static ls_path_outcome look_at(look *l)
{
    const ls_path *path = l->path;
    ls_path_outcome o = {.path = path,
                         .point = l->point,
                         .offer = l->offer,
                         .gpus = l->point->gpus,
                         .goodput = l->point->goodput,
                         .copies = 1,
                         .machines = l->point->gpus,
                         .days = INFINITY,
                         .days_slow = INFINITY};
    const uint64_t most = l->offer->gpus_max > 0 ? l->offer->gpus_max : LS_OFFER_GPUS_MOST;
    o.frontier = (uint64_t)o.gpus > most;
    const bool is_kept = is_kept_from(l->question, path, l->offer);
    if (!time_runs(l)) {
        o.obstacle = is_kept ? LS_OBSTACLE_CONTROL : LS_OBSTACLE_MEMORY;
        return o;
    }
    o.gpu_hours = l->mean_h * (double)o.gpus;
    o.copies = l->copies = needed_copies(l);
    o.machines = o.gpus * o.copies;
    o.run_days = l->longest_s / SECONDS_PER_DAY;
    o.days = l->offer->lead_time_s / SECONDS_PER_DAY + o.run_days;
    o.days_slow = l->offer->lead_time_s / SECONDS_PER_DAY + o.run_days * l->point->slow;
    if (path->kind == LS_PATH_LOCAL || path->kind == LS_PATH_OWNED) {
        o.machines = ls_path_whole_gpus(path, o.machines);
        ls_power_compute(path->catalogue, path->node, path->kind == LS_PATH_LOCAL ? o.gpus : o.machines,
                         &path->site, &o.power);
    }
    if (path->kind == LS_PATH_LOCAL) {
        cost_local(l, &o);
    } else if (path->kind == LS_PATH_OWNED) {
        cost_owned(l, &o);
    } else {
        cost_rented(l, &o);
    }
    o.run_usd_slow = ls_path_outcome_run_usd_at(&o, l->point->slow);
    if (path->kind != LS_PATH_LOCAL) { /* Never less than the most expensive run may cost. */
        o.max_loss_usd = fmax(o.max_loss_usd, o.run_usd_slow * dearest_over_mean(l));
    }
    o.obstacle = is_kept ? LS_OBSTACLE_CONTROL : find_obstacle(l, &o);
    o.possible = o.obstacle == LS_OBSTACLE_NONE;
    return o;
}

/* Whether outcome `a` is closer to being possible than `b`: a lesser obstacle comes first; then the
 * cheaper or faster one. Without runs per month it is unknown what would keep a large own machine
 * busy, so the smallest counts as the cheapest. */
static bool is_better(const look *l, const ls_path_outcome *a, const ls_path_outcome *b)
{
    const double deadline_s = l->question->deadline_s;
    if (a->obstacle != b->obstacle) {
        return a->obstacle < b->obstacle;
    }
    if (a->obstacle <= LS_OBSTACLE_BUDGET && a->path->kind == LS_PATH_OWNED &&
        l->work->runs_per_month == 0.0) {
        return a->upfront_usd < b->upfront_usd;
    }
    if (isinf(a->days) || isinf(b->days)) { /* Something that fits; else the largest size. */
        return isinf(b->days) && (isfinite(a->days) || a->gpus > b->gpus);
    }
    if (a->obstacle == LS_OBSTACLE_DEADLINE && a->path->kind == LS_PATH_OWNED &&
        fmin(a->offer->lead_time_s, b->offer->lead_time_s) >= deadline_s && deadline_s > 0.0) {
        return a->upfront_usd < b->upfront_usd; /* No size can be delivered in time. */
    }
    return a->obstacle == LS_OBSTACLE_DEADLINE ? a->days < b->days
           : a->obstacle == LS_OBSTACLE_SITE   ? a->machines < b->machines
                                               : a->run_usd < b->run_usd;
}

static ls_path_outcome look_at_api(const ls_question *question, const ls_path *path)
{
    ls_path_outcome o = {.path = path};
    o.month_usd = question->api_usd_per_million * question->api_tokens_month / 1e6;
    o.total_usd = o.month_usd * 12.0 * LS_VERDICT_MODEL_YEARS;
    o.max_loss_usd = o.month_usd;
    const bool is_kept = is_kept_from(question, path, NULL);
    const bool is_dear = question->budget_usd > 0.0 && o.total_usd > question->budget_usd;
    o.obstacle = is_kept                               ? LS_OBSTACLE_CONTROL
                 : !(question->api_tokens_month > 0.0) ? LS_OBSTACLE_TOKENS
                 : is_dear                             ? LS_OBSTACLE_BUDGET
                                                       : LS_OBSTACLE_NONE;
    o.possible = o.obstacle == LS_OBSTACLE_NONE;
    return o;
}

/* Half a node cannot be bought, so sizes below a node are skipped, unless there are no others. */
static bool is_part_of_node(const look *l)
{
    const ls_path_point *last = &l->path->points[l->path->point_count - 1];
    return l->path->kind == LS_PATH_OWNED && l->point->gpus < l->path->node->count &&
           last->gpus >= l->path->node->count;
}

void ls_path_outcome_compute(const ls_question *question, const ls_verdict_work *work, const ls_path *path,
                             ls_verdict_pass pass, ls_path_outcome *outcome_out)
{
    if (path->kind == LS_PATH_API) {
        *outcome_out = look_at_api(question, path);
        return;
    }
    ls_path_outcome best = {.path = path,
                            .offer = &path->offer,
                            .obstacle = LS_OBSTACLE_MEMORY,
                            .copies = 1,
                            .days = INFINITY,
                            .days_slow = INFINITY};
    for (size_t i = 0; i < path->point_count; i++) {
        look l = {.question = question, .work = work, .path = path, .offer = &path->offer, .pass = pass};
        l.point = &path->points[i];
        if (is_part_of_node(&l)) {
            continue;
        }
        const ls_path_outcome one = look_at(&l);
        if (best.gpus == 0 || is_better(&l, &one, &best)) {
            best = one;
        }
    }
    *outcome_out = best;
}
