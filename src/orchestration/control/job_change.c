// SPDX-License-Identifier: Apache-2.0
/*
 * Changes the terms of a waiting job: its time limit, its account, and what it waits for. Its cap
 * may change at any time; a run that goes by the old one ends there and continues by the new one.
 *
 * The terms are part of the request, so a change makes another request, parsed and checked as a new
 * one is, and the job takes it over. The store and a restart need to know nothing of it.
 */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct change {
    const json_t *time_limit_s, *account, *after, *priority, *max_cost; /* NULL: unchanged */
} change;

/* ---- the new request ---- */

/* "KEY=VALUE". What was set for the key before goes, so that a request does not grow with the
 * number of changes. */
static void set_override(json_t *request, const char *text)
{
    json_t *set = json_object_get(request, "set");
    const size_t key_bytes = strcspn(text, "=") + 1;
    if (!json_is_array(set)) {
        set = json_array();
        json_object_set_new(request, "set", set);
    }
    for (size_t i = json_array_size(set); i-- > 0;) {
        const char *one = json_string_value(json_array_get(set, i));
        if (one && strncmp(one, text, key_bytes) == 0) {
            json_array_remove(set, i);
        }
    }
    json_array_append_new(set, json_string(text));
}

static json_t *request_with(const ls_job *job, const change *wanted)
{
    json_t *request = json_deep_copy(job->request);
    char text[64];
    if (wanted->time_limit_s) {
        snprintf(text, sizeof text, "job.time_limit=%.12gs", json_number_value(wanted->time_limit_s));
        set_override(request, text);
    }
    if (json_is_number(wanted->max_cost)) {
        snprintf(text, sizeof text, "job.max_cost=%.12g", json_number_value(wanted->max_cost));
        set_override(request, text);
    } else if (wanted->max_cost) {
        set_override(request, "job.max_cost=auto");
    }
    if (wanted->account) {
        json_object_set_new(request, "account", json_deep_copy(wanted->account));
    }
    if (wanted->after) {
        set_override(request, "job.after=[]");
        json_object_set_new(request, "after", json_deep_copy(wanted->after));
    }
    return request;
}

/* Jobs come to the policy by number, so what a job waits for must have a lower one. That also keeps
 * jobs from waiting for each other. */
static ls_status check_order(const ls_job *trial)
{
    for (uint32_t i = 0; i < trial->spec.after_count; i++) {
        if (trial->spec.after[i] >= trial->id) {
            return ls_fail(LS_ERR_INVALID,
                           "job %" PRIu64 " cannot wait for job %" PRIu64
                           ": a job waits only for jobs that were submitted before it",
                           trial->id, trial->spec.after[i]);
        }
    }
    return LS_OK;
}

static ls_status check_after(ls_controller *c, const ls_job *trial)
{
    uint64_t after[LS_JOB_AFTER_MAX], doomed = 0;
    LS_TRY(check_order(trial));
    LS_TRY(ls_submit_check_after(c, trial));
    ls_queue_after(c, trial, after, &doomed);
    return doomed == 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "job %" PRIu64 " did not succeed, so a job that waits for it would never start",
                         doomed);
}

/* The job as it would be; its account is allowed to the job's user. NULL: refusal_out. */
static ls_job *make_trial(ls_controller *c, const ls_caller *caller, const ls_job *job, const change *wanted,
                          ls_account_entry **account_out, ls_answer *refusal_out)
{
    ls_job *trial = NULL;
    const ls_caller owner = {
        .uid = job->uid, .gid = job->gid, .user = job->user, .is_admin = ls_caller_is_admin(caller)};
    if (ls_job_create(job->id, request_with(job, wanted), &trial) != LS_OK) {
        *refusal_out = ls_answer_error(LS_ERR_INVALID);
        return NULL;
    }
    trial->priority = job->priority;
    if (wanted->priority) {
        (void)ls_priority_parse(json_string_value(wanted->priority), &trial->priority);
    }
    const bool needs_price = json_is_number(wanted->max_cost);
    if ((wanted->after && check_after(c, trial) != LS_OK) ||
        (needs_price && ls_money_is_known(c, "job.max_cost") != LS_OK)) {
        *refusal_out = ls_answer_error(LS_ERR_INVALID);
    } else if (!wanted->account) {
        ls_job_set_account(trial, job->account);
        if (trial->priority <= job->priority ||
            ls_accounts_allow_priority(c, caller, job->account, trial->priority, refusal_out)) {
            return trial;
        }
    } else if (ls_accounts_admit(c, &owner, trial, account_out, refusal_out)) {
        return trial;
    }
    ls_job_destroy(trial);
    return NULL;
}

