// SPDX-License-Identifier: Apache-2.0
/* What the queue as a whole is asked for: nodes, accounts, usage, status. */
#include "orchestration/control/answers.h"

#include <math.h>
#include <string.h>

static double hours(uint64_t device_ms)
{
    return (double)device_ms / 3600000.0;
}

/* Of some of the device-hours of a usage, at their mean price. */
static json_t *money(const ls_controller *c, const ls_usage *usage, uint64_t device_ms)
{
    const double all = (double)usage->allocated_device_ms;
    const double rate = all > 0.0 ? (double)usage->priced_device_ms / all : 1.0;
    return c->settings.price_per_device_h > 0.0
               ? json_real(hours(device_ms) * rate * c->settings.price_per_device_h)
               : json_null();
}

/* price: of a GB; 0: not known. */
static json_t *of_bytes(uint64_t bytes, double price)
{
    return price > 0.0 ? json_real(1e-9 * (double)bytes * price) : json_null();
}

json_t *ls_answers_usage_json(const ls_controller *c, ls_usage usage)
{
    json_t *energy = usage.energy_mj > 0 ? json_real(1e-3 * (double)usage.energy_mj) : json_null();
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:I, s:I, s:o, s:o}", "energy_j", energy,
                     "allocated_h", hours(usage.allocated_device_ms), "idle_h", hours(usage.idle_device_ms),
                     "waiting_h", hours(usage.waiting_device_ms), "lost_h", hours(usage.lost_device_ms),
                     "cost", money(c, &usage, usage.allocated_device_ms), "idle_cost",
                     money(c, &usage, usage.idle_device_ms), "lost_cost",
                     money(c, &usage, usage.lost_device_ms), "stored_bytes", (json_int_t)usage.stored_bytes,
                     "sent_bytes", (json_int_t)usage.sent_bytes, "storage_cost",
                     of_bytes(usage.stored_bytes, c->settings.storage_price), "egress_cost",
                     of_bytes(usage.sent_bytes, c->settings.egress_price));
}

/* ---- nodes ---- */

/* How many devices of a share exist: a record may name ones that the machine no longer has. */
static uint32_t devices_at(const ls_controller *c, const ls_job_share *share)
{
    const uint32_t devices = share->node < c->place_count ? c->places[share->node].devices : 0;
    const uint64_t there = devices >= 64 ? UINT64_MAX : (UINT64_C(1) << devices) - 1;
    return (uint32_t)__builtin_popcountll(share->devices & there);
}

static uint32_t count_used(const ls_controller *c, uint32_t node, const ls_caller *caller, json_t *jobs)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        uint32_t count = 0;
        for (uint32_t k = 0; k < job->share_count; k++) {
            const uint32_t place = job->shares[k].node;
            if (place < c->place_count && c->places[place].node == node) {
                count += devices_at(c, &job->shares[k]);
            }
        }
        used += count;
        if (count > 0) {
            json_array_append_new(jobs, json_pack("{s:I, s:o, s:i}", "job", (json_int_t)job->id, "name",
                                                  ls_answers_name(c, caller, job), "devices", (int)count));
        }
    }
    return used;
}

static const char *state_of(const ls_controller *c, uint32_t node, uint32_t used)
{
    const bool is_drained = ls_upkeep_is_drained(c, c->nodes[node].name);
    return !c->node_is_up[node] ? "down" : !is_drained ? "up" : used > 0 ? "draining" : "drained";
}

static json_t *number_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

/* The job that has a device of the first node; NULL: none has. */
static const ls_job *holder_of(const ls_controller *c, uint32_t device)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        for (uint32_t k = 0; k < job->share_count; k++) {
            const uint32_t place = job->shares[k].node;
            const ls_job_place *at = place < c->place_count ? &c->places[place] : NULL;
            if (at && at->node == 0 && device >= at->first && device < at->first + at->devices &&
                (job->shares[k].devices >> (device - at->first) & 1)) {
                return job;
            }
        }
    }
    return NULL;
}

