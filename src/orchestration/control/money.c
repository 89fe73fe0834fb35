// SPDX-License-Identifier: Apache-2.0
/*
 * Money: what jobs and accounts cost, and what happens at a cap or budget.
 *
 *   cost of a job         its device-hours, all starts together, times the price of a device-hour
 *                         of the kind of nodes it had them on (money.kinds)
 *   cap of a job          job.max_cost; at it the job saves, gives its devices back and is HELD
 *   budget of an account  for a calendar month (UTC); at it all jobs of the account are HELD
 *
 * Nothing here follows from events. Each turn compares costs with caps and budgets: jobs above are
 * stopped or held, jobs that were held for it and are below again may run. So a raised cap, a
 * raised budget, a lower price and a new month need no code of their own, and a daemon that died
 * anywhere continues.
 *
 * Training runs and the runners of jobs know their cap, too (engines/local/runner.h), and end by
 * themselves when it is reached. A job that ends within SLACK_S of its cap has reached it.
 */
#include "orchestration/control/controller_internal.h"

#include "base/log.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SLACK_S 2.0 /* by which the clocks of a job and the queue may differ about a start */
#define HOUR_S  3600.0
#define TOLD_AT 80 /* per cent of a budget */
#define DAY_S   86400.0
/* A forecast believes the month before as if it had watched it for so long. */
#define BELIEF_S (3 * DAY_S)

static double usd(const ls_controller *c, double device_s)
{
    return device_s / HOUR_S * c->settings.price_per_device_h;
}

/* ---- kinds of nodes ---- */

double ls_money_of_kind(const ls_controller *c, const char *kind)
{
    return ls_price_of_kind(&c->settings.kind_prices, kind, c->settings.price_per_device_h);
}

static double rate_of(const ls_controller *c, const char *kind)
{
    const double price = c->settings.price_per_device_h;
    return price > 0.0 ? ls_money_of_kind(c, kind) / price : 1.0;
}

void ls_money_configure(ls_controller *c)
{
    const ls_option_strings *prices = &c->settings.kind_prices;
    c->dearest_rate = c->node_count > 0 ? 0.0 : 1.0;
    for (uint32_t i = 0; i < c->node_count; i++) {
        c->dearest_rate = fmax(c->dearest_rate, rate_of(c, c->nodes[i].kind));
    }
    for (uint64_t i = 0; i < prices->count; i++) {
        const ls_option_strings one = {.items = prices->items + i, .count = 1};
        uint32_t node = 0;
        while (node < c->node_count && ls_price_of_kind(&one, c->nodes[node].kind, -1.0) < 0.0) {
            node++;
        }
        if (node == c->node_count) {
            ls_log_warn("money.kinds has a price for '%.80s', but there is no node of that kind; 'lockstep "
                        "nodes' lists the kinds",
                        prices->items[i]);
        }
    }
}

void ls_money_start(const ls_controller *c, ls_job *job, const char *node)
{
    job->price_usd = c->settings.price_per_device_h;
    job->kind_prices = c->settings.kind_prices;
    job->storage_usd = c->settings.storage_price;
    for (uint32_t i = 0; node && i < c->node_count; i++) {
        if (strcmp(c->nodes[i].name, node) == 0) {
            snprintf(job->kind, sizeof job->kind, "%s", c->nodes[i].kind);
        }
    }
}

double ls_money_rate(const ls_controller *c, const ls_job *job)
{
    return job->kind[0] ? rate_of(c, job->kind) : c->dearest_rate;
}

/* ---- amounts ---- */

ls_status ls_money_is_known(const ls_controller *c, const char *what)
{
    if (!(c->settings.price_per_device_h > 0.0)) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s cannot be kept: the price of a device is not known here. An administrator sets "
            "money.price in the daemon's config.yaml: the price of one device (a GPU, or a slot of "
            "a machine without GPUs) for one hour",
            what);
    }
    return strcmp(c->settings.currency, "USD") == 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "%s is in USD, but the prices of this queue are in %.16s (money.currency): caps and "
                         "budgets are kept in USD only",
                         what, c->settings.currency);
}

/* Without a price in USD nothing is known to be above a cap. */
static bool is_priced(const ls_controller *c)
{
    return c->settings.price_per_device_h > 0.0 && strcmp(c->settings.currency, "USD") == 0;
}

double ls_money_of_job(const ls_controller *c, const ls_entry *entry)
{
    return usd(c, 1e-3 * (double)ls_usage_of_job(c, entry).priced_device_ms);
}

