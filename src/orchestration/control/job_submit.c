// SPDX-License-Identifier: Apache-2.0
/* submit and sweep: what is refused, and which folder a run gets. */
#include "orchestration/control/controller_internal.h"

#include "base/assert.h"
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SWEEP_JOBS_MAX = 1024,
    SWEEP_KEYS_MAX = 16,
    SWEEP_BYTES_MAX = 16 << 20, /* of the run files of its jobs, which are parsed one by one */
    SET_BYTES_MAX = 64 * 1024,
    NAMES_BYTES_MAX = 16 * 1024,
};

/* ---- limits ---- */

uint64_t ls_submit_bytes(const json_t *request)
{
    return request ? json_dumpb(request, NULL, 0, JSON_COMPACT) : 0;
}

/* Jobs that have not ended and the bytes of their requests: all, or those of one user. */
typedef struct load {
    uint64_t jobs, bytes;
} load;

static load load_of(const ls_controller *c, const ls_caller *caller)
{
    load sum = {0};
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_entry *entry = c->entries[i];
        if (!ls_job_state_is_final(entry->job->state) && (!caller || entry->job->uid == caller->uid)) {
            sum.jobs++;
            sum.bytes += entry->request_bytes;
        }
    }
    return sum;
}

static ls_answer too_many(const char *whose, uint64_t jobs, const char *key)
{
    return ls_answer_fail(429,
                          "%s %" PRIu64 " jobs that have not ended, the most allowed (%s in "
                          "config.yaml): wait until some end, or cancel some",
                          whose, jobs, key);
}

static ls_answer too_large(const char *whose, uint64_t bytes, uint64_t more, uint64_t max, const char *key)
{
    return ls_answer_fail(
        429,
        "%s jobs that have not ended use %" PRIu64
        " KiB of run files and environment variables, this one needs %" PRIu64 " KiB, and %" PRIu64
        " KiB are allowed (%s in config.yaml): wait until some end, or pass on fewer environment variables",
        whose, bytes >> 10, (more + 1023) >> 10, max >> 10, key);
}

/* The limits per user do not hold for administrators. */
static bool has_room(const ls_controller *c, const ls_caller *caller, uint64_t bytes, ls_answer *refusal_out)
{
    const ls_controller_settings *max = &c->settings;
    char whose[128];
    snprintf(whose, sizeof whose, "user %.100s has", caller->user);
    const load all = load_of(c, NULL), own = load_of(c, caller);
    const bool is_limited = !ls_caller_is_admin(caller);
    if (all.jobs >= max->jobs_max) {
        *refusal_out = too_many("the queue has", all.jobs, "jobs_max");
    } else if (is_limited && own.jobs >= max->user_jobs_max) {
        *refusal_out = too_many(whose, own.jobs, "user_jobs_max");
    } else if (all.bytes + bytes > max->bytes_max) {
        *refusal_out = too_large("the queue has", all.bytes, bytes, max->bytes_max, "bytes_max");
    } else if (is_limited && own.bytes + bytes > max->user_bytes_max) {
        *refusal_out = too_large(whose, own.bytes, bytes, max->user_bytes_max, "user_bytes_max");
    } else {
        return true;
    }
    return false;
}

static uint64_t bytes_of(const ls_option_strings *list)
{
    uint64_t bytes = 0;
    for (uint64_t i = 0; i < list->count; i++) {
        bytes += strlen(list->items[i]);
    }
    return bytes;
}

