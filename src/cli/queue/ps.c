// SPDX-License-Identifier: Apache-2.0
/* ps: lists jobs, or shows one of them. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "cli/table.h"
#include "orchestration/client/client.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void print_text(ls_text *text)
{
    fputs(ls_text_string(text), stdout);
    ls_text_release(text);
}

/* ---- ps ---- */

typedef struct ps_settings {
    const char *account, *user, *state, *group;
    uint64_t limit, before;
    bool all, wide, json;
} ps_settings;

static const ls_option ps_options[] = {
    LS_ROW_BOOL(ps_settings, all, "list jobs that have ended as well, at most --limit of them",
                .letter = 'a'),
    LS_ROW_TEXT(ps_settings, account, NULL, "list only jobs of this account"),
    LS_ROW_TEXT(ps_settings, user, NULL, "list only jobs of this user"),
    LS_ROW_TEXT(ps_settings, state, NULL, "list only jobs in this state: queued, running, failed, ..."),
    LS_ROW_TEXT(ps_settings, group, NULL,
                "list the jobs of this sweep or group in one table, with the values they try, their steps "
                "and losses"),
    LS_ROW_U64(ps_settings, limit, "1000", 1, 10000,
               "maximum number of ended jobs to list; waiting and running jobs are always listed"),
    LS_ROW_U64(ps_settings, before, "0", 0, 999999999999999,
               "list only jobs that ended before job JOB did; 0: list those that ended last",
               .value_name = "JOB"),
    LS_ROW_BOOL(ps_settings, wide,
                "print names and reasons in full, even when lines are wider than the terminal",
                .letter = 'w'),
    LS_ROW_JSON(ps_settings),
};

static void put_filter(ls_text *path, const char *key, const char *value)
{
    if (value[0]) {
        ls_text_printf(path, "&%s=", key);
        ls_client_append_escaped(path, value);
    }
}

/* The sweeps among the listed jobs, one line each. */
static void append_groups(const json_t *jobs, ls_text *text)
{
    json_t *groups = json_object();
    for (size_t i = 0; i < json_array_size(jobs); i++) {
        const char *group = ls_queue_string(json_array_get(jobs, i), "group");
        if (group) {
            const json_int_t before = json_integer_value(json_object_get(groups, group));
            json_object_set_new(groups, group, json_integer(before + 1));
        }
    }
    const char *group = NULL;
    json_t *count = NULL;
    json_object_foreach(groups, group, count)
    {
        ls_text_append(text, "\n");
        ls_text_append_printable(text, group, strlen(group), "");
        ls_text_printf(text, ": %" PRId64 " of these jobs; 'lockstep ps --group ",
                       (int64_t)json_integer_value(count));
        ls_text_append_printable(text, group, strlen(group), "");
        ls_text_append(text, "' compares them");
    }
    ls_text_append(text, json_object_size(groups) > 0 ? "\n" : "");
    json_decref(groups);
}

/* ---- one job ---- */

static void append_line(ls_text *text, const char *name, const char *value)
{
    if (value) {
        ls_text_printf(text, "%-12s ", name);
        ls_text_append_printable(text, value, strlen(value), "");
        ls_text_append(text, "\n");
    }
}

static void append_moment(ls_text *text, const json_t *job, const char *name)
{
    const double ago_s = ls_clock_wall_s() - ls_queue_number(job, name);
    if (isfinite(ago_s)) {
        ls_text_printf(text, "%-12s %s ago\n", name, ls_duration_of(fmax(0.0, ago_s)).text);
    }
}

/* "n0: 0 1 4" */
static void append_places(ls_text *text, const json_t *nodes)
{
    for (size_t i = 0; i < json_array_size(nodes); i++) {
        const json_t *devices = json_object_get(json_array_get(nodes, i), "devices");
        const char *node = ls_queue_string(json_array_get(nodes, i), "node");
        ls_text line = {0};
        ls_text_printf(&line, "%s:", node ? node : "?");
        for (size_t k = 0; k < json_array_size(devices); k++) {
            ls_text_printf(&line, " %" PRId64, (int64_t)json_integer_value(json_array_get(devices, k)));
        }
        append_line(text, i == 0 ? "devices" : "", ls_text_string(&line));
        ls_text_release(&line);
    }
}

