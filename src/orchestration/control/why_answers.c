// SPDX-License-Identifier: Apache-2.0
/* Why a job waits: the sentence of `ps` and `why`, who is in the way, and what would start it. */
#include "orchestration/control/answers.h"

#include <inttypes.h>
#include <string.h>

/* ---- the sentence ---- */

static const char *level_text(ls_level level)
{
    static const char *const texts[] = {"one island of fast links", "one node", "one leaf switch",
                                        "one spine switch", "the cluster"};
    return texts[level];
}

/* "it waits for job 3, 4 to succeed": those that have not ended. */
static void append_dependency(const ls_controller *c, const ls_job *job, ls_text *text)
{
    enum { NAMED_MAX = 4 };
    uint32_t count = 0;
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        const ls_entry *other = ls_controller_find(c, job->spec.after[i]);
        if (other && !ls_job_state_is_final(other->job->state)) {
            if (count < NAMED_MAX) {
                ls_text_printf(text, "%s%" PRIu64, count == 0 ? "it waits for job " : ", ", other->job->id);
            }
            count++;
        }
    }
    if (count > NAMED_MAX) {
        ls_text_printf(text, " and %u more", count - NAMED_MAX);
    }
    ls_text_append(text, job->spec.after_any ? " to end" : " to succeed");
}

static const char *plural(uint32_t count)
{
    return count == 1 ? "" : "s";
}

/* "none is free", "1 is free", "2 are free" */
static void append_free(uint32_t devices, ls_text *text)
{
    if (devices == 0) {
        ls_text_append(text, "none is free");
    } else {
        ls_text_printf(text, "%u %s free", devices, devices == 1 ? "is" : "are");
    }
}

/* " (by ann: new disks)" */
static void append_note(const json_t *note, ls_text *text)
{
    const char *by = json_string_value(json_object_get(note, "by"));
    const char *reason = json_string_value(json_object_get(note, "reason"));
    if (!note) {
        return;
    }
    ls_text_printf(text, " (by %s%s", by ? by : "?", reason ? ": " : "");
    ls_text_append_printable(text, reason ? reason : "", reason ? strlen(reason) : 0, "");
    ls_text_append(text, ")");
}

/* "maintenance begins in 30 min 00 s (by ann), and ...", or "there is maintenance for another 2 h
 * 00 min (by ann)" */
static void append_maintenance(const ls_controller *c, const ls_why *why, ls_text *text)
{
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    const bool is_ahead = why->window.begin_ms > now_ms;
    ls_text_printf(
        text, is_ahead ? "maintenance begins in %s" : "there is maintenance for another %s",
        ls_duration_of(1e-3 * (double)((is_ahead ? why->window.begin_ms : why->window.end_ms) - now_ms))
            .text);
    append_note(ls_upkeep_window(c, why->window.begin_ms), text);
    ls_text_append(text, is_ahead ? ", and nothing says that the job ends before (job.time_limit)" : "");
}

/* Whether a job at this stage would be looked at if the queue were not paused. */
static bool waits_for_resume(const ls_controller *c, const ls_why *why)
{
    return ls_upkeep_is_paused(c) && why->stage >= LS_WHY_PRIORITY && why->stage <= LS_WHY_STARTING;
}

/* "the queue is paused (by ann: new disks) until 'lockstep resume'" */
static void append_paused(const ls_controller *c, ls_text *text)
{
    ls_text_append(text, "the queue is paused");
    append_note(json_object_get(c->upkeep, "paused"), text);
    ls_text_append(text, " until 'lockstep resume'");
}

/* "; node gpu1 is drained (by ann: noise)": explains why less is free than there seems to be. */
static void append_drained(const ls_controller *c, ls_text *text)
{
    const char *node;
    json_t *note;
    json_object_foreach(json_object_get(c->upkeep, "drained"), node, note)
    {
        ls_text_printf(text, "; node %s is drained", node);
        append_note(note, text);
    }
}

