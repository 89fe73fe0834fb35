// SPDX-License-Identifier: Apache-2.0
/* What a request means. Anyone may send a request, so every member is checked: its type, its range
 * and its length. */
#include "orchestration/job/job.h"

#include "base/file.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* ---- members ---- */

/* Text without control characters: it goes to terminals, pages and into command lines. */
static bool is_plain(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
        if (*at < 0x20 || *at == 0x7f) {
            return false;
        }
    }
    return true;
}

static ls_status get_text(const json_t *request, const char *key, size_t bytes_max, bool is_document,
                          const char **text_out)
{
    const json_t *value = json_object_get(request, key);
    if (!value || json_is_null(value)) {
        return LS_OK;
    }
    if (!json_is_string(value)) {
        return ls_fail(LS_ERR_INVALID, "field \"%s\" of a job must be a string", key);
    }
    const char *text = json_string_value(value);
    if (json_string_length(value) > bytes_max) {
        return ls_fail(LS_ERR_INVALID, "field \"%s\" of a job has %zu bytes; at most %zu are allowed", key,
                       json_string_length(value), bytes_max);
    }
    if (strlen(text) != json_string_length(value) || (!is_document && !is_plain(text))) {
        return ls_fail(LS_ERR_INVALID,
                       "field \"%s\" of a job contains control characters, which are not allowed", key);
    }
    *text_out = text;
    return LS_OK;
}

/* A list of strings. */
static ls_status get_list(const json_t *request, const char *key, ls_arena *arena,
                          ls_option_strings *list_out)
{
    const json_t *value = json_object_get(request, key);
    if (!value || json_is_null(value)) {
        return LS_OK;
    }
    const size_t count = json_array_size(value);
    if (!json_is_array(value) || count > LS_JOB_LIST_MAX) {
        return ls_fail(LS_ERR_INVALID, "field \"%s\" of a job must be a list of at most %d strings", key,
                       LS_JOB_LIST_MAX);
    }
    ls_option_strings list = {.items = ls_arena_new(arena, const char *, count + 1), .count = count};
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_string(item) || strlen(json_string_value(item)) != json_string_length(item)) {
            return ls_fail(LS_ERR_INVALID, "field \"%s\" of a job has an item that is not a string", key);
        }
        list.items[i] = json_string_value(item);
    }
    *list_out = list;
    return LS_OK;
}

static bool is_variable_name(const char *name)
{
    return name[0] && !(name[0] >= '0' && name[0] <= '9') &&
           strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

/* The submitter's variables, then those of the file. */
static ls_status get_variables(const json_t *request, const ls_option_strings *of_file, ls_arena *arena,
                               ls_option_strings *list_out)
{
    json_t *object = json_object_get(request, "environment");
    const size_t count = json_object_size(object);
    if ((object && !json_is_object(object) && !json_is_null(object)) || count > LS_JOB_LIST_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "field \"environment\" of a job must be an object of at most %d strings",
                       LS_JOB_LIST_MAX);
    }
    ls_option_strings list = {.items = ls_arena_new(arena, const char *, count + of_file->count + 1)};
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        const char *text = json_string_value(value);
        if (!text || strlen(text) != json_string_length(value)) {
            return ls_fail(LS_ERR_INVALID,
                           "field \"environment\" of a job: the value of variable %.40s must be a string",
                           name);
        }
        /* shells export functions under names that other programs cannot use */
        if (is_variable_name(name)) {
            list.items[list.count++] = ls_arena_printf(arena, "%s=%s", name, text);
        }
    }
    for (uint64_t i = 0; i < of_file->count; i++) {
        list.items[list.count++] = of_file->items[i];
    }
    *list_out = list;
    return LS_OK;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static ls_status read_after(const json_t *request, const ls_run_job *job, ls_arena *arena, ls_job_spec *spec)
{
    const json_t *list = json_object_get(request, "after");
    const size_t extra = json_array_size(list), count = extra + job->after.count;
    if ((list && !json_is_array(list) && !json_is_null(list)) || count > LS_JOB_AFTER_MAX) {
        return ls_fail(LS_ERR_INVALID, "field \"after\" of a job must be a list of at most %d job numbers",
                       LS_JOB_AFTER_MAX);
    }
    spec->after = ls_arena_new(arena, uint64_t, count + 1);
    for (size_t i = 0; i < count; i++) {
        const json_t *item = i < extra ? json_array_get(list, i) : NULL;
        spec->after[i] =
            item ? (uint64_t)json_integer_value(item) : strtoull(job->after.items[i - extra], NULL, 10);
        if (item && (!json_is_integer(item) || json_integer_value(item) < 1)) {
            return ls_fail(LS_ERR_INVALID, "field \"after\" of a job has an item that is not a job number");
        }
    }
    if (count > 0) {
        qsort(spec->after, count, sizeof *spec->after, compare_ids);
    }
    for (size_t i = 0; i < count; i++) {
        if (spec->after_count == 0 || spec->after[spec->after_count - 1] != spec->after[i]) {
            spec->after[spec->after_count++] = spec->after[i];
        }
    }
    spec->after_any = job->after_any;
    return LS_OK;
}