/* What an ended job keeps, too, or what each list of jobs has to be made of. */
static ls_status check_size(const ls_job_spec *spec)
{
    const struct {
        const char *what, *remedy;
        uint64_t count, bytes;
        int max;
    } parts[] = {
        {"overrides (set)", "write long values into the run file", spec->set.count, bytes_of(&spec->set),
         SET_BYTES_MAX},
        {"paths of job.metrics", "one pattern, as logs/*.jsonl, names several files", spec->metrics.count,
         bytes_of(&spec->metrics), NAMES_BYTES_MAX},
        {"names in job.share", "name fewer users", spec->share.count, bytes_of(&spec->share),
         NAMES_BYTES_MAX},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].bytes > (uint64_t)parts[i].max || parts[i].count >= LS_JOB_LIST_MAX) {
            return ls_fail(LS_ERR_INVALID,
                           "the job has %" PRIu64 " %s, with %" PRIu64
                           " bytes together; fewer than %d with at most %d bytes are allowed: %s",
                           parts[i].count, parts[i].what, parts[i].bytes, LS_JOB_LIST_MAX, parts[i].max,
                           parts[i].remedy);
        }
    }
    return LS_OK;
}

/* ---- what it waits for ---- */

ls_status ls_submit_check_after(ls_controller *c, const ls_job *job)
{
    for (uint32_t i = 0; i < job->spec.after_count; i++) {
        if (ls_queue_state_of(c, job->spec.after[i]) == LS_JOB_STATES) {
            return ls_fail(LS_ERR_INVALID,
                           "there is no job %" PRIu64
                           ", which this job is to wait for (--after or job.after)",
                           job->spec.after[i]);
        }
    }
    return LS_OK;
}

/* ---- the folder of a run ---- */

static bool is_taken(const ls_controller *c, const char *run_dir, const char *name, const json_t *avoid)
{
    for (size_t i = 0; i < json_array_size(avoid); i++) {
        if (strcmp(json_string_value(json_array_get(avoid, i)), name) == 0) {
            return true;
        }
    }
    for (uint32_t i = 0; i < c->entry_count; i++) {
        const ls_job *job = c->entries[i]->job;
        if (!ls_job_state_is_final(job->state) && strcmp(job->run_dir, run_dir) == 0) {
            return true;
        }
    }
    return false;
}

/*
 * runs/NAME, where an earlier run of that name continues; runs/NAME-N for a job that must be new.
 */
static void choose_run_dir(ls_controller *c, ls_job *job, const json_t *avoid, bool is_fresh)
{
    if (job->spec.command.count > 0) {
        return;
    }
    const char *directory = strcmp(job->spec.directory, "/") == 0 ? "" : job->spec.directory;
    ls_text path = {0};
    for (uint64_t i = is_fresh ? 1 : 0;; i++) {
        ls_text_clear(&path);
        ls_text_printf(&path, "%s/runs/%s", directory, job->spec.name);
        if (i > 0) {
            ls_text_printf(&path, "-%" PRIu64, job->id);
        }
        if (i > 1) {
            ls_text_printf(&path, "-%" PRIu64, i);
        }
        if (!is_taken(c, ls_text_string(&path), strrchr(ls_text_string(&path), '/') + 1, avoid)) {
            break;
        }
    }
    ls_job_set_run_dir(job, ls_text_string(&path));
    ls_text_release(&path);
}

/* Takes "avoid" out of a request. */
static ls_status take_avoid(json_t *request, json_t **avoid_out)
{
    json_t *avoid = json_incref(json_object_get(request, "avoid"));
    json_object_del(request, "avoid");
    bool is_good = !avoid || (json_is_array(avoid) && json_array_size(avoid) <= LS_JOB_LIST_MAX);
    for (size_t i = 0; is_good && i < json_array_size(avoid); i++) {
        is_good = json_is_string(json_array_get(avoid, i));
    }
    if (!is_good) {
        json_decref(avoid);
        return ls_fail(LS_ERR_INVALID, "field \"avoid\" of a job must be a list of at most %d strings",
                       LS_JOB_LIST_MAX);
    }
    *avoid_out = avoid;
    return LS_OK;
}

/* ---- submit ---- */

/* Adds the job to the list and the policy. On an error the job is destroyed. */
static ls_status enter(ls_controller *c, ls_job *job, ls_account_entry *account, uint64_t bytes)
{
    ls_entry *entry = ls_controller_add(c, job);
    const ls_status status = ls_queue_add(c, entry);
    if (status != LS_OK) {
        ls_controller_remove_newest(c);
        return status;
    }
    c->next_job++;
    account->account.jobs++;
    account->is_changed = true;
    entry->request_bytes = bytes;
    entry->is_new = true;
    ls_controller_note(c, entry, LS_CAUSE_NONE, ls_arena_printf(&c->arena, "submitted by %s", job->user));
    if (c->decides) {
        ls_transitions_hand_over(c, entry);
    }
    return LS_OK;
}

