// SPDX-License-Identifier: Apache-2.0
/* pause, resume, drain, undrain, maintenance: the upkeep of the machines of the queue. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct upkeep_settings {
    const char *reason, *begin;
    double in_s, for_s;
    uint64_t cancel;
    bool json;
} upkeep_settings;

#define ROW_REASON LS_ROW_TEXT(upkeep_settings, reason, "TEXT", "reason, shown to people whose jobs wait")

static const ls_option reason_options[] = {ROW_REASON, LS_ROW_JSON(upkeep_settings)};
static const ls_option plain_options[] = {LS_ROW_JSON(upkeep_settings)};

/* ---- what they print ---- */

static void append_moment(ls_text *text, double time_s)
{
    const time_t whole = (time_t)time_s;
    struct tm local;
    char date[32] = "?";
    if (localtime_r(&whole, &local)) {
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
    }
    ls_text_append(text, date);
}

/* ", by ann 5 min 00 s ago: new disks" */
static void append_note(ls_text *text, const json_t *note)
{
    const char *by = ls_queue_string(note, "by"), *reason = ls_queue_string(note, "reason");
    const double ago_s = ls_clock_wall_s() - ls_queue_number(note, "since");
    ls_text_printf(text, ", by %s %s ago", by ? by : "?", ls_duration_of(fmax(0.0, ago_s)).text);
    if (reason) {
        ls_text_append(text, ": ");
        ls_text_append_printable(text, reason, strlen(reason), "");
    }
    ls_text_append(text, "\n");
}

/* Whether some machine can start jobs, according to `lockstep nodes`; yes when it does not say. */
static bool has_machine_in_use(const json_t *upkeep)
{
    const json_t *node;
    json_t *answer = NULL;
    size_t i;
    if (json_object_size(json_object_get(upkeep, "drained")) == 0) {
        return true;
    }
    if (ls_queue_get(&answer, "/v1/nodes") != LS_OK) {
        ls_error_clear();
        return true;
    }
    const json_t *nodes = json_object_get(answer, "nodes");
    bool found = json_array_size(nodes) == 0;
    json_array_foreach(nodes, i, node)
    {
        const char *state = ls_queue_string(node, "state");
        found = found || (state && strcmp(state, "up") == 0);
    }
    json_decref(answer);
    return found;
}

/* The maintenance of this moment; NULL: there is none. */
static const json_t *window_now(const json_t *upkeep)
{
    const json_t *windows = json_object_get(upkeep, "maintenance");
    const double now_s = ls_clock_wall_s();
    for (size_t i = 0; i < json_array_size(windows); i++) {
        const json_t *window = json_array_get(windows, i);
        if (ls_queue_number(window, "begin") <= now_s && now_s < ls_queue_number(window, "end")) {
            return window;
        }
    }
    return NULL;
}

/* Whether jobs start, and if not, what prevents it. */
static void append_verdict(ls_text *text, const json_t *upkeep)
{
    const json_t *paused = json_object_get(upkeep, "paused"), *window = window_now(upkeep);
    if (json_is_object(paused)) {
        ls_text_append(text, "the queue is paused");
        append_note(text, paused);
    } else if (window) {
        ls_text_append(text, "no job starts: there is maintenance until ");
        append_moment(text, ls_queue_number(window, "end"));
        ls_text_append(text, "\n");
    } else if (!has_machine_in_use(upkeep)) {
        ls_text_append(text, "no job starts: every machine is drained or down\n");
    } else {
        ls_text_append(text, "the queue starts jobs\n");
    }
}

static void append_upkeep(ls_text *text, const json_t *upkeep)
{
    const json_t *windows = json_object_get(upkeep, "maintenance");
    const char *node;
    json_t *note;
    append_verdict(text, upkeep);
    json_object_foreach(json_object_get(upkeep, "drained"), node, note)
    {
        ls_text_printf(text, "node %s is drained", node);
        append_note(text, note);
    }
    for (size_t i = 0; i < json_array_size(windows); i++) {
        const json_t *window = json_array_get(windows, i);
        ls_text_printf(text, "maintenance %lld: from ", (long long)ls_queue_integer(window, "window"));
        append_moment(text, ls_queue_number(window, "begin"));
        ls_text_append(text, " to ");
        append_moment(text, ls_queue_number(window, "end"));
        append_note(text, window);
    }
}