/* ---- months ---- */

typedef struct month {
    uint32_t number;       /* 12 * year + month, from 0 */
    double begin_s, end_s; /* of the wall clock */
} month;

static month month_at(double wall_s)
{
    struct tm parts = {0};
    const time_t now = (time_t)wall_s;
    gmtime_r(&now, &parts);
    struct tm begin = {.tm_year = parts.tm_year, .tm_mon = parts.tm_mon, .tm_mday = 1};
    struct tm end = {.tm_year = parts.tm_year, .tm_mon = parts.tm_mon + 1, .tm_mday = 1};
    return (month){.number = 12 * (uint32_t)(parts.tm_year + 1900) + (uint32_t)parts.tm_mon,
                   .begin_s = (double)timegm(&begin),
                   .end_s = (double)timegm(&end)};
}

/* A new month begins with nothing spent; the one before is kept for forecasts. */
static void turn_month(ls_account *account, const month *now, double from_s)
{
    if (account->month == now->number) {
        return;
    }
    const bool is_next = account->month + 1 == now->number;
    account->last_month_device_ms = is_next ? account->month_device_ms : 0;
    account->month_from_s = is_next ? now->begin_s : fmax(now->begin_s, from_s);
    account->month = now->number;
    account->month_device_ms = 0;
    account->month_told = 0;
}

/* Devices that were had from from_s to now, in this month, in device-seconds; devices: each as the
 * multiple that it costs. */
static double of_month(const ls_controller *c, const month *now, double devices, double from_s)
{
    return devices * fmax(0.0, c->time_s - fmax(from_s, now->begin_s - c->ahead_s));
}

void ls_money_book(ls_controller *c, ls_account *account, const ls_job *job, uint32_t devices, double from_s)
{
    const month now = month_at(c->time_s + c->ahead_s);
    turn_month(account, &now, from_s + c->ahead_s);
    account->month_device_ms += ls_controller_ms(of_month(c, &now, devices * ls_money_rate(c, job), from_s));
}

/*
 * The rest of the month is expected to go on like the month so far, which counts as a day at least.
 * In its first days that says little, so the month before counts as if watched for BELIEF_S:
 *
 *   rate = (this month + last month's rate * BELIEF_S) / (time so far + BELIEF_S)
 */
static double forecast_of(const ls_account *account, const month *now, double wall_s, double device_s)
{
    const double so_far_s = fmax(DAY_S, wall_s - fmax(account->month_from_s, now->begin_s));
    const bool has_last =
        account->month == now->number ? account->last_month_device_ms > 0 : account->month + 1 == now->number;
    const uint64_t last_ms =
        account->month == now->number ? account->last_month_device_ms : account->month_device_ms;
    const double last_s = now->begin_s - month_at(now->begin_s - 1.0).begin_s;
    const double belief_s = has_last ? BELIEF_S : 0.0;
    const double rate = (device_s + 1e-3 * (double)last_ms / last_s * belief_s) / (so_far_s + belief_s);
    return device_s + rate * (now->end_s - wall_s);
}

ls_money_month ls_money_of_month(const ls_controller *c, const ls_account *account)
{
    const double wall_s = c->time_s + c->ahead_s;
    const month now = month_at(wall_s);
    double device_s = account->month == now.number ? 1e-3 * (double)account->month_device_ms : 0.0;
    uint32_t devices = 0;
    double from_s = 0.0, sum = 0.0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        if (!ls_job_state_is_final(job->state) && strcmp(job->account, account->name) == 0 &&
            ls_usage_unbooked(c, job, &devices, &from_s)) {
            const double priced = devices * ls_money_rate(c, job);
            device_s += of_month(c, &now, priced, from_s);
            sum += priced;
        }
    }
    return (ls_money_month){.spent = usd(c, device_s),
                            .forecast = usd(c, forecast_of(account, &now, wall_s, device_s)),
                            .rate_ph = sum * c->settings.price_per_device_h};
}

/* ---- what is told ---- */

static json_t *amount(double value_usd)
{
    return value_usd > 0.0 ? json_real(value_usd) : json_null();
}

void ls_money_add(const ls_controller *c, const ls_entry *entry, json_t *item)
{
    const ls_job *job = entry->job;
    const double price = c->settings.price_per_device_h;
    const double left_s = ls_job_state_is_final(job->state) ? 0.0 : job->left_s;
    const double passed_s = ls_job_has_devices(job) ? fmax(0.0, c->time_s - job->left_at_s) : 0.0;
    json_object_set_new(item, "cost", price > 0.0 ? json_real(ls_money_of_job(c, entry)) : json_null());
    json_object_set_new(item, "max_cost", amount(job->spec.max_cost_usd));
    json_object_set_new(
        item, "cost_ahead",
        amount(usd(c, fmax(0.0, left_s - passed_s) * (job->ranks_now ? job->ranks_now : job->ranks) *
                          ls_money_rate(c, job))));
}

