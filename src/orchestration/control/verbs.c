// SPDX-License-Identifier: Apache-2.0
/* What is asked to be changed: who may, whether it can be, and what follows. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWEEP_JOBS_MAX = 1024, SWEEP_KEYS_MAX = 16 };

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

/* ---- submit ---- */

static const char *default_account(const char *user, char account[LS_JOB_ACCOUNT_BYTES_MAX + 1])
{
    size_t bytes = 0;
    for (const char *at = user; *at && bytes < LS_JOB_ACCOUNT_BYTES_MAX; at++) {
        const bool is_plain =
            isalnum((unsigned char)*at) || *at == '_' || (bytes > 0 && (*at == '-' || *at == '.'));
        account[bytes++] = is_plain ? *at : '_';
    }
    account[bytes] = '\0';
    return bytes > 0 ? account : "default";
}

static bool is_run_dir_taken(const ls_controller *c, const char *run_dir)
{
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        if (!ls_job_state_is_final(job->state) && strcmp(job->run_dir, run_dir) == 0) {
            return true;
        }
    }
    return false;
}

static void choose_run_dir(ls_controller *c, ls_job *job)
{
    if (job->spec.command.count > 0) {
        return;
    }
    const char *directory = strcmp(job->spec.directory, "/") == 0 ? "" : job->spec.directory;
    char *run_dir = ls_arena_printf(&job->arena, "%s/runs/%s", directory, job->spec.name);
    if (is_run_dir_taken(c, run_dir)) {
        run_dir = ls_arena_printf(&job->arena, "%s/runs/%s-%" PRIu64, directory, job->spec.name, job->id);
    }
    job->run_dir = run_dir;
}

static uint32_t count_active(const ls_controller *c)
{
    return c->entry_count - c->ended_count;
}

/* Makes a job of a request, which it takes over. */
static ls_answer submit(ls_controller *c, const ls_caller *caller, json_t *request, ls_job **job_out)
{
    ls_job *job = NULL;
    ls_account_entry *account = NULL;
    char name[LS_JOB_ACCOUNT_BYTES_MAX + 1];
    if (c->is_going_down) {
        json_decref(request);
        return ls_answer_fail(503, "the queue is going down");
    }
    if (count_active(c) >= c->settings.jobs_max) {
        json_decref(request);
        return ls_answer_fail(503, "there are %u jobs already, as many as there can be", count_active(c));
    }
    ls_status status = ls_job_create(c->next_job, request, &job);
    if (status != LS_OK) {
        return ls_answer_error(status);
    }
    ls_job_set_user(job, caller->uid, caller->gid, caller->user);
    if (!job->spec.account[0]) {
        ls_job_set_account(job, default_account(caller->user, name));
    }
    status = ls_queue_account(c, job->account, &account);
    if (status != LS_OK) {
        ls_job_destroy(job);
        return ls_answer_error(status);
    }
    job->submitted_s = job->queued_s = c->time_s;
    choose_run_dir(c, job);
    ls_entry *entry = ls_controller_add(c, job);
    status = ls_queue_add(c, entry);
    if (status != LS_OK) { /* the newest: at the end of the list */
        c->entry_count--;
        free(entry);
        ls_job_destroy(job);
        return ls_answer_error(status);
    }
    c->next_job++;
    account->account.jobs++;
    account->is_changed = true;
    entry->is_new = true;
    const ls_job_state first = job->state;
    ls_controller_move(c, entry, first, LS_CAUSE_NONE, NULL);
    if (c->decides) {
        ls_transitions_hand_over(c, entry);
    }
    *job_out = job;
    return (ls_answer){.status = 201, .creates = job->id};
}

static ls_answer verb_submit(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_job *job = NULL;
    ls_answer answer = submit(c, caller, json_deep_copy(arguments), &job);
    if (job) {
        answer.json = json_pack("{s:I, s:s, s:s}", "job", (json_int_t)job->id, "state",
                                ls_job_state_name(job->state), "run_dir", job->run_dir);
    }
    return answer;
}

/* ---- sweep ---- */

typedef struct sweep {
    const char *keys[SWEEP_KEYS_MAX];
    const json_t *values[SWEEP_KEYS_MAX];
    size_t key_count;
    uint64_t points;  /* of the whole grid */
    uint64_t samples; /* of them, how many */
} sweep;