/* One sentence about the first stage that fails. */
static void append_sentence(const ls_controller *c, const ls_job *job, const ls_why *why, ls_text *text)
{
    const uint32_t group_max = job->spec.group_running_max;
    if (waits_for_resume(c, why)) {
        append_paused(c, text);
        return;
    }
    switch (why->stage) {
    case LS_WHY_IMPOSSIBLE:
        ls_text_append(text,
                       "it can never start as it is: it does not fit on all machines together, or its "
                       "account can never use so many devices (its quota, or what other accounts lend)");
        break;
    case LS_WHY_HOLD:
        ls_text_printf(text, "%s%s", job->text ? job->text : "it is held",
                       job->held && !ls_job_hold_is_money(job->hold) ? ", until 'lockstep release'" : "");
        break;
    case LS_WHY_DEPENDENCY:
        append_dependency(c, job, text);
        break;
    case LS_WHY_BEGIN:
        ls_text_printf(text, "it may begin in %s",
                       ls_duration_of(job->submitted_s + job->spec.begin_s - c->time_s).text);
        break;
    case LS_WHY_MAINTENANCE:
        append_maintenance(c, why, text);
        break;
    case LS_WHY_GROUP:
        ls_text_printf(text,
                       "its group may run %u job%s at a time, and %u %s running (job.group.running_max)",
                       group_max, plural(group_max), why->available, why->available == 1 ? "is" : "are");
        break;
    case LS_WHY_QUOTA:
        ls_text_printf(text, "its account %s may use %u more device%s now, and it needs %u", job->account,
                       why->available, plural(why->available), why->needed);
        break;
    case LS_WHY_PRIORITY:
        ls_text_printf(text, "other jobs come first: it is number %u of %u", why->rank, why->pending);
        break;
    case LS_WHY_GANG:
        ls_text_printf(text, "it needs %u device%s at once, and ", why->needed, plural(why->needed));
        append_free(why->available, text);
        append_drained(c, text);
        break;
    case LS_WHY_PLACEMENT:
        ls_text_printf(text, "it needs %u device%s in %s, and ", why->needed, plural(why->needed),
                       level_text(why->level));
        if (why->available > 0) {
            ls_text_printf(text, "at most %u %s free in one", why->available,
                           why->available == 1 ? "is" : "are");
        } else {
            append_free(0, text);
        }
        append_drained(c, text);
        break;
    case LS_WHY_RESERVATION:
        ls_text_append(text, "the free devices are reserved for a job that comes first, and this one would "
                             "not finish in time");
        break;
    case LS_WHY_STARTING:
        ls_text_append(text, "its devices are being freed, or it is about to start");
        break;
    default:
        ls_text_append(text, "it is not waiting");
        break;
    }
}

/* Why it left its devices the last time, which explains why it waits again. */
static void append_last(const ls_job *job, ls_text *text)
{
    if (job->state == LS_JOB_QUEUED && job->epoch > 0 && job->text) {
        ls_text_printf(text, " (last: %s)", job->text);
    }
}

/*
 * Neither the policy nor the engine knows of this job yet. An engine that decides gets a job when
 * its dependencies have ended; a job that is set aside (ls_queue_set_aside) is not in the policy.
 */
static bool is_kept_back(const ls_controller *c, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    return c->decides ? job->state == LS_JOB_QUEUED && !job->handed_over
                      : ls_job_state_is_waiting(job->state) && !entry->in_policy;
}

static void append_kept_back(const ls_controller *c, const ls_entry *entry, ls_text *text)
{
    if (!c->decides && entry->stage_text) {
        ls_text_append(text, entry->stage_text);
    } else {
        append_dependency(c, entry->job, text);
    }
}

void ls_answers_append_reason(const ls_controller *c, const ls_entry *entry, ls_text *text)
{
    const ls_job *job = entry->job;
    ls_why why;
    if (is_kept_back(c, entry)) {
        append_kept_back(c, entry, text);
    } else if (ls_job_state_is_waiting(job->state) && c->decides) {
        ls_text_append(text, entry->stage_text ? entry->stage_text : job->text ? job->text : "");
    } else if (ls_job_state_is_waiting(job->state)) {
        if (ls_policy_stage(c->policy, ls_controller_ms(c->time_s), job->id, &why) == LS_OK) {
            append_sentence(c, job, &why, text);
        }
        append_last(job, text);
    } else if (!ls_job_state_is_final(job->state) && job->alerts && ls_alerts_last(c, job->id)) {
        ls_text_printf(text, "alert: %s", ls_alerts_last(c, job->id));
    } else if (job->text) {
        ls_text_append(text, job->text);
    } else if (entry->idle_told) {
        ls_text_printf(text, "its devices have been idle for %.0f s", c->time_s - entry->idle_since_s);
    }
}

