// SPDX-License-Identifier: Apache-2.0
/* cancel, hold, release, priority, change: change jobs, named by number or chosen by a filter. */
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "env/user/user.h"
#include "orchestration/client/client.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- which jobs ---- */

typedef struct change_settings {
    const char *user, *account, *group, *state;
    bool json;
} change_settings;

#define ROW_FILTER(name, text) LS_ROW_TEXT(change_settings, name, NULL, text, .value_needed = true)

static const ls_option change_options[] = {
    ROW_FILTER(user, "instead of JOB: all jobs of this user"),
    ROW_FILTER(account, "instead of JOB: all your jobs of this account, or everyone's for an administrator"),
    ROW_FILTER(group, "instead of JOB: all jobs of this sweep or group"),
    ROW_FILTER(state, "instead of JOB: all your jobs in this state, or everyone's for an administrator"),
    LS_ROW_JSON(change_settings),
};

typedef struct numbers {
    uint64_t *items;
    size_t count;
} numbers;

static ls_status read_words(const ls_invocation *invocation, size_t count, numbers *jobs_out)
{
    jobs_out->items = ls_arena_new(invocation->arena, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(ls_queue_job(invocation->words[i], &jobs_out->items[i]));
    }
    jobs_out->count = count;
    return LS_OK;
}

static bool append_filters(const change_settings *settings, ls_text *path)
{
    const struct {
        const char *key, *value;
    } filters[] = {{"user", settings->user},
                   {"account", settings->account},
                   {"group", settings->group},
                   {"state", settings->state}};
    bool is_any = false;
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        if (filters[i].value[0]) {
            ls_text_printf(path, "%c%s=", is_any ? '&' : '?', filters[i].key);
            ls_client_append_escaped(path, filters[i].value);
            is_any = true;
        }
    }
    return is_any;
}

/* Jobs that wait or run, as the filters choose; not those that the caller may not change, nor those
 * that are being ended: cancelled again they would not save. */
static ls_status read_filters(const ls_invocation *invocation, const char *path, numbers *jobs_out)
{
    json_t *answer = NULL;
    LS_TRY(ls_queue_get(&answer, "%s", path));
    const json_t *jobs = json_object_get(answer, "jobs");
    size_t closed_count = 0;
    jobs_out->items = ls_arena_new(invocation->arena, uint64_t, json_array_size(jobs) + 1);
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const json_t *job = json_array_get(jobs, i);
        const char *state = ls_queue_string(job, "state");
        const bool is_open = ls_queue_string(job, "user") != NULL;
        closed_count += !is_open;
        if (is_open && state && !ls_queue_has_ended(state) && strcmp(state, "STOPPING") != 0) {
            jobs_out->items[jobs_out->count++] = (uint64_t)ls_queue_integer(job, "job");
        }
    }
    json_decref(answer);
    if (closed_count > 0) {
        fprintf(stderr,
                "%zu job%s of other users %s left alone: only their users and administrators can do that\n",
                closed_count, closed_count == 1 ? "" : "s", closed_count == 1 ? "was" : "were");
    }
    return LS_OK;
}

/* Jobs of another user are not listed for one who may not see them. */
static void tell_none(const change_settings *settings)
{
    char own[LS_USER_NAME_BYTES];
    ls_user_name(geteuid(), own);
    if (settings->user[0] && strcmp(settings->user, own) != 0) {
        fprintf(stderr,
                "no jobs of %.60s that you may change wait or run: only that user and administrators can "
                "change them\n",
                settings->user);
    } else {
        fprintf(stderr, "no such jobs wait or run\n");
    }
}

static ls_status find_jobs(const ls_invocation *invocation, numbers *jobs_out)
{
    ls_text path = {0};
    ls_text_append(&path, "/v1/jobs");
    const bool is_filtered = append_filters(invocation->settings, &path);
    ls_status status = LS_OK;
    if (is_filtered == (invocation->word_count > 0)) {
        status =
            ls_fail(LS_ERR_INVALID,
                    is_filtered ? "give either numbers of jobs or filters such as --group, not both"
                                : "which jobs? Give their numbers, or --user, --account, --group or --state");
    } else {
        status = is_filtered ? read_filters(invocation, ls_text_string(&path), jobs_out)
                             : read_words(invocation, invocation->word_count, jobs_out);
    }
    ls_text_release(&path);
    if (status == LS_OK && jobs_out->count == 0) {
        tell_none(invocation->settings);
    }
    return status;
}

