// SPDX-License-Identifier: Apache-2.0
/* What is asked to be changed: who may, whether it can be, and what follows. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const verb_names[LS_VERBS] = {
    [LS_VERB_SUBMIT] = "submit",     [LS_VERB_SWEEP] = "sweep",       [LS_VERB_LIST] = "list",
    [LS_VERB_SHOW] = "show",         [LS_VERB_WHY] = "why",           [LS_VERB_EVENTS] = "events",
    [LS_VERB_CANCEL] = "cancel",     [LS_VERB_HOLD] = "hold",         [LS_VERB_RELEASE] = "release",
    [LS_VERB_RESIZE] = "resize",     [LS_VERB_PRIORITY] = "priority", [LS_VERB_NODES] = "nodes",
    [LS_VERB_ACCOUNTS] = "accounts", [LS_VERB_ACCOUNT] = "account",   [LS_VERB_USAGE] = "usage",
    [LS_VERB_STATUS] = "status",     [LS_VERB_DOWN] = "down",
};

const char *ls_verb_name(ls_verb verb)
{
    LS_ASSERT((unsigned)verb < LS_VERBS);
    return verb_names[verb];
}

/* ---- answers ---- */

ls_answer ls_answer_fail(int status, const char *format, ...)
{
    ls_text text = {0};
    va_list args;
    va_start(args, format);
    ls_text_vprintf(&text, format, args);
    va_end(args);
    json_t *error = json_string(ls_text_string(&text));
    ls_text_release(&text);
    return (ls_answer){.status = status,
                       .json = json_pack("{s:o}", "error", error ? error : json_string("(not printable)"))};
}

ls_answer ls_answer_error(ls_status status)
{
    return ls_answer_fail(status == LS_ERR_NOT_FOUND ? 404
                          : status == LS_ERR_MEMORY  ? 503
                                                     : 400,
                          "%s", ls_error_text());
}

static ls_answer state_of(const ls_job *job)
{
    return (ls_answer){
        200, json_pack("{s:I, s:s}", "job", (json_int_t)job->id, "state", ls_job_state_name(job->state)), 0};
}

/* ---- finding ---- */

typedef struct target {
    ls_entry *entry;
    ls_job *job;
    ls_job *old; /* to be destroyed */
    ls_answer refusal;
} target;

