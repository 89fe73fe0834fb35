// SPDX-License-Identifier: Apache-2.0
/* why: what a job waits for, which jobs hold it, when it starts, what would help. */
#include "base/clock.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "cli/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct why_settings {
    bool json;
} why_settings;

static const ls_option why_options[] = {LS_ROW_JSON(why_settings)};

static void append_text(ls_text *text, const json_t *object, const char *key)
{
    const char *string = ls_queue_string(object, key);
    ls_text_append_printable(text, string ? string : "", strlen(string ? string : ""), "");
}

static void append_head(const json_t *why, ls_text *text)
{
    const char *state = ls_queue_string(why, "state");
    ls_text_printf(text, "job %" PRId64 " is %s: ", ls_queue_integer(why, "job"), state ? state : "?");
    append_text(text, why, "text");
    ls_text_append(text, "\n");
    const char *from = ls_queue_string(why, "from");
    if (from && strcmp(from, "slurm") == 0) {
        ls_text_append(text, "(reported by Slurm, which schedules these jobs)\n");
    }
}

/* The factors of its rank in the queue, each at most its weight. */
static void append_factors(const json_t *factors, ls_text *text)
{
    static const char *const names[] = {"priority", "fair", "age", "size"};
    ls_text parts = {0};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const int64_t part = ls_queue_integer(factors, names[i]) / 65536;
        if (part != 0) {
            ls_text_printf(&parts, "%s%s %" PRId64, parts.bytes > 0 ? " + " : "", names[i], part);
        }
    }
    if (parts.bytes > 0) {
        ls_text_printf(text, ": %s", ls_text_string(&parts));
    }
    ls_text_release(&parts);
}

static void append_eta(const json_t *why, ls_text *text)
{
    const double eta_s = ls_queue_number(why, "eta_s");
    if (isfinite(eta_s)) {
        ls_text_printf(text, "expected to start in %s%s%s\n", ls_duration_of(eta_s).text,
                       json_is_true(json_object_get(why, "eta_is_latest")) ? " at the latest" : "",
                       json_is_true(json_object_get(why, "eta_is_reserved")) ? ", reserved" : "");
    }
    const int64_t rank = ls_queue_integer(why, "rank"), pending = ls_queue_integer(why, "pending");
    if (rank > 0) {
        ls_text_printf(text, "number %" PRId64 " of %" PRId64 " in the queue", rank, pending);
        const json_t *factors = json_object_get(why, "factors");
        append_factors(factors, text);
        ls_text_append(text, "\n");
    }
}

/* The most free devices in one node, leaf and so on; only for a job that waits for placement. */
static void append_levels(const json_t *why, ls_text *text)
{
    const char *stage = ls_queue_string(why, "stage"), *level = NULL;
    const json_t *levels = json_object_get(why, "by_level");
    if (!levels || !stage || strcmp(stage, "placement") != 0) {
        return;
    }
    ls_text_append(text, "most free devices in one");
    json_t *free_most = NULL;
    const char *separator = " ";
    json_object_foreach((json_t *)(uintptr_t)levels, level, free_most)
    {
        ls_text_printf(text, "%s%s %" PRId64, separator, level, (int64_t)json_integer_value(free_most));
        separator = ", ";
    }
    ls_text_append(text, "\n");
}

static void append_blockers(const json_t *blockers, ls_arena *arena, ls_text *text)
{
    static const char *const titles[] = {"HELD BY", "DEVICES", "ENDS IN", "BY ITS", "NAME"};
    static const bool right[] = {true, true, true, false, false};
    ls_table table = {.titles = titles, .right = right, .columns = 5, .arena = arena};
    const double now_s = ls_clock_wall_s();
    for (size_t i = 0; i < json_array_size(blockers); i++) {
        const json_t *blocker = json_array_get(blockers, i);
        const double ends_s = ls_queue_number(blocker, "ends");
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(blocker, "job"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(blocker, "devices"));
        ls_table_add(&table, isfinite(ends_s) ? ls_duration_of(fmax(0.0, ends_s - now_s)).text : "not known");
        ls_table_add(&table, ls_queue_string(blocker, "ends_from"));
        ls_table_add(&table, ls_queue_string(blocker, "name"));
    }
    if (table.count > 0) {
        ls_text_append(text, "\n");
        ls_table_append(&table, ls_terminal_width(), text);
    }
}

static void append_changes(const json_t *changes, ls_text *text)
{
    for (size_t i = 0; i < json_array_size(changes); i++) {
        ls_text_append(text, i == 0 ? "\nwhat would help:\n  " : "  ");
        append_text(text, json_array_get(changes, i), "text");
        ls_text_append(text, "\n");
    }
}

static ls_status run_why(const ls_invocation *invocation)
{
    const why_settings *settings = invocation->settings;
    uint64_t job = 0;
    json_t *why = NULL;
    LS_TRY(ls_queue_job(invocation->words[0], &job));
    LS_TRY(ls_queue_get(&why, "/v1/jobs/%" PRIu64 "/why", job));
    if (settings->json) {
        ls_print_json(why);
    } else {
        ls_text text = {0};
        append_head(why, &text);
        append_eta(why, &text);
        append_levels(why, &text);
        append_blockers(json_object_get(why, "blockers"), invocation->arena, &text);
        append_changes(json_object_get(why, "counterfactuals"), &text);
        fputs(ls_text_string(&text), stdout);
        ls_queue_print_estimate(why, stdout);
        ls_text_release(&text);
    }
    json_decref(why);
    return LS_OK;
}

const ls_command ls_command_why = {
    .name = "why",
    LS_WORDS("JOB", 1, 1),
    .summary = "explain why a job waits and when it starts",
    .details = "Names the first obstacle: a hold, another job, the quota of its account, jobs\n"
               "that come first, too few free devices, too few devices near each other, or a\n"
               "reservation. Then lists the jobs that hold the devices and when they end (by\n"
               "their steps, their plan or their time limit), and changes that would let the job\n"
               "start sooner, each tried on a copy of the queue. For a training run with a\n"
               "prediction and a price it also says what the run is expected to cost.\n"
               "\n"
               "The JSON has job, state, stage, needed, available, blockers, eta_s,\n"
               "counterfactuals, estimate, text and more.\n"
               "\n"
               "Example:\n"
               "  lockstep why 12",
    LS_SETTINGS(why_settings, why_options),
    .run = run_why,
};