/* ---- changing them ---- */

static void print_changed(json_t *changed, const numbers *jobs, bool is_list)
{
    if (jobs->count == 1 && !is_list) {
        ls_print_json(json_array_get(changed, 0));
        return;
    }
    json_t *root = json_pack("{s:O}", "jobs", changed);
    ls_print_json(root);
    json_decref(root);
}

/* Changes each job; the first error becomes the error of the command. Takes over the body; NULL:
 * none. is_list: the jobs were not named one by one. */
static ls_status change_each(const numbers *jobs, const char *verb, json_t *body, bool json, bool is_list)
{
    json_t *changed = json_array();
    ls_status result = LS_OK;
    ls_text first_error = {0};
    for (size_t i = 0; i < jobs->count; i++) {
        json_t *answer = NULL;
        const ls_status status =
            ls_queue_post(json_incref(body), &answer, "/v1/jobs/%" PRIu64 "/%s", jobs->items[i], verb);
        if (status == LS_OK && !json) {
            printf("job %" PRIu64 ": %s\n", jobs->items[i], ls_queue_string(answer, "state"));
        }
        if (status == LS_OK) {
            json_array_append_new(changed, answer);
        } else if (result == LS_OK) {
            result = status;
            ls_text_append(&first_error, ls_error_text());
        } else {
            fprintf(stderr, "lockstep: %s\n", ls_error_text());
        }
    }
    if (json && result == LS_OK) {
        print_changed(changed, jobs, is_list);
    }
    json_decref(changed);
    json_decref(body);
    if (result != LS_OK) {
        ls_fail(result, "%s", ls_text_string(&first_error));
    }
    ls_text_release(&first_error);
    return result;
}

static ls_status change_found(const ls_invocation *invocation, const char *verb)
{
    const change_settings *settings = invocation->settings;
    numbers jobs = {0};
    LS_TRY(find_jobs(invocation, &jobs));
    return change_each(&jobs, verb, NULL, settings->json, invocation->word_count == 0);
}

static ls_status run_cancel(const ls_invocation *invocation)
{
    return change_found(invocation, "cancel");
}

static ls_status run_hold(const ls_invocation *invocation)
{
    return change_found(invocation, "hold");
}

static ls_status run_release(const ls_invocation *invocation)
{
    return change_found(invocation, "release");
}

const ls_command ls_command_cancel = {
    .name = "cancel",
    LS_WORDS("[JOB...]", 0, LS_QUEUE_JOBS_MAX),
    .summary = "cancel jobs",
    .details = "A running job gets SIGTERM and then its grace time: a training run saves a\n"
               "checkpoint and can be resumed with 'lockstep train'. Cancelling the job again\n"
               "ends it at once. A waiting job leaves the queue.\n"
               "\n"
               "Examples:\n"
               "  lockstep cancel 12 13\n"
               "  lockstep cancel --group sweep-14 --state queued",
    LS_SETTINGS(change_settings, change_options),
    .run = run_cancel,
};

const ls_command ls_command_hold = {
    .name = "hold",
    LS_WORDS("[JOB...]", 0, LS_QUEUE_JOBS_MAX),
    .summary = "keep jobs from running until they are released",
    .details = "A waiting job stays in the queue but does not start. A running job saves, gives\n"
               "its devices back, and waits. 'lockstep release JOB' lets it run again.\n"
               "\n"
               "Examples:\n"
               "  lockstep hold 12\n"
               "  lockstep hold --account research",
    LS_SETTINGS(change_settings, change_options),
    .run = run_hold,
};

const ls_command ls_command_release = {
    .name = "release",
    LS_WORDS("[JOB...]", 0, LS_QUEUE_JOBS_MAX),
    .summary = "let held jobs run",
    .details = "Ends the effect of 'lockstep hold' and of 'lockstep submit --hold'.\n"
               "\n"
               "Examples:\n"
               "  lockstep release 12\n"
               "  lockstep release --state held",
    LS_SETTINGS(change_settings, change_options),
    .run = run_release,
};

/* ---- priority ---- */

typedef struct priority_settings {
    bool json;
} priority_settings;

static const ls_option priority_options[] = {LS_ROW_JSON(priority_settings)};