/* upkeep: of an answer. */
static void print_upkeep(const upkeep_settings *settings, const json_t *upkeep)
{
    ls_text text = {0};
    if (settings->json) {
        ls_print_json(upkeep);
    } else {
        append_upkeep(&text, upkeep);
        fputs(ls_text_string(&text), stdout);
    }
    ls_text_release(&text);
}

/* Sends the request with the reason, if any, and prints the state after it. Takes over the body. */
static ls_status change(const upkeep_settings *settings, const char *path, json_t *body)
{
    json_t *answer = NULL;
    if (settings->reason && settings->reason[0]) {
        json_t *reason = json_string(settings->reason);
        json_object_set_new(body, "reason", reason ? reason : json_string("?"));
    }
    LS_TRY(ls_queue_post(body, &answer, "%s", path));
    print_upkeep(settings, answer);
    json_decref(answer);
    return LS_OK;
}

/* ---- pause, resume ---- */

static ls_status run_pause(const ls_invocation *invocation)
{
    return change(invocation->settings, "/v1/pause", json_object());
}

static ls_status run_resume(const ls_invocation *invocation)
{
    return change(invocation->settings, "/v1/resume", json_object());
}

const ls_command ls_command_pause = {
    .name = "pause",
    .words = "",
    .summary = "let no more jobs of the queue start",
    .details = "Running jobs continue, and jobs can be submitted, but none starts until 'lockstep\n"
               "resume'. Only the user who runs the daemon may do that. A pause remains in\n"
               "force when the daemon is restarted.\n"
               "\n"
               "Example:\n"
               "  lockstep pause --reason 'the file server is being repaired'",
    LS_SETTINGS(upkeep_settings, reason_options),
    .run = run_pause,
};

const ls_command ls_command_resume = {
    .name = "resume",
    .words = "",
    .summary = "let jobs of the queue start again after a pause",
    .details = "Ends the effect of 'lockstep pause'.\n"
               "\n"
               "Example:\n"
               "  lockstep resume",
    LS_SETTINGS(upkeep_settings, plain_options),
    .run = run_resume,
};

/* ---- drain, undrain ---- */

static json_t *body_with_node(const ls_invocation *invocation)
{
    json_t *name = invocation->word_count > 0 ? json_string(invocation->words[0]) : NULL;
    return invocation->word_count > 0 ? json_pack("{s:o}", "node", name ? name : json_string("?"))
                                      : json_object();
}

static ls_status run_drain(const ls_invocation *invocation)
{
    return change(invocation->settings, "/v1/drain", body_with_node(invocation));
}

static ls_status run_undrain(const ls_invocation *invocation)
{
    return change(invocation->settings, "/v1/undrain", body_with_node(invocation));
}

const ls_command ls_command_drain = {
    .name = "drain",
    LS_WORDS("[NODE]", 0, 1),
    .summary = "let no more jobs start on a machine",
    .details = "Jobs that run on the machine continue; when they have ended, 'lockstep nodes'\n"
               "shows it as drained. NODE is a name that 'lockstep nodes' prints, and is not\n"
               "needed when there is only one machine. With Slurm, use scontrol.\n"
               "\n"
               "Example:\n"
               "  lockstep drain --reason 'GPU 3 reports errors'",
    LS_SETTINGS(upkeep_settings, reason_options),
    .run = run_drain,
};

const ls_command ls_command_undrain = {
    .name = "undrain",
    LS_WORDS("[NODE]", 0, 1),
    .summary = "put a drained machine back into use",
    .details = "Ends the effect of 'lockstep drain'.\n"
               "\n"
               "Example:\n"
               "  lockstep undrain",
    LS_SETTINGS(upkeep_settings, plain_options),
    .run = run_undrain,
};