/* "step 120 of 1000", and when it ends. */
static void append_progress(ls_text *text, const json_t *job)
{
    const int64_t step = ls_queue_integer(job, "step"), steps = ls_queue_integer(job, "steps");
    const double left_s = ls_queue_number(job, "ends") - ls_clock_wall_s();
    if (step > 0) {
        ls_text_printf(text, "%-12s %" PRId64, "step", step);
        if (steps > 0) {
            ls_text_printf(text, " of %" PRId64, steps);
        }
        ls_text_append(text, "\n");
    }
    if (isfinite(left_s)) {
        ls_text_printf(text, "%-12s in %s\n", "ends", ls_duration_of(fmax(0.0, left_s)).text);
    }
}

/* "to take 12m, according to the calibration of ..." */
static void append_plan(ls_text *text, const json_t *job)
{
    const json_t *plan = json_object_get(json_object_get(job, "foresight"), "plan");
    const double run_s = ls_queue_number(plan, "run_s");
    const char *source = ls_queue_string(plan, "source");
    if (isfinite(run_s) && source) {
        ls_text_printf(text, "%-12s to take %s, according to the %s\n", "planned", ls_duration_of(run_s).text,
                       source);
    }
}

/* "1.20 of at most 5.00; about 3.10 more expected" */
static void append_cost(ls_text *text, const json_t *job)
{
    const double cost = ls_queue_number(job, "cost"), cap = ls_queue_number(job, "max_cost");
    const double ahead = ls_queue_number(job, "cost_ahead");
    if (isfinite(cost)) {
        ls_text_printf(text, "%-12s %.2f", "cost", cost);
        if (isfinite(cap)) {
            ls_text_printf(text, " of at most %.2f (job.max_cost)", cap);
        }
        if (isfinite(ahead)) {
            ls_text_printf(text, "; about %.2f more expected", ahead);
        }
        ls_text_append(text, "\n");
    }
}

/* "3 s later than predicted 2 min before it". Only for what has happened after a prediction. */
static void append_foresight(ls_text *text, const json_t *job, const char *title, const char *what,
                             const char *said, const char *happened)
{
    const json_t *seen = json_object_get(job, "foresight");
    const double what_s = ls_queue_number(seen, what), said_s = ls_queue_number(seen, said);
    const double was_s = ls_queue_number(seen, happened);
    if (!isfinite(what_s) || !isfinite(said_s) || !isfinite(was_s) || was_s - said_s < 1.0) {
        return;
    }
    const double off_s = was_s - what_s;
    ls_text_printf(text, "%-12s ", title);
    if (fabs(off_s) >= 1.0) {
        ls_text_printf(text, "%s %s than", ls_duration_of(fabs(off_s)).text,
                       off_s < 0.0 ? "earlier" : "later");
    } else {
        ls_text_append(text, "as");
    }
    ls_text_printf(text, " predicted %s before it\n", ls_duration_of(was_s - said_s).text);
}

static void append_job(ls_text *text, const json_t *job)
{
    ls_text_printf(text, "job %" PRId64 " ", ls_queue_integer(job, "job"));
    append_line(text, "", ls_queue_string(job, "name"));
    static const char *const words[] = {"state", "why",     "account",   "user",     "priority",
                                        "group", "run_dir", "directory", "file_name"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        append_line(text, words[i], ls_queue_string(job, words[i]));
    }
    const json_t *set = json_object_get(job, "set");
    for (size_t i = 0; i < json_array_size(set); i++) {
        append_line(text, i == 0 ? "set" : "", json_string_value(json_array_get(set, i)));
    }
    ls_text_printf(text, "%-12s %" PRId64 " (%" PRId64 " to %" PRId64 ")\n", "ranks",
                   ls_queue_integer(job, "ranks"), ls_queue_integer(job, "min_ranks"),
                   ls_queue_integer(job, "max_ranks"));
    append_places(text, json_object_get(job, "nodes"));
    append_moment(text, job, "submitted");
    append_moment(text, job, "started");
    append_moment(text, job, "ended");
    append_progress(text, job);
    append_cost(text, job);
    append_plan(text, job);
    append_foresight(text, job, "start", "start", "start_said", "started");
    const char *state = ls_queue_string(job, "state");
    if (state && strcmp(state, "SUCCEEDED") == 0) { /* only an end by itself was predicted */
        append_foresight(text, job, "end", "end", "end_said", "ended");
    }
    /* of its last start; those of earlier starts are in its events */
    if (ls_queue_has_ended(ls_queue_string(job, "state")) &&
        json_is_integer(json_object_get(job, "exit_code"))) {
        ls_text_printf(text, "%-12s %" PRId64 "\n", "exit code", ls_queue_integer(job, "exit_code"));
    }
    ls_text_printf(text, "%-12s %" PRId64 "\n%-12s %" PRId64 "\n", "preempted",
                   ls_queue_integer(job, "preemptions"), "restarted", ls_queue_integer(job, "restarts"));
}