static uint64_t number_of(const json_t *arguments, const char *key)
{
    const json_t *value = json_object_get(arguments, key);
    return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

/* The job that is meant, if the caller may see it. */
static bool find(ls_controller *c, const ls_caller *caller, const json_t *arguments, target *target_out)
{
    const uint64_t id = number_of(arguments, "job");
    target found = {.entry = id ? ls_controller_find(c, id) : NULL};
    if (!id) {
        target_out->refusal = ls_answer_fail(400, "which job? Its number is missing");
        return false;
    }
    found.old = found.entry ? NULL : c->calls.old_job(c->calls.context, id);
    found.job = found.entry ? found.entry->job : found.old;
    if (!found.job) {
        target_out->refusal = ls_answer_fail(404, "there is no job %" PRIu64, id);
        return false;
    }
    if (!ls_job_is_open_to(found.job, caller->uid, caller->user, caller->is_admin)) {
        ls_job_destroy(found.old);
        target_out->refusal =
            ls_answer_fail(403, "job %" PRIu64 " is another user's, who has not shared it (job.share)", id);
        return false;
    }
    *target_out = found;
    return true;
}

/* ---- cancel, hold, release ---- */

static ls_answer has_ended(const ls_job *job)
{
    return ls_answer_fail(409, "job %" PRIu64 " has ended already: %s", job->id,
                          ls_job_state_name(job->state));
}

static ls_answer verb_cancel(ls_controller *c, const ls_caller *caller, ls_entry *entry)
{
    ls_job *job = entry->job;
    const char *who = ls_arena_printf(&c->arena, "cancelled by %s", caller->user);
    if (ls_job_state_is_waiting(job->state) && !job->handed_over) {
        job->cancelled = true;
        ls_transitions_end(c, entry, LS_JOB_CANCELLED, LS_CAUSE_USER, who);
    } else if (job->state == LS_JOB_STOPPING && job->cancelled) {
        ls_controller_order(c, LS_DO_KILL, entry); /* asked twice: no more grace */
    } else if (job->state == LS_JOB_RECOVERING) {
        job->cancelled = true; /* what is left of it is being ended already */
        ls_controller_move(c, entry, LS_JOB_RECOVERING, LS_CAUSE_USER, who);
    } else {
        job->cancelled = true;
        ls_transitions_stop(c, entry, LS_JOB_STOPPING, LS_CAUSE_USER, who);
    }
    return state_of(job);
}

static ls_answer verb_hold(ls_controller *c, const ls_caller *caller, ls_entry *entry)
{
    ls_job *job = entry->job;
    if (job->held) {
        return state_of(job);
    }
    if (job->state == LS_JOB_STOPPING) {
        return ls_answer_fail(409, "job %" PRIu64 " is being ended", job->id);
    }
    if (!ls_job_state_is_waiting(job->state) && !job->spec.restartable) {
        return ls_answer_fail(409,
                              "job %" PRIu64
                              " runs, and could not go on where it was (job.restartable); cancel it instead",
                              job->id);
    }
    const char *who = ls_arena_printf(&c->arena, "held by %s", caller->user);
    job->held = true;
    if (job->state == LS_JOB_QUEUED) {
        ls_usage_settle_waiting(c, entry);
        ls_controller_move(c, entry, LS_JOB_HELD, LS_CAUSE_USER, who);
        if (c->decides) {
            ls_controller_order(c, LS_DO_CHANGE, entry);
        } else if (entry->in_policy) {
            LS_ASSERT(ls_policy_hold(c->policy, ls_controller_ms(c->time_s), job->id, true) == LS_OK);
        }
    } else if (job->state == LS_JOB_PREEMPTING || job->state == LS_JOB_RECOVERING) {
        ls_controller_touch(c, entry);
    } else {
        ls_transitions_stop(c, entry, LS_JOB_PREEMPTING, LS_CAUSE_USER, who);
    }
    return state_of(job);
}

static ls_answer verb_release(ls_controller *c, ls_entry *entry)
{
    ls_job *job = entry->job;
    if (!job->held) {
        if (job->state == LS_JOB_QUEUED && job->handed_over) { /* it may be held there */
            ls_controller_order(c, LS_DO_CHANGE, entry);
            return state_of(job);
        }
        return ls_answer_fail(409, "job %" PRIu64 " is not held, it is %s: there is nothing to release",
                              job->id, ls_job_state_name(job->state));
    }
    job->held = false;
    if (job->state == LS_JOB_HELD) {
        job->queued_s = c->time_s;
        ls_controller_move(c, entry, LS_JOB_QUEUED, LS_CAUSE_USER, NULL);
        if (c->decides && job->handed_over) {
            ls_controller_order(c, LS_DO_CHANGE, entry);
        } else if (c->decides) {
            ls_transitions_hand_over(c, entry);
        } else if (entry->in_policy) {
            LS_ASSERT(ls_policy_hold(c->policy, ls_controller_ms(c->time_s), job->id, false) == LS_OK);
        }
    } else {
        ls_controller_touch(c, entry);
    }
    return state_of(job);
}

/* ---- resize, priority ---- */

static ls_answer verb_resize(ls_controller *c, ls_entry *entry, const json_t *arguments)
{
    ls_job *job = entry->job;
    const uint64_t ranks = number_of(arguments, "ranks");
    if (ranks < 1 || ranks > LS_JOB_RANKS_MAX) {
        return ls_answer_fail(400, "ranks is to be a whole number from 1 to %d", LS_JOB_RANKS_MAX);
    }
    if (job->spec.leaves > 0 && ranks > job->spec.leaves) {
        return ls_answer_fail(400, "%" PRIu64 " ranks, but a step of job %" PRIu64 " has only %u leaves",
                              ranks, job->id, job->spec.leaves);
    }
    if (c->decides) {
        return ls_answer_fail(
            409, "the engine decides about the size of jobs; cancel job %" PRIu64 " and submit it anew",
            job->id);
    }
    const bool waits = ls_job_state_is_waiting(job->state);
    if (!waits && job->state != LS_JOB_RUNNING) {
        return ls_answer_fail(409, "job %" PRIu64 " is %s; it can be resized while it waits or runs", job->id,
                              ls_job_state_name(job->state));
    }
    if (!waits && job->spec.min_ranks == job->spec.max_ranks) {
        return ls_answer_fail(
            409, "job %" PRIu64 " is not elastic (job.elastic), and can only be resized while it waits",
            job->id);
    }
    const ls_status status =
        entry->in_policy || !waits
            ? ls_policy_change(c->policy, ls_controller_ms(c->time_s), job->id, LS_CHANGE_RANKS, ranks)
            : LS_OK; /* set aside: tried with the next turn */
    if (status != LS_OK) {
        return ls_answer_error(status);
    }
    if (job->state == LS_JOB_QUEUED) {
        ls_usage_settle_waiting(c, entry);
        job->queued_s = c->time_s;
    }
    job->ranks = (uint32_t)ranks;
    ls_controller_touch(c, entry);
    return state_of(job);
}

static ls_answer verb_priority(ls_controller *c, const ls_caller *caller, ls_entry *entry,
                               const json_t *arguments)
{
    static const char *const names[] = {"low", "normal", "high"};
    const char *name = json_string_value(json_object_get(arguments, "priority"));
    ls_job *job = entry->job;
    int priority = 0;
    while (name && priority < 3 && strcmp(names[priority], name) != 0) {
        priority++;
    }
    if (!name || priority == 3) {
        return ls_answer_fail(400, "priority is one of low, normal, high");
    }
    ls_answer refusal;
    if (priority > (int)job->priority &&
        !ls_accounts_allow_priority(c, caller, job->account, (ls_priority)priority, &refusal)) {
        return refusal;
    }
    if (entry->in_policy && ls_policy_change(c->policy, ls_controller_ms(c->time_s), job->id,
                                             LS_CHANGE_PRIORITY, (uint64_t)priority) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    job->priority = (ls_priority)priority;
    ls_controller_touch(c, entry);
    if (c->decides && job->handed_over) {
        ls_controller_order(c, LS_DO_CHANGE, entry);
    }
    return state_of(job);
}

/* ---- down ---- */

static ls_answer verb_down(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    bool cancels = false;
    if (!ls_caller_is_admin(caller)) {
        return ls_answer_fail(403, "the queue is ended by who runs it");
    }
    if (ls_json_get_bool(arguments, "down", "cancel", false, &cancels) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    c->is_going_down = true;
    c->cancels_all = cancels;
    uint32_t left = 0;
    for (uint32_t i = 0; i < c->entry_count; i++) {
        ls_job *job = c->entries[i]->job;
        if (ls_job_state_is_final(job->state)) {
            continue;
        }
        left++;
        if (cancels && !job->cancelled) {
            json_decref(verb_cancel(c, caller, c->entries[i]).json);
        }
    }
    return (ls_answer){202, json_pack("{s:i, s:b}", "jobs", (int)left, "cancel", cancels), 0};
}

/* ---- events ---- */

static ls_answer verb_events(ls_controller *c, const ls_job *job, const json_t *arguments)
{
    uint64_t after = 0, limit = 1000;
    if (ls_json_get_u64(arguments, "events", "after", 0, INT64_MAX, 0, &after) != LS_OK ||
        ls_json_get_u64(arguments, "events", "limit", 1, 10000, 1000, &limit) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    json_t *events = c->calls.journal(c->calls.context, job->id, after, (uint32_t)limit);
    if (!events) {
        return ls_answer_fail(500, "the journal can't be read: %s", ls_error_text());
    }
    return (ls_answer){200, json_pack("{s:I, s:o}", "job", (json_int_t)job->id, "events", events), 0};
}

/* ---- all ---- */

static ls_answer change_job(ls_controller *c, const ls_caller *caller, ls_verb verb, const target *found,
                            const json_t *arguments)
{
    if (ls_job_state_is_final(found->job->state)) {
        return has_ended(found->job);
    }
    switch (verb) {
    case LS_VERB_CANCEL:
        return verb_cancel(c, caller, found->entry);
    case LS_VERB_HOLD:
        return verb_hold(c, caller, found->entry);
    case LS_VERB_RELEASE:
        return verb_release(c, found->entry);
    case LS_VERB_RESIZE:
        return verb_resize(c, found->entry, arguments);
    default:
        return verb_priority(c, caller, found->entry, arguments);
    }
}

static ls_answer job_answer(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments)
{
    target found = {0};
    if (!find(c, caller, arguments, &found)) {
        return found.refusal;
    }
    ls_answer answer;
    if (verb == LS_VERB_SHOW) {
        answer = ls_answers_show(c, caller, found.job, found.entry);
    } else if (verb == LS_VERB_WHY) {
        answer = ls_answers_why(c, caller, found.job, found.entry);
    } else if (verb == LS_VERB_EVENTS) {
        answer = verb_events(c, found.job, arguments);
    } else {
        answer = change_job(c, caller, verb, &found, arguments);
    }
    ls_job_destroy(found.old);
    return answer;
}

ls_answer ls_verbs_answer(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments)
{
    if (arguments && !json_is_object(arguments)) {
        return ls_answer_fail(400, "%s takes a JSON object", ls_verb_name(verb));
    }
    switch (verb) {
    case LS_VERB_SUBMIT:
        return ls_submit_job(c, caller, arguments);
    case LS_VERB_SWEEP:
        return ls_submit_sweep(c, caller, arguments);
    case LS_VERB_LIST:
        return ls_answers_list(c, caller, arguments);
    case LS_VERB_NODES:
        return ls_answers_nodes(c, caller);
    case LS_VERB_ACCOUNTS:
        return ls_answers_accounts(c, caller);
    case LS_VERB_ACCOUNT:
        return ls_accounts_change(c, caller, arguments);
    case LS_VERB_USAGE:
        return ls_answers_usage(c);
    case LS_VERB_STATUS:
        return (ls_answer){200, ls_controller_status(c), 0};
    case LS_VERB_DOWN:
        return verb_down(c, caller, arguments);
    default:
        return job_answer(c, caller, verb, arguments);
    }
}