/* ---- taking effect ---- */

static ls_status tell_policy(ls_controller *c, const ls_entry *entry, const change *wanted,
                             const ls_job *trial)
{
    const uint64_t now_ms = ls_controller_ms(c->time_s), id = trial->id;
    uint64_t after[LS_JOB_AFTER_MAX], doomed = 0;
    if (!c->policy || !entry->in_policy) {
        return LS_OK; /* the next turn tries to add it as it is then */
    }
    if (wanted->account) {
        LS_TRY(ls_policy_change(c->policy, now_ms, id, LS_CHANGE_ACCOUNT, ls_queue_account_index(c, trial)));
    }
    if (wanted->after) {
        const uint32_t count = ls_queue_after(c, trial, after, &doomed);
        LS_TRY(ls_policy_depend(c->policy, now_ms, id, after, count, trial->spec.after_any));
    }
    if (wanted->time_limit_s) {
        LS_TRY(ls_policy_change(c->policy, now_ms, id, LS_CHANGE_LIMIT, ls_queue_limit_left_ms(trial)));
    }
    return wanted->priority ? ls_policy_change(c->policy, now_ms, id, LS_CHANGE_PRIORITY, trial->priority)
                            : LS_OK;
}

/* "time limit 2 h 00 min, account research, waits for 2 jobs" */
static void append_terms(const change *wanted, const ls_job *trial, ls_text *text)
{
    if (wanted->time_limit_s && trial->spec.time_limit_s > 0.0) {
        ls_text_printf(text, ", time limit %s", ls_duration_of(trial->spec.time_limit_s).text);
    } else if (wanted->time_limit_s) {
        ls_text_append(text, ", no time limit");
    }
    if (wanted->max_cost && trial->spec.max_cost_usd > 0.0) {
        ls_text_printf(text, ", cap %.2f USD", trial->spec.max_cost_usd);
    } else if (wanted->max_cost) {
        ls_text_append(text, ", no cap");
    }
    if (wanted->account) {
        ls_text_printf(text, ", account %s", trial->account);
    }
    if (wanted->priority) {
        ls_text_printf(text, ", priority %s", ls_priority_name(trial->priority));
    }
    for (uint32_t i = 0; wanted->after && i < trial->spec.after_count; i++) {
        ls_text_printf(text, "%s%" PRIu64, i == 0 ? ", after job " : " and ", trial->spec.after[i]);
    }
    if (wanted->after && trial->spec.after_count == 0) {
        ls_text_append(text, ", after no other job");
    }
}

static void take_over(ls_controller *c, const ls_caller *caller, ls_entry *entry, const change *wanted,
                      ls_job *trial)
{
    ls_job *job = entry->job;
    ls_text text = {0};
    ls_text_printf(&text, "changed by %s", caller->user);
    append_terms(wanted, trial, &text);
    if (job->state == LS_JOB_QUEUED) { /* until now it waited under its old terms */
        ls_usage_settle_waiting(c, entry);
        job->queued_s = c->time_s;
    }
    job->priority = trial->priority;
    entry->request_bytes = ls_submit_bytes(trial->request);
    ls_job_take_request(job, trial);
    ls_controller_note(c, entry, LS_CAUSE_USER, ls_text_string(&text));
    ls_text_release(&text);
    if (c->decides && job->handed_over) {
        ls_controller_order(c, LS_DO_CHANGE, entry);
    } else if (c->decides) {
        ls_transitions_hand_over(c, entry);
    }
}