static ls_status show_job(const ps_settings *settings, const char *word)
{
    uint64_t number = 0;
    json_t *job = NULL;
    ls_text text = {0};
    LS_TRY(ls_queue_job(word, &number));
    LS_TRY(ls_queue_get(&job, "/v1/jobs/%" PRIu64, number));
    if (settings->json) {
        ls_print_json(job);
    } else {
        append_job(&text, job);
        print_text(&text);
    }
    json_decref(job);
    return LS_OK;
}

static ls_status ask_jobs(const ps_settings *settings, json_t **answer_out)
{
    ls_text path = {0};
    ls_text_printf(&path, "/v1/jobs?limit=%" PRIu64, settings->limit);
    ls_text_append(&path, settings->all || settings->group[0] ? "&all=true" : "");
    if (settings->before > 0) {
        ls_text_printf(&path, "&before=%" PRIu64, settings->before);
    }
    put_filter(&path, "account", settings->account);
    put_filter(&path, "user", settings->user);
    put_filter(&path, "state", settings->state);
    put_filter(&path, "group", settings->group);
    const ls_status status = ls_queue_get(answer_out, "%s", ls_text_string(&path));
    ls_text_release(&path);
    return status;
}

/* Why nothing starts, when the queue is paused. */
static void append_pause(ls_text *text)
{
    json_t *status = NULL;
    if (ls_queue_get(&status, "/v1/status") != LS_OK) {
        ls_error_clear(); /* the list is there without it */
        return;
    }
    const json_t *note = json_object_get(json_object_get(status, "upkeep"), "paused");
    const char *by = ls_queue_string(note, "by"), *reason = ls_queue_string(note, "reason");
    if (json_is_object(note)) {
        ls_text_printf(text, "the queue is paused (by %s%s", by ? by : "?", reason ? ": " : "");
        ls_text_append_printable(text, reason ? reason : "", reason ? strlen(reason) : 0, "");
        ls_text_append(text, "): no job starts until 'lockstep resume'\n");
    }
    json_decref(status);
}

static void append_list(const ps_settings *settings, const json_t *answer, ls_arena *arena, size_t width,
                        ls_text *text)
{
    const json_t *jobs = json_object_get(answer, "jobs");
    if (json_array_size(jobs) == 0) {
        const bool is_filtered = settings->account[0] || settings->user[0] || settings->state[0];
        ls_text_printf(text, "no %sjobs%s\n", is_filtered ? "such " : "",
                       settings->all || settings->before > 0
                           ? ""
                           : " are waiting or running; --all lists jobs that have ended as well");
        append_pause(text);
        return;
    }
    ls_queue_append_jobs(jobs, arena, width, text);
    append_groups(jobs, text);
    const int64_t before = ls_queue_integer(answer, "before");
    if (before > 0) {
        ls_text_printf(text, "\nearlier jobs: lockstep ps --all --before %" PRId64 "\n", before);
    }
}

static ls_status run_ps(const ls_invocation *invocation)
{
    const ps_settings *settings = invocation->settings;
    if (invocation->word_count == 1) {
        return show_job(settings, invocation->words[0]);
    }
    ls_text text = {0};
    const size_t width = settings->wide ? 0 : ls_terminal_width();
    if (settings->group[0] && !settings->json) {
        const ls_status status = ls_queue_append_group(settings->group, invocation->arena, width, &text);
        print_text(&text);
        return status;
    }
    json_t *answer = NULL;
    LS_TRY(ask_jobs(settings, &answer));
    if (settings->json) {
        ls_print_json(answer);
    } else {
        append_list(settings, answer, invocation->arena, width, &text);
        print_text(&text);
    }
    json_decref(answer);
    return LS_OK;
}

const ls_command ls_command_ps = {
    .name = "ps",
    LS_WORDS("[JOB]", 0, 1),
    .summary = "list jobs: which run, which wait, and why",
    .details = "Prints one line per job. FOR is the time for which the job has waited or run,\n"
               "or the time since it ended. LEFT is the time until it ends, by its steps or its\n"
               "time limit. WHY is the short form of 'lockstep why JOB'. Jobs of other users\n"
               "show only number, state, account and ranks. With JOB, prints everything about\n"
               "that job.\n"
               "\n"
               "Examples:\n"
               "  lockstep ps\n"
               "  lockstep ps --all --limit 20\n"
               "      also the twenty jobs that ended last\n"
               "  lockstep ps --group sweep-12\n"
               "      the jobs of a sweep with their values and losses",
    LS_SETTINGS(ps_settings, ps_options),
    .run = run_ps,
};
