// SPDX-License-Identifier: Apache-2.0
/*
 * Alerts of the queue: what its jobs report themselves (LS_ENGINE_ALERT), and what only the queue
 * sees: jobs without a step, devices that do nothing, ends after a deadline, budgets, lost jobs.
 *
 * An alert leaves with its turn (ls_turn.alerts) once it is on the disk, as a line of the journal.
 * What a job has been told of is in its record, so that a restart of the daemon does not tell it
 * again; a new start of the job forgets it. The last ALERTS_KEPT stay in memory for those who ask.
 */
#include "orchestration/control/answers.h"

#include "base/assert.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ALERTS_KEPT = 256 };

/* ---- telling ---- */

static void keep(ls_controller *c, const ls_alert *alert)
{
    ls_alerts *all = &c->alerts;
    if (!all->items) {
        all->items = calloc(ALERTS_KEPT, sizeof *all->items);
        LS_ASSERT(all->items && "not enough memory for alerts");
    }
    all->items[all->next % ALERTS_KEPT] = *alert;
    all->next++;
}

/* job NULL: about the queue as a whole, or an account. */
static void tell(ls_controller *c, ls_entry *entry, ls_alert_kind kind, const char *account, const char *text)
{
    ls_alert alert = {.id = c->alerts.next + 1,
                      .kind = kind,
                      .time_s = c->time_s + c->ahead_s,
                      .job = entry ? entry->job->id : 0};
    ls_text clean = {0};
    ls_text_append_printable(&clean, text, strnlen(text, LS_ALERT_TEXT_BYTES - 1), "");
    size_t bytes = clean.bytes < sizeof alert.text ? clean.bytes : sizeof alert.text - 1;
    while (bytes < clean.bytes && (clean.data[bytes] & 0xC0) == 0x80) {
        bytes--; /* a text that ends within a character would be no JSON */
    }
    snprintf(alert.text, sizeof alert.text, "%.*s", (int)bytes, ls_text_string(&clean));
    snprintf(alert.account, sizeof alert.account, "%s", entry ? entry->job->account : account);
    ls_text_release(&clean);
    keep(c, &alert);
    const char *line = ls_arena_printf(&c->arena, "alert (%s): %s", ls_alert_name(kind), alert.text);
    if (entry) {
        ls_controller_note(c, entry, LS_CAUSE_NONE, line);
    } else {
        ls_controller_announce(c, line);
    }
}

void ls_alerts_of_queue(ls_controller *c, ls_alert_kind kind, const char *account, const char *text)
{
    tell(c, NULL, kind, account, text);
}

void ls_alerts_of_job(ls_controller *c, ls_entry *entry, ls_alert_kind kind, const char *text)
{
    const uint32_t bit = UINT32_C(1) << kind;
    /* what a program says itself, and each lost rank, is news */
    const bool is_news = kind == LS_ALERT_OTHER || kind == LS_ALERT_RANKS;
    if (is_news || !(entry->job->alerts & bit)) {
        entry->job->alerts |= bit;
        tell(c, entry, kind, NULL, text);
    }
}

void ls_alerts_cease(ls_controller *c, ls_entry *entry, ls_alert_kind kind)
{
    const uint32_t bit = UINT32_C(1) << kind;
    if (entry->job->alerts & bit) {
        entry->job->alerts &= ~bit;
        ls_controller_touch(c, entry);
    }
}

void ls_controller_alert(ls_controller *c, ls_alert_kind kind, const char *text)
{
    LS_ASSERT(!c->in_turn);
    ls_alerts_of_queue(c, kind, "", text);
}

/* ---- watching ---- */

static bool steps(const ls_job *job)
{
    return job->state == LS_JOB_RUNNING && job->run_dir[0] && job->step > 0;
}

/* When a job without a step counts as stalled; INFINITY: never. */
static double stall_s(const ls_entry *entry)
{
    const bool is_told = entry->job->alerts >> LS_ALERT_STALL & 1;
    return steps(entry->job) && entry->step_at_s > 0.0 && entry->job->spec.stall_s > 0.0 && !is_told
               ? entry->step_at_s + entry->job->spec.stall_s
               : INFINITY;
}

void ls_alerts_stepped(ls_controller *c, ls_entry *entry)
{
    entry->step_at_s = c->time_s;
    ls_alerts_cease(c, entry, LS_ALERT_STALL);
    const ls_job *job = entry->job;
    const double end_s = ls_foresight_end_s(job), limit_s = job->submitted_s + job->spec.deadline_s;
    if (job->spec.deadline_s <= 0.0 || job->left_s <= 0.0 || end_s <= 0.0) {
        return;
    }
    if (end_s > limit_s) {
        ls_alerts_of_job(c, entry, LS_ALERT_DEADLINE,
                         ls_arena_printf(&c->arena,
                                         "it is expected to end %s after its deadline (job.deadline): %s are "
                                         "left, and %" PRIu64 " of %" PRIu64 " steps are done",
                                         ls_duration_of(end_s - limit_s).text,
                                         ls_duration_of(end_s - c->time_s).text, job->step, job->steps));
    } else {
        ls_alerts_cease(c, entry, LS_ALERT_DEADLINE);
    }
}

