// SPDX-License-Identifier: Apache-2.0
/* sweep show: the jobs of a sweep, which of them is the best, and why the others were stopped. */
#include "base/text.h"
#include "cli/command.h"
#include "cli/queue/queue.h"
#include "cli/table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct show_settings {
    bool json;
} show_settings;

static const ls_option show_options[] = {LS_ROW_JSON(show_settings)};

/* The first job of the last sweep of the caller. */
static ls_status last_sweep(uint64_t *job_out)
{
    json_t *answer = NULL;
    LS_TRY(ls_queue_get(&answer, "/v1/sweeps"));
    const json_t *sweeps = json_object_get(answer, "sweeps");
    const size_t count = json_array_size(sweeps);
    if (count == 0) {
        json_decref(answer);
        return ls_fail(LS_ERR_NOT_FOUND,
                       "you have no sweep yet: 'lockstep sweep --help' shows how to make one");
    }
    *job_out = (uint64_t)ls_queue_integer(json_array_get(sweeps, count - 1), "first");
    json_decref(answer);
    return LS_OK;
}

/* "sweep-12", or a job of it. */
static ls_status read_word(const char *word, uint64_t *job_out)
{
    return ls_queue_job(strncmp(word, "sweep-", 6) == 0 ? word + 6 : word, job_out);
}

static const json_t *trial_of(const json_t *trials, int64_t job)
{
    for (size_t i = 0; i < json_array_size(trials); i++) {
        if (ls_queue_integer(json_array_get(trials, i), "job") == job) {
            return json_array_get(trials, i);
        }
    }
    return NULL;
}

/* "16 jobs: 1 finished, 15 stopped" */
static void append_head(const json_t *sweep, ls_text *text)
{
    const char *state = NULL, *separator = ": ";
    const char *name = ls_queue_string(sweep, "sweep"), *title = ls_queue_string(sweep, "name");
    json_t *count = NULL, *rungs = json_object_get(sweep, "rungs");
    const int64_t steps = ls_queue_integer(sweep, "steps"), full = ls_queue_integer(sweep, "full_steps");
    ls_text_printf(text, "%s (", name ? name : "?");
    ls_text_append_printable(text, title ? title : "?", strlen(title ? title : "?"), "");
    ls_text_printf(text, "), %" PRId64 " jobs", ls_queue_integer(sweep, "jobs"));
    json_object_foreach(json_object_get(sweep, "states"), state, count)
    {
        if (json_integer_value(count) > 0) {
            ls_text_printf(text, "%s%" PRId64 " %s", separator, (int64_t)json_integer_value(count), state);
            separator = ", ";
        }
    }
    ls_text_append(text, "\n");
    if (json_array_size(rungs) > 1) {
        ls_text_append(text, "compared at step");
        for (size_t i = 0; i < json_array_size(rungs); i++) {
            ls_text_printf(text, "%s %" PRId64, i > 0 ? "," : "",
                           (int64_t)json_integer_value(json_array_get(rungs, i)));
        }
        ls_text_printf(text, "; %" PRId64 " of %" PRId64 " steps (%.0f %%)\n", steps, full,
                       full > 0 ? 100.0 * (double)steps / (double)full : 0.0);
    }
    const char *why = ls_queue_string(sweep, "text");
    if (why) {
        ls_text_append_printable(text, why, strlen(why), "");
        ls_text_append(text, "\n");
    }
}

/* Which job is the best, and whether it would be with other seeds. */
static void append_best(const json_t *sweep, ls_text *text)
{
    const json_t *best = json_object_get(sweep, "best"), *noise = json_object_get(sweep, "noise");
    const json_t *trials = json_object_get(sweep, "trials");
    if (!json_is_object(best)) {
        return;
    }
    const double lead = ls_queue_number(best, "lead"), deviation = ls_queue_number(noise, "deviation");
    ls_text_printf(text, "best: job %" PRId64 ", %s %.6g at step %" PRId64, ls_queue_integer(best, "job"),
                   ls_queue_string(sweep, "metric"), ls_queue_number(best, "result"),
                   ls_queue_integer(best, "step"));
    if (isfinite(lead)) {
        ls_text_printf(text, ", at step %" PRId64 " %.3g %s than job %" PRId64,
                       ls_queue_integer(best, "lead_step"), fabs(lead), lead < 0.0 ? "worse" : "better",
                       ls_queue_integer(best, "second"));
    }
    const char *values = ls_queue_string(trial_of(trials, ls_queue_integer(best, "job")), "values");
    ls_text_printf(text, " (%s)\n", values ? values : "");
    if (isfinite(deviation)) {
        ls_text_printf(text,
                       "between seeds of the same settings it differs by %.3g (standard deviation at step "
                       "%" PRId64 ")%s\n",
                       deviation, ls_queue_integer(noise, "step"),
                       isfinite(lead) && lead < 2.0 * deviation ? ": the best may be so by chance" : "");
    }
}