static ls_status run_priority(const ls_invocation *invocation)
{
    const priority_settings *settings = invocation->settings;
    const size_t count = invocation->word_count - 1;
    numbers jobs = {0};
    LS_TRY(read_words(invocation, count, &jobs));
    json_t *name = json_string(invocation->words[count]);
    return change_each(&jobs, "priority", json_pack("{s:o}", "priority", name ? name : json_string("?")),
                       settings->json, false);
}

const ls_command ls_command_priority = {
    .name = "priority",
    LS_WORDS("JOB... low|normal|high", 2, LS_QUEUE_JOBS_MAX),
    .summary = "change the priority of jobs",
    .details = "The new priority takes effect at once.\n"
               "\n"
               "Example:\n"
               "  lockstep priority 12 high",
    LS_SETTINGS(priority_settings, priority_options),
    .run = run_priority,
};

/* ---- change ---- */

typedef struct terms_settings {
    double time_limit;
    const char *account, *priority, *max_cost;
    ls_option_strings after;
    bool json;
} terms_settings;

#undef FIELD

static const ls_option terms_options[] = {
    LS_ROW_DURATION(terms_settings, time_limit, time_limit, "auto", 0, 1e9,
                    "new time limit; 0: none; auto: unchanged", .allow_auto = true),
    LS_ROW_TEXT(terms_settings, max_cost, "USD",
                "new cap of the cost of the whole job, also while it runs; none: no cap. A job that its cap "
                "stopped continues when the new cap allows it",
                .value_needed = true),
    LS_ROW_TEXT(terms_settings, account, NULL, "account to charge from now on", .value_needed = true),
    LS_ROW_TEXT(terms_settings, priority, NULL, "new priority: low, normal or high", .value_needed = true),
    LS_ROW_TEXTS(terms_settings, after, "JOB",
                 "start only after job JOB has succeeded; replaces the jobs that were named when it was "
                 "submitted or last changed; may be repeated; none: wait for no job"),
    LS_ROW_JSON(terms_settings),
};

static ls_status put_after(json_t *body, const ls_option_strings *jobs)
{
    json_t *list = json_array();
    json_object_set_new(body, "after", list);
    if (jobs->count == 1 && strcmp(jobs->items[0], "none") == 0) {
        return LS_OK;
    }
    for (uint64_t i = 0; i < jobs->count; i++) {
        uint64_t job = 0;
        if (ls_queue_job(jobs->items[i], &job) != LS_OK) {
            return ls_fail_within(LS_ERR_INVALID, "--after");
        }
        json_array_append_new(list, json_integer((json_int_t)job));
    }
    return LS_OK;
}

static void put_text(json_t *body, const char *key, const char *text)
{
    if (text[0]) {
        json_t *value = json_string(text);
        json_object_set_new(body, key, value ? value : json_string("?"));
    }
}

static ls_status run_change(const ls_invocation *invocation)
{
    const terms_settings *settings = invocation->settings;
    numbers jobs = {0};
    LS_TRY(read_words(invocation, invocation->word_count, &jobs));
    json_t *body = json_object();
    if (settings->time_limit != LS_AUTO_F64) {
        json_object_set_new(body, "time_limit_s", json_real(settings->time_limit));
    }
    put_text(body, "account", settings->account);
    put_text(body, "priority", settings->priority);
    ls_status status = settings->after.count > 0 ? put_after(body, &settings->after) : LS_OK;
    status = status != LS_OK ? status : ls_queue_put_usd(body, "max_cost", "--max-cost", settings->max_cost);
    if (status == LS_OK && json_object_size(body) == 0) {
        status = ls_fail(LS_ERR_INVALID, "nothing to change: give --time-limit, --max-cost, --account, "
                                         "--priority or --after");
    }
    if (status != LS_OK) {
        json_decref(body);
        return status;
    }
    return change_each(&jobs, "change", body, settings->json, false);
}

const ls_command ls_command_change = {
    .name = "change",
    LS_WORDS("JOB...", 1, LS_QUEUE_JOBS_MAX),
    .summary = "change the time limit, cap, account or dependencies of jobs",
    .details = "The jobs must be waiting, unless only --max-cost is given. The events of a job\n"
               "record what was changed, and by whom. A job can wait only for jobs that were\n"
               "submitted before it.\n"
               "\n"
               "Examples:\n"
               "  lockstep change 12 --time-limit 4h --account research\n"
               "  lockstep change 12 --max-cost 25\n"
               "  lockstep change 12 13 --after 9 --after 10\n"
               "  lockstep change 12 --after none",
    LS_SETTINGS(terms_settings, terms_options),
    .run = run_change,
};
