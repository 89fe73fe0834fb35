// SPDX-License-Identifier: Apache-2.0
#include "orchestration/job/job.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- names ---- */

static const char *const state_names[LS_JOB_STATES] = {
    [LS_JOB_QUEUED] = "QUEUED",         [LS_JOB_HELD] = "HELD",           [LS_JOB_STARTING] = "STARTING",
    [LS_JOB_RUNNING] = "RUNNING",       [LS_JOB_RESIZING] = "RESIZING",   [LS_JOB_PREEMPTING] = "PREEMPTING",
    [LS_JOB_RECOVERING] = "RECOVERING", [LS_JOB_STOPPING] = "STOPPING",   [LS_JOB_SUCCEEDED] = "SUCCEEDED",
    [LS_JOB_FAILED] = "FAILED",         [LS_JOB_CANCELLED] = "CANCELLED",
};

static const char *const cause_names[LS_CAUSES] = {
    [LS_CAUSE_NONE] = "none",
    [LS_CAUSE_PROGRAM] = "program",
    [LS_CAUSE_MEMORY] = "memory",
    [LS_CAUSE_START] = "start",
    [LS_CAUSE_LOST] = "lost",
    [LS_CAUSE_LIMIT] = "limit",
    [LS_CAUSE_DEPENDENCY] = "dependency",
    [LS_CAUSE_USER] = "user",
    [LS_CAUSE_PREEMPTED] = "preempted",
    [LS_CAUSE_IMPOSSIBLE] = "impossible",
    [LS_CAUSE_SWEEP] = "sweep",
    [LS_CAUSE_DISK] = "disk",
    [LS_CAUSE_BUDGET] = "budget",
    [LS_CAUSE_IDLE] = "idle",
};

static const char *const priority_names[] = {"low", "normal", "high"};

const char *ls_priority_name(ls_priority priority)
{
    LS_ASSERT((unsigned)priority < 3);
    return priority_names[priority];
}

bool ls_priority_parse(const char *name, ls_priority *priority_out)
{
    for (int i = 0; name && i < 3; i++) {
        if (strcmp(priority_names[i], name) == 0) {
            *priority_out = (ls_priority)i;
            return true;
        }
    }
    return false;
}

const char *ls_job_state_name(ls_job_state state)
{
    LS_ASSERT((unsigned)state < LS_JOB_STATES);
    return state_names[state];
}

ls_job_state ls_job_state_named(const char *name)
{
    int state = 0;
    while (state < LS_JOB_STATES && strcasecmp(state_names[state], name) != 0) {
        state++;
    }
    return (ls_job_state)state;
}

bool ls_job_state_is_final(ls_job_state state)
{
    return state == LS_JOB_SUCCEEDED || state == LS_JOB_FAILED || state == LS_JOB_CANCELLED;
}

bool ls_job_state_is_waiting(ls_job_state state)
{
    return state == LS_JOB_QUEUED || state == LS_JOB_HELD;
}

const char *ls_job_cause_name(ls_job_cause cause)
{
    LS_ASSERT((unsigned)cause < LS_CAUSES);
    return cause_names[cause];
}

ls_job_cause ls_job_cause_named(const char *name)
{
    for (int cause = 0; cause < LS_CAUSES; cause++) {
        if (strcmp(cause_names[cause], name) == 0) {
            return (ls_job_cause)cause;
        }
    }
    return LS_CAUSE_NONE;
}

/* ---- jobs ---- */

ls_status ls_job_create(uint64_t id, json_t *request, ls_job **job_out)
{
    ls_job *job = calloc(1, sizeof *job);
    LS_ASSERT(job && "not enough memory for a job");
    job->id = id;
    job->request = request;
    job->user = job->account = job->run_dir = "";
    job->exit_code = -1;
    const ls_status status = ls_job_spec_parse(request, &job->arena, &job->spec);
    if (status != LS_OK) {
        ls_job_destroy(job);
        return status;
    }
    job->account = job->spec.account;
    job->priority = job->spec.priority;
    job->ranks = job->spec.ranks;
    job->held = job->spec.hold;
    job->state = job->held ? LS_JOB_HELD : LS_JOB_QUEUED;
    *job_out = job;
    return LS_OK;
}

void ls_job_destroy(ls_job *job)
{
    if (job) {
        json_decref(job->request);
        ls_arena_release(&job->arena);
        free(job->shares);
        free(job->text);
        free(job->engine_ref);
        free(job);
    }
}

void ls_job_take_request(ls_job *job, ls_job *from)
{
    LS_ASSERT(job->id == from->id);
    ls_job_set_user(from, job->uid, job->gid, job->user);
    ls_job_set_run_dir(from, job->run_dir);
    ls_job_set_account(from, from->account);
    const ls_job old = *job;
    job->request = from->request;
    job->arena = from->arena;
    job->spec = from->spec;
    job->user = from->user;
    job->account = from->account;
    job->run_dir = from->run_dir;
    job->has_new_request = true;
    from->request = old.request;
    from->arena = old.arena;
    ls_job_destroy(from);
}

void ls_job_set_user(ls_job *job, uint32_t uid, uint32_t gid, const char *user)
{
    job->uid = uid;
    job->gid = gid;
    job->user = ls_arena_strdup(&job->arena, user);
}

void ls_job_set_account(ls_job *job, const char *account)
{
    job->account = ls_arena_strdup(&job->arena, account);
}

void ls_job_set_run_dir(ls_job *job, const char *run_dir)
{
    job->run_dir = ls_arena_strdup(&job->arena, run_dir);
}

