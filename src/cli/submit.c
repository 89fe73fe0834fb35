// SPDX-License-Identifier: Apache-2.0
/* submit and sweep: one job, or one for each combination of values. */
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue.h"
#include "cli/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what both have ---- */

typedef struct submit_settings {
    uint64_t ranks, random, running_max;
    const char *name, *account, *priority;
    ls_option_strings set, after, env;
    bool hold, json;
} submit_settings;

#define FIELD(name) .offset = offsetof(submit_settings, name)

#define ROWS_OF_BOTH                                                                                         \
    {.key = "ranks",                                                                                         \
     .letter = 'n',                                                                                          \
     .type = LS_OPTION_U64,                                                                                  \
     FIELD(ranks),                                                                                           \
     .default_text = "auto",                                                                                 \
     .allow_auto = true,                                                                                     \
     .min = 1,                                                                                               \
     .max = 1 << 20,                                                                                         \
     .help = "devices of the job; auto: as the file says"},                                                  \
        {.key = "name",                                                                                      \
         .type = LS_OPTION_STRING,                                                                           \
         .value_needed = true,                                                                               \
         FIELD(name),                                                                                        \
         .default_text = "\"\"",                                                                             \
         .help = "instead of the file's name"},                                                              \
        {.key = "account",                                                                                   \
         .type = LS_OPTION_STRING,                                                                           \
         .value_needed = true,                                                                               \
         FIELD(account),                                                                                     \
         .default_text = "\"\"",                                                                             \
         .help = "who it is charged to, instead of job.account; without either, you"},                       \
        {.key = "priority",                                                                                  \
         .type = LS_OPTION_STRING,                                                                           \
         .value_needed = true,                                                                               \
         FIELD(priority),                                                                                    \
         .default_text = "\"\"",                                                                             \
         .help = "low, normal or high, instead of job.priority"},                                            \
    {                                                                                                        \
        .key = "env", .type = LS_OPTION_STRINGS, FIELD(env), .default_text = "[]",                           \
        .value_name = "NAME[=VALUE]",                                                                        \
        .help = "a variable of yours, or of this value, that the job gets, too; PATH, HOME, LANG and their " \
                "like it gets anyway, and the others not"                                                    \
    }

static void put_text(json_t *request, const char *key, const char *text)
{
    if (text[0]) {
        json_t *value = json_string(text);
        json_object_set_new(request, key, value ? value : json_string("?"));
    }
}

static ls_status request_of(const submit_settings *settings, const char *path, ls_arena *arena,
                            json_t **request_out)
{
    LS_TRY(ls_queue_request(path, settings->env.items, (size_t)settings->env.count, arena, request_out));
    put_text(*request_out, "name", settings->name);
    put_text(*request_out, "account", settings->account);
    put_text(*request_out, "priority", settings->priority);
    if (settings->ranks != LS_AUTO_U64) {
        json_object_set_new(*request_out, "ranks", json_integer((json_int_t)settings->ranks));
    }
    return LS_OK;
}

/* ---- submit ---- */

static const ls_option submit_options[] = {
    ROWS_OF_BOTH,
    {.key = "set",
     .type = LS_OPTION_STRINGS,
     FIELD(set),
     .default_text = "[]",
     .value_name = "KEY=VALUE",
     .help = "overrides a key of the run file"},
    {.key = "after",
     .type = LS_OPTION_STRINGS,
     FIELD(after),
     .default_text = "[]",
     .value_name = "JOB",
     .help = "starts when that job has succeeded"},
    {.key = "hold",
     .type = LS_OPTION_BOOL,
     FIELD(hold),
     .default_text = "false",
     .help = "does not start before 'lockstep release'"},
    LS_ROW_JSON(submit_settings),
};
static const ls_option_table submit_table = LS_OPTIONS(submit_options);

static json_t *texts(const ls_option_strings *strings)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < strings->count; i++) {
        json_t *text = json_string(strings->items[i]);
        json_array_append_new(list, text ? text : json_string("?"));
    }
    return list;
}