/* As after --set. */
static void append_value(ls_text *text, const json_t *value)
{
    if (json_is_string(value)) {
        ls_text_append(text, json_string_value(value));
    } else {
        char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        ls_text_append(text, dump ? dump : "");
        free(dump);
    }
}

static ls_status read_sweep(const json_t *arguments, sweep *sweep_out)
{
    sweep s = {.points = 1};
    const char *key;
    json_t *values;
    json_t *set = json_object_get(arguments, "set");
    if (!json_is_object(set) || json_object_size(set) == 0 || json_object_size(set) > SWEEP_KEYS_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "set of a sweep is an object of 1 to %d keys of the run file, each with a list of values",
            SWEEP_KEYS_MAX);
    }
    json_object_foreach(set, key, values)
    {
        if (!json_is_array(values) || json_array_size(values) == 0) {
            return ls_fail(LS_ERR_INVALID, "set of a sweep: %.60s has no list of values", key);
        }
        s.keys[s.key_count] = key;
        s.values[s.key_count++] = values;
        s.points *= json_array_size(values);
        if (s.points > SWEEP_JOBS_MAX * 1024u) {
            return ls_fail(LS_ERR_INVALID, "set of a sweep has more than %u combinations",
                           SWEEP_JOBS_MAX * 1024u);
        }
    }
    LS_TRY(ls_json_get_u64(arguments, "a sweep", "samples", 1, SWEEP_JOBS_MAX, s.points, &s.samples));
    if (s.samples > s.points) {
        s.samples = s.points;
    }
    if (s.samples > SWEEP_JOBS_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "the sweep has %" PRIu64
                       " combinations, at most %d are allowed: give samples (--random N)",
                       s.points, SWEEP_JOBS_MAX);
    }
    *sweep_out = s;
    return LS_OK;
}

/* Sample i of n, spread over the grid: every point when there are as many. */
static json_t *point_request(const json_t *arguments, const sweep *s, uint64_t index, const char *group,
                             uint64_t running_max)
{
    json_t *request = json_deep_copy(arguments);
    json_t *set = json_array();
    uint64_t point = index * s->points / s->samples;
    ls_text text = {0};
    for (size_t k = 0; k < s->key_count; k++) {
        const size_t count = json_array_size(s->values[k]);
        ls_text_clear(&text);
        ls_text_printf(&text, "%s=", s->keys[k]);
        append_value(&text, json_array_get(s->values[k], point % count));
        point /= count;
        json_array_append_new(set, json_string(ls_text_string(&text)));
    }
    ls_text_clear(&text);
    ls_text_printf(&text, "job.group.name=%s", group);
    json_array_append_new(set, json_string(ls_text_string(&text)));
    if (running_max > 0) {
        ls_text_clear(&text);
        ls_text_printf(&text, "job.group.running_max=%" PRIu64, running_max);
        json_array_append_new(set, json_string(ls_text_string(&text)));
    }
    ls_text_release(&text);
    json_object_set_new(request, "set", set);
    json_object_del(request, "running_max");
    json_object_del(request, "samples");
    return request;
}

/* All or nothing: the first that is refused takes those before it back. */
static void take_back(ls_controller *c, json_t *jobs)
{
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        ls_entry *entry = ls_controller_find(c, (uint64_t)json_integer_value(json_array_get(jobs, i)));
        ls_transitions_end(c, entry, LS_JOB_CANCELLED, LS_CAUSE_IMPOSSIBLE,
                           "another job of the sweep was refused");
    }
    json_decref(jobs);
}

