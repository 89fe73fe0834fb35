// SPDX-License-Identifier: Apache-2.0
/* submit and sweep: queue one job, or one for each combination of values. */
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "cli/table.h"
#include "orchestration/client/terminal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what both share ---- */

typedef struct submit_settings {
    uint64_t ranks, random, running_max;
    const char *name, *account, *priority, *key;
    ls_option_strings set, after, env;
    bool hold, pty, json;
} submit_settings;

/* Options of both commands. */
#define ROWS_OF_BOTH                                                                                         \
    LS_ROW_U64(submit_settings, ranks, "auto", 1, 1 << 20,                                                   \
               "number of ranks of the job, each of which gets one device; auto: as in the run file",        \
               .letter = 'n', .allow_auto = true),                                                           \
        LS_ROW_TEXT(submit_settings, name, NULL, "name of the job, instead of the one in the run file",      \
                    .value_needed = true),                                                                   \
        LS_ROW_TEXT(submit_settings, account, NULL,                                                          \
                    "account to charge, instead of job.account; default: your own account",                  \
                    .value_needed = true),                                                                   \
        LS_ROW_TEXT(submit_settings, priority, NULL,                                                         \
                    "priority of the job, instead of job.priority: low, normal or high",                     \
                    .value_needed = true),                                                                   \
        LS_ROW_TEXTS(                                                                                        \
            submit_settings, env, "NAME[=VALUE]",                                                            \
            "pass this environment variable to the job, with VALUE or the value that it has "                \
            "here; PATH, HOME, LANG and similar ones are always passed, no others; may be repeated")

static void put_text(json_t *request, const char *key, const char *text)
{
    if (text[0]) {
        json_t *value = json_string(text);
        json_object_set_new(request, key, value ? value : json_string("?"));
    }
}

static void put_settings(json_t *request, const submit_settings *settings)
{
    put_text(request, "name", settings->name);
    put_text(request, "account", settings->account);
    put_text(request, "priority", settings->priority);
    if (settings->ranks != LS_AUTO_U64) {
        json_object_set_new(request, "ranks", json_integer((json_int_t)settings->ranks));
    }
}

static ls_status request_of(const submit_settings *settings, const char *path, ls_arena *arena,
                            json_t **request_out)
{
    LS_TRY(ls_queue_request(path, settings->env.items, (size_t)settings->env.count, arena, request_out));
    put_settings(*request_out, settings);
    return LS_OK;
}

/* ---- submit ---- */

static const ls_option submit_options[] = {
    ROWS_OF_BOTH,
    LS_ROW_TEXTS(submit_settings, set, "KEY=VALUE", "override a key of the run file; may be repeated"),
    LS_ROW_TEXTS(submit_settings, after, "JOB", "start only after job JOB has succeeded; may be repeated"),
    LS_ROW_TEXT(submit_settings, key, "TEXT",
                "any text of your choice: submitting again with the same text makes no second job, but "
                "prints the number of the first one",
                .value_needed = true),
    LS_ROW_BOOL(submit_settings, hold, "hold the job: it starts only after 'lockstep release'"),
    LS_ROW_BOOL(submit_settings, pty,
                "run COMMAND (default: your shell) in this terminal as soon as the job has its devices; the "
                "job ends when the program ends or the terminal is closed. When neither devices nor terminal "
                "are used for a while (idle.interactive of the queue), the program ends and the devices go "
                "back; Enter then starts it anew"),
    LS_ROW_JSON(submit_settings),
};

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