void ls_job_set_shares(ls_job *job, const ls_job_share *shares, uint32_t count)
{
    ls_job_share *copy = NULL;
    if (count > 0) {
        copy = malloc(count * sizeof *copy);
        LS_ASSERT(copy && "not enough memory for the devices of a job");
        memcpy(copy, shares, count * sizeof *copy);
    }
    free(job->shares);
    job->shares = copy;
    job->share_count = count;
}

static void set_string(char **place, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    LS_ASSERT(copy || !text);
    free(*place);
    *place = copy;
}

void ls_job_set_text(ls_job *job, const char *text)
{
    set_string(&job->text, text);
}

void ls_job_set_engine_ref(ls_job *job, const char *ref)
{
    set_string(&job->engine_ref, ref);
}

static ls_option_strings keep_strings(ls_arena *arena, const ls_option_strings *strings)
{
    const ls_option_strings kept = {.items = ls_arena_new(arena, const char *, strings->count),
                                    .count = strings->count};
    for (uint64_t i = 0; i < strings->count; i++) {
        kept.items[i] = ls_arena_strdup(arena, strings->items[i]);
    }
    return kept;
}

void ls_job_shift(ls_job *job, double by_s)
{
    ls_job_foresight *seen = &job->foresight;
    double *const times[] = {&job->submitted_s, &job->queued_s, &job->started_s,     &job->ended_s,
                             &job->booked_s,    &job->saved_s,  &job->left_at_s,     &seen->start_s,
                             &seen->started_s,  &seen->end_s,   &seen->start_said_s, &seen->end_said_s};
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        *times[i] += *times[i] > 0.0 ? by_s : 0.0; /* 0: not known */
    }
}

void ls_job_drop_request(ls_job *job)
{
    LS_ASSERT(ls_job_state_is_final(job->state));
    if (!job->request) {
        return;
    }
    ls_arena kept = {0};
    const ls_job_spec *spec = &job->spec;
    const ls_job_spec slim = {
        .name = ls_arena_strdup(&kept, spec->name),
        .account = ls_arena_strdup(&kept, spec->account),
        .directory = ls_arena_strdup(&kept, spec->directory),
        .file = "",
        .file_name = ls_arena_strdup(&kept, spec->file_name),
        .set = keep_strings(&kept, &spec->set), /* distinguishes the jobs of a sweep */
        .metrics = keep_strings(&kept, &spec->metrics),
        .share = keep_strings(&kept, &spec->share),
        .priority = spec->priority,
        .step_tokens = spec->step_tokens,
        .ranks = spec->ranks,
        .min_ranks = spec->min_ranks,
        .max_ranks = spec->max_ranks,
        .required = spec->required,
        .preferred = spec->preferred,
        .spot = spec->spot,
        .restartable = spec->restartable,
        .time_limit_s = spec->time_limit_s,
        .max_cost_usd = spec->max_cost_usd,
        .group = ls_arena_strdup(&kept, spec->group),
        .key = ls_arena_strdup(&kept, spec->key),
    };
    job->spec = slim;
    job->user = ls_arena_strdup(&kept, job->user);
    job->account = ls_arena_strdup(&kept, job->account);
    job->run_dir = ls_arena_strdup(&kept, job->run_dir);
    json_decref(job->request);
    job->request = NULL;
    ls_arena_release(&job->arena);
    job->arena = kept;
}

uint32_t ls_job_ranks_min(const ls_job *job)
{
    const bool is_elastic = job->spec.min_ranks < job->spec.max_ranks;
    return is_elastic && job->spec.min_ranks < job->ranks ? job->spec.min_ranks : job->ranks;
}

uint32_t ls_job_ranks_max(const ls_job *job)
{
    const bool is_elastic = job->spec.min_ranks < job->spec.max_ranks;
    const uint32_t max = job->ranks_max > 0 ? job->ranks_max : job->spec.max_ranks;
    return is_elastic && max > job->ranks ? max : job->ranks;
}

uint32_t ls_job_rank_threads(const ls_job *job, uint32_t cores, uint32_t devices)
{
    const uint32_t share = devices > 0 ? cores / devices : cores;
    return job->spec.threads > 0 ? job->spec.threads : share > 0 ? share : 1;
}

double ls_price_of_kind(const ls_option_strings *kind_prices, const char *kind, double otherwise)
{
    const size_t bytes = strlen(kind);
    for (uint64_t i = 0; i < kind_prices->count && bytes > 0; i++) {
        const char *item = kind_prices->items[i];
        if (strncmp(item, kind, bytes) == 0 && item[bytes] == '=') {
            return strtod(item + bytes + 1, NULL);
        }
    }
    return otherwise;
}

double ls_job_price_usd(const ls_job *job)
{
    return ls_price_of_kind(&job->kind_prices, job->kind, job->price_usd);
}

double ls_job_spent_usd(const ls_job *job)
{
    return (double)job->priced_device_ms / 3600000.0 * job->price_usd;
}

bool ls_job_has_devices(const ls_job *job)
{
    return job->share_count > 0;
}

bool ls_job_is_open_to(const ls_job *job, uint32_t uid, const char *user, bool is_admin)
{
    /* a number that was given to another user since does not make that user the owner */
    const bool is_owner = uid == job->uid && (!job->user || !job->user[0] || strcmp(job->user, user) == 0);
    if (is_admin || uid == 0 || is_owner) {
        return true;
    }
    for (uint64_t i = 0; i < job->spec.share.count; i++) {
        if (strcmp(job->spec.share.items[i], user) == 0) {
            return true;
        }
    }
    return false;
}
