// SPDX-License-Identifier: Apache-2.0
/* Calls that change something: who may call, whether it is possible, and what follows. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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
    ls_entry *entry; /* NULL: the job ended long ago and is no longer in memory */
    ls_job *job;
    ls_job *old; /* read from the store: to be destroyed */
    ls_answer refusal;
} target;

static uint64_t number_of(const json_t *arguments, const char *key)
{
    const json_t *value = json_object_get(arguments, key);
    return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

/* The job that the arguments name. false: there is none, or the caller may not see it (refusal). */
static bool find(ls_controller *c, const ls_caller *caller, const json_t *arguments, target *target_out)
{
    const uint64_t id = number_of(arguments, "job");
    target found = {.entry = id ? ls_controller_find(c, id) : NULL};
    if (!id) {
        target_out->refusal = ls_answer_fail(400, "the number of the job is missing");
        return false;
    }
    found.old = found.entry ? NULL : c->calls.old_job(c->calls.context, id);
    found.job = found.entry ? found.entry->job : found.old;
    if (!found.job) {
        target_out->refusal = ls_answer_fail(404, "job %" PRIu64 " does not exist", id);
        return false;
    }
    if (!ls_job_is_open_to(found.job, caller->uid, caller->user, caller->is_admin)) {
        ls_job_destroy(found.old);
        target_out->refusal = ls_answer_fail(
            403, "job %" PRIu64 " belongs to another user, who has not shared it (job.share)", id);
        return false;
    }
    *target_out = found;
    return true;
}

/* ---- cancel, hold, release ---- */

static ls_answer has_ended(const ls_job *job)
{
    return ls_answer_fail(409, "job %" PRIu64 " has already ended: %s", job->id,
                          ls_job_state_name(job->state));
}

static ls_answer verb_cancel(ls_controller *c, const ls_caller *caller, ls_entry *entry,
                             const json_t *arguments)
{
    (void)arguments;
    ls_job *job = entry->job;
    const char *who = ls_arena_printf(&c->arena, "cancelled by %s", caller->user);
    if (ls_job_state_is_waiting(job->state) && !job->handed_over) {
        job->cancelled = true;
        ls_transitions_end(c, entry, LS_JOB_CANCELLED, LS_CAUSE_USER, who);
    } else if (job->state == LS_JOB_STOPPING && job->cancelled) {
        ls_controller_order(c, LS_DO_KILL, entry); /* asked a second time: end the grace period */
    } else if (job->state == LS_JOB_RECOVERING) {
        job->cancelled = true; /* its remaining processes are being ended already */
        ls_controller_move(c, entry, LS_JOB_RECOVERING, LS_CAUSE_USER, who);
    } else {
        job->cancelled = true;
        ls_transitions_stop(c, entry, LS_JOB_STOPPING, LS_CAUSE_USER, who);
    }
    return state_of(job);
}

static ls_answer verb_hold(ls_controller *c, const ls_caller *caller, ls_entry *entry,
                           const json_t *arguments)
{
    (void)arguments;
    ls_job *job = entry->job;
    if (job->held) {
        return state_of(job);
    }
    if (job->paused) { /* it has no devices, and waits for its sweep */
        job->held = true;
        ls_controller_note(c, entry, LS_CAUSE_USER, ls_arena_printf(&c->arena, "held by %s", caller->user));
        return state_of(job);
    }
    if (job->state == LS_JOB_STOPPING) {
        return ls_answer_fail(409, "job %" PRIu64 " is being ended", job->id);
    }
    if (!ls_job_state_is_waiting(job->state) && !job->spec.restartable) {
        return ls_answer_fail(
            409,
            "job %" PRIu64 " runs and could not continue later (job.restartable is false); cancel it instead",
            job->id);
    }
    ls_transitions_hold(c, entry, LS_HOLD_USER, ls_arena_printf(&c->arena, "held by %s", caller->user));
    return state_of(job);
}

static ls_answer verb_release(ls_controller *c, const ls_caller *caller, ls_entry *entry,
                              const json_t *arguments)
{
    (void)caller, (void)arguments;
    ls_job *job = entry->job;
    if (job->paused && !job->held) {
        return ls_answer_fail(409,
                              "job %" PRIu64
                              " is not held by a user: its sweep has paused it, and lets it go "
                              "on if it is among the best ('lockstep sweep show %" PRIu64 "')",
                              job->id, job->id);
    }
    if (!job->held) {
        if (job->state == LS_JOB_QUEUED && job->handed_over) { /* the engine may hold it */
            ls_controller_order(c, LS_DO_CHANGE, entry);
            return state_of(job);
        }
        return ls_answer_fail(409, "job %" PRIu64 " is not held but %s: there is nothing to release", job->id,
                              ls_job_state_name(job->state));
    }
    if (ls_job_hold_is_money(job->hold)) {
        return ls_answer_fail(409, "job %" PRIu64 " was %s", job->id,
                              ls_money_hold_text(c, entry, job->hold));
    }
    ls_transitions_release(c, entry);
    return state_of(job);
}

/* ---- resize, priority ---- */

/* What a resize asks for; 0: unchanged. */
typedef struct size {
    uint64_t ranks, max_ranks;
} size;

static bool may_resize(const ls_controller *c, const ls_job *job, const size *wanted, ls_answer *refusal_out)
{
    const uint64_t most = wanted->ranks > wanted->max_ranks ? wanted->ranks : wanted->max_ranks;
    const bool waits = ls_job_state_is_waiting(job->state);
    const bool is_elastic = job->spec.min_ranks < job->spec.max_ranks;
    if (most < 1 || most > LS_JOB_RANKS_MAX) {
        *refusal_out = ls_answer_fail(
            400, "give \"ranks\", \"max_ranks\" or both: whole numbers from 1 to %d", LS_JOB_RANKS_MAX);
    } else if (wanted->max_ranks > 0 && wanted->ranks > wanted->max_ranks) {
        *refusal_out = ls_answer_fail(400, "ranks is %" PRIu64 ", but max_ranks is only %" PRIu64,
                                      wanted->ranks, wanted->max_ranks);
    } else if (job->spec.leaves > 0 && most > job->spec.leaves) {
        *refusal_out = ls_answer_fail(400,
                                      "%" PRIu64 " ranks are too many: a step of job %" PRIu64
                                      " has only %u leaves (train.leaves), and each rank needs at least one",
                                      most, job->id, job->spec.leaves);
    } else if (c->decides) {
        *refusal_out = ls_answer_fail(
            409, "the engine of this queue cannot resize jobs; cancel job %" PRIu64 " and submit it again",
            job->id);
    } else if (!waits && job->state != LS_JOB_RUNNING) {
        *refusal_out =
            ls_answer_fail(409, "job %" PRIu64 " is %s; a job can be resized while it waits or runs", job->id,
                           ls_job_state_name(job->state));
    } else if (!is_elastic && wanted->max_ranks > 0) {
        *refusal_out = ls_answer_fail(
            409,
            "job %" PRIu64 " is not elastic (job.elastic): it keeps its ranks, and max_ranks has no effect",
            job->id);
    } else if (!waits && !is_elastic) {
        *refusal_out = ls_answer_fail(
            409, "job %" PRIu64 " is not elastic (job.elastic) and can only be resized while it waits",
            job->id);
    } else {
        return true;
    }
    return false;
}

/* The least of the two first: a maximum below min_ranks is then possible with ranks below it. */
static ls_status tell_size(ls_controller *c, uint64_t id, const size *wanted)
{
    const uint64_t now_ms = ls_controller_ms(c->time_s);
    if (wanted->ranks > 0) {
        LS_TRY(ls_policy_change(c->policy, now_ms, id, LS_CHANGE_RANKS, wanted->ranks));
    }
    return wanted->max_ranks > 0
               ? ls_policy_change(c->policy, now_ms, id, LS_CHANGE_MAX_RANKS, wanted->max_ranks)
               : LS_OK;
}

static void take_size(ls_job *job, const size *wanted)
{
    const uint32_t ranks = wanted->ranks > 0 ? (uint32_t)wanted->ranks : job->ranks;
    if (wanted->max_ranks > 0) {
        job->ranks_max = (uint32_t)wanted->max_ranks;
    } else if (job->ranks_max > 0 && ranks > job->ranks_max) {
        job->ranks_max = ranks;
    }
    job->ranks = job->ranks_max > 0 && ranks > job->ranks_max ? job->ranks_max : ranks;
}

/* The answer to a resize: what will happen, in numbers and in words. */
static ls_answer size_of(const ls_job *job)
{
    const uint32_t now = job->ranks_now, max = ls_job_ranks_max(job);
    ls_text text = {0};
    if (now == 0) {
        ls_text_printf(&text, "it will start with up to %u rank%s", job->ranks, job->ranks == 1 ? "" : "s");
    } else if (now == job->ranks) {
        ls_text_printf(&text, "it has %u rank%s", now, now == 1 ? "" : "s");
    } else {
        ls_text_printf(&text, "it has %u rank%s and changes to %u%s", now, now == 1 ? "" : "s", job->ranks,
                       now < job->ranks ? " as soon as there are devices for that" : "");
    }
    if (max > job->ranks) {
        ls_text_printf(
            &text, "; it may grow to %u while devices are idle, unless its maximum is lowered (max_ranks)",
            max);
    }
    json_t *answer =
        json_pack("{s:I, s:s, s:i, s:i, s:i, s:i, s:s}", "job", (json_int_t)job->id, "state",
                  ls_job_state_name(job->state), "ranks", (int)job->ranks, "ranks_now", (int)now, "min_ranks",
                  (int)ls_job_ranks_min(job), "max_ranks", (int)max, "text", ls_text_string(&text));
    ls_text_release(&text);
    return (ls_answer){200, answer, 0};
}

static ls_answer verb_resize(ls_controller *c, const ls_caller *caller, ls_entry *entry,
                             const json_t *arguments)
{
    ls_job *job = entry->job;
    const size wanted = {number_of(arguments, "ranks"), number_of(arguments, "max_ranks")};
    ls_answer refusal;
    if (!may_resize(c, job, &wanted, &refusal)) {
        return refusal;
    }
    /* set aside: the next turn tries it */
    const bool is_known = entry->in_policy || !ls_job_state_is_waiting(job->state);
    if (is_known && tell_size(c, job->id, &wanted) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    if (job->state == LS_JOB_QUEUED) {
        ls_usage_settle_waiting(c, entry);
        job->queued_s = c->time_s;
    }
    take_size(job, &wanted);
    ls_controller_note(c, entry, LS_CAUSE_USER,
                       ls_arena_printf(&c->arena, "resized by %s: %u rank%s wanted, at most %u", caller->user,
                                       job->ranks, job->ranks == 1 ? "" : "s", ls_job_ranks_max(job)));
    return size_of(job);
}

static ls_answer verb_priority(ls_controller *c, const ls_caller *caller, ls_entry *entry,
                               const json_t *arguments)
{
    const char *name = json_string_value(json_object_get(arguments, "priority"));
    ls_job *job = entry->job;
    ls_priority priority = LS_PRIORITY_NORMAL;
    if (!ls_priority_parse(name, &priority)) {
        return ls_answer_fail(400, "priority must be low, normal or high");
    }
    ls_answer refusal;
    if (priority > job->priority &&
        !ls_accounts_allow_priority(c, caller, job->account, priority, &refusal)) {
        return refusal;
    }
    if (entry->in_policy && ls_policy_change(c->policy, ls_controller_ms(c->time_s), job->id,
                                             LS_CHANGE_PRIORITY, (uint64_t)priority) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    job->priority = priority;
    ls_controller_touch(c, entry);
    if (c->decides && job->handed_over) {
        ls_controller_order(c, LS_DO_CHANGE, entry);
    }
    return state_of(job);
}

/* ---- reload, down ---- */

/* The owner has read its settings already; this is the answer, in the order of the queue. */
static ls_answer verb_reload(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    const char *error = json_string_value(json_object_get(arguments, "error"));
    (void)c;
    if (!ls_caller_is_admin(caller)) {
        return ls_answer_fail(403, "only an administrator can make the queue read its settings again");
    }
    return error ? ls_answer_fail(400, "%s. The settings are as they were", error)
                 : (ls_answer){200, json_deep_copy(arguments), 0};
}

static ls_answer verb_down(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    bool cancels = false;
    if (!ls_caller_is_admin(caller)) {
        return ls_answer_fail(403, "only an administrator can stop the queue");
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
            json_decref(verb_cancel(c, caller, c->entries[i], NULL).json);
        }
    }
    return (ls_answer){202, json_pack("{s:i, s:b}", "jobs", (int)left, "cancel", cancels), 0};
}

/* ---- events ---- */

static ls_answer verb_events(ls_controller *c, const ls_caller *caller, const target *found,
                             const json_t *arguments)
{
    (void)caller;
    uint64_t after = 0, limit = 1000;
    if (ls_json_get_u64(arguments, "events", "after", 0, INT64_MAX, 0, &after) != LS_OK ||
        ls_json_get_u64(arguments, "events", "limit", 1, 10000, 1000, &limit) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    json_t *events = c->calls.journal(c->calls.context, found->job->id, after, (uint32_t)limit);
    if (!events) {
        return ls_answer_fail(500, "cannot read the history of the job: %s", ls_error_text());
    }
    return (ls_answer){200, json_pack("{s:I, s:o}", "job", (json_int_t)found->job->id, "events", events), 0};
}

/* ---- the table ---- */

static ls_answer verb_show(ls_controller *c, const ls_caller *caller, const target *found,
                           const json_t *arguments)
{
    (void)arguments;
    return ls_answers_show(c, caller, found->job, found->entry);
}

static ls_answer verb_why(ls_controller *c, const ls_caller *caller, const target *found,
                          const json_t *arguments)
{
    (void)arguments;
    return ls_answers_why(c, caller, found->job, found->entry);
}

static ls_answer verb_sweep_of(ls_controller *c, const ls_caller *caller, const target *found,
                               const json_t *arguments)
{
    (void)caller, (void)arguments;
    return ls_answers_sweep(c, found->job);
}

/*
 * A verb is about the whole queue, looks at one job (which may have ended, and left memory), or
 * changes one job that has not ended. Exactly one of the three is set.
 */
static const struct {
    const char *name;
    ls_answer (*queue)(ls_controller *c, const ls_caller *caller, const json_t *arguments);
    ls_answer (*look)(ls_controller *c, const ls_caller *caller, const target *found,
                      const json_t *arguments);
    ls_answer (*change)(ls_controller *c, const ls_caller *caller, ls_entry *entry, const json_t *arguments);
} verbs[LS_VERBS] = {
    [LS_VERB_SUBMIT] = {"submit", .queue = ls_submit_job},
    [LS_VERB_SWEEP] = {"sweep", .queue = ls_submit_sweep},
    [LS_VERB_LIST] = {"list", .queue = ls_answers_list},
    [LS_VERB_SWEEPS] = {"sweeps", .queue = ls_answers_sweeps},
    [LS_VERB_SWEEP_OF] = {"sweep_of", .look = verb_sweep_of},
    [LS_VERB_SHOW] = {"show", .look = verb_show},
    [LS_VERB_WHY] = {"why", .look = verb_why},
    [LS_VERB_EVENTS] = {"events", .look = verb_events},
    [LS_VERB_CANCEL] = {"cancel", .change = verb_cancel},
    [LS_VERB_HOLD] = {"hold", .change = verb_hold},
    [LS_VERB_RELEASE] = {"release", .change = verb_release},
    [LS_VERB_RESIZE] = {"resize", .change = verb_resize},
    [LS_VERB_PRIORITY] = {"priority", .change = verb_priority},
    [LS_VERB_CHANGE] = {"change", .change = ls_change_job},
    [LS_VERB_PAUSE] = {"pause", .queue = ls_upkeep_pause},
    [LS_VERB_RESUME] = {"resume", .queue = ls_upkeep_resume},
    [LS_VERB_DRAIN] = {"drain", .queue = ls_upkeep_drain},
    [LS_VERB_UNDRAIN] = {"undrain", .queue = ls_upkeep_undrain},
    [LS_VERB_MAINTAIN] = {"maintain", .queue = ls_upkeep_reserve},
    [LS_VERB_MAINTAIN_NOT] = {"maintain_not", .queue = ls_upkeep_unreserve},
    [LS_VERB_NODES] = {"nodes", .queue = ls_answers_nodes},
    [LS_VERB_ACCOUNTS] = {"accounts", .queue = ls_answers_accounts},
    [LS_VERB_ACCOUNT] = {"account", .queue = ls_accounts_change},
    [LS_VERB_USAGE] = {"usage", .queue = ls_answers_usage},
    [LS_VERB_ALERTS] = {"alerts", .queue = ls_alerts_answer},
    [LS_VERB_STATUS] = {"status", .queue = ls_answers_status},
    [LS_VERB_RELOAD] = {"reload", .queue = verb_reload},
    [LS_VERB_DOWN] = {"down", .queue = verb_down},
};

static ls_answer job_answer(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments)
{
    target found = {0};
    if (!find(c, caller, arguments, &found)) {
        return found.refusal;
    }
    const ls_answer answer = verbs[verb].look ? verbs[verb].look(c, caller, &found, arguments)
                             : ls_job_state_is_final(found.job->state)
                                 ? has_ended(found.job)
                                 : verbs[verb].change(c, caller, found.entry, arguments);
    ls_job_destroy(found.old);
    return answer;
}

ls_answer ls_verbs_answer(ls_controller *c, const ls_caller *caller, ls_verb verb, const json_t *arguments)
{
    LS_ASSERT((unsigned)verb < LS_VERBS);
    if (arguments && !json_is_object(arguments)) {
        return ls_answer_fail(400, "request \"%s\" needs a JSON object", verbs[verb].name);
    }
    return verbs[verb].queue ? verbs[verb].queue(c, caller, arguments)
                             : job_answer(c, caller, verb, arguments);
}
