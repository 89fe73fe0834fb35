// SPDX-License-Identifier: Apache-2.0
/* cancel, hold, release, priority: a word to one job, or to several. */
#include "cli/command.h"
#include "cli/queue.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct change_settings {
    bool json;
} change_settings;

static const ls_option change_options[] = {LS_ROW_JSON(change_settings)};
static const ls_option_table change_table = LS_OPTIONS(change_options);

/* All are tried; the first error is the command's. */
static ls_status change_jobs(const ls_invocation *invocation, const char *verb, size_t job_count,
                             const char *priority)
{
    const change_settings *settings = invocation->settings;
    json_t *changed = json_array();
    ls_status result = LS_OK;
    ls_text first_error = {0};
    for (size_t i = 0; i < job_count; i++) {
        uint64_t job = 0;
        json_t *answer = NULL;
        ls_status status = ls_queue_job(invocation->words[i], &job);
        if (status == LS_OK) {
            json_t *body = priority ? json_pack("{s:s}", "priority", priority) : NULL;
            status = ls_queue_post(body, &answer, "/v1/jobs/%" PRIu64 "/%s", job, verb);
        }
        if (status == LS_OK && !settings->json) {
            printf("job %" PRIu64 ": %s\n", job, ls_queue_string(answer, "state"));
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
    if (settings->json && result == LS_OK && job_count == 1) {
        ls_print_json(json_array_get(changed, 0));
    } else if (settings->json && result == LS_OK) {
        json_t *root = json_pack("{s:O}", "jobs", changed);
        ls_print_json(root);
        json_decref(root);
    }
    json_decref(changed);
    if (result != LS_OK) {
        ls_fail(result, "%s", ls_text_string(&first_error));
    }
    ls_text_release(&first_error);
    return result;
}

static ls_status run_cancel(const ls_invocation *invocation)
{
    return change_jobs(invocation, "cancel", invocation->word_count, NULL);
}

static ls_status run_hold(const ls_invocation *invocation)
{
    return change_jobs(invocation, "hold", invocation->word_count, NULL);
}

static ls_status run_release(const ls_invocation *invocation)
{
    return change_jobs(invocation, "release", invocation->word_count, NULL);
}

static ls_status run_priority(const ls_invocation *invocation)
{
    const size_t jobs = invocation->word_count - 1;
    return change_jobs(invocation, "priority", jobs, invocation->words[jobs]);
}

#define JOBS_MAX 1000

const ls_command ls_command_cancel = {
    .name = "cancel",
    .words = "JOB...",
    .summary = "end a job, or take it out of the queue",
    .details = "A job that runs gets SIGTERM and its grace time: a training run saves a checkpoint and can "
               "be resumed with "
               "'lockstep train'\n"
               "in its run directory. Cancelling again ends it at once.",
    .words_min = 1,
    .words_max = JOBS_MAX,
    .options = &change_table,
    .settings_bytes = sizeof(change_settings),
    .run = run_cancel,
};

const ls_command ls_command_hold = {
    .name = "hold",
    .words = "JOB...",
    .summary = "keep a job from starting, or from going on",
    .details = "A job that waits stays where it is; one that runs saves, gives its devices back, and waits. "
               "'lockstep "
               "release JOB' lets it go on.",
    .words_min = 1,
    .words_max = JOBS_MAX,
    .options = &change_table,
    .settings_bytes = sizeof(change_settings),
    .run = run_hold,
};

const ls_command ls_command_release = {
    .name = "release",
    .words = "JOB...",
    .summary = "let a held job start",
    .details = "The other end of 'lockstep hold' and of 'lockstep submit --hold'.",
    .words_min = 1,
    .words_max = JOBS_MAX,
    .options = &change_table,
    .settings_bytes = sizeof(change_settings),
    .run = run_release,
};

const ls_command ls_command_priority = {
    .name = "priority",
    .words = "JOB... low|normal|high",
    .summary = "change the priority of a job",
    .details = "What waits is put in order anew at once.\n\nExample:\n  lockstep priority 12 high",
    .words_min = 2,
    .words_max = JOBS_MAX,
    .options = &change_table,
    .settings_bytes = sizeof(change_settings),
    .run = run_priority,
};