/* The furthest first, then the best. */
static int by_success(const void *a, const void *b)
{
    const json_t *x = *(const json_t *const *)a, *y = *(const json_t *const *)b;
    const size_t far_x = json_array_size(json_object_get(x, "results")),
                 far_y = json_array_size(json_object_get(y, "results"));
    const double value_x = ls_queue_number(x, "result"), value_y = ls_queue_number(y, "result");
    if (far_x != far_y) {
        return far_x < far_y ? 1 : -1;
    }
    if (isfinite(value_x) != isfinite(value_y)) {
        return isfinite(value_x) ? -1 : 1;
    }
    if (isfinite(value_x) && value_x != value_y) {
        return value_x < value_y ? -1 : 1;
    }
    return ls_queue_integer(x, "job") < ls_queue_integer(y, "job") ? -1 : 1;
}

static void append_trials(const json_t *sweep, ls_arena *arena, ls_text *text)
{
    const char *metric = ls_queue_string(sweep, "metric");
    const char *const titles[] = {
        "JOB", "STATE", "TRIAL", "STEP", metric && metric[0] == 'l' ? "LOSS" : "VAL_LOSS", "VALUES", "WHY"};
    static const bool right[] = {true, false, false, true, true, false, false};
    const json_t *trials = json_object_get(sweep, "trials");
    const size_t count = json_array_size(trials);
    ls_table table = {.titles = titles, .right = right, .columns = 7, .arena = arena};
    const json_t **sorted = ls_arena_new(arena, const json_t *, count + 1);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = json_array_get(trials, i);
    }
    qsort(sorted, count, sizeof *sorted, by_success);
    for (size_t i = 0; i < count; i++) {
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(sorted[i], "job"));
        ls_table_add(&table, ls_queue_string(sorted[i], "state"));
        ls_table_add(&table, ls_queue_string(sorted[i], "trial"));
        ls_table_printf(&table, "%" PRId64, ls_queue_integer(sorted[i], "step"));
        if (isfinite(ls_queue_number(sorted[i], "result"))) {
            ls_table_printf(&table, "%.4f", ls_queue_number(sorted[i], "result"));
        } else {
            ls_table_add(&table, NULL);
        }
        ls_table_add(&table, ls_queue_string(sorted[i], "values"));
        ls_table_add(&table, ls_queue_string(sorted[i], "why"));
    }
    ls_table_append(&table, ls_terminal_width(), text);
}

static ls_status run_show(const ls_invocation *invocation)
{
    const show_settings *settings = invocation->settings;
    uint64_t job = 0;
    json_t *sweep = NULL;
    LS_TRY(invocation->word_count > 0 ? read_word(invocation->words[0], &job) : last_sweep(&job));
    LS_TRY(ls_queue_get(&sweep, "/v1/jobs/%" PRIu64 "/sweep", job));
    if (settings->json) {
        ls_print_json(sweep);
    } else {
        ls_text text = {0};
        append_head(sweep, &text);
        append_best(sweep, &text);
        ls_text_append(&text, "\n");
        append_trials(sweep, invocation->arena, &text);
        fputs(ls_text_string(&text), stdout);
        ls_text_release(&text);
    }
    json_decref(sweep);
    return LS_OK;
}

const ls_command ls_command_sweep_show = {
    .name = "sweep show",
    LS_WORDS("[SWEEP]", 0, 1),
    .summary = "compare the jobs of a sweep",
    .details = "Lists the jobs of SWEEP with the values they try, the step they have reached,\n"
               "their loss where they were last compared, and why each trains on or was\n"
               "stopped. Names the best job, by how much it is better than the second, and,\n"
               "when the sweep tries several seeds, how much the loss differs between them.\n"
               "SWEEP is its name (sweep-12) or the number of one of its jobs; default: your\n"
               "last sweep.\n"
               "\n"
               "Example:\n"
               "  lockstep sweep show sweep-12",
    LS_SETTINGS(show_settings, show_options),
    .run = run_show,
};