/* What the devices of the first node report now. */
static json_t *readings_json(const ls_controller *c)
{
    uint32_t count = 0;
    json_t *list = json_array();
    const ls_engine_calls *calls = c->engine->calls;
    const ls_engine_device *devices = calls->devices ? calls->devices(c->engine, &count) : NULL;
    for (uint32_t i = 0; i < count; i++) {
        const ls_engine_device *d = &devices[i];
        const ls_job *job = holder_of(c, i);
        json_array_append_new(
            list, json_pack("{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "device", (int)i, "job",
                            job ? json_integer((json_int_t)job->id) : json_null(), "account",
                            job ? json_string(job->account) : json_null(), "utilization",
                            number_or_null(d->utilization), "memory_bytes", number_or_null(d->memory_bytes),
                            "memory_max_bytes", number_or_null(d->memory_max_bytes), "power_w",
                            number_or_null(d->power_w), "temperature_c", number_or_null(d->temperature_c),
                            "throttled", number_or_null(d->is_throttled), "ecc_errors",
                            number_or_null(d->ecc_errors)));
    }
    return list;
}

static json_t *price_json(const ls_controller *c, const char *kind)
{
    const double price = ls_money_of_kind(c, kind);
    return price > 0.0 ? json_real(price) : json_null();
}

ls_answer ls_answers_nodes(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    (void)arguments;
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->node_count; i++) {
        const ls_engine_node *node = &c->nodes[i];
        json_t *jobs = json_array();
        const uint32_t used = count_used(c, i, caller, jobs);
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:o, s:o, s:o}",
                                        "node", node->name, "state", state_of(c, i, used), "kind", node->kind,
                                        "devices", (int)node->devices, "used", (int)used, "leaf",
                                        (int)node->leaf, "spine", (int)node->spine, "cpus", (int)node->cpus,
                                        "memory_mib", (int)node->memory_mib, "spot", (int)node->spot, "jobs",
                                        jobs, "readings", i == 0 ? readings_json(c) : json_array(),
                                        "price_per_device_h", price_json(c, node->kind)));
    }
    return (ls_answer){200, json_pack("{s:s, s:o}", "engine", c->engine->calls->name, "nodes", list), 0};
}

/* ---- accounts and usage ---- */

/* Adds what an account has cost this month, and may. */
static void add_month(const ls_controller *c, const ls_account *account, json_t *item)
{
    const bool is_priced = c->settings.price_per_device_h > 0.0;
    const ls_money_month month = ls_money_of_month(c, account);
    json_object_set_new(item, "budget",
                        account->budget_usd > 0.0 ? json_real(account->budget_usd) : json_null());
    json_object_set_new(item, "month_cost", is_priced ? json_real(month.spent) : json_null());
    json_object_set_new(item, "month_forecast", is_priced ? json_real(month.forecast) : json_null());
}

static json_t *limit_json(uint32_t limit)
{
    return limit == UINT32_MAX ? json_null() : json_integer(limit);
}

ls_answer ls_answers_accounts(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    (void)arguments;
    json_t *list = json_array();
    for (uint32_t i = 0; i < c->account_count; i++) {
        const ls_account *account = &c->accounts[i]->account;
        if (account->is_deleted) {
            continue;
        }
        uint32_t running = 0, waiting = 0, devices = 0;
        for (uint32_t k = 0; k < c->entry_count; k++) {
            const ls_job *job = c->entries[k]->job;
            if (!ls_job_state_is_final(job->state) && strcmp(job->account, account->name) == 0) {
                waiting += ls_job_state_is_waiting(job->state);
                running += !ls_job_state_is_waiting(job->state);
                devices += job->ranks_now;
            }
        }
        /* Only administrators see the members. */
        json_t *users = ls_caller_is_admin(caller) ? ls_accounts_users_json(account) : json_null();
        json_t *item =
            json_pack("{s:s, s:i, s:o, s:o, s:o, s:o, s:s, s:s, s:i, s:i, s:i, s:I}", "account",
                      account->name, "weight", (int)account->weight, "quota", limit_json(account->quota),
                      "borrow", limit_json(account->borrow), "lend", limit_json(account->lend), "users",
                      users, "open_to", ls_accounts_open_to(c, caller, account), "priority_max",
                      ls_priority_name(account->priority_max), "devices", (int)devices, "running",
                      (int)running, "waiting", (int)waiting, "jobs", (json_int_t)account->jobs);
        add_month(c, account, item);
        json_array_append_new(list, item);
    }
    return (ls_answer){200, json_pack("{s:o}", "accounts", list), 0};
}