static ls_answer verb_sweep(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    sweep s = {0};
    uint64_t running_max = 0;
    ls_status status = read_sweep(arguments, &s);
    if (status == LS_OK) {
        status = ls_json_get_u64(arguments, "a sweep", "running_max", 1, 1 << 20, 0, &running_max);
    }
    if (status != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    char group[40];
    snprintf(group, sizeof group, "sweep-%" PRIu64, c->next_job);
    json_t *jobs = json_array();
    uint64_t first = c->next_job;
    for (uint64_t i = 0; i < s.samples; i++) {
        ls_job *job = NULL;
        ls_answer answer = submit(c, caller, point_request(arguments, &s, i, group, running_max), &job);
        if (!job) {
            take_back(c, jobs);
            return answer;
        }
        json_array_append_new(jobs, json_integer((json_int_t)job->id));
    }
    return (ls_answer){201, json_pack("{s:o, s:s}", "jobs", jobs, "group", group), first};
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
        } else {
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
        return state_of(job);
    }
    job->held = false;
    if (job->state == LS_JOB_HELD) {
        job->queued_s = c->time_s;
        ls_controller_move(c, entry, LS_JOB_QUEUED, LS_CAUSE_USER, NULL);
        if (c->decides && job->handed_over) {
            ls_controller_order(c, LS_DO_CHANGE, entry);
        } else if (c->decides) {
            ls_transitions_hand_over(c, entry);
        } else {
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
        ls_policy_change(c->policy, ls_controller_ms(c->time_s), job->id, LS_CHANGE_RANKS, ranks);
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

static ls_answer verb_priority(ls_controller *c, ls_entry *entry, const json_t *arguments)
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
    if (c->policy && ls_policy_change(c->policy, ls_controller_ms(c->time_s), job->id, LS_CHANGE_PRIORITY,
                                      (uint64_t)priority) != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    job->priority = (ls_priority)priority;
    ls_controller_touch(c, entry);
    if (c->decides && job->handed_over) {
        ls_controller_order(c, LS_DO_CHANGE, entry);
    }
    return state_of(job);
}

/* ---- account, down ---- */

static ls_status get_limit(const json_t *arguments, const char *key, uint32_t *limit)
{
    const json_t *value = json_object_get(arguments, key);
    uint64_t number = *limit;
    if (json_is_null(value)) { /* null: no limit */
        *limit = UINT32_MAX;
        return LS_OK;
    }
    LS_TRY(ls_json_get_u64(arguments, "an account", key, 0, UINT32_MAX - 1, number, &number));
    *limit = (uint32_t)number;
    return LS_OK;
}

bool ls_account_name_is_good(const char *name)
{
    return name[0] && name[0] != '.' && name[0] != '-' && strlen(name) <= LS_JOB_ACCOUNT_BYTES_MAX &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") == strlen(name);
}

/* As it is, or as a new one would be. */
static ls_account account_named(const ls_controller *c, const char *name)
{
    ls_account account = {.weight = 1, .quota = UINT32_MAX, .borrow = UINT32_MAX, .lend = UINT32_MAX};
    snprintf(account.name, sizeof account.name, "%s", name);
    for (uint32_t i = 0; i < c->account_count; i++) {
        if (strcmp(c->accounts[i]->account.name, name) == 0) {
            account = c->accounts[i]->account;
        }
    }
    return account;
}

static ls_answer verb_account(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    const char *name = json_string_value(json_object_get(arguments, "account"));
    if (!caller->is_admin && caller->uid != 0) {
        return ls_answer_fail(403, "accounts are changed by who runs the queue");
    }
    if (!name || !ls_account_name_is_good(name)) {
        return ls_answer_fail(400, "account is to be a name of 1 to %d letters, digits, '.', '_' and '-'",
                              LS_JOB_ACCOUNT_BYTES_MAX);
    }
    ls_account changed = account_named(c, name);
    uint64_t weight = changed.weight;
    ls_status status =
        ls_json_get_u64(arguments, "an account", "weight", 1, LS_ACCOUNT_WEIGHT_MAX, weight, &weight);
    changed.weight = (uint32_t)weight;
    status = status == LS_OK ? get_limit(arguments, "quota", &changed.quota) : status;
    status = status == LS_OK ? get_limit(arguments, "borrow", &changed.borrow) : status;
    status = status == LS_OK ? get_limit(arguments, "lend", &changed.lend) : status;
    status = status == LS_OK ? ls_controller_set_account(c, &changed) : status;
    if (status != LS_OK) {
        return ls_answer_error(LS_ERR_INVALID);
    }
    return (ls_answer){200, json_pack("{s:s}", "account", name), 0};
}

static ls_answer verb_down(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    bool cancels = false;
    if (!caller->is_admin && caller->uid != 0) {
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
        return verb_priority(c, found->entry, arguments);
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
        return verb_submit(c, caller, arguments);
    case LS_VERB_SWEEP:
        return verb_sweep(c, caller, arguments);
    case LS_VERB_LIST:
        return ls_answers_list(c, caller, arguments);
    case LS_VERB_NODES:
        return ls_answers_nodes(c, caller);
    case LS_VERB_ACCOUNTS:
        return ls_answers_accounts(c);
    case LS_VERB_ACCOUNT:
        return verb_account(c, caller, arguments);
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