static ls_status put_after(json_t *request, const ls_option_strings *jobs)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < jobs->count; i++) {
        uint64_t job = 0;
        const ls_status status = ls_queue_job(jobs->items[i], &job);
        if (status != LS_OK) {
            json_decref(list);
            return ls_fail_within(status, "--after");
        }
        json_array_append_new(list, json_integer((json_int_t)job));
    }
    json_object_set_new(request, "after", list);
    return LS_OK;
}

static ls_status run_submit(const ls_invocation *invocation)
{
    const submit_settings *settings = invocation->settings;
    json_t *request = NULL, *answer = NULL;
    LS_TRY(request_of(settings, invocation->words[0], invocation->arena, &request));
    json_object_set_new(request, "set", texts(&settings->set));
    json_object_set_new(request, "hold", json_boolean(settings->hold));
    ls_status status = put_after(request, &settings->after);
    status = status != LS_OK ? status : ls_queue_check_run(request, invocation->arena);
    if (status != LS_OK) {
        json_decref(request);
        return status;
    }
    LS_TRY(ls_queue_post(request, &answer, "/v1/jobs"));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        printf("%" PRId64 "\n", ls_queue_integer(answer, "job"));
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_submit = {
    .name = "submit",
    .words = "FILE",
    .summary = "put a job into the queue of 'lockstep up'",
    .details = "FILE is a run file. Without job.command it trains, as 'lockstep train FILE' would; with it, "
               "any program "
               "runs as a gang:\n"
               "so many processes as there are ranks, each with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, "
               "MASTER_PORT set.\n"
               "Prints the job's number. What can never run on the machines there are is refused, and says "
               "why (exit code "
               "2).\n"
               "\nThe job runs in the current folder, as you. A training job writes to ./runs/NAME, and goes "
               "on with the run that is there; a run with\n"
               "other settings, and each job of a sweep, gets a folder of its own, ./runs/NAME-JOB.\n"
               "\nExamples:\n"
               "  lockstep submit run.yaml                          as the file says\n"
               "  lockstep submit run.yaml --ranks 4 --priority high --set train.steps=500\n"
               "  job=$(lockstep submit run.yaml) && lockstep logs -f $job && lockstep wait $job\n"
               "  lockstep submit eval.yaml --after $job            when that one has succeeded\n"
               "\nNext: 'lockstep ps' shows the queue, 'lockstep why JOB' why it waits.",
    .words_min = 1,
    .words_max = 1,
    .options = &submit_table,
    .settings_bytes = sizeof(submit_settings),
    .run = run_submit,
};

/* ---- sweep ---- */

static const ls_option sweep_options[] = {
    ROWS_OF_BOTH,
    {.key = "set",
     .type = LS_OPTION_STRINGS,
     FIELD(set),
     .default_text = "[]",
     .value_name = "KEY=A,B,..",
     .help = "values of a key; each combination of all keys' values is a job"},
    {.key = "random",
     .type = LS_OPTION_U64,
     FIELD(random),
     .default_text = "0",
     .min = 0,
     .max = 1024,
     .help = "only so many of the combinations, spread over all; 0: all"},
    {.key = "running_max",
     .type = LS_OPTION_U64,
     FIELD(running_max),
     .default_text = "0",
     .min = 0,
     .max = 1 << 20,
     .help = "so many of them run at once at most; 0: as many as fit"},
    LS_ROW_JSON(submit_settings),
};
static const ls_option_table sweep_table = LS_OPTIONS(sweep_options);

static bool has_value(const json_t *values, const json_t *value)
{
    for (size_t i = 0; i < json_array_size(values); i++) {
        if (json_equal(json_array_get(values, i), value)) {
            return true;
        }
    }
    return false;
}

/* "key=a,b,c" to set[key]. */
static ls_status put_values(json_t *set, const char *assignment)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment || equals[1] == '\0') {
        return ls_fail(LS_ERR_INVALID, "--set %s: write KEY=A,B,.. with a key of the run file", assignment);
    }
    char key[256];
    if ((size_t)(equals - assignment) >= sizeof key) {
        return ls_fail(LS_ERR_INVALID, "--set: a key of %zu characters is none of a run file",
                       (size_t)(equals - assignment));
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    if (json_object_get(set, key)) {
        return ls_fail(LS_ERR_INVALID, "--set: %s is there twice; put all its values behind one", key);
    }
    json_t *values = json_array();
    for (const char *at = equals + 1;; at++) {
        const size_t bytes = strcspn(at, ",");
        json_t *value = json_stringn(at, bytes);
        if (bytes == 0 || !value) {
            json_decref(value);
            json_decref(values);
            return ls_fail(LS_ERR_INVALID, "--set %s: an empty value, or one that is not UTF-8", assignment);
        }
        if (has_value(values, value)) {
            json_decref(value);
            json_decref(values);
            return ls_fail(LS_ERR_INVALID, "--set %s: a value is there twice, and so would be a job",
                           assignment);
        }
        json_array_append_new(values, value);
        at += bytes;
        if (*at == '\0') {
            break;
        }
    }
    json_object_set_new(set, key, values);
    return LS_OK;
}