/* ---- why ---- */

/* The end of "would start now ...": what would have to be different. */
static void append_change(ls_text *text, ls_change_kind kind, uint64_t value)
{
    /* A number and the plural of its noun, where there is a %; a kind without a line is named. */
    static const char *const formats[LS_CHANGE_COUNT] = {
        [LS_CHANGE_RANKS] = "with %" PRIu64 " rank%s",
        [LS_CHANGE_PER_NODE] = "with %" PRIu64 " rank%s per node",
        [LS_CHANGE_QUOTA] = "if its account could use %" PRIu64 " more device%s",
        [LS_CHANGE_HELD] = "without the hold",
        [LS_CHANGE_BEGIN] = "without its earliest start time (job.begin)",
        [LS_CHANGE_KIND] = "on any kind of device",
        [LS_CHANGE_SPOT] = "if it may run on spot nodes",
        [LS_CHANGE_GROUP] = "if %" PRIu64 " job%s of its group could run at once",
    };
    const bool is_any_number = kind == LS_CHANGE_PER_NODE && value == 0;
    if (kind == LS_CHANGE_PRIORITY) {
        ls_text_printf(text, "with priority %s", ls_priority_name((ls_priority)value));
    } else if (kind == LS_CHANGE_REQUIRED) {
        ls_text_printf(text, "spread over %s", level_text((ls_level)value));
    } else if (kind == LS_CHANGE_LIMIT) {
        ls_text_printf(text, "with a time limit of %s", ls_duration_of(1e-3 * (double)value).text);
    } else if (is_any_number) {
        ls_text_append(text, "with any number of ranks per node");
    } else if (formats[kind]) {
        ls_text_printf(text, formats[kind], value, value == 1 ? "" : "s");
    } else {
        ls_text_printf(text, "with another %s", ls_change_name(kind));
    }
}

/* is_released: 'lockstep release' lets it continue. */
static json_t *changes_json(const ls_why *why, uint64_t now_ms, bool is_released)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < why->change_count; i++) {
        const uint64_t starts_ms = why->changes[i].starts_ms;
        const double in_s = starts_ms > now_ms ? 1e-3 * (double)(starts_ms - now_ms) : 0.0;
        ls_text text = {0};
        if (why->changes[i].kind == LS_CHANGE_HELD && !is_released) {
            continue;
        }
        if (in_s > 0.0) {
            ls_text_printf(&text, "would start in %s ", ls_duration_of(in_s).text);
        } else {
            ls_text_append(&text, "would start now ");
        }
        append_change(&text, why->changes[i].kind, why->changes[i].value);
        json_array_append_new(list, json_pack("{s:s, s:I, s:f, s:s}", "change",
                                              ls_change_name(why->changes[i].kind), "value",
                                              (json_int_t)why->changes[i].value, "starts_in_s", in_s, "text",
                                              ls_text_string(&text)));
        ls_text_release(&text);
    }
    return list;
}

static const char *kept_text(ls_kept kept)
{
    return kept == LS_KEPT_UNSAVED ? "it can't save its state when it is stopped (job.restartable)"
           : kept == LS_KEPT_YOUNG ? "it has only just started"
           : kept == LS_KEPT_OFTEN ? "it was stopped too often lately"
                                   : NULL;
}

/* Names one job that ranks below this one and still keeps the devices it needs. */
static void append_kept(const ls_why *why, ls_text *text)
{
    for (uint32_t i = 0; i < why->blocker_count; i++) {
        const char *reason = kept_text(why->blockers[i].kept);
        if (reason) {
            ls_text_printf(text, "; job %" PRIu64 " ranks below it but is not stopped for it: %s",
                           why->blockers[i].job, reason);
            return;
        }
    }
}