/* ---- the verb ---- */

static ls_status read_change(const json_t *arguments, change *wanted)
{
    ls_priority priority;
    *wanted = (change){json_object_get(arguments, "time_limit_s"), json_object_get(arguments, "account"),
                       json_object_get(arguments, "after"), json_object_get(arguments, "priority"),
                       json_object_get(arguments, "max_cost")};
    if (!wanted->time_limit_s && !wanted->account && !wanted->after && !wanted->priority &&
        !wanted->max_cost) {
        return ls_fail(LS_ERR_INVALID, "the request changes nothing: give at least one of time_limit_s, "
                                       "account, after, priority and max_cost");
    }
    if (wanted->max_cost && !json_is_number(wanted->max_cost) && !json_is_null(wanted->max_cost)) {
        return ls_fail(LS_ERR_INVALID, "max_cost must be an amount in USD, or null for no cap");
    }
    const double limit_s = wanted->time_limit_s ? json_number_value(wanted->time_limit_s) : 0.0;
    if (wanted->time_limit_s &&
        (!json_is_number(wanted->time_limit_s) || !(limit_s >= 0.0 && limit_s <= 1e9))) {
        return ls_fail(LS_ERR_INVALID, "time_limit_s must be a number of seconds from 0 (no limit) to 1e9");
    }
    if (wanted->account && !json_is_string(wanted->account)) {
        return ls_fail(LS_ERR_INVALID, "account must be the name of an account");
    }
    if (wanted->priority && !ls_priority_parse(json_string_value(wanted->priority), &priority)) {
        return ls_fail(LS_ERR_INVALID, "priority must be low, normal or high");
    }
    return LS_OK;
}

/* Whether a job in this state and place can have other terms. */
static bool may_change(const ls_controller *c, const ls_job *job, const change *wanted,
                       ls_answer *refusal_out)
{
    const bool is_cap_only = !wanted->time_limit_s && !wanted->account && !wanted->after && !wanted->priority;
    if (!ls_job_state_is_waiting(job->state) && !is_cap_only) {
        *refusal_out =
            ls_answer_fail(409,
                           "job %" PRIu64 " is %s: only a waiting job can be changed. 'lockstep hold' "
                           "stops a job that can continue later",
                           job->id, ls_job_state_name(job->state));
    } else if (wanted->after && c->decides && job->handed_over) {
        *refusal_out = ls_answer_fail(
            409, "Slurm has job %" PRIu64 " already: what it waits for can no longer be changed", job->id);
    } else if (wanted->account && job->spec.group_running_max > 0) {
        *refusal_out =
            ls_answer_fail(409,
                           "job %" PRIu64 " belongs to group %s, whose jobs share an account because "
                           "their number is limited (job.group.running_max)",
                           job->id, job->spec.group);
    } else {
        return true;
    }
    return false;
}

ls_answer ls_change_job(ls_controller *c, const ls_caller *caller, ls_entry *entry, const json_t *arguments)
{
    change wanted;
    ls_answer refusal;
    ls_job *job = entry->job;
    ls_account_entry *account = NULL;
    const uint32_t accounts_before = c->account_count;
    if (read_change(arguments, &wanted) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    if (!may_change(c, job, &wanted, &refusal)) {
        return refusal;
    }
    ls_job *trial = make_trial(c, caller, job, &wanted, &account, &refusal);
    if (!trial) {
        return refusal;
    }
    trial->run_s = job->run_s;
    if (tell_policy(c, entry, &wanted, trial) != LS_OK) {
        refusal = ls_answer_error(LS_ERR_INVALID);
        ls_accounts_forget_after(c, accounts_before);
        ls_job_destroy(trial);
        return refusal;
    }
    if (account) {
        account->is_changed = true;
    }
    take_over(c, caller, entry, &wanted, trial);
    return (ls_answer){
        200, json_pack("{s:I, s:s}", "job", (json_int_t)job->id, "state", ls_job_state_name(job->state)), 0};
}