/* Makes and checks the job of a request, and finds its account; it is not in the queue yet. Takes
 * over the request. */
static ls_job *prepare(ls_controller *c, const ls_caller *caller, json_t *request, bool is_fresh,
                       ls_account_entry **account_out, ls_answer *refusal_out)
{
    ls_job *job = NULL;
    json_t *avoid = NULL;
    ls_status status = take_avoid(request, &avoid);
    if (status == LS_OK) {
        status = ls_job_create(c->next_job, request, &job); /* takes it over */
    } else {
        json_decref(request);
    }
    if (status == LS_OK) {
        ls_job_set_user(job, caller->uid, caller->gid, caller->user);
        job->submitted_s = job->queued_s = c->time_s;
        choose_run_dir(c, job, avoid, is_fresh);
        status =
            c->decides && job->spec.image[0]
                ? ls_fail(LS_ERR_INVALID, "job.image works on this machine's own queue; with Slurm, begin "
                                          "job.command with the container tool of the cluster")
                : ls_submit_check_after(c, job);
        if (status == LS_OK && job->spec.max_cost_usd > 0.0) {
            status = ls_money_is_known(c, "job.max_cost");
        }
        status = status == LS_OK ? check_size(&job->spec) : status;
    }
    json_decref(avoid);
    if (status != LS_OK) {
        *refusal_out = ls_answer_error(LS_ERR_INVALID);
    } else if (ls_accounts_admit(c, caller, job, account_out, refusal_out)) {
        ls_foresight_plan(c, job);
        return job;
    }
    ls_job_destroy(job);
    return NULL;
}

/* Submits the job of a request, which it takes over. A refusal leaves nothing behind. */
static ls_answer submit(ls_controller *c, const ls_caller *caller, json_t *request, bool is_fresh,
                        ls_job **job_out)
{
    ls_answer refusal;
    ls_account_entry *account = NULL;
    const uint32_t accounts_before = c->account_count;
    const uint64_t bytes = ls_submit_bytes(request);
    if (c->is_going_down || !has_room(c, caller, bytes, &refusal)) {
        json_decref(request);
        return c->is_going_down ? ls_answer_fail(503, "the queue is shutting down") : refusal;
    }
    ls_job *job = prepare(c, caller, request, is_fresh, &account, &refusal);
    if (!job) {
        return refusal;
    }
    const ls_status status = enter(c, job, account, bytes);
    if (status != LS_OK) {
        refusal = ls_answer_error(status);
        ls_accounts_forget_after(c, accounts_before);
        return refusal;
    }
    *job_out = job;
    return (ls_answer){.status = 201, .creates = job->id};
}

/* The answer about a job that was accepted, now or before. */
static json_t *accepted_json(const ls_controller *c, const ls_job *job)
{
    return json_pack("{s:I, s:s, s:o, s:o, s:o}", "job", (json_int_t)job->id, "state",
                     ls_job_state_name(job->state), "run_dir",
                     job->run_dir[0] ? json_string(job->run_dir) : json_null(), "estimate",
                     ls_money_estimate(c, job), "max_cost",
                     job->spec.max_cost_usd > 0.0 ? json_real(job->spec.max_cost_usd) : json_null());
}