static ls_status sweep_request(const submit_settings *settings, const ls_invocation *invocation,
                               json_t **request_out)
{
    if (settings->set.count == 0) {
        return ls_fail(LS_ERR_INVALID, "a sweep of what? Give values: --set train.optimizer.lr=1e-3,3e-4");
    }
    json_t *set = json_object(), *request = NULL;
    for (uint64_t i = 0; i < settings->set.count; i++) {
        const ls_status status = put_values(set, settings->set.items[i]);
        if (status != LS_OK) {
            json_decref(set);
            return status;
        }
    }
    const ls_status status = request_of(settings, invocation->words[0], invocation->arena, &request);
    if (status != LS_OK) {
        json_decref(set);
        return status;
    }
    json_object_set_new(request, "set", set);
    if (settings->random > 0) {
        json_object_set_new(request, "samples", json_integer((json_int_t)settings->random));
    }
    if (settings->running_max > 0) {
        json_object_set_new(request, "running_max", json_integer((json_int_t)settings->running_max));
    }
    *request_out = request;
    return LS_OK;
}

static ls_status run_sweep(const ls_invocation *invocation)
{
    const submit_settings *settings = invocation->settings;
    json_t *request = NULL, *answer = NULL;
    LS_TRY(sweep_request(settings, invocation, &request));
    ls_status status = ls_queue_check_run(request, invocation->arena);
    if (status != LS_OK) {
        json_decref(request);
        return status;
    }
    LS_TRY(ls_queue_post(request, &answer, "/v1/sweeps"));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        const char *group = ls_queue_string(answer, "group");
        ls_text text = {0};
        status = ls_queue_append_group(group ? group : "", invocation->arena, ls_terminal_width(), &text);
        fputs(ls_text_string(&text), stdout);
        ls_text_release(&text);
    }
    json_decref(answer);
    return status;
}

const ls_command ls_command_sweep = {
    .name = "sweep",
    .words = "FILE",
    .summary = "queue a job for each combination of values",
    .details =
        "FILE is a run file, as for 'lockstep submit'. All combinations of the values behind --set become "
        "jobs of "
        "one group; they are\n"
        "queued together or, when one of them could never run, not at all. 'lockstep ps --group GROUP' shows "
        "how "
        "far they are.\n"
        "\nExamples:\n"
        "  lockstep sweep run.yaml --set train.optimizer.lr=1e-3,3e-4 --set train.seed=1,2,3     six jobs\n"
        "  lockstep sweep run.yaml --set train.optimizer.lr=1e-3,3e-4,1e-4 --running-max 1       one after "
        "the other",
    .words_min = 1,
    .words_max = 1,
    .options = &sweep_table,
    .settings_bytes = sizeof(submit_settings),
    .run = run_sweep,
};