static json_t *blockers_json(const ls_controller *c, const ls_caller *caller, const ls_why *why)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < why->blocker_count; i++) {
        const ls_entry *other = ls_controller_find(c, why->blockers[i].job);
        const uint64_t ends_ms = why->blockers[i].ends_ms;
        const char *source = other && ends_ms > 0 ? ls_foresight_source(other->job) : NULL;
        json_array_append_new(
            list, json_pack("{s:I, s:o, s:i, s:o, s:o, s:o}", "job", (json_int_t)why->blockers[i].job, "name",
                            ls_answers_name(c, caller, other ? other->job : NULL), "devices",
                            (int)why->blockers[i].devices, "ends_from", ls_answers_text(source), "ends",
                            ls_answers_time(1e-3 * (double)ends_ms), "kept",
                            ls_answers_text(kept_text(why->blockers[i].kept))));
    }
    return list;
}

static json_t *levels_json(const ls_why *why)
{
    json_t *levels = json_object();
    for (int level = 0; level < LS_LEVEL_COUNT; level++) {
        json_object_set_new(levels, ls_level_name((ls_level)level), json_integer(why->free_most[level]));
    }
    return levels;
}

static ls_answer why_from_policy(ls_controller *c, const ls_caller *caller, const ls_job *job)
{
    ls_why why;
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    if (ls_policy_why(c->policy, now_ms, job->id, &why) != LS_OK) {
        return ls_answer_error(LS_ERR_NOT_FOUND);
    }
    for (uint32_t i = 0; i < why.blocker_count; i++) {
        why.blockers[i].job &= ~LS_WITHHELD_BIT;
    }
    ls_text text = {0};
    append_sentence(c, job, &why, &text);
    append_kept(&why, &text);
    append_last(job, &text);
    json_t *factors = json_pack("{s:I, s:I, s:I, s:I, s:I}", "priority", (json_int_t)why.factors[0], "fair",
                                (json_int_t)why.factors[1], "age", (json_int_t)why.factors[2], "size",
                                (json_int_t)why.factors[3], "sum", (json_int_t)why.factor_sum);
    json_t *eta = why.eta_ms > 0 ? json_real(why.eta_ms > now_ms ? 1e-3 * (double)(why.eta_ms - now_ms) : 0.0)
                                 : json_null();
    bool is_latest = false; /* a young job may be stopped for it before its own end */
    for (uint32_t i = 0; i < why.blocker_count; i++) {
        is_latest = is_latest || why.blockers[i].kept == LS_KEPT_YOUNG;
    }
    json_t *answer = json_pack(
        "{s:I, s:s, s:s, s:i, s:i, s:s, s:o, s:i, s:i, s:o, s:o, s:o, s:b, s:b, s:o, s:s, s:s}", "job",
        (json_int_t)job->id, "state", ls_job_state_name(job->state), "stage",
        waits_for_resume(c, &why) ? "paused" : ls_why_stage_name(why.stage), "needed", (int)why.needed,
        "available", (int)why.available, "level", ls_level_name(why.level), "by_level", levels_json(&why),
        "rank", (int)why.rank, "pending", (int)why.pending, "factors", factors, "blockers",
        blockers_json(c, caller, &why), "eta_s", eta, "eta_is_reserved", (int)why.eta_is_reserved,
        "eta_is_latest", (int)is_latest, "counterfactuals",
        changes_json(&why, now_ms, !job->paused && !ls_job_hold_is_money(job->hold)), "text",
        ls_text_string(&text), "from", "policy");
    ls_text_release(&text);
    return (ls_answer){200, answer, 0};
}

/* The jobs that it waits for. */
static json_t *after_json(const ls_controller *c, const ls_caller *caller, const ls_job *job)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        const ls_entry *other = ls_controller_find(c, job->spec.after[i]);
        if (other && !ls_job_state_is_final(other->job->state)) {
            json_array_append_new(list, json_pack("{s:I, s:o, s:i, s:n}", "job", (json_int_t)other->job->id,
                                                  "name", ls_answers_name(c, caller, other->job), "devices",
                                                  (int)other->job->ranks, "ends"));
        }
    }
    return list;
}