json_t *ls_money_estimate(const ls_controller *c, const ls_job *job)
{
    const double cost = usd(c, job->plan.run_s * job->ranks * ls_money_rate(c, job));
    return cost > 0.0 ? json_pack("{s:f, s:f, s:f, s:f, s:i, s:s}", "cost", cost, "low", cost * job->plan.low,
                                  "high", cost * job->plan.high, "run_s", job->plan.run_s, "devices",
                                  (int)job->ranks, "currency", c->settings.currency)
                      : json_null();
}

/* ---- who is above ---- */

static double rate_ps(const ls_controller *c, const ls_job *job)
{
    return usd(c, (job->ranks_now > 0 ? job->ranks_now : job->ranks) * ls_money_rate(c, job));
}

/* A held job may run again once its cap is clearly above what it has cost. */
static bool is_above_cap(const ls_controller *c, const ls_entry *entry, bool with_slack)
{
    const ls_job *job = entry->job;
    const double slack_usd = with_slack ? SLACK_S * rate_ps(c, job) : 0.0;
    return job->spec.max_cost_usd > 0.0 && is_priced(c) &&
           ls_money_of_job(c, entry) + slack_usd >= job->spec.max_cost_usd;
}

/* "stopped by its cap: 5.02 of 5.00 USD" */
static const char *reason_of(ls_controller *c, const ls_entry *entry, ls_job_hold hold)
{
    const ls_account_entry *account = ls_queue_account_of(c, entry->job);
    return hold == LS_HOLD_CAP || !account
               ? ls_arena_printf(&c->arena, "stopped by its cap: %.2f of %.2f USD", ls_money_of_job(c, entry),
                                 entry->job->spec.max_cost_usd)
               : ls_arena_printf(&c->arena,
                                 "stopped by the budget of account %s: %.2f of %.2f USD this month",
                                 account->account.name, ls_money_of_month(c, &account->account).spent,
                                 account->account.budget_usd);
}

const char *ls_money_hold_text(ls_controller *c, const ls_entry *entry, ls_job_hold hold)
{
    const ls_job *job = entry->job;
    const char *reason = reason_of(c, entry, hold);
    if (hold == LS_HOLD_CAP) {
        return ls_arena_printf(&c->arena, "%s; raise it with 'lockstep change %" PRIu64 " --max-cost %.2f'",
                               reason, job->id, 2.0 * job->spec.max_cost_usd);
    }
    char day[16];
    const month now = month_at(c->time_s + c->ahead_s);
    const time_t end = (time_t)now.end_s;
    struct tm parts = {0};
    strftime(day, sizeof day, "%Y-%m-%d", gmtime_r(&end, &parts));
    return ls_arena_printf(&c->arena,
                           "%s; it continues on %s, or when an administrator raises the budget: 'lockstep "
                           "accounts %s --budget USD'",
                           reason, day, job->account);
}

/* ---- watching ---- */

static bool runs(const ls_job *job)
{
    return job->state == LS_JOB_STARTING || job->state == LS_JOB_RUNNING || job->state == LS_JOB_RESIZING;
}

/* A program that cannot continue later ends for good, unless it says otherwise (exit code 75). */
static void stop(ls_controller *c, ls_entry *entry, ls_job_hold hold)
{
    if (hold == LS_HOLD_CAP) { /* of a budget its account is told */
        ls_alerts_of_job(c, entry, LS_ALERT_CAP, ls_money_hold_text(c, entry, hold));
    }
    if (entry->job->spec.restartable || !runs(entry->job)) {
        ls_transitions_hold(c, entry, hold, ls_money_hold_text(c, entry, hold));
    } else {
        entry->job->hold = hold;
        ls_transitions_stop(c, entry, LS_JOB_STOPPING, LS_CAUSE_BUDGET, reason_of(c, entry, hold));
    }
}