/* ---- maintenance ---- */

static const ls_option maintenance_options[] = {
    LS_ROW_TEXT(upkeep_settings, begin, "'YYYY-MM-DD HH:MM'",
                "announce maintenance that begins at this local time; needs --for"),
    LS_ROW_DURATION(upkeep_settings, in, in_s, "auto", 0, 1e8,
                    "announce maintenance that begins after this time; needs --for", .allow_auto = true),
    LS_ROW(upkeep_settings, "for", for_s, LS_OPTION_DURATION, "auto",
           "length of the maintenance that --begin or --in announces", .min = 1, .max = 1e8,
           .allow_auto = true),
    LS_ROW_U64(upkeep_settings, cancel, "0", 0, 1000,
               "cancel the maintenance with this number, or end it if it has begun; 0: none",
               .value_name = "N"),
    ROW_REASON,
    LS_ROW_JSON(upkeep_settings),
};

static ls_status read_moment(const char *text, double *time_out)
{
    struct tm local = {.tm_isdst = -1};
    const char *end = strptime(text, "%Y-%m-%d %H:%M", &local);
    end = end ? end : strptime(text, "%Y-%m-%dT%H:%M", &local);
    if (!end || *end != '\0') {
        return ls_fail(LS_ERR_INVALID, "--begin is '%.40s'; write a local time as '2026-11-30 08:00'", text);
    }
    *time_out = (double)mktime(&local);
    return LS_OK;
}

static ls_status show_upkeep(const upkeep_settings *settings)
{
    json_t *status = NULL;
    LS_TRY(ls_queue_get(&status, "/v1/status"));
    print_upkeep(settings, json_object_get(status, "upkeep"));
    json_decref(status);
    return LS_OK;
}

static ls_status run_maintenance(const ls_invocation *invocation)
{
    const upkeep_settings *settings = invocation->settings;
    const bool is_soon = settings->in_s != LS_AUTO_F64, is_dated = settings->begin[0] != '\0';
    double begin_s = ls_clock_wall_s() + settings->in_s;
    char path[64];
    if (settings->cancel > 0) {
        snprintf(path, sizeof path, "/v1/maintenance/%llu/cancel", (unsigned long long)settings->cancel);
        return change(&(upkeep_settings){.json = settings->json}, path, json_object());
    }
    if (!is_soon && !is_dated && settings->for_s == LS_AUTO_F64) {
        return show_upkeep(settings);
    }
    if (is_soon == is_dated || settings->for_s == LS_AUTO_F64) {
        return ls_fail(
            LS_ERR_INVALID,
            "give the length of the maintenance with --for, and its beginning with either --begin or --in");
    }
    if (is_dated) {
        LS_TRY(read_moment(settings->begin, &begin_s));
    }
    return change(settings, "/v1/maintenance",
                  json_pack("{s:f, s:f}", "begin", begin_s, "end", begin_s + settings->for_s));
}

const ls_command ls_command_maintenance = {
    .name = "maintenance",
    .words = "",
    .summary = "list or announce times in which nothing runs",
    .details = "In the time of maintenance no job runs. Training runs and other jobs that can\n"
               "continue later may start before it, and save and stop when it begins. Any other\n"
               "job starts only if its time limit (job.time_limit) ends before. Whatever still\n"
               "runs when maintenance begins is ended. Without options, prints pauses, drained\n"
               "machines and maintenance.\n"
               "\n"
               "Examples:\n"
               "  lockstep maintenance --begin '2026-11-30 08:00' --for 4h --reason 'new disks'\n"
               "  lockstep maintenance --in 2h --for 30m\n"
               "  lockstep maintenance --cancel 1",
    LS_SETTINGS(upkeep_settings, maintenance_options),
    .run = run_maintenance,
};