/* ---- checks ---- */

static ls_status check_members(const json_t *request)
{
    static const char *const known[] = {"file",        "directory", "file_name", "name", "ranks",
                                        "set",         "account",   "priority",  "hold", "after",
                                        "environment", "umask",     "key"};
    const char *key;
    json_t *value;
    if (!json_is_object(request)) {
        return ls_fail(LS_ERR_INVALID, "a job must be submitted as a JSON object");
    }
    json_object_foreach((json_t *)(uintptr_t)request, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
            is_known = is_known || strcmp(known[i], key) == 0;
        }
        if (!is_known) {
            return ls_fail(LS_ERR_INVALID,
                           "a job cannot have a field '%.40s'; allowed are file, directory, file_name, name, "
                           "ranks, set, account, priority, hold, after, environment, umask, key",
                           key);
        }
    }
    return LS_OK;
}

/* An absolute path without parts that would make it another folder than it seems to be. */
static ls_status check_directory(const char *directory)
{
    if (!directory || directory[0] != '/') {
        return ls_fail(
            LS_ERR_INVALID,
            "field \"directory\" of a job is %s%.100s%s; give the absolute path of the folder it runs in",
            directory ? "'" : "", directory ? directory : "missing", directory ? "'" : "");
    }
    for (const char *at = directory; (at = strstr(at, "/..")); at += 3) {
        if (at[3] == '/' || at[3] == '\0') {
            return ls_fail(LS_ERR_INVALID,
                           "field \"directory\" of a job is '%.100s'; the path must not contain '..'",
                           directory);
        }
    }
    return LS_OK;
}

/* The name of a run is also the name of a folder. */
static ls_status check_name(const char *name)
{
    if (!name[0] || name[0] == '.' || name[0] == '-' || strlen(name) > LS_JOB_NAME_BYTES_MAX ||
        strpbrk(name, "/\\") || !is_plain(name)) {
        return ls_fail(
            LS_ERR_INVALID,
            "the name of a job is '%.40s'; allowed are 1 to %d characters without slashes and control "
            "characters, "
            "not beginning with a dot or '-'",
            name, LS_JOB_NAME_BYTES_MAX);
    }
    return LS_OK;
}

static ls_status check_account(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (name[0] == '.' || name[0] == '-' || strlen(name) > LS_JOB_ACCOUNT_BYTES_MAX ||
        strspn(name, allowed) != strlen(name)) {
        return ls_fail(
            LS_ERR_INVALID,
            "the account of a job is '%.40s'; allowed are 1 to %d letters, digits, '.', '_' and '-', "
            "beginning with a "
            "letter, a digit or '_'",
            name, LS_JOB_ACCOUNT_BYTES_MAX);
    }
    return LS_OK;
}

/* "022": as umask(1) prints it. */
static ls_status read_umask(const json_t *request, uint32_t *mask_out)
{
    const json_t *value = json_object_get(request, "umask");
    const char *text = json_string_value(value);
    *mask_out = 022;
    if (!value || json_is_null(value)) {
        return LS_OK;
    }
    if (!text || !text[0] || strlen(text) > 4 || strspn(text, "01234567") != strlen(text) ||
        strtoul(text, NULL, 8) > 0777) {
        return ls_fail(LS_ERR_INVALID,
                       "field \"umask\" of a job must be a string of octal digits, \"000\" to \"777\"");
    }
    *mask_out = (uint32_t)strtoul(text, NULL, 8);
    return LS_OK;
}