void ls_alerts_activity(ls_controller *c, ls_entry *entry, uint32_t busy_permille)
{
    const double span_s = c->settings.busy_for_s;
    if (span_s <= 0.0 || entry->job->state != LS_JOB_RUNNING) {
        return;
    }
    if (entry->busy_from_s <= entry->job->started_s) {
        entry->busy_from_s = entry->busy_at_s = c->time_s;
        entry->busy_sum = 0.0;
        return;
    }
    entry->busy_sum += 1e-3 * busy_permille * (c->time_s - entry->busy_at_s);
    entry->busy_at_s = c->time_s;
    const double passed_s = c->time_s - entry->busy_from_s;
    if (passed_s < span_s) {
        return;
    }
    const double busy = entry->busy_sum / passed_s;
    entry->busy_from_s = c->time_s;
    entry->busy_sum = 0.0;
    if (busy >= c->settings.busy_below) {
        ls_alerts_cease(c, entry, LS_ALERT_UTILISATION);
        return;
    }
    ls_alerts_of_job(
        c, entry, LS_ALERT_UTILISATION,
        ls_arena_printf(&c->arena,
                        "its %u device%s were busy for %.0f %% of the last %s, less than %.0f %% "
                        "(alerts.utilisation): 'lockstep report' shows where the time goes",
                        entry->job->ranks_now, entry->job->ranks_now == 1 ? "" : "s", 100.0 * busy,
                        ls_duration_of(passed_s).text, 100.0 * c->settings.busy_below));
}

void ls_alerts_watch(ls_controller *c)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        ls_entry *entry = c->entries[i];
        if (stall_s(entry) <= c->time_s) {
            ls_alerts_of_job(
                c, entry, LS_ALERT_STALL,
                ls_arena_printf(&c->arena,
                                "no step has ended for %s, since step %" PRIu64
                                " (alerts.stall): 'lockstep diagnose %s' shows who waits for whom",
                                ls_duration_of(c->time_s - entry->step_at_s).text, entry->job->step,
                                entry->job->run_dir));
        }
    }
}

double ls_alerts_next_s(const ls_controller *c)
{
    double next_s = INFINITY;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        next_s = fmin(next_s, stall_s(c->entries[i]));
    }
    return next_s;
}

/* ---- out ---- */

void ls_alerts_of_turn(ls_controller *c, ls_turn *turn)
{
    ls_alerts *all = &c->alerts;
    const uint64_t first = all->next > all->told + ALERTS_KEPT ? all->next - ALERTS_KEPT : all->told;
    turn->alert_count = (uint32_t)(all->next - first);
    ls_alert *list = ls_arena_new(&c->arena, ls_alert, turn->alert_count + 1);
    for (uint32_t i = 0; i < turn->alert_count; i++) {
        list[i] = all->items[(first + i) % ALERTS_KEPT];
    }
    turn->alerts = list;
}

static bool is_shown(const ls_controller *c, const ls_caller *caller, const ls_alert *alert)
{
    const ls_entry *entry = alert->job ? ls_controller_find(c, alert->job) : NULL;
    return alert->job == 0 || ls_caller_is_admin(caller) || (entry && ls_answers_may_see(caller, entry->job));
}

ls_answer ls_alerts_answer(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    const ls_alerts *all = &c->alerts;
    uint64_t after = 0;
    if (ls_json_get_u64(arguments, "alerts", "after", 0, INT64_MAX, 0, &after) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    json_t *list = json_array();
    for (uint64_t at = all->next > ALERTS_KEPT ? all->next - ALERTS_KEPT : 0; at < all->next; at++) {
        const ls_alert *alert = &all->items[at % ALERTS_KEPT];
        if (alert->id > after && is_shown(c, caller, alert)) {
            json_array_append_new(list, ls_alert_json(alert));
        }
    }
    return (ls_answer){200, json_pack("{s:o}", "alerts", list), 0};
}

json_t *ls_alert_json(const ls_alert *alert)
{
    return json_pack("{s:I, s:s, s:f, s:o, s:o, s:s}", "id", (json_int_t)alert->id, "kind",
                     ls_alert_name(alert->kind), "time", alert->time_s, "job",
                     alert->job ? json_integer((json_int_t)alert->job) : json_null(), "account",
                     ls_answers_text(alert->account), "text", alert->text);
}

const char *ls_alerts_last(const ls_controller *c, uint64_t job)
{
    const ls_alerts *all = &c->alerts;
    for (uint64_t i = 0; i < ALERTS_KEPT && i < all->next; i++) {
        const ls_alert *alert = &all->items[(all->next - 1 - i) % ALERTS_KEPT];
        if (alert->job == job) {
            return alert->text;
        }
    }
    return NULL;
}