/* ---- usage of a time or a user ---- */

static void add_to(json_t *row, const char *key, json_int_t more)
{
    json_object_set_new(row, key, json_integer(json_integer_value(json_object_get(row, key)) + more));
}

/* The row of the account and user of a job; it is added when there is none. */
static json_t *row_of(json_t *rows, const ls_job *job)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "account")), job->account) == 0 &&
            strcmp(json_string_value(json_object_get(row, "user")), job->user) == 0) {
            return row;
        }
    }
    row = json_pack("{s:s, s:s}", "account", job->account, "user", job->user);
    json_array_append_new(rows, row);
    return row;
}

static void add_live_jobs(const ls_controller *c, json_t *rows)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        if (ls_job_state_is_final(job->state)) {
            continue;
        }
        const ls_usage usage = ls_usage_of_job(c, c->entries[i]);
        json_t *row = row_of(rows, job);
        add_to(row, "jobs", 1);
        add_to(row, "allocated", (json_int_t)usage.allocated_device_ms);
        add_to(row, "idle", (json_int_t)usage.idle_device_ms);
        add_to(row, "waiting", (json_int_t)usage.waiting_device_ms);
        add_to(row, "lost", (json_int_t)usage.lost_device_ms);
        add_to(row, "energy", (json_int_t)usage.energy_mj);
        add_to(row, "stored", (json_int_t)usage.stored_bytes);
        add_to(row, "sent", (json_int_t)usage.sent_bytes);
        add_to(row, "priced", (json_int_t)usage.priced_device_ms);
    }
}

static uint64_t sum_of(const json_t *row, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(row, key));
}

/* Rows as they are answered. user: only of this user; NULL: of all. */
static json_t *finished_rows(const ls_controller *c, const json_t *rows, const char *user, ls_usage *total)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const char *of = json_string_value(json_object_get(row, "user"));
        const ls_usage usage = {sum_of(row, "allocated"), sum_of(row, "idle"),   sum_of(row, "waiting"),
                                sum_of(row, "lost"),      sum_of(row, "energy"), sum_of(row, "stored"),
                                sum_of(row, "sent"),      sum_of(row, "priced")};
        if (user && strcmp(of, user) != 0) {
            continue;
        }
        json_t *item = ls_answers_usage_json(c, usage);
        json_object_set(item, "account", json_object_get(row, "account"));
        json_object_set(item, "user", json_object_get(row, "user"));
        json_object_set(item, "jobs", json_object_get(row, "jobs"));
        json_array_append_new(list, item);
        ls_usage_add(total, &usage);
    }
    return list;
}

/* What the machine has used since its energy is counted, by jobs of all accounts and by none. */
static json_t *machine_json(const ls_controller *c)
{
    uint64_t free_mj = (uint64_t)json_integer_value(json_object_get(c->upkeep, "free_energy_mj"));
    uint64_t sum_mj = free_mj;
    for (uint32_t i = 0; i < c->account_count; i++) {
        sum_mj += c->accounts[i]->account.energy_mj;
    }
    return sum_mj > 0 ? json_pack("{s:f, s:f}", "energy_j", 1e-3 * (double)sum_mj, "free_energy_j",
                                  1e-3 * (double)free_mj)
                      : json_null();
}

static ls_answer usage_answer(const ls_controller *c, json_t *list, ls_usage total)
{
    json_t *kinds = json_array();
    for (uint64_t i = 0; i < c->settings.kind_prices.count; i++) {
        json_array_append_new(kinds, json_string(c->settings.kind_prices.items[i]));
    }
    return (ls_answer){200,
                       json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:o}", "machine", machine_json(c),
                                 "accounts", list, "total", ls_answers_usage_json(c, total),
                                 "price_per_device_h", price_json(c, ""), "kind_prices", kinds, "currency",
                                 c->settings.currency, "foresight", ls_foresight_summary(c)),
                       0};
}