/* Whether the user has submitted a job with the same key before; answer_out: about that job. */
static bool is_repeated(ls_controller *c, const ls_caller *caller, const json_t *arguments,
                        ls_answer *answer_out)
{
    const char *key = json_string_value(json_object_get(arguments, "key"));
    if (!key || !key[0]) {
        return false;
    }
    for (uint32_t i = c->entry_count; i-- > 0;) {
        const ls_entry *entry = c->entries[i];
        if (entry->job->uid == caller->uid && strcmp(entry->job->spec.key, key) == 0) {
            *answer_out = (ls_answer){200, accepted_json(c, entry->job), entry->is_new ? entry->job->id : 0};
            return true;
        }
    }
    const uint64_t id = c->calls.keyed_job ? c->calls.keyed_job(c->calls.context, caller->uid, key) : 0;
    ls_job *old = id ? c->calls.old_job(c->calls.context, id) : NULL;
    if (old) {
        *answer_out = (ls_answer){200, accepted_json(c, old), 0};
        ls_job_destroy(old);
    }
    return old != NULL;
}

ls_answer ls_submit_job(ls_controller *c, const ls_caller *caller, const json_t *arguments)
{
    ls_job *job = NULL;
    ls_answer repeated;
    if (is_repeated(c, caller, arguments, &repeated)) {
        return repeated;
    }
    ls_answer answer = submit(c, caller, json_deep_copy(arguments), false, &job);
    if (job) {
        answer.json = accepted_json(c, job);
    }
    return answer;
}

/* ---- sweep ---- */

typedef struct sweep {
    const char *keys[SWEEP_KEYS_MAX];
    const json_t *values[SWEEP_KEYS_MAX];
    size_t key_count;
    uint64_t points;  /* points of the whole grid */
    uint64_t samples; /* how many of them become jobs */
} sweep;

/* The value as it would be written after --set. */
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
        return ls_fail(LS_ERR_INVALID,
                       "field \"set\" of a sweep must be an object with 1 to %d keys of the run file, each "
                       "with a list of values",
                       SWEEP_KEYS_MAX);
    }
    json_object_foreach(set, key, values)
    {
        if (!json_is_array(values) || json_array_size(values) == 0) {
            return ls_fail(LS_ERR_INVALID, "field \"set\" of a sweep: key '%.60s' needs a list of values",
                           key);
        }
        s.keys[s.key_count] = key;
        s.values[s.key_count++] = values;
        s.points *= json_array_size(values);
        if (s.points > SWEEP_JOBS_MAX * 1024u) {
            return ls_fail(
                LS_ERR_INVALID,
                "field \"set\" of a sweep has too many combinations of values; at most %u are allowed",
                SWEEP_JOBS_MAX * 1024u);
        }
    }
    LS_TRY(ls_json_get_u64(arguments, "a sweep", "samples", 1, SWEEP_JOBS_MAX, s.points, &s.samples));
    if (s.samples > s.points) {
        s.samples = s.points;
    }
    if (s.samples > SWEEP_JOBS_MAX) {
        return ls_fail(
            LS_ERR_INVALID,
            "the sweep has %" PRIu64
            " combinations, at most %d are allowed; --random N (in a request: \"samples\") picks N of them",
            s.points, SWEEP_JOBS_MAX);
    }
    const uint64_t bytes = json_string_length(json_object_get(arguments, "file")) * s.samples;
    if (bytes > SWEEP_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "the run files of the %" PRIu64 " jobs of the sweep have %" PRIu64
                       " KiB together; at most %d are allowed: shorten the run file, or try fewer values "
                       "(--random)",
                       s.samples, bytes >> 10, SWEEP_BYTES_MAX >> 10);
    }
    *sweep_out = s;
    return LS_OK;
}

/* LOCKSTEP_SWEEP_TRAIN_SEED for train.seed. */
static void append_variable(ls_text *text, const char *key)
{
    ls_text_append(text, "LOCKSTEP_SWEEP_");
    for (const char *at = key; *at; at++) {
        const char letter = isalnum((unsigned char)*at) ? (char)toupper((unsigned char)*at) : '_';
        ls_text_append_bytes(text, &letter, 1);
    }
}

static void put_variable(json_t *request, const char *name, const char *value)
{
    json_t *environment = json_object_get(request, "environment");
    if (!environment || json_is_null(environment)) {
        environment = json_object();
        json_object_set_new(request, "environment", environment);
    }
    json_t *text = json_string(value);
    /* an environment that is no object is refused later */
    json_object_set_new(environment, name, text ? text : json_string(""));
}