/* ---- from the run file ---- */

static ls_status read_ranks(const json_t *request, const ls_run_file *run, ls_job_spec *spec)
{
    const ls_run_job *job = &run->job;
    uint64_t ranks = ls_run_file_ranks(run);
    if (ls_json_get_u64(request, "a job", "ranks", 1, LS_JOB_RANKS_MAX, ranks, &ranks) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "submit");
    }
    spec->ranks = spec->min_ranks = spec->max_ranks = (uint32_t)ranks;
    if (job->command.count > 0) {
        return LS_OK;
    }
    const uint64_t crew = ls_run_file_crew(run);
    const bool is_open = ls_run_file_mesh_is_open(run); /* the run chooses, and checks it */
    if (ranks / crew > run->train.leaves && !is_open) {
        return ls_fail(LS_ERR_INVALID,
                       "%llu ranks are too many: each step is divided into %llu parts (train.leaves), so "
                       "some ranks would have no work; use at most %llu ranks",
                       (unsigned long long)ranks, (unsigned long long)run->train.leaves,
                       (unsigned long long)(run->train.leaves * crew));
    }
    if (ranks % crew != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "%llu ranks cannot divide a model as parallel.tensor, parallel.context and "
                       "parallel.pipeline say: use a multiple of %llu",
                       (unsigned long long)ranks, (unsigned long long)crew);
    }
    if (ranks > job->max_ranks || ranks < job->min_ranks) {
        return ls_fail(
            LS_ERR_INVALID,
            "ranks is %llu, but it must be in the range from job.min_ranks, %llu, to job.max_ranks, %llu",
            (unsigned long long)ranks, (unsigned long long)job->min_ranks,
            (unsigned long long)job->max_ranks);
    }
    spec->threads = run->train.threads != LS_AUTO_U64 ? (uint32_t)run->train.threads : 0;
    spec->steps = run->train.steps != LS_AUTO_U64 && run->train.epochs == 0.0 ? run->train.steps : 0;
    spec->step_tokens = run->model.context != LS_AUTO_U64 ? run->train.global_batch * run->model.context : 0;
    spec->leaves = run->train.leaves <= LS_JOB_RANKS_MAX ? (uint32_t)run->train.leaves : 0;
    if (job->elastic && crew == 1 && !is_open) { /* crews come and go as a whole */
        const uint64_t most = job->max_ranks < run->train.leaves ? job->max_ranks : run->train.leaves;
        spec->min_ranks = (uint32_t)job->min_ranks;
        spec->max_ranks = (uint32_t)most;
    }
    return LS_OK;
}

static uint64_t hash_of_data(const ls_run_file *run, const char *directory)
{
    if (run->job.command.count > 0 || run->data.train.count == 0) {
        return 0;
    }
    uint64_t hash = ls_xxh3(directory, strlen(directory), 0);
    for (uint64_t i = 0; i < run->data.train.count; i++) {
        const char *path = run->data.train.items[i].path;
        hash = ls_xxh3(path, strlen(path), path[0] == '/' ? 0 : hash);
    }
    return hash ? hash : 1;
}

/* No more than LS_JOB_LIST_MAX, with which a job is refused: paths need much more memory than
 * names. */
static void take_metrics(const ls_option_strings *metrics, ls_arena *arena, ls_job_spec *spec)
{
    const uint64_t count = metrics->count < LS_JOB_LIST_MAX ? metrics->count : LS_JOB_LIST_MAX;
    const char **items = ls_arena_new(arena, const char *, count);
    for (uint64_t i = 0; i < count; i++) {
        const char *name = metrics->items[i];
        const bool is_whole = name[0] == '/' || strcmp(name, "stdout") == 0;
        items[i] = is_whole ? name : ls_path_join(arena, spec->directory, name);
    }
    spec->metrics = (ls_option_strings){.items = items, .count = count};
}

