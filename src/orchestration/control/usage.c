// SPDX-License-Identifier: Apache-2.0
/*
 * Device-hours of jobs and accounts:
 *
 *   allocated   the devices a job had, times how long it had them
 *   idle        the part of it in which the devices did (nearly) nothing
 *   lost        the part of it whose work is gone: what was computed after the last checkpoint when
 *               the job was lost or killed
 *   waiting     the ranks a job asked for, times how long it waited in the queue and could have
 *               run; not while it was held, waited for other jobs, or was before its begin time
 *
 * When a state ends, its usage is booked to the job and to its account, in the same transaction as
 * the transition. A question adds the state that has not ended.
 */
#include "orchestration/control/controller_internal.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint32_t devices_of(const ls_controller *c, const ls_job *job)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->share_count; i++) {
        count += (uint32_t)__builtin_popcountll(job->shares[i].devices);
    }
    return c->decides ? job->ranks_now : count;
}

static uint64_t span_ms(double from_s, double to_s)
{
    return to_s > from_s ? ls_controller_ms(to_s - from_s) : 0;
}

static bool has_devices(const ls_controller *c, const ls_job *job)
{
    return c->decides ? job->handed_over && !ls_job_state_is_waiting(job->state) : ls_job_has_devices(job);
}

/* ---- at the end of a state ---- */

static void book(ls_controller *c, ls_entry *entry, ls_usage usage)
{
    ls_job *job = entry->job;
    job->allocated_device_ms += usage.allocated_device_ms;
    job->idle_device_ms += usage.idle_device_ms;
    job->waiting_device_ms += usage.waiting_device_ms;
    job->lost_device_ms += usage.lost_device_ms;
    job->priced_device_ms += usage.priced_device_ms;
    job->energy_mj += usage.energy_mj;
    ls_account_entry *account = ls_queue_account_of(c, job);
    if (!account) {
        return;
    }
    account->account.allocated_device_ms += usage.allocated_device_ms;
    account->account.idle_device_ms += usage.idle_device_ms;
    account->account.waiting_device_ms += usage.waiting_device_ms;
    account->account.lost_device_ms += usage.lost_device_ms;
    account->account.priced_device_ms += usage.priced_device_ms;
    account->account.energy_mj += usage.energy_mj;
    account->is_changed = true;
    ls_policy_usage past;
    for (uint32_t i = 0; c->policy && i < c->account_count; i++) {
        if (c->accounts[i] == account &&
            ls_policy_usage_get(c->policy, ls_controller_ms(c->time_s), i, &past) == LS_OK) {
            memcpy(account->account.share_ms, past.share_ms, sizeof account->account.share_ms);
            account->account.share_at_ms = past.at_ms;
        }
    }
}

/* What it had in that time, and at what price. */
static ls_usage held(const ls_controller *c, const ls_job *job, uint32_t devices, double from_s)
{
    const uint64_t device_ms = devices * span_ms(from_s, c->time_s);
    return (ls_usage){.allocated_device_ms = device_ms,
                      .priced_device_ms = (uint64_t)llround(ls_money_rate(c, job) * (double)device_ms)};
}

/* Since when the job has waited for nothing but devices; infinite: it still waits for something
 * else. */
static double ready_s(const ls_controller *c, const ls_job *job)
{
    const ls_job_spec *spec = &job->spec;
    double from_s = fmax(job->queued_s, spec->begin_s > 0.0 ? job->submitted_s + spec->begin_s : 0.0);
    /* a job that is no longer in memory ended long ago */
    for (uint32_t i = 0; i < spec->after_count; i++) {
        const ls_entry *other = ls_controller_find(c, spec->after[i]);
        if (other) {
            from_s = ls_job_state_is_final(other->job->state) ? fmax(from_s, other->job->ended_s - c->ahead_s)
                                                              : INFINITY;
        }
        if (isinf(from_s)) {
            break;
        }
    }
    return from_s;
}

void ls_usage_settle_waiting(ls_controller *c, ls_entry *entry)
{
    const ls_job *job = entry->job;
    book(c, entry, (ls_usage){.waiting_device_ms = job->ranks * span_ms(ready_s(c, job), c->time_s)});
}