static ls_answer usage_by_jobs(const ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    const double since_s = json_number_value(json_object_get(arguments, "since"));
    const char *user = json_string_value(json_object_get(arguments, "user"));
    ls_usage total = {0};
    if (!ls_caller_is_admin(caller) && user && strcmp(user, caller->user) != 0) {
        return ls_answer_fail(403, "only an administrator can see what other users have used");
    }
    json_t *rows = c->calls.used ? c->calls.used(c->calls.context, since_s) : json_array();
    if (!rows) {
        return ls_answer_fail(500, "cannot read what ended jobs have used: %s", ls_error_text());
    }
    add_live_jobs(c, rows);
    json_t *list = finished_rows(c, rows, ls_caller_is_admin(caller) ? user : caller->user, &total);
    json_decref(rows);
    return usage_answer(c, list, total);
}

ls_answer ls_answers_usage(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    if (json_object_get(arguments, "since") || json_object_get(arguments, "user")) {
        return usage_by_jobs(c, caller, arguments);
    }
    json_t *list = json_array();
    ls_usage total = {0};
    for (uint32_t i = 0; i < c->account_count; i++) {
        const ls_account *account = &c->accounts[i]->account;
        if (account->is_deleted) {
            continue;
        }
        const ls_usage usage = ls_usage_of_account(c, account);
        json_t *item = ls_answers_usage_json(c, usage);
        json_object_set_new(item, "account", json_string(account->name));
        json_object_set_new(item, "jobs", json_integer((json_int_t)account->jobs));
        add_month(c, account, item);
        json_array_append_new(list, item);
        ls_usage_add(&total, &usage);
    }
    return usage_answer(c, list, total);
}

/* ---- status ---- */

static uint32_t devices_of(const ls_controller *c, const ls_job *job)
{
    uint32_t count = 0;
    for (uint32_t k = 0; k < job->share_count; k++) {
        count += devices_at(c, &job->shares[k]);
    }
    return count;
}

/* The jobs with a reserved start, in the order of the reservations. */
static json_t *reserved_json(const ls_controller *c)
{
    ls_policy_reservation list[LS_RESERVATIONS_MAX];
    const uint32_t count = c->policy ? ls_policy_reservations(c->policy, list, LS_RESERVATIONS_MAX) : 0;
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t starts_ms = list[i].starts_ms;
        json_t *in_s = starts_ms == 0
                           ? json_null()
                           : json_real(starts_ms > now_ms ? 1e-3 * (double)(starts_ms - now_ms) : 0.0);
        json_array_append_new(array,
                              json_pack("{s:I, s:o}", "job", (json_int_t)list[i].job, "starts_in_s", in_s));
    }
    return array;
}

static json_t *status_json(const ls_controller *c)
{
    uint32_t counts[LS_JOB_STATES] = {0}, waiting[3] = {0}, used = 0, idle = 0;
    uint64_t asked = 0;
    double oldest_s = c->time_s;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        const uint32_t devices = devices_of(c, job);
        counts[job->state]++;
        used += devices;
        idle += c->entries[i]->idle_told ? devices : 0;
        if (job->state == LS_JOB_QUEUED) {
            waiting[job->priority]++;
            asked += job->ranks;
            oldest_s = fmin(oldest_s, job->queued_s);
        }
    }
    json_t *states = json_object(), *priorities = json_object();
    for (int state = 0; state < LS_JOB_STATES; state++) {
        json_object_set_new(states, ls_job_state_name((ls_job_state)state), json_integer(counts[state]));
    }
    for (int i = 0; i < 3; i++) {
        json_object_set_new(priorities, ls_priority_name((ls_priority)i), json_integer(waiting[i]));
    }
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:f, s:i, s:i, s:i, s:i, s:o, s:o, s:o}", "version",
                     LS_VERSION, "engine", c->engine->calls->name, "order", c->settings.order, "states",
                     states, "waiting", priorities, "devices_wanted", (json_int_t)asked, "waits_s",
                     c->time_s - oldest_s, "devices", (int)c->device_count, "devices_used", (int)used,
                     "devices_idle", (int)idle, "nodes", (int)c->node_count, "paused",
                     ls_answers_text(c->paused), "reserved", reserved_json(c), "upkeep", ls_upkeep_shown(c));
}

ls_answer ls_answers_status(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    (void)caller, (void)arguments;
    return (ls_answer){200, status_json(c), 0};
}