static ls_status take_file(const json_t *request, const ls_run_file *run, ls_arena *arena, ls_job_spec *spec)
{
    const ls_run_job *job = &run->job;
    if (!spec->name) {
        spec->name = run->name;
    }
    if (!spec->account) {
        spec->account = job->account;
    }
    LS_TRY(check_name(spec->name));
    LS_TRY(check_account(spec->account));
    LS_TRY(read_ranks(request, run, spec));
    LS_TRY(read_after(request, job, arena, spec));
    LS_TRY(get_variables(request, &job->environment, arena, &spec->variables));
    const bool trains = job->command.count == 0;
    spec->command = job->command;
    spec->image = job->image;
    spec->image_options = job->image_options;
    take_metrics(&job->metrics, arena, spec);
    spec->share = job->share;
    spec->ranks_per_node = (uint32_t)job->ranks_per_node;
    spec->cpus_per_rank = (uint32_t)job->cpus;
    spec->memory_mib_per_rank = (uint32_t)((job->memory_bytes + (1 << 20) - 1) >> 20);
    spec->required = job->required;
    spec->preferred = job->preferred < job->required ? job->preferred : job->required;
    spec->spot = job->spot;
    spec->restartable = job->restartable == LS_AUTO ? trains : job->restartable == LS_YES;
    spec->interactive = job->interactive;
    spec->restarts_max = job->restartable == LS_NO ? 0 : (uint32_t)job->restarts_max;
    spec->log_bytes_max = job->log_bytes_max;
    spec->time_limit_s = job->time_limit_s;
    spec->max_cost_usd = job->max_cost_usd != LS_AUTO_F64 ? job->max_cost_usd : 0.0;
    spec->stall_s = run->alerts.stall_s;
    spec->begin_s = job->begin_s;
    spec->deadline_s = job->deadline_s;
    spec->grace_s = job->grace_s;
    spec->group = job->group;
    spec->group_running_max = (uint32_t)job->group_running_max;
    spec->asha = run->asha;
    spec->data_hash = hash_of_data(run, spec->directory);
    return LS_OK;
}

static ls_status read_priority(const json_t *request, ls_priority of_file, ls_priority *priority_out)
{
    const json_t *value = json_object_get(request, "priority");
    *priority_out = of_file;
    if (!value || json_is_null(value) || ls_priority_parse(json_string_value(value), priority_out)) {
        return LS_OK;
    }
    return ls_fail(LS_ERR_INVALID, "a job's priority must be low, normal or high");
}

ls_status ls_job_spec_parse(const json_t *request, ls_arena *arena, ls_job_spec *spec_out)
{
    ls_job_spec spec = {.file_name = "run.yaml", .key = ""};
    LS_TRY(check_members(request));
    LS_TRY(get_text(request, "file", LS_JOB_FILE_BYTES_MAX, true, &spec.file));
    LS_TRY(get_text(request, "directory", LS_JOB_PATH_BYTES_MAX, false, &spec.directory));
    LS_TRY(get_text(request, "file_name", LS_JOB_PATH_BYTES_MAX, false, &spec.file_name));
    LS_TRY(get_text(request, "name", LS_JOB_NAME_BYTES_MAX, false, &spec.name));
    LS_TRY(get_text(request, "account", LS_JOB_ACCOUNT_BYTES_MAX, false, &spec.account));
    LS_TRY(get_text(request, "key", LS_JOB_KEY_BYTES_MAX, false, &spec.key));
    LS_TRY(get_list(request, "set", arena, &spec.set));
    if (!spec.file) {
        return ls_fail(LS_ERR_INVALID,
                       "field \"file\" of a job is missing; it must be the text of a run file");
    }
    LS_TRY(check_directory(spec.directory));
    ls_run_file run;
    LS_TRY(ls_run_file_parse(spec.file, strlen(spec.file), spec.file_name, spec.set.items, spec.set.count,
                             arena, &run));
    if (ls_json_get_bool(request, "a job", "hold", run.job.hold, &spec.hold) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "submit");
    }
    LS_TRY(read_priority(request, run.job.priority, &spec.priority));
    LS_TRY(read_umask(request, &spec.umask));
    LS_TRY(take_file(request, &run, arena, &spec));
    *spec_out = spec;
    return LS_OK;
}