/* Booked up to now; later usage starts from here. */
void ls_usage_settle_devices(ls_controller *c, ls_entry *entry, bool is_lost)
{
    ls_job *job = entry->job;
    if (job->started_s <= 0.0) {
        return;
    }
    const uint32_t devices = devices_of(c, job);
    const double booked_s = job->booked_s > job->started_s ? job->booked_s : job->started_s;
    const double kept_s = job->saved_s > job->started_s ? job->saved_s : job->started_s;
    ls_account_entry *account = ls_queue_account_of(c, job);
    if (account) {
        ls_money_book(c, &account->account, job, devices, booked_s);
    }
    ls_usage usage = held(c, job, devices, booked_s);
    usage.lost_device_ms = is_lost ? devices * span_ms(kept_s, c->time_s) : 0;
    book(c, entry, usage);
    job->booked_s = c->time_s;
}

/* ---- activity ---- */

/* How long a job may leave its devices idle; INFINITY: as long as it likes. */
static double idle_limit_s(const ls_controller *c, const ls_job *job)
{
    const double limit_s = job->spec.interactive ? c->settings.idle_interactive_s : c->settings.idle_stop_s;
    return limit_s > 0.0 ? limit_s : INFINITY;
}

static void tell_idle(ls_controller *c, ls_entry *entry)
{
    const uint32_t devices = devices_of(c, entry->job);
    const char *text = ls_arena_printf(&c->arena, "its %u device%s been idle for %.0f s", devices,
                                       devices == 1 ? " has" : "s have", c->time_s - entry->idle_since_s);
    const double left_s = idle_limit_s(c, entry->job) - (c->time_s - entry->idle_since_s);
    ls_controller_move(c, entry, entry->job->state, LS_CAUSE_NONE, text);
    ls_alerts_of_job(c, entry, LS_ALERT_IDLE,
                     isinf(left_s)
                         ? text
                         : ls_arena_printf(&c->arena, "%s: unless %s, it is stopped in %s (idle.%s)", text,
                                           entry->job->spec.interactive ? "they or its terminal are used"
                                                                        : "they do something",
                                           ls_duration_of(fmax(0.0, left_s)).text,
                                           entry->job->spec.interactive ? "interactive" : "stop"));
}

/* It gives its devices back: a job that can continue, or starts anew for a person, is held; another
 * one ends. */
static void stop_idle(ls_controller *c, ls_entry *entry, double idle_s)
{
    const ls_job *job = entry->job;
    const char *text = ls_arena_printf(
        &c->arena, "stopped because its devices did nothing for %s (idle.stop)", ls_duration_of(idle_s).text);
    if (job->spec.interactive) {
        text = ls_arena_printf(
            &c->arena,
            "it gave its devices back, because neither they nor its terminal were used for "
            "%s (idle.interactive): Enter in its terminal, or 'lockstep release %" PRIu64 "', starts it anew",
            ls_duration_of(idle_s).text, job->id);
    }
    if (job->spec.restartable || job->spec.interactive) {
        ls_transitions_hold(c, entry, LS_HOLD_IDLE, text);
    } else {
        ls_transitions_stop(c, entry, LS_JOB_STOPPING, LS_CAUSE_IDLE, text);
    }
}

static void is_busy(ls_controller *c, ls_entry *entry)
{
    const bool was_told = entry->idle_told;
    entry->idle_since_s = 0.0;
    entry->idle_told = false;
    ls_alerts_cease(c, entry, LS_ALERT_IDLE);
    if (was_told && entry->job->state == LS_JOB_RUNNING) {
        ls_controller_move(c, entry, entry->job->state, LS_CAUSE_NONE, "its devices are busy again");
    }
}

void ls_usage_activity(ls_controller *c, ls_entry *entry, const ls_engine_report *report)
{
    ls_job *job = entry->job;
    const double from_s = fmax(entry->busy_known_s, job->started_s);
    entry->busy_known_s = c->time_s;
    if (report->busy_permille >= c->settings.idle_permille) {
        is_busy(c, entry);
        return;
    }
    book(c, entry, (ls_usage){.idle_device_ms = devices_of(c, job) * span_ms(from_s, c->time_s)});
    if (entry->idle_since_s <= 0.0) {
        entry->idle_since_s = from_s;
    }
    if (job->state != LS_JOB_RUNNING) {
        return; /* its text says why it is being stopped, and must stay */
    }
    if (c->settings.idle_s > 0.0 && !entry->idle_told &&
        c->time_s - entry->idle_since_s >= c->settings.idle_s) {
        entry->idle_told = true;
        tell_idle(c, entry);
    }
    const double idle_s = c->time_s - fmax(entry->idle_since_s, job->spec.interactive ? report->time_s : 0.0);
    if ((entry->idle_told || job->spec.interactive) && idle_s >= idle_limit_s(c, job)) {
        stop_idle(c, entry, idle_s);
    }
}