/* The place of the job in its sweep, for programs: LOCKSTEP_ARRAY_INDEX from 0. */
static void put_place(json_t *request, const sweep *s, uint64_t index)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRIu64, index);
    put_variable(request, "LOCKSTEP_ARRAY_INDEX", number);
    snprintf(number, sizeof number, "%" PRIu64, s->samples);
    put_variable(request, "LOCKSTEP_ARRAY_COUNT", number);
}

/* The request of sample `index` of s->samples, spread evenly over the grid; with as many samples as
 * points, every point. */
static json_t *point_request(const json_t *arguments, const sweep *s, uint64_t index, const char *group,
                             uint64_t running_max)
{
    json_t *request = json_deep_copy(arguments);
    json_t *set = json_array();
    uint64_t point = index * s->points / s->samples;
    ls_text text = {0}, name = {0};
    put_place(request, s, index);
    for (size_t k = 0; k < s->key_count; k++) {
        const size_t count = json_array_size(s->values[k]);
        ls_text_clear(&text);
        ls_text_clear(&name);
        ls_text_printf(&text, "%s=", s->keys[k]);
        append_value(&text, json_array_get(s->values[k], point % count));
        point /= count;
        json_array_append_new(set, json_string(ls_text_string(&text)));
        append_variable(&name, s->keys[k]);
        put_variable(request, ls_text_string(&name), ls_text_string(&text) + strlen(s->keys[k]) + 1);
    }
    ls_text_release(&name);
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

/* A sweep is all or nothing: when one job is refused, those before it are removed as if they had
 * never been submitted. Their numbers are not used again. */
static void take_back(ls_controller *c, const ls_controller_mark *before, uint32_t accounts_before)
{
    while (c->entry_count > before->entries) {
        ls_entry *entry = c->entries[c->entry_count - 1];
        ls_account_entry *account = NULL;
        LS_ASSERT(ls_queue_account(c, entry->job->account, &account) == LS_OK);
        account->account.jobs--;
        ls_queue_remove(c, entry, false);
        ls_controller_remove_newest(c);
    }
    ls_controller_back_to(c, before);
    ls_accounts_forget_after(c, accounts_before);
}

ls_answer ls_submit_sweep(ls_controller *c, const ls_caller *caller, const json_t *arguments)
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
    const ls_controller_mark before = ls_controller_mark_now(c);
    const uint32_t accounts_before = c->account_count;
    const uint64_t first = c->next_job;
    json_t *jobs = json_array();
    for (uint64_t i = 0; i < s.samples; i++) {
        ls_job *job = NULL;
        ls_answer answer = submit(c, caller, point_request(arguments, &s, i, group, running_max), true, &job);
        if (job && ls_sweeps_check(ls_controller_job(c, first), job) != LS_OK) {
            answer = ls_answer_error(LS_ERR_INVALID);
            job = NULL;
        }
        if (!job) {
            take_back(c, &before, accounts_before);
            json_decref(jobs);
            return answer;
        }
        json_array_append_new(jobs, json_integer((json_int_t)job->id));
    }
    const ls_run_asha asha = ls_controller_job(c, first)->spec.asha;
    if (asha.first > 0 && asha.budget_steps > 0 && s.samples * asha.first > asha.budget_steps) {
        take_back(c, &before, accounts_before);
        json_decref(jobs);
        return ls_answer_fail(400,
                              "asha.budget_steps is %" PRIu64 ", but %" PRIu64 " jobs of %" PRIu64
                              " steps each, before they are compared (asha.first), need %" PRIu64
                              ": raise the budget, lower asha.first, or try fewer values (--random)",
                              asha.budget_steps, s.samples, asha.first, s.samples * asha.first);
    }
    ls_sweeps_begin(c, caller, (uint32_t)s.samples);
    return (ls_answer){201, json_pack("{s:o, s:s}", "jobs", jobs, "group", group), first};
}