/* The answer for a job that the policy does not hold back. */
typedef struct plain_answer {
    const char *stage, *text;
    const char *from; /* who says so: "queue", or the name of an engine that decides */
    json_t *blockers; /* NULL: none; taken over */
} plain_answer;

static ls_answer why_plain(const ls_controller *c, const ls_job *job, const ls_entry *entry,
                           const plain_answer *plain)
{
    const double starts_s = entry ? entry->starts_s : 0.0;
    json_t *eta = starts_s > 0.0 ? json_real(starts_s > c->time_s ? starts_s - c->time_s : 0.0) : json_null();
    return (ls_answer){
        200,
        json_pack("{s:I, s:s, s:s, s:i, s:n, s:o, s:o, s:[], s:o, s:s}", "job", (json_int_t)job->id, "state",
                  ls_job_state_name(job->state), "stage", plain->stage, "needed", (int)job->ranks,
                  "available", "blockers", plain->blockers ? plain->blockers : json_array(), "eta_s", eta,
                  "counterfactuals", "text", ls_answers_text(plain->text), "from", plain->from),
        0};
}

static ls_answer why_kept_back(const ls_controller *c, const ls_caller *caller, const ls_entry *entry)
{
    ls_text text = {0};
    append_kept_back(c, entry, &text);
    const plain_answer plain = {.stage = !c->decides && entry->stage ? entry->stage : "dependency",
                                .text = ls_text_string(&text),
                                .from = "queue",
                                .blockers = after_json(c, caller, entry->job)};
    const ls_answer answer = why_plain(c, entry->job, entry, &plain);
    ls_text_release(&text);
    return answer;
}

static ls_answer why_running(const ls_controller *c, const ls_entry *entry)
{
    const ls_job *job = entry->job;
    const double end_s = ls_foresight_end_s(job);
    ls_text text = {0};
    ls_text_append(&text, "it is not waiting");
    if (entry->idle_told) {
        ls_text_printf(&text, ", but its devices have been idle for %.0f s", c->time_s - entry->idle_since_s);
    } else if (job->text) {
        ls_text_printf(&text, ": %s", job->text);
    }
    if (end_s > c->time_s) {
        ls_text_printf(&text, "; it is expected to end in %s", ls_duration_of(end_s - c->time_s).text);
    }
    const plain_answer plain = {.stage = job->state == LS_JOB_STARTING ? "starting" : "running",
                                .text = ls_text_string(&text),
                                .from = "queue"};
    const ls_answer answer = why_plain(c, job, entry, &plain);
    ls_text_release(&text);
    return answer;
}

static ls_answer explain(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry)
{
    if (ls_job_state_is_final(job->state)) {
        return why_plain(c, job, entry,
                         &(plain_answer){"ended", job->text ? job->text : "it has ended", "queue", NULL});
    }
    if (is_kept_back(c, entry)) {
        return why_kept_back(c, caller, entry);
    }
    if (!ls_job_state_is_waiting(job->state)) {
        return why_running(c, entry);
    }
    if (c->decides) {
        if (job->held && job->text) { /* the engine does not know of a cap */
            return why_plain(c, job, entry, &(plain_answer){"hold", job->text, "queue", NULL});
        }
        const char *stage = job->held ? "hold" : entry->stage ? entry->stage : "priority";
        return why_plain(c, job, entry,
                         &(plain_answer){stage, entry->stage_text, c->engine->calls->name, NULL});
    }
    return why_from_policy(c, caller, job);
}

ls_answer ls_answers_why(ls_controller *c, const ls_caller *caller, const ls_job *job, ls_entry *entry)
{
    const ls_answer answer = explain(c, caller, job, entry);
    if (answer.status == 200 && ls_job_state_is_waiting(job->state)) {
        json_object_set_new(answer.json, "estimate", ls_money_estimate(c, job));
    }
    return answer;
}