/* What no job has used is kept among the upkeep, and written with the next row of it. */
void ls_usage_energy(ls_controller *c, ls_entry *entry, uint64_t energy_mj)
{
    if (energy_mj == 0) {
        return;
    }
    if (entry) {
        book(c, entry, (ls_usage){.energy_mj = energy_mj});
        ls_controller_touch(c, entry);
        c->upkeep_is_changed = true; /* so that both parts are of the same time */
        return;
    }
    const json_int_t before = json_integer_value(json_object_get(c->upkeep, "free_energy_mj"));
    json_object_set_new(c->upkeep, "free_energy_mj", json_integer(before + (json_int_t)energy_mj));
}

void ls_usage_add(ls_usage *sum, const ls_usage *more)
{
    sum->allocated_device_ms += more->allocated_device_ms;
    sum->idle_device_ms += more->idle_device_ms;
    sum->waiting_device_ms += more->waiting_device_ms;
    sum->lost_device_ms += more->lost_device_ms;
    sum->energy_mj += more->energy_mj;
    sum->stored_bytes += more->stored_bytes;
    sum->sent_bytes += more->sent_bytes;
    sum->priced_device_ms += more->priced_device_ms;
}

void ls_usage_stored(ls_controller *c, const ls_entry *entry)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        ls_entry *other = c->entries[i];
        if (other != entry && other->job->result.stored_bytes > 0 && other->job->uid == entry->job->uid &&
            strcmp(other->job->run_dir, entry->job->run_dir) == 0) {
            other->job->result.stored_bytes = 0;
            ls_controller_touch(c, other);
        }
    }
}

/* ---- until now ---- */

bool ls_usage_unbooked(const ls_controller *c, const ls_job *job, uint32_t *devices_out, double *from_s_out)
{
    if (!has_devices(c, job)) {
        return false;
    }
    *devices_out = devices_of(c, job);
    *from_s_out = fmax(job->booked_s, job->started_s);
    return true;
}

ls_usage ls_usage_of_job(const ls_controller *c, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    ls_usage usage = {job->allocated_device_ms, job->idle_device_ms,  job->waiting_device_ms,
                      job->lost_device_ms,      job->energy_mj,       job->result.stored_bytes,
                      job->result.sent_bytes,   job->priced_device_ms};
    uint32_t devices = 0;
    double booked_s = 0.0;
    if (ls_usage_unbooked(c, job, &devices, &booked_s)) {
        const ls_usage more = held(c, job, devices, booked_s);
        ls_usage_add(&usage, &more);
    } else if (job->state == LS_JOB_QUEUED) {
        usage.waiting_device_ms += job->ranks * span_ms(ready_s(c, job), c->time_s);
    }
    return usage;
}

ls_usage ls_usage_of_account(const ls_controller *c, const ls_account *account)
{
    ls_usage sum = {.allocated_device_ms = account->allocated_device_ms,
                    .idle_device_ms = account->idle_device_ms,
                    .waiting_device_ms = account->waiting_device_ms,
                    .lost_device_ms = account->lost_device_ms,
                    .energy_mj = account->energy_mj,
                    .priced_device_ms = account->priced_device_ms};
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        if (strcmp(job->account, account->name) != 0) {
            continue;
        }
        sum.stored_bytes += job->result.stored_bytes;
        sum.sent_bytes += job->result.sent_bytes;
        if (ls_job_state_is_final(job->state)) {
            continue;
        }
        const ls_usage now = ls_usage_of_job(c, c->entries[i]);
        sum.allocated_device_ms += now.allocated_device_ms - job->allocated_device_ms;
        sum.waiting_device_ms += now.waiting_device_ms - job->waiting_device_ms;
        sum.priced_device_ms += now.priced_device_ms - job->priced_device_ms;
    }
    return sum;
}