static void append_words(const char *const *words, size_t count, ls_text *text)
{
    for (size_t i = 0; i < count; i++) {
        json_t *word = json_string(words[i]);
        char *quoted = word ? json_dumps(word, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
        ls_text_printf(text, "    - %s\n", quoted ? quoted : "\"?\"");
        free(quoted);
        json_decref(word);
    }
}

/* A run file that runs the words after "--", in the terminal at `terminal` unless that is NULL.
 * JSON strings are YAML. */
static void append_run_file(const char *const *words, size_t count, const char *terminal, ls_text *text)
{
    const char *slash = strrchr(words[0], '/'), *name = slash ? slash + 1 : words[0];
    ls_text_append(text, "name: \"");
    for (size_t i = 0; name[i] && i < 60; i++) {
        const bool is_plain = isalnum((unsigned char)name[i]) || (i > 0 && strchr("._-", name[i]));
        ls_text_append_bytes(text, is_plain ? &name[i] : "_", 1);
    }
    ls_text_append(text, terminal ? "\"\njob:\n  restartable: false\n  interactive: true\n  command:\n"
                                  : "\"\njob:\n  command:\n");
    if (terminal) {
        char program[4096];
        const ssize_t bytes = readlink("/proc/self/exe", program, sizeof program - 1);
        program[bytes > 0 ? bytes : 0] = '\0';
        append_words((const char *const[]){program, "job-terminal", terminal, "--"}, 4, text);
    }
    append_words(words, count, text);
}

static ls_status request_of_command(const submit_settings *settings, const ls_invocation *invocation,
                                    const char *terminal, json_t **request_out)
{
    ls_text text = {0};
    if (invocation->trailing_count != invocation->word_count) {
        return ls_fail(LS_ERR_INVALID, "give either a run file or a program after '--', not both");
    }
    const char *shell = getenv("SHELL");
    shell = shell && shell[0] ? shell : "/bin/sh";
    if (invocation->word_count > 0) {
        append_run_file((const char *const *)invocation->words, invocation->word_count, terminal, &text);
    } else {
        append_run_file(&shell, 1, terminal, &text);
    }
    const ls_status status =
        ls_queue_request_of(ls_text_string(&text), text.bytes, "command line", settings->env.items,
                            (size_t)settings->env.count, request_out);
    ls_text_release(&text);
    if (status == LS_OK) {
        put_settings(*request_out, settings);
    }
    return status;
}

/* Adds what both kinds of request need, and submits. Takes over the request. */
static ls_status submit(const ls_invocation *invocation, json_t *request, json_t **answer_out)
{
    const submit_settings *settings = invocation->settings;
    put_text(request, "key", settings->key);
    json_object_set_new(request, "set", texts(&settings->set));
    if (settings->hold) { /* otherwise job.hold counts */
        json_object_set_new(request, "hold", json_true());
    }
    ls_status status = put_after(request, &settings->after);
    status = status != LS_OK ? status : ls_queue_check_run(request, invocation->arena);
    if (status != LS_OK) {
        json_decref(request);
        return status;
    }
    return ls_queue_post(request, answer_out, "/v1/jobs");
}

static ls_status submit_here(const ls_invocation *invocation, ls_pty *terminal)
{
    json_t *request = NULL, *answer = NULL;
    LS_TRY(request_of_command(invocation->settings, invocation, ls_pty_path(terminal), &request));
    const char *term = getenv("TERM");
    put_text(json_object_get(request, "environment"), "TERM", term ? term : "");
    LS_TRY(submit(invocation, request, &answer));
    const uint64_t job = (uint64_t)ls_queue_integer(answer, "job");
    json_decref(answer);
    return ls_queue_follow_pty(job, terminal);
}

static ls_status run_here(const ls_invocation *invocation)
{
    const submit_settings *settings = invocation->settings;
    ls_pty *terminal = NULL;
    if (settings->json || settings->key[0]) {
        return ls_fail(LS_ERR_INVALID, "--pty shows a program in this terminal: leave out --json and --key");
    }
    LS_TRY(ls_pty_listen(&terminal));
    const ls_status status = submit_here(invocation, terminal);
    ls_pty_close(terminal);
    return status;
}

static ls_status run_submit(const ls_invocation *invocation)
{
    const submit_settings *settings = invocation->settings;
    json_t *request = NULL, *answer = NULL;
    if (settings->pty) {
        return run_here(invocation);
    }
    if (invocation->trailing_count > 0) {
        LS_TRY(request_of_command(settings, invocation, NULL, &request));
    } else if (invocation->word_count == 1) {
        LS_TRY(request_of(settings, invocation->words[0], invocation->arena, &request));
    } else {
        return ls_fail(LS_ERR_INVALID, "give one run file, or a program after '--', as in 'lockstep submit "
                                       "--ranks 2 -- python3 script.py'");
    }
    LS_TRY(submit(invocation, request, &answer));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        printf("%" PRId64 "\n", ls_queue_integer(answer, "job"));
        ls_queue_print_estimate(answer, stderr); /* stdout has the number of the job alone */
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_submit = {
    .name = "submit",
    LS_WORDS("FILE | -- COMMAND...", 0, LS_QUEUE_JOBS_MAX),
    .summary = "add a job to the queue",
    .details =
        "FILE is a run file, or '-' for standard input. COMMAND is a program with its\n"
        "arguments, for a job without a run file. Without job.command the job trains, like\n"
        "'lockstep train FILE'. With job.command it runs that program, one process per\n"
        "rank, with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT set. Prints\n"
        "the number of the job. A job that could never run on these machines is refused with the reason\n"
        "(exit code 2).\n"
        "\n"
        "The job runs as you, in the current folder. A training job writes to ./runs/NAME\n"
        "and continues the run it finds there. If that is a run with other settings, the\n"
        "job writes to ./runs/NAME-JOB; so does each job of a sweep.\n"
        "\n"
        "Next: 'lockstep ps' lists jobs, 'lockstep why JOB' explains why one waits.\n"
        "\n"
        "Examples:\n"
        "  lockstep submit run.yaml\n"
        "  lockstep submit run.yaml --ranks 4 --priority high --set train.steps=500\n"
        "  job=$(lockstep submit run.yaml) && lockstep logs -f $job && lockstep wait $job\n"
        "  lockstep submit eval.yaml --after $job\n"
        "  lockstep submit --ranks 2 --set job.time_limit=1h -- python3 script.py --fast\n"
        "  lockstep submit --pty\n"
        "      a shell with a device, in this terminal",
    LS_SETTINGS(submit_settings, submit_options),
    .run = run_submit,
};

/* ---- sweep ---- */

static const ls_option sweep_options[] = {
    ROWS_OF_BOTH,
    LS_ROW_TEXTS(submit_settings, set, "KEY=A,B,..",
                 "run file key and the values to try for it; each combination of the values of all keys "
                 "becomes a job"),
    LS_ROW_U64(submit_settings, random, "0", 0, 1024,
               "queue only N of the combinations, spread evenly over all of them; 0: queue all"),
    LS_ROW_U64(submit_settings, running_max, "0", 0, 1 << 20,
               "maximum number of jobs of the sweep that run at once; 0: no maximum"),
    LS_ROW_JSON(submit_settings),
};

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
        return ls_fail(LS_ERR_INVALID, "--set %s: write --set KEY=A,B,.. with a key of the run file",
                       assignment);
    }
    char key[256];
    if ((size_t)(equals - assignment) >= sizeof key) {
        return ls_fail(LS_ERR_INVALID, "--set: a key has %zu characters, more than any key of a run file",
                       (size_t)(equals - assignment));
    }
    snprintf(key, sizeof key, "%.*s", (int)(equals - assignment), assignment);
    if (json_object_get(set, key)) {
        return ls_fail(LS_ERR_INVALID, "--set: %s is given twice; put all its values into one --set", key);
    }
    json_t *values = json_array();
    for (const char *at = equals + 1;; at++) {
        const size_t bytes = strcspn(at, ",");
        json_t *value = json_stringn(at, bytes);
        if (bytes == 0 || !value) {
            json_decref(value);
            json_decref(values);
            return ls_fail(LS_ERR_INVALID, "--set %s: a value is empty or not UTF-8", assignment);
        }
        if (has_value(values, value)) {
            json_decref(value);
            json_decref(values);
            return ls_fail(LS_ERR_INVALID,
                           "--set %s: a value is given twice; each job of a sweep must be different",
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
        return ls_fail(LS_ERR_INVALID,
                       "missing values to sweep over: give --set train.optimizer.lr=1e-3,3e-4");
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
    LS_WORDS("FILE", 1, 1),
    .summary = "queue a job for each combination of values",
    .details = "FILE is a run file, as for 'lockstep submit'. Each combination of the values\n"
               "given with --set becomes a job of one group. The jobs are queued together; if\n"
               "one of them could never run, none is queued. 'lockstep sweep show' compares\n"
               "them.\n"
               "\n"
               "With asha.first in the run file (or as --set asha.first=100), all jobs train\n"
               "that many steps and pause. The best of them, one in asha.eta, go on from their\n"
               "checkpoints to asha.eta times as many steps, and so on to the end of the run;\n"
               "the others stop. The job that wins has the bits of a run that never paused.\n"
               "\n"
               "Examples:\n"
               "  lockstep sweep run.yaml --set train.optimizer.lr=1e-3,3e-4 --set train.seed=1,2\n"
               "      four jobs\n"
               "  lockstep sweep run.yaml --set train.seed=1,2,3 --running-max 1\n"
               "      three jobs, one after the other\n"
               "  lockstep sweep run.yaml --set train.optimizer.lr=1e-2,3e-3,1e-3,3e-4 \\\n"
               "      --set train.seed=1,2,3,4 --set asha.first=100\n"
               "      16 jobs, of which 4 train beyond step 100",
    LS_SETTINGS(submit_settings, sweep_options),
    .run = run_sweep,
};