/* any_over: some account has used up its budget. */
static void watch(ls_controller *c, ls_entry *entry, bool any_over)
{
    const ls_job *job = entry->job;
    const bool is_held = job->state == LS_JOB_HELD && ls_job_hold_is_money(job->hold);
    const ls_account_entry *account = any_over ? ls_queue_account_of(c, job) : NULL;
    const bool is_capped = is_above_cap(c, entry, is_held), is_over = account && account->is_over;
    if ((runs(job) || job->state == LS_JOB_QUEUED) && (is_capped || is_over)) {
        stop(c, entry, is_capped ? LS_HOLD_CAP : LS_HOLD_BUDGET);
    } else if (is_held && !is_capped && !is_over) {
        ls_transitions_release(c, entry);
    }
}

/* Tells once a month that most of a budget is used, and that all of it is. */
static void watch_budget(ls_controller *c, ls_account_entry *entry)
{
    ls_account *account = &entry->account;
    const month now = month_at(c->time_s + c->ahead_s);
    const double spent = ls_money_of_month(c, account).spent, percent = 100.0 * spent / account->budget_usd;
    const uint32_t level = percent >= 100.0 ? 100 : percent >= TOLD_AT ? TOLD_AT : 0;
    entry->is_over = level == 100;
    if (account->month == now.number && level < account->month_told) { /* it was raised */
        account->month_told = level;
        entry->is_changed = true;
    }
    if (level > (account->month == now.number ? account->month_told : 0)) {
        turn_month(account, &now, c->time_s + c->ahead_s);
        account->month_told = level;
        entry->is_changed = true;
        ls_alerts_of_queue(c, LS_ALERT_BUDGET, account->name,
                           ls_arena_printf(&c->arena,
                                           "account %s has used %.2f of its budget of %.2f USD for "
                                           "this month%s",
                                           account->name, spent, account->budget_usd,
                                           level == 100 ? ": its jobs are stopped and held" : ""));
    }
}

void ls_money_watch(ls_controller *c)
{
    bool any_over = false;
    if (c->is_going_down) {
        return;
    }
    for (uint32_t i = 0; i < c->account_count; i++) {
        ls_account_entry *entry = c->accounts[i];
        entry->is_over = false;
        if (is_priced(c) && entry->account.budget_usd > 0.0 && !entry->account.is_deleted) {
            watch_budget(c, entry);
        }
        any_over = any_over || entry->is_over;
    }
    for (uint32_t i = 0; i < c->entry_count; i++) {
        if (!ls_job_state_is_final(c->entries[i]->job->state)) {
            watch(c, c->entries[i], any_over);
        }
    }
}

/* ---- when ---- */

static double due_s(const ls_controller *c, double left_usd, double usd_ps)
{
    return usd_ps > 0.0 ? c->time_s + fmax(1e-3, left_usd / usd_ps) : INFINITY;
}

static double budget_due_s(const ls_controller *c, const ls_account *account)
{
    const ls_money_month now = ls_money_of_month(c, account);
    const double most = account->budget_usd, early = 0.01 * TOLD_AT * most;
    const double next_month_s = month_at(c->time_s + c->ahead_s).end_s - c->ahead_s;
    const double goal = now.spent < early ? early : most;
    return now.spent >= most ? next_month_s
                             : fmin(next_month_s, due_s(c, goal - now.spent, now.rate_ph / HOUR_S));
}

double ls_money_next_s(const ls_controller *c)
{
    double next_s = INFINITY;
    if (!is_priced(c)) {
        return next_s;
    }
    for (uint32_t i = 0; i < c->account_count; i++) {
        const ls_account *account = &c->accounts[i]->account;
        if (account->budget_usd > 0.0 && !account->is_deleted) {
            next_s = fmin(next_s, budget_due_s(c, account));
        }
    }
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_entry *entry = c->entries[i];
        const ls_job *job = entry->job;
        if (runs(job) && job->spec.max_cost_usd > 0.0) {
            next_s =
                fmin(next_s, due_s(c, job->spec.max_cost_usd - ls_money_of_job(c, entry), rate_ps(c, job)));
        }
    }
    return next_s;
}

/* ---- ends ---- */

bool ls_money_has_capped(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    const bool has_stopped = report->exit_code == 75 || report->cause == LS_CAUSE_LIMIT;
    const bool is_told = job->state == LS_JOB_PREEMPTING && job->held && ls_job_hold_is_money(job->hold);
    if (job->cancelled || !has_stopped || (report->exit_code != 75 && !job->spec.restartable)) {
        return false;
    }
    if (!is_told && runs(job) && is_above_cap(c, entry, true)) { /* it was first to see its cap */
        job->held = true;
        job->hold = LS_HOLD_CAP;
        return true;
    }
    return is_told;
}
